"""Answers on their way to the core: counted, shown to the alarms, and told by positions instead of names."""

from adaptive_eval.core.types import Outcome
from adaptive_eval.scheduler.alarms import Alarms
from adaptive_eval.store import Roster, StoredOutcome, TrialRecord
from adaptive_eval.store.usage import TrialUsage


class Intake:
    """Takes in every answer that is on disk, from earlier starts of the run and from this one."""

    def __init__(self, roster: Roster, alarms: Alarms | None) -> None:
        self._roster, self._alarms = roster, alarms
        self.usages = [TrialUsage() for _ in roster.models]

    @property
    def total(self) -> tuple[int, int]:
        """Trials and tokens so far."""
        return sum(usage.trials for usage in self.usages), sum(usage.tokens for usage in self.usages)

    def take(self, stored: StoredOutcome) -> Outcome:
        """What the core is told of an answer."""
        model, question = self._roster.cell(stored.model, stored.question)
        self.usages[model].add(stored)
        if self._alarms is not None:
            self._alarms.add(model, question, stored)
        return stored.as_outcome(model, question)

    def take_new(self, record: TrialRecord) -> Outcome:
        """The same of an answer that has just come: the alarms may show it."""
        told = self.take(record.outcome())
        if self._alarms is not None:
            self._alarms.see(told.model, record)
        return told
