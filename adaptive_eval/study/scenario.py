"""Scenario of simulated runs: models, servers, and plans with and without caps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import numpy as np

from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.planning import NO_FACTS, RunFacts, plan_on
from adaptive_eval.config.run import ServingGroup
from adaptive_eval.core import Bench, Budget, Plan
from adaptive_eval.core.types import Cost
from adaptive_eval.study.pilot import AnswerUsage
from adaptive_eval.study.timed import Timeline
from scorio.moments import FloatArray, IntArray

UNCAPPED_FACTOR = 10**9
"""A factor that disables any cap."""
TINY = float(np.finfo(float).tiny)
CAPS = tuple(cap.name for cap in fields(Budget))


def uncapped(budget: Budget) -> Budget:
    """The budget with caps that no run reaches: without the cap that sets it, trials would have another price unit."""
    caps = {name: cap * UNCAPPED_FACTOR for name in CAPS if (cap := getattr(budget, name)) is not None}
    return replace(budget, **{**caps, "trials": None})


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
    """Seconds to start a server, or to load another model of a group."""
    wake_seconds: float | None = None
    """Seconds to wake a model that sleeps at its place; None: it does not sleep."""
    launched: Mapping[int, float] = {}
    """GPUs of models whose servers the run starts: caps count them while they are held, others while they answer."""
    grade_gpu_seconds: float = 0.0
    """The part of each of the `costs` that a grade takes."""

    def price(self, counts: IntArray | FloatArray) -> tuple[float, float, float]:
        """Tokens, USD and GPU seconds of counts (L, K), without those of servers that are held."""
        costs = np.array(self.costs, dtype=float)
        costs[list(self.launched), :, -1] = self.grade_gpu_seconds
        tokens, usd, gpu_seconds = np.einsum("lk,lkc->c", counts, costs).tolist()
        return tokens, usd, gpu_seconds

    def held_gpu_seconds(self, timeline: Timeline | None, until: float = math.inf) -> float:
        """GPU seconds until then for which the run's servers are held; nan if the run was not timed."""
        if not self.launched or timeline is None:
            return math.nan if self.launched else 0.0
        held = timeline.held_seconds(self.swap_seconds, until)
        return float(sum(gpus * held[model] for model, gpus in self.launched.items()))


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """Models, decisions and servers of the simulated runs, as plain values."""

    bench: Bench
    decisions: Decisions
    names: tuple[str, ...]
    served: ServiceCosts
    seed: int
    elapsed: float = 0.0
    """Seconds that the continued run has been active."""
    held_before: float = 0.0
    """GPU seconds for which the continued run has held its servers."""
    spent_beside: Mapping[str, float] = field(default_factory=dict)
    """What the continued run has spent besides the answers of these models, by cap."""
    facts: RunFacts = NO_FACTS
    """Facts about the run for its plan, except the budget."""

    def plan(self, budget: Budget) -> Plan:
        """The run's plan with this budget, minus the time that has passed and what was spent besides."""
        spent = {"wall_seconds": self.elapsed, "held_gpu_seconds": self.held_before, **self.spent_beside}
        caps_left = {name: max(cap - used, TINY) for name, used in spent.items() if (cap := getattr(budget, name))}
        facts = self.facts._replace(budget=replace(budget, **caps_left))
        return plan_on(self.bench, self.decisions, self.names, facts)
