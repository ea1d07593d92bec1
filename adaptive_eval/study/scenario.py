"""Scenario of simulated runs: models, servers, and plans with other budgets and confidences."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.planning import EarlierHorizon, plan_on
from adaptive_eval.config.run import ServingGroup
from adaptive_eval.core import Bench, Budget, Plan
from adaptive_eval.core.plan import NOTHING_SPENT, SpentBefore
from adaptive_eval.core.registry import RULES, make
from adaptive_eval.core.types import Cost
from adaptive_eval.record.words import deciding_rule
from adaptive_eval.study.pilot import AnswerUsage
from adaptive_eval.study.verdict_times import NO_VERDICTS, VerdictTimes
from scorio.moments import IntArray

CONFIDENCES = (0.90, 0.95, 0.99)
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
BOUNDLESS = 1e9
"""A factor that disables any cap, while trials keep their price unit."""
TINY = float(np.finfo(float).tiny)
CAPS = tuple(field.name for field in fields(Budget))


class Variant(NamedTuple):
    """A confidence and a budget to simulate."""

    confidence: float
    budget: Budget


def confidences(decisions: Decisions) -> tuple[float, ...]:
    """The confidences in the table; only the configured one if the deciding rule has no other."""
    own, rule = decisions.stopping.confidence, deciding_rule(decisions.stated())
    if rule is None or RULES.get(rule.name) is not rule:
        return (own,)
    low, high = (make(rule.make, decisions.stopping.options, {"confidence": one, "start": 0.5}) for one in (0.8, 0.9))
    return (own,) if low == high else tuple(sorted({own, *CONFIDENCES}))


def scaled(budget: Budget, factor: float) -> Budget:
    """The budget with every cap multiplied by the factor."""
    return Budget(
        trials=None if budget.trials is None else max(round(budget.trials * factor), 1),
        tokens=None if budget.tokens is None else max(round(budget.tokens * factor), 1),
        usd=None if budget.usd is None else budget.usd * factor,
        gpu_seconds=None if budget.gpu_seconds is None else budget.gpu_seconds * factor,
        wall_seconds=None if budget.wall_seconds is None else budget.wall_seconds * factor,
    )


def only_trials(budget: Budget) -> bool:
    """Whether there is no cap on anything but trials."""
    return all(getattr(budget, name) is None for name in CAPS if name != "trials")


def covers_everything(budget: Budget, bench: Bench, most_trials: int) -> bool:
    """Whether no cap could be reached even by the maximum of trials for every model, each at its worst."""
    each = bench.questions * most_trials
    worst = (1.0 * bench.models, *map(sum, zip(*bench.worst_cost, strict=True)))
    caps = (budget.trials, budget.tokens, budget.usd, budget.gpu_seconds)
    enough = all(cap is None or cap >= each * cost for cap, cost in zip(caps, worst, strict=True))
    # no GPU time is reserved for launched servers, since it is unknown how long they will be held
    measured = budget.gpu_seconds is not None and any(cost.gpu_seconds == 0.0 for cost in bench.worst_cost)
    return enough and budget.wall_seconds is None and not measured


class ServiceCosts(NamedTuple):
    """Times and costs of trials, the same in every simulated run."""

    usage: AnswerUsage
    costs: Sequence[Sequence[Cost]]
    """Costs by model and category."""
    slots: Sequence[int]
    """Requests at a time, by model."""
    recorded: IntArray | None = None
    """(L, M, N): categories of the run's existing trials, -1 for none; they take no more time."""
    in_turn: Sequence[ServingGroup] = ()
    """Models that share places, each serving one at a time."""
    swap_seconds: float = 0.0
    """Seconds to load another model of a group."""
    wake_seconds: float | None = None
    """Seconds to wake a model that sleeps at its place; None: it does not sleep."""
    overlap: bool = False
    """Whether places have memory for another model while the last answers of one arrive."""
    batched: Sequence[int] = ()
    """Models that are asked through batch services."""
    verdicts: VerdictTimes = NO_VERDICTS
    """Times of the verdicts of a judge or a verifier."""


class AnswersBefore(NamedTuple):
    """Greedy answers before the run itself: existing ones at their cost, and future ones at their expected cost."""

    trials: int = 0
    tokens: float = 0.0
    usd: float = 0.0
    gpu_seconds: float = 0.0
    to_come: float = 0.0
    """Seconds for future answers; nan if the time of answers is unknown."""
    there: SpentBefore = NOTHING_SPENT
    """Existing answers, with their cost."""


NOTHING_BEFORE = AnswersBefore()


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """Models, decisions and servers of the simulated runs, as plain values that can be sent to other processes."""

    bench: Bench
    decisions: Decisions
    names: tuple[str, ...]
    served: ServiceCosts
    seed: int
    elapsed: float = 0.0
    """Seconds that the continued run has been active."""
    first: NDArray[np.integer] | None = None
    """(L, M): imported trials, which are part of the first look."""
    horizons: Sequence[EarlierHorizon] = ()
    """Earlier horizons of the continued run, which determine each comparison's remaining error."""
    capped_opening: bool | None = None
    """Whether caps cut the first round of the continued run; None before its first look."""
    before: AnswersBefore = NOTHING_BEFORE
    """Answers before the first round, which count against the caps."""

    def left(self, budget: Budget) -> Budget:
        """The caps minus what the answers before the first round use."""
        first = self.before
        return replace(
            budget,
            trials=None if budget.trials is None else max(budget.trials - first.trials, 1),
            tokens=None if budget.tokens is None else max(budget.tokens - round(first.tokens), 1),
            usd=None if budget.usd is None else max(budget.usd - first.usd, TINY),
            gpu_seconds=None if budget.gpu_seconds is None else max(budget.gpu_seconds - first.gpu_seconds, TINY),
            wall_seconds=None if budget.wall_seconds is None else max(budget.wall_seconds - first.to_come, TINY),
        )

    @property
    def most_trials(self) -> int:
        """The maximum of trials for every model, plus earlier answers."""
        asked = int(self.bench.asked.sum()) * self.bench.questions
        return asked * self.decisions.trials.max + self.before.trials

    def plan(self, variant: Variant) -> Plan:
        """The run's plan with this confidence and budget, minus the time that has passed."""
        stopping = self.decisions.stopping.model_copy(update={"confidence": variant.confidence})
        decisions = self.decisions.model_copy(update={"stopping": stopping})
        budget = self.left(variant.budget)
        plan = plan_on(
            self.bench,
            decisions,
            self.names,
            self.first,
            batched=bool(self.served.batched),
            horizons=self.horizons,
            budget=budget,
            capped_opening=self.capped_opening,
        )
        cap = budget.wall_seconds
        left = None if cap is None else max(cap - self.elapsed, TINY)
        return replace(plan, budget=replace(budget, wall_seconds=left))
