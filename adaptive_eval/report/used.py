"""What a run has used so far, counted alike by its own process and by readers of its store."""

from dataclasses import dataclass

from adaptive_eval.report.records import NO_SPENDING, Spending
from adaptive_eval.report.results import GradingCost, OtherCostRow


@dataclass(frozen=True, slots=True)
class Used:
    """What a run has used so far; displays that have no results yet show it."""

    spent: Spending = NO_SPENDING
    """Number and cost of the stored answers of the current models, graded or not, with all verdicts on them."""
    ungraded: int = 0
    """How many of them have no grade."""
    beside: tuple[OtherCostRow, ...] = ()
    """Spending that caps count besides these answers."""
    grading: GradingCost | None = None
    """The part of their cost for grades by a judge or a verifier."""
    held_seconds: float = 0.0
    """The time for which servers were held."""
    held_gpu_seconds: float = 0.0
    elapsed: float | None = None
    """None if there is no time to show."""
