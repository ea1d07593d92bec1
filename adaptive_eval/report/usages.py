"""What the answers of each model have used, and traits that they share: sums over rows, each read once."""

from collections import defaultdict
from collections.abc import Sequence

from adaptive_eval.core.types import NO_COST
from adaptive_eval.report.reader import RunReader
from adaptive_eval.store import GradingUse
from adaptive_eval.store.usage import TrialUsage


class UsageBook:
    """Sums over the stored answers of a run, brought up to date whenever they are wanted.

    A row that is graded again in its place is not read again: that happens only before a start takes looks.
    """

    def __init__(self) -> None:
        self._usages: defaultdict[str, TrialUsage] = defaultdict(TrialUsage)
        self._last = 0

    def usages(self, reader: RunReader, models: Sequence[str]) -> list[TrialUsage]:
        """Copies of the sums of these models, with all that is stored now."""
        for seq, outcome, verdict in reader.placed_outcomes(self._last):
            self._last = seq
            usage = self._usages[outcome.model]
            usage.add(outcome)
            if verdict.tokens or verdict.usd or verdict.gpu_seconds:
                is_useful = outcome.category is not None
                usage.grading = usage.grading.plus(
                    GradingUse(1, verdict) if is_useful else GradingUse(0, NO_COST, 1, verdict)
                )
        copies = [self._usages[name].copy() for name in models]
        waiting = reader.awaiting_verdicts()
        for name, usage in zip(models, copies, strict=True):
            if name in waiting:
                number, cost = waiting[name]
                usage.trials += number
                usage.tokens += cost.tokens
                usage.usd += cost.usd
                usage.gpu_seconds += cost.gpu_seconds
        return copies
