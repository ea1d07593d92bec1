"""Fit of the rubric's thresholds on the opening of a run; its answers wait for their categories until then.

The fit uses the trials of the first round of every model that has all of them: so it is a function of these answers,
whatever their order and however often the run is killed. Until then answers are stored with their signals but without a
category, and the core is not told of them. Then the thresholds are frozen as an event, in one commit with the category
of every answer that waits, and only then is the first look taken. Where servers are held, a model that is through with
its opening waits for the others this once.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import ConfigError, GraderError
from adaptive_eval.core.controller import Controller
from adaptive_eval.core.rounds import enough_answers
from adaptive_eval.core.types import Ask
from adaptive_eval.graders.frozen import fact_numbers, fit_frozen
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
    """Answers that wait for their categories, and the fit of the thresholds."""

    def __init__(self, section: RubricConfig, rubric: Rubric, roster: Roster, opening: NDArray[np.int32]) -> None:
        """`rubric` is complete if its thresholds are frozen; `opening` (L, M): the trials of the first round."""
        self._section, self._roster, self._opening = section, roster, opening
        self.rubric = rubric
        self._missing = opening.astype(np.int64)
        self._timeouts = Counter[int]()
        self._held: dict[Place, HeldTrial] = {}
        self._uncategorised: list[HeldTrial] = []
        """Trials whose categories were not returned by `take_verdicts` yet."""
        self._unplanned: set[Place] = set()
        """Held trials that no round has asked for: they are from a start with other models."""

    @classmethod
    def over(cls, roster: Roster) -> "OpeningFit":
        """A fit that is over, for rubrics with nothing to fit."""
        return cls(RubricConfig(), open_rubric(RubricConfig()), roster, np.zeros((len(roster.models), 0), np.int32))

    @property
    def is_needed(self) -> bool:
        """Whether the rubric has thresholds that its configuration does not give."""
        return bool(open_rubric(self._section).lacks)

    @property
    def is_over(self) -> bool:
        """Whether the thresholds are known."""
        return not self.rubric.lacks

    def hold(self, record: TrialRecord) -> HeldTrial:
        """Keep a trial until it has its category."""
        held = self._held[trial_place(record)] = HeldTrial.from_record(record)
        self._uncategorised.append(held)
        self.count(held.outcome)
        return held

    def take(self, record: TrialRecord, controller: Controller, *, is_asked: bool) -> Regrade | None:
        """Hold a trial, and have the core count its cost meanwhile. Returns its category if that is known and nobody
        has asked for the trial in this start: the core is told at once, as by later starts, which find it on disk."""
        held, (model, question) = self.hold(record), self._roster.cell(record.model, record.question)
        if self.is_over and not is_asked:
            return held.verdict(self.rubric)
        if not (is_asked or controller.has_issued(model, question, record.trial)):
            self._unplanned.add(trial_place(record))
            controller.spend_outside_plan(1, record.cost)
        controller.hold(model, question, record.trial, record.cost)
        return None

    def holds(self, ask: Ask) -> bool:
        """Whether the trial is stored and waits for its category."""
        held, roster = self._held, self._roster
        return bool(held) and (roster.models[ask.model], roster.questions[ask.question], ask.trial) in held

    def count(self, outcome: StoredOutcome) -> None:
        """Count a stored trial, with or without a grade, for the fit."""
        if self.is_over:
            return
        model, question = self._roster.cell(outcome.model, outcome.question)
        if outcome.trial < self._opening[model, question]:
            self._missing[model, question] -= 1
            self._timeouts[model] += outcome.timed_out

    def is_ready(self, is_gone: Callable[[int], bool]) -> bool:
        """Whether every model that is not gone has all of its opening, and the thresholds are not known yet."""
        if self.is_over:
            return False
        complete = [not self.lacks_some(model) for model in range(len(self._missing))]
        return any(complete) and all(done or is_gone(model) for model, done in enumerate(complete))

    def lacks_some(self, model: int) -> bool:
        """Whether a trial of the model's opening is missing."""
        return bool(self._missing[model].any())

    def freeze(self) -> ThresholdsFrozen:
        """Fit the thresholds; raises `ConfigError` if one cannot be fitted."""
        fitted = {self._roster.models[model] for model in self._models_to_fit()}
        trials = [
            one
            for (model, question, trial), one in sorted(self._held.items())
            if model in fitted and trial < self._opening[self._roster.cell(model, question)]
        ]
        numbers, questions = fact_numbers([one.facts for one in trials]), [one.outcome.question for one in trials]
        try:
            frozen = fit_frozen(numbers, questions, self._section.unfitted, with_medians=self._section.looks_at_lengths)
        except GraderError as error:
            raise ConfigError(MEND.format(error)) from error
        self.rubric = open_rubric(self._section, frozen)
        return frozen_event(self._section, frozen, Counter(one.outcome.model for one in trials))

    def take_verdicts(self) -> Sequence[Regrade]:
        """Return the categories of waiting trials, each once; none before the thresholds are known."""
        if not self.is_over:
            return ()
        trials, self._uncategorised = self._uncategorised, []
        return [one.verdict(self.rubric) for one in trials]

    def release(self, verdict: Regrade, controller: Controller) -> StoredOutcome | None:
        """Release a trial whose category is on disk; returns its outcome for the core, or None if it was not held."""
        place = trial_place(verdict)
        held = self._held.pop(place, None)
        if held is None:
            return None
        if place in self._unplanned:  # the core is told of it now, and counts it itself
            self._unplanned.remove(place)
            controller.spend_outside_plan(-1, held.outcome.cost.times(-1))
        return held.outcome._replace(category=verdict.category, awaits_thresholds=False)

    def fit_stored(self, store: Store) -> None:
        """Fit and categorise the stored answers of a run that asks nothing more, without incomplete models."""
        for record in store.reader.trials("ungraded"):
            if record.awaits_thresholds and record.model in self._roster.models:
                self.hold(record)
        if not self.is_over:  # all trials are read for this
            for outcome in store.reader.outcomes():
                if not outcome.awaits_thresholds and outcome.model in self._roster.models:
                    self.count(outcome)
        batch = CommitBatch()
        if self.is_ready(self.lacks_some):
            batch.events.append(self.freeze())
        batch.verdicts.extend(self.take_verdicts())
        if batch.verdicts:
            store.commit(batch)

    def _models_to_fit(self) -> list[int]:
        """The models with a complete opening, without those that mostly timed out (unless all of them did)."""
        complete = np.flatnonzero(~self._missing.any(axis=1)).tolist()
        sizes = self._opening.sum(axis=1)
        return [model for model in complete if enough_answers(self._timeouts[model], int(sizes[model]))] or complete


def trial_place(one: TrialRecord | Regrade) -> Place:
    """The model, question and trial of a record or a grade."""
    return one.model, one.question, one.trial
