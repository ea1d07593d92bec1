"""Everything that simulated runs have in common."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.run import sharing
from adaptive_eval.core import Bench, Plan
from adaptive_eval.forecast.simulated import Served
from adaptive_eval.forecast.variants import Variant
from adaptive_eval.planning import plan_on
from adaptive_eval.run.prepare import Prepared


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """What is decided about whom, and who serves; plain values, which go to other processes."""

    bench: Bench
    decisions: Decisions
    names: tuple[str, ...]
    served: Served
    seed: int
    elapsed: float = 0.0
    """Seconds that the run to be continued has been active."""
    first: NDArray[np.integer] | None = None
    """(L, M): trials that were imported, which the first look has."""

    def plan(self, variant: Variant) -> Plan:
        """The run's plan with another confidence and another budget, of whose time some has passed."""
        stopping = self.decisions.stopping.model_copy(update={"confidence": variant.confidence})
        decisions = self.decisions.model_copy(update={"stopping": stopping})
        plan = plan_on(self.bench, decisions, self.names, self.first, in_turn=bool(self.served.in_turn))
        cap = variant.budget.wall_seconds
        left = None if cap is None else max(cap - self.elapsed, np.finfo(float).tiny)
        return replace(plan, budget=replace(variant.budget, wall_seconds=left))


def decisions_of(prepared: Prepared) -> Decisions:
    """What decides, without what only a run needs: addresses and keys stay where they are."""
    return Decisions.model_construct(**{name: getattr(prepared.config, name) for name in Decisions.model_fields})


def turns(prepared: Prepared) -> Sequence[Sequence[int]]:
    """Models that are served one at a time, by their numbers."""
    return list(sharing(prepared.config.models).values())
