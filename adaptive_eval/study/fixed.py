"""The fixed design for comparison: the maximum of trials for every model, and the time that servers need for it.

All its trials are there from the start, so every slot is busy until none is waiting. Its time is therefore work divided
by slots, except for the last few answers of every slot; only those are simulated. Places that models share all work to
the end, the last of them as further replicas.
"""

from collections.abc import Sequence

import numpy as np

from adaptive_eval.study.scenario import Scenario
from adaptive_eval.study.servers import SimulatedHost, TrialLoad
from adaptive_eval.study.simulated import SimulatedRun
from scorio.moments import FloatArray

LAST = 8
"""Last answers of each slot, which are simulated."""


def fixed_seconds(scenario: Scenario, counts: FloatArray) -> float | None:
    """Seconds for `counts` (L, K) answers of each model and category; None if unknown, or if some are stored
    already."""
    served = scenario.served
    if not served.usage.knows_seconds or served.recorded is not None:
        return None
    rng = np.random.default_rng([scenario.seed, 2])
    alone = [_model_seconds(scenario, model, own, rng) if own.any() else 0.0 for model, own in enumerate(counts)]
    turned = {model for group in served.in_turn for model in group.models}
    own = [seconds for model, seconds in enumerate(alone) if model not in turned]
    shared = (
        sum(alone[model] + served.swap_seconds for model in group.models) / len(group.places)
        for group in served.in_turn
    )
    answers = float(counts.sum())
    return served.verdicts.all_judged(max([*own, *shared]), float(np.min(served.usage.seconds)), answers)


def _model_seconds(scenario: Scenario, model: int, counts: FloatArray, rng: np.random.Generator) -> float:
    """Seconds from a model's first answer to its last."""
    usage, slots, trials = scenario.served.usage, scenario.served.slots[model], float(counts.sum())
    last = min(LAST * slots, round(trials))
    spread = usage.log_spread[model]
    means = usage.seconds[model][rng.choice(len(counts), last, p=counts / trials)]
    load = TrialLoad(model, means * np.exp(spread * rng.standard_normal(last) - spread**2 / 2.0))
    SimulatedHost((model,), slots).issue(load, 0.0)
    return float(counts @ usage.seconds[model]) * (1.0 - last / trials) / slots + load.end


def times_as_long(runs: Sequence[SimulatedRun], fixed: float | None) -> float | None:
    """Median time of the timed runs, relative to the fixed design; None if unknown."""
    if fixed is None or not fixed > 0.0:
        return None
    return float(np.nanmedian([run.seconds for run in runs])) / fixed
