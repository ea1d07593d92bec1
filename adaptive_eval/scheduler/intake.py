"""Answers on their way to the core: counted, shown to the alarms, and told by positions instead of names."""

from collections.abc import Mapping

from adaptive_eval.core.types import Outcome
from adaptive_eval.graders.asked import spent_in
from adaptive_eval.scheduler.alarms import Alarms
from adaptive_eval.store import Roster, StoredOutcome, TrialRecord, VerdictsWasted
from adaptive_eval.store.records import NO_GRADING, GradingUse, wasted_use
from adaptive_eval.store.usage import TrialUsage


class Intake:
    """Takes in every answer that is on disk, from earlier starts of the run and from this one."""

    def __init__(self, roster: Roster, alarms: Alarms | None) -> None:
        self._roster, self._alarms = roster, alarms
        self.usages = [TrialUsage() for _ in roster.models]
        if alarms is not None:
            alarms.follow(self.usages)

    @property
    def total(self) -> tuple[int, int]:
        """Trials and tokens so far."""
        return sum(usage.trials for usage in self.usages), sum(usage.tokens for usage in self.usages)

    def take(self, stored: StoredOutcome) -> Outcome:
        """What the core is told of an answer."""
        model, question = self._roster.cell(stored.model, stored.question)
        self.usages[model].spend(stored)
        return self._judged(model, question, stored)

    def spend(self, stored: StoredOutcome) -> None:
        """Count what an answer has used."""
        self.usages[self._roster.models.position_of(stored.model)].spend(stored)

    def judge(self, stored: StoredOutcome) -> Outcome:
        """What the core is told of an answer that is counted, and has its category now."""
        return self._judged(*self._roster.cell(stored.model, stored.question), stored)

    def _judged(self, model: int, question: int, stored: StoredOutcome) -> Outcome:
        if self._alarms is not None:
            self._alarms.add(model, question, stored)
        self.usages[model].judge(stored)
        return stored.as_outcome(model, question)

    def take_new(self, record: TrialRecord) -> Outcome:
        """What the core is told of an answer that has just come, which the alarms may show."""
        self.see(record)
        self._hear_grade(record)
        return self.take(record.outcome())

    def hold(self, record: TrialRecord) -> None:
        """An answer that has just come, and has no category yet."""
        self.see(record)
        self._hear_grade(record)
        self.spend(record.outcome())

    def restore_grading(self, uses: Mapping[str, GradingUse]) -> None:
        """What the grades of earlier starts have used, by model."""
        for model, usage in zip(self._roster.models, self.usages, strict=True):
            usage.grading = uses.get(model, NO_GRADING)

    def _hear_grade(self, record: TrialRecord) -> None:
        """Count what an answer's grade has used."""
        if (cost := spent_in(record.signals)) is not None:
            usage = self.usages[self._roster.models.position_of(record.model)]
            usage.grading = usage.grading.plus(GradingUse(1, cost))

    def hear_wasted(self, event: VerdictsWasted) -> None:
        """Count what was used for no grade."""
        usage = self.usages[self._roster.models.position_of(event.model)]
        usage.grading = usage.grading.plus(wasted_use(event))

    def see(self, record: TrialRecord) -> None:
        """Let the alarms keep an answer as an example."""
        if self._alarms is not None and record.trial == 0:
            self._alarms.see(self._roster.models.position_of(record.model), record)
