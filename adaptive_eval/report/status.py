"""Current state of a run, as plain values for all displays."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

from adaptive_eval.core.settings import Budget
from adaptive_eval.core.types import Verdict
from adaptive_eval.machine.usage import AnswerFault
from adaptive_eval.report.finding import Clause, count_states, finding, model_clauses
from adaptive_eval.report.records import Spending
from adaptive_eval.report.results import BatchRow, GateRow, GradingCost, ModelRow, OtherCostRow, Results


class Standing(NamedTuple):
    """One model in the ranking."""

    row: ModelRow
    clauses: tuple[Clause, ...] = ()
    """Its relations to others, undecided ones first; empty if no comparison involves it."""

    @property
    def verdict(self) -> str:
        """These relations in words."""
        return ", ".join(map(str, self.clauses))


def standings(results: Results) -> tuple[Standing, ...]:
    """The ranking, best model first."""
    return tuple(Standing(row, tuple(model_clauses(results, row))) for row in results.models)


@dataclass(frozen=True, slots=True)
class Used:
    """What a run has used so far, counted alike by its own process and by readers of its store."""

    spent: Spending = Spending()
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
    counted_gpu_seconds: float = 0.0
    """GPU seconds under a cap, with those `beside`."""


@dataclass(frozen=True, slots=True)
class Cap:
    """A cap of the budget, with what was used of it."""

    name: str
    used: float
    cap: float


@dataclass(frozen=True, slots=True)
class CurrentTraffic:
    """Requests at all servers; None: known to the run's process alone."""

    in_flight: int | None
    retries: int
    errors: int | None
    healthy_replicas: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Status:
    """State of a run at one moment."""

    looks: int
    results: Results | None
    """Of the latest look, as a run in progress has them, and without warnings; None before the first look."""
    caps: tuple[Cap, ...]
    traffic: CurrentTraffic
    used: Used
    new_trials: int
    """Trials committed in this start."""
    new_tokens: int
    elapsed: float
    promise: str | None = None
    """Error rate promised for each call, in one line."""
    batches: tuple[BatchRow, ...] = ()
    """Pending batches."""

    @property
    def standings(self) -> tuple[Standing, ...]:
        """The ranking, best model first; empty before the first look."""
        return () if self.results is None else standings(self.results)

    @property
    def verdicts(self) -> Counter[Verdict]:
        """Number of comparisons by verdict."""
        return Counter(Verdict(pair.verdict) for pair in (() if self.results is None else self.results.pairs))

    @property
    def gate(self) -> tuple[GateRow, ...]:
        """The gate's outcome for each model."""
        return () if self.results is None else self.results.gate

    @property
    def finding(self) -> tuple[str, ...]:
        """Finding of the latest look, in sentences."""
        return () if self.results is None else finding(self.results)

    @property
    def trials_to_go(self) -> float | None:
        """Estimate of the trials that open comparisons still need; None before the first look."""
        return None if self.results is None else self.results.trials_to_go

    @property
    def states(self) -> str:
        """Number of comparisons in each state, in words."""
        return count_states([row.outcome for row in self.gate] or self.verdicts.elements())

    @property
    def is_blocked(self) -> bool:
        """Whether verdicts of looks do not stand: an alarm lets none be decided."""
        return set(self.verdicts) == {Verdict.BLOCKED}

    @property
    def judged(self) -> int:
        """Trials that looks have judged, which the scores are computed from."""
        rows = () if self.results is None else self.results.models
        return sum(row.trials for row in rows if row.recorded is None)


def results_in_progress(results: Results) -> Results:
    """Results as a run in progress shows them."""
    about_repeats = (AnswerFault.REPEATED, "repeats_count")
    repeated = tuple(warning for warning in results.warnings if warning.kind in about_repeats)
    return replace(results, run=replace(results.run, status="running", reason=None), warnings=repeated)


def used_caps(budget: Budget, used: Used, elapsed: float) -> tuple[Cap, ...]:
    """Caps of the budget with what was used of them."""
    rows = (used.spent, *used.beside)
    spent = {name: sum(getattr(row, name) for row in rows) for name in ("trials", "tokens", "usd")}
    spent |= {"gpu_seconds": used.counted_gpu_seconds, "wall_seconds": elapsed}
    return tuple(Cap(name, spent[name], cap) for name in spent if (cap := getattr(budget, name)) is not None)
