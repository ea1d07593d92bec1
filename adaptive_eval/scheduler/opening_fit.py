"""Thresholds that are fitted on the opening of a run: its answers wait for their categories until all of it is there.

What the fit rests on are the trials of the first round, by their numbers, of every model that has all of its own: so it
is a function of these answers, whatever comes first and however often the run is killed. Until then answers are stored
with their signals and without a category, and the core is not told of them. Then the thresholds are frozen as an event,
in one commit with the category of every answer that waits, and only then is the first look taken. Where servers are
held, a model that is through with its opening waits for the others this once.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.rounds import enough_answers
from adaptive_eval.errors import ConfigError, GraderError
from adaptive_eval.graders.frozen import FactColumns, fit_frozen
from adaptive_eval.graders.rubric import Rubric, RubricConfig, open_rubric
from adaptive_eval.store import CommitBatch, Regrade, Roster, Store, StoredOutcome, ThresholdsFrozen, TrialRecord
from adaptive_eval.store.thresholds import HeldTrial, frozen_event

Place = tuple[str, str, int]
"""Model, question and trial."""
MEND = (
    "{}; raise trials.min and run the same command, or give the number under rubric.thresholds in a configuration for "
    "`adaptive-eval regrade RUN --config CONFIG`"
)


class OpeningFit:
    """The answers that wait, and the fit that ends it."""

    def __init__(self, section: RubricConfig, rubric: Rubric, roster: Roster, opening: NDArray[np.int32]) -> None:
        """`rubric` is complete where its thresholds were frozen before; `opening` (L, M) has the trials of the first
        round."""
        self._section, self._roster, self._opening = section, roster, opening
        self.rubric = rubric
        self._missing = opening.astype(np.int64)
        self._late = Counter[int]()
        self._held: dict[Place, HeldTrial] = {}
        self._uncategorised: list[Place] = []
        """Held trials whose categories were not given yet."""
        self.unplanned: set[Place] = set()
        """Held trials that no round has asked for: of a start with other models."""

    @property
    def is_over(self) -> bool:
        """Whether the thresholds are known."""
        return not self.rubric.lacks

    def hold(self, record: TrialRecord) -> None:
        """Have a trial wait for its category."""
        held = self._held[place_of(record)] = HeldTrial.from_record(record)
        self._uncategorised.append(place_of(record))
        self.count(held.outcome)

    def has(self, place: Place) -> bool:
        """A trial waits here for its category."""
        return place in self._held

    def count(self, outcome: StoredOutcome) -> None:
        """Count a trial that is there, with or without a grade."""
        model, question = self._roster.cell(outcome.model, outcome.question)
        if outcome.trial < self._opening[model, question]:
            self._missing[model, question] -= 1
            self._late[model] += outcome.timed_out

    def is_ready(self, is_gone: Callable[[int], bool]) -> bool:
        """Every model that is not gone has all of its opening, and the thresholds are not known yet."""
        if self.is_over:
            return False
        whole = [not self.lacks_some(model) for model in range(len(self._missing))]
        return any(whole) and all(done or is_gone(model) for model, done in enumerate(whole))

    def lacks_some(self, model: int) -> bool:
        """A model does not have all of its opening."""
        return bool(self._missing[model].any())

    def freeze(self) -> ThresholdsFrozen:
        """Fit the thresholds; `ConfigError` says which cannot be, and what to do."""
        at_work = {self._roster.models[model] for model in self._whole()}
        trials = [
            one
            for (model, question, trial), one in sorted(self._held.items())
            if model in at_work and trial < self._opening[self._roster.cell(model, question)]
        ]
        columns, questions = FactColumns([one.facts for one in trials]), [one.outcome.question for one in trials]
        try:
            frozen = fit_frozen(columns, questions, self._section.unfitted, with_medians=self._section.looks_at_lengths)
        except GraderError as error:
            raise ConfigError(MEND.format(error)) from error
        self.rubric = open_rubric(self._section, frozen)
        return frozen_event(self._section, frozen, Counter(one.outcome.model for one in trials))

    def take_verdicts(self) -> Sequence[Regrade]:
        """The categories of trials that wait, each given once; none before the thresholds are known."""
        if not self.is_over:
            return ()
        places, self._uncategorised = self._uncategorised, []
        return [self._held[place].verdict(self.rubric) for place in places]

    def settle(self, verdict: Regrade) -> StoredOutcome | None:
        """A trial that has its category on disk; None where it did not wait here."""
        held = self._held.pop(place_of(verdict), None)
        return None if held is None else held.outcome._replace(category=verdict.category, awaits_thresholds=False)

    def fit_stored(self, store: Store) -> None:
        """End the wait in a run that asks for nothing more, without the models that lack something."""
        for record in store.reader.trials("ungraded"):
            if record.awaits_thresholds and record.model in self._roster.models:
                self.hold(record)
        if not self.is_over:
            for outcome in store.reader.outcomes():
                if not outcome.awaits_thresholds and outcome.model in self._roster.models:
                    self.count(outcome)
        events = [self.freeze()] if self.is_ready(self.lacks_some) else []
        if verdicts := self.take_verdicts():
            store.commit(CommitBatch(events=events, verdicts=verdicts))

    def _whole(self) -> list[int]:
        """The models with all of their opening, without those that hardly answered, unless all did."""
        whole = np.flatnonzero(~self._missing.any(axis=1)).tolist()
        sizes = self._opening.sum(axis=1)
        return [model for model in whole if enough_answers(self._late[model], int(sizes[model]))] or whole


def place_of(one: TrialRecord | Regrade) -> Place:
    """The trial of a record or a grade."""
    return one.model, one.question, one.trial
