"""The time of the fixed design, for comparison: N trials of every question by every model.

All its trials are there from the start, so every slot is busy until none is waiting. Its time is therefore work divided
by slots, except for the last few answers of every slot; only those are simulated. Places that models share all work to
the end, the last of them as further replicas.
"""

import numpy as np

from adaptive_eval.study.scenario import Scenario
from adaptive_eval.study.servers import SimulatedHost, TrialLoad
from scorio.moments import FloatArray

TAIL_ANSWERS = 8
"""Last answers of each slot, which are simulated."""


def fixed_seconds(scenario: Scenario, counts: FloatArray) -> float | None:
    """Seconds for `counts` (L, K) answers of each model and category; None if unknown, or if some are stored."""
    served = scenario.served
    if not served.usage.knows_seconds or served.recorded is not None:
        return None
    seconds_alone = _seconds_alone(scenario, counts)
    taking_turns = {model for group in served.in_turn for model in group.models}
    unshared = [seconds for model, seconds in enumerate(seconds_alone) if model not in taking_turns]
    shared = (sum(seconds_alone[model] for model in group.models) / len(group.places) for group in served.in_turn)
    answers = float(counts.sum())
    return served.verdicts.last_verdict(max([*unshared, *shared]), float(np.min(served.usage.seconds)), answers)


def fixed_held(scenario: Scenario, counts: FloatArray) -> float:
    """GPU seconds for which the run's servers are held for `counts` (L, K); 0 if times are unknown."""
    launched = scenario.served.launched
    if not launched or not scenario.served.usage.knows_seconds:
        return 0.0
    seconds_alone = _seconds_alone(scenario, counts)
    return float(sum(gpus * seconds_alone[model] for model, gpus in launched.items()))


def _seconds_alone(scenario: Scenario, counts: FloatArray) -> list[float]:
    """Seconds that a server of each model would take, with its start if the run starts it."""
    served, rng = scenario.served, np.random.default_rng([scenario.seed, 2])
    seconds_alone = [
        _model_seconds(scenario, model, model_counts, rng) if model_counts.any() else 0.0
        for model, model_counts in enumerate(counts)
    ]
    started = {*served.launched, *(model for group in served.in_turn for model in group.models)}
    return [
        seconds + served.swap_seconds * (model in started and seconds > 0.0)
        for model, seconds in enumerate(seconds_alone)
    ]


def _model_seconds(scenario: Scenario, model: int, counts: FloatArray, rng: np.random.Generator) -> float:
    """Seconds from a model's first answer to its last."""
    usage, slots, trials = scenario.served.usage, scenario.served.slots[model], float(counts.sum())
    last = min(TAIL_ANSWERS * slots, round(trials))
    spread = usage.log_spread[model]
    means = usage.seconds[model][rng.choice(len(counts), last, p=counts / trials)]
    load = TrialLoad(model, means * np.exp(spread * rng.standard_normal(last) - spread**2 / 2.0))
    SimulatedHost((model,), slots).issue(load, 0.0)
    return float(counts @ usage.seconds[model]) * (1.0 - last / trials) / slots + load.end
