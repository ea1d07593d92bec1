"""Thresholds that are fitted on the opening of a run: its answers wait for their categories until all of it is there.

What the fit rests on are the trials of the first round, by their numbers, of every model that has all of its own: so it
is a function of these answers, whatever comes first and however often the run is killed. Until then answers are stored
with their signals and without a category, and the core is not told of them. Then the thresholds are frozen as an event,
in one commit with the category of every answer that waits, and only then is the first look taken. Where servers are
held, a model that is through with its opening waits for the others this once.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.rounds import enough_answers
from adaptive_eval.core.types import Ask
from adaptive_eval.errors import ConfigError, GraderError
from adaptive_eval.graders.categorised import categorised
from adaptive_eval.graders.frozen import FactColumns, Facts, FrozenThresholds, fit_frozen
from adaptive_eval.graders.rubric import Rubric, RubricConfig, open_rubric
from adaptive_eval.graders.types import answer_facts
from adaptive_eval.store import CommitBatch, Regrade, Roster, Store, StoredOutcome, ThresholdsFrozen, TrialRecord

Place = tuple[str, str, int]
"""Model, question and trial."""
MEND = (
    "{}; raise trials.min and run the same command, or give the number under rubric.thresholds in a configuration for "
    "`adaptive-eval regrade RUN --config CONFIG`"
)


class HeldTrial(NamedTuple):
    """A trial that waits for its category."""

    outcome: StoredOutcome
    facts: Facts
    """Everything that a rubric could go by."""
    signals: Facts
    """Of these, what is stored with the trial."""
    extracted: str | None

    @classmethod
    def of(cls, record: TrialRecord) -> "HeldTrial":
        """Without its texts, which are long."""
        facts = {**answer_facts(record.answer), **record.signals}
        return cls(record.outcome(), facts, record.signals, record.extracted)

    def verdict(self, rubric: Rubric) -> Regrade:
        """The grade of the trial by this rubric."""
        at = self.outcome[:3]
        try:
            found = categorised(self.facts, rubric, self.outcome.question)
        except GraderError as error:
            return Regrade(*at, None, self.signals, self.extracted, str(error))
        return Regrade(*at, found.category, {**self.signals, **found.measured}, self.extracted, None)


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
        self._known: set[Place] = set()
        """Places of held trials that the core has asked for."""
        self._asked = Counter[int]()

    @property
    def over(self) -> bool:
        """Whether the thresholds are known."""
        return not self.rubric.lacks

    def hold(self, record: TrialRecord, *, asked: bool) -> None:
        """A trial waits for its category; `asked`: the core knows that it is on its way."""
        held = self._held[place_of(record)] = HeldTrial.of(record)
        if asked:
            self._know(place_of(record))
        self.count(held.outcome)

    def count(self, outcome: StoredOutcome) -> None:
        """A trial is there, with or without a grade."""
        model, question = self._roster.cell(outcome.model, outcome.question)
        if outcome.trial < self._opening[model, question]:
            self._missing[model, question] -= 1
            self._late[model] += outcome.timed_out

    def is_here(self, ask: Ask) -> bool:
        """The core asks for a trial that waits here: nobody has to be asked for it."""
        place = (self._roster.models.name_of(ask.model), self._roster.questions.name_of(ask.question), ask.trial)
        if place not in self._held:
            return False
        self._know(place)
        return True

    def asked(self, model: int) -> int:
        """Trials of a model that the core has asked for, and that wait here."""
        return self._asked[model]

    def _know(self, place: Place) -> None:
        self._known.add(place)
        self._asked[self._roster.models.position_of(place[0])] += 1

    def ready(self, gone: Callable[[int], bool]) -> bool:
        """Every model that is not `gone` has all of its opening, and the thresholds are not known yet."""
        whole = [not self.lacks_some(model) for model in range(len(self._missing))]
        return not self.over and any(whole) and all(done or gone(model) for model, done in enumerate(whole))

    def lacks_some(self, model: int) -> bool:
        """A model does not have all of its opening."""
        return bool(self._missing[model].any())

    def freeze(self) -> ThresholdsFrozen:
        """Fit the thresholds; `ConfigError` says which cannot be, and what to do."""
        at_work = {self._roster.models.name_of(model) for model in self._whole()}
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

    def verdicts(self) -> Iterator[Regrade]:
        """The grade of every trial that waits."""
        return (one.verdict(self.rubric) for one in self._held.values())

    def verdict_on(self, record: TrialRecord) -> Regrade:
        """The grade of a trial that came after the thresholds were fitted."""
        return self._held[place_of(record)].verdict(self.rubric)

    def settle(self, verdict: Regrade) -> StoredOutcome | None:
        """A trial that has its category on disk; None where it did not wait here."""
        place = place_of(verdict)
        held = self._held.pop(place, None)
        if held is None:
            return None
        if place in self._known:
            self._known.remove(place)
            self._asked[self._roster.models.position_of(verdict.model)] -= 1
        return held.outcome._replace(category=verdict.category, awaits=False)

    def restore(self, store: Store) -> ThresholdsFrozen | None:
        """Take up what earlier starts have stored, and end the wait where all of it is there."""
        for record in store.reader.trials("ungraded"):
            if record.awaits and record.model in self._roster.models:
                self.hold(record, asked=False)
        if not self.over:
            for outcome in store.reader.outcomes():
                if not outcome.awaits and outcome.model in self._roster.models:
                    self.count(outcome)
        return self._end(store, lambda model: False)

    def end_with_those_there(self, store: Store) -> ThresholdsFrozen | None:
        """`restore` where no more will be asked for: without the models that lack something."""
        return self.restore(store) or self._end(store, self.lacks_some)

    def _end(self, store: Store, gone: Callable[[int], bool]) -> ThresholdsFrozen | None:
        event = self.freeze() if self.ready(gone) else None
        if self.over and self._held:
            verdicts = list(self.verdicts())
            store.commit(CommitBatch(events=[] if event is None else [event], verdicts=verdicts))
            for verdict in verdicts:
                self.settle(verdict)
        return event

    def _whole(self) -> list[int]:
        """The models with all of their opening, without those that hardly answered, unless all did."""
        whole = np.flatnonzero(~self._missing.any(axis=1)).tolist()
        sizes = self._opening.sum(axis=1)
        return [model for model in whole if enough_answers(self._late[model], int(sizes[model]))] or whole


def frozen_event(
    section: RubricConfig, frozen: FrozenThresholds, models: Counter[str], run: str | None = None
) -> ThresholdsFrozen:
    """What a run keeps of thresholds that were fitted."""
    told = section.model_dump(mode="json", exclude_defaults=True)
    return ThresholdsFrozen(told, run, frozen.values, frozen.rest_on, frozen.medians, dict(models))


def place_of(one: TrialRecord | Regrade) -> Place:
    """Which trial a record or a grade is of."""
    return one.model, one.question, one.trial
