"""Which plans are simulated: the run's own, and the same with other budgets and other confidences."""

from dataclasses import fields
from typing import NamedTuple

from adaptive_eval.config.decisions import Decisions
from adaptive_eval.core import Bench, Budget

CONFIDENCES = (0.90, 0.95, 0.99)
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
BOUNDLESS = 1e9
"""A factor that makes any cap as good as none, and leaves what trials are priced in as it was."""
CAPS = tuple(field.name for field in fields(Budget))


class Variant(NamedTuple):
    """What is varied."""

    confidence: float
    budget: Budget


def confidences(decisions: Decisions) -> tuple[float, ...]:
    """Those of the table: only the configured one where the rule knows no other."""
    stopping, own = decisions.stopping, decisions.stopping.confidence
    varies = stopping.rule in ("sequential", "anytime", "intervals") or (
        stopping.rule == "zscore" and stopping.threshold is None
    )
    if not varies or decisions.objective.kind == "precision":
        return (own,)
    return tuple(sorted({own, *CONFIDENCES}))


def scaled(budget: Budget, factor: float) -> Budget:
    """Every cap times the factor."""
    return Budget(
        trials=None if budget.trials is None else max(round(budget.trials * factor), 1),
        tokens=None if budget.tokens is None else max(round(budget.tokens * factor), 1),
        usd=None if budget.usd is None else budget.usd * factor,
        gpu_seconds=None if budget.gpu_seconds is None else budget.gpu_seconds * factor,
        wall_seconds=None if budget.wall_seconds is None else budget.wall_seconds * factor,
    )


def is_capped(budget: Budget) -> bool:
    """Whether anything is capped."""
    return any(getattr(budget, name) is not None for name in CAPS)


def covers_everything(budget: Budget, bench: Bench, most_trials: int) -> bool:
    """Whether no cap could hold back even the maximum of trials for everyone, each at its worst."""
    each = bench.questions * most_trials
    worst = (1.0 * bench.models, *map(sum, zip(*bench.worst_cost, strict=True)))
    caps = (budget.trials, budget.tokens, budget.usd, budget.gpu_seconds)
    enough = all(cap is None or cap >= each * cost for cap, cost in zip(caps, worst, strict=True))
    return enough and budget.wall_seconds is None
