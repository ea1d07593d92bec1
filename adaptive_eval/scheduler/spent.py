"""Usage of each model's answers, graded and lost, over all starts of a run."""

from adaptive_eval.core.account import trial_reserve
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.graders.asked import cost_from_signals
from adaptive_eval.store import StoredOutcome, TrialRecord
from adaptive_eval.store.records import GradingUse
from adaptive_eval.store.spending import mean_cost
from adaptive_eval.store.usage import TrialUsage


class SpentByModel:
    """Usage of each model, over all starts."""

    def __init__(self, models: int) -> None:
        self.usages = [TrialUsage() for _ in range(models)]
        self.lost_gpu_seconds = [0.0] * models
        """Of requests that were lost."""
        self._largest = [NO_COST] * models
        """The largest tokens, USD and GPU seconds of an answer."""

    def spend(self, model: int, outcome: StoredOutcome) -> None:
        """Count the usage of an answer."""
        self.usages[model].spend(outcome)
        cost, largest = outcome.cost, self._largest[model]
        if cost.tokens > largest.tokens or cost.usd > largest.usd or cost.gpu_seconds > largest.gpu_seconds:
            self._largest[model] = Cost(
                max(largest.tokens, cost.tokens), max(largest.usd, cost.usd), max(largest.gpu_seconds, cost.gpu_seconds)
            )

    def worst_cost(self, model: int, worst: Cost) -> Cost:
        """The `worst` cost of an answer, or what is reserved for it if that is unbounded."""
        return trial_reserve(worst, self._largest[model])

    def mean_cost(self, model: int) -> Cost:
        """The mean cost of the model's answers, or of all if it has none."""
        return mean_cost(model, list(enumerate(self.usages)), {at: one.grading for at, one in enumerate(self.usages)})

    def count_verdict(self, model: int, record: TrialRecord) -> None:
        """Count what a judge has used for the grade of this answer, if one has graded it."""
        if (cost := cost_from_signals(record.signals)) is not None:
            self.count_grading(model, GradingUse(1, cost))

    def count_grading(self, model: int, use: GradingUse) -> None:
        """Count what grades have used."""
        self.usages[model].grading = self.usages[model].grading.plus(use)

    @property
    def total(self) -> tuple[int, int]:
        """Trials and tokens so far."""
        return sum(usage.trials for usage in self.usages), sum(usage.tokens for usage in self.usages)
