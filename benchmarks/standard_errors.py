"""Where the spread of standardised errors comes from: the variance, or the moment at which a run stops.

(score - truth)/sigma should have standard deviation 1. At a fixed number of trials it is looked at with the sigma of
the self-centred prior, with the same without the further deviating trials that it adds (`EVENTS`), and with the true
one. At the end of adaptive runs the same is done with the trials that they took. What is below 1 by the true sigma is
not the variance: runs give up pairs whose difference looks small, and so end when errors are small. What that comes to
is found for each run by playing it again (`spread` in `core/early_stop.py`): "by its spread" has sigma times it.

    python benchmarks/standard_errors.py [--quick] [--runs 100] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import math
from dataclasses import replace
from unittest.mock import patch

import numpy as np
from scenarios import Scenario
from stacked import play_stacked
from tables import Check, arguments, conclude, markdown

from adaptive_eval.core.early_stop import REPLAYS, EndedRun
from adaptive_eval.core.evidence import estimate
from adaptive_eval.simulate.worlds import WORLDS, World
from scorio.moments import FloatArray, IntArray
from scorio.sinf import prior

LOW, HIGH = 0.97, 1.02
MODELS = {"coins": 11, "exact_ties": 2, "near_deterministic": 2, "unequal_profiles": 2}
FIXED = (8, 32)
HEADER = (
    "set",
    "trials",
    "sd of errors",
    "without EVENTS",
    "by the true sigma",
    "95% intervals hold",
    "without EVENTS",
    "sd by its spread",
    "its intervals hold",
)


def row(name: str, trials: str, counts: IntArray, world: World, told: FloatArray | None = None) -> tuple[object, ...]:
    """Of the table, from counts (R, L, M, K) of many runs; `told` is what replays of each say that errors spread by."""
    runs, models, questions, _ = counts.shape
    chances, w = world.p, world.w
    truth, held = (chances @ w).mean(axis=1), counts.sum(axis=-1)
    spread = chances @ w**2 - (chances @ w) ** 2
    off = (counts @ w / held).mean(axis=-1) - truth
    exact = off / (np.sqrt((spread / held).sum(axis=-1)) / questions)
    found = [off / _sigmas(counts, w, events).reshape(runs, models) for events in (prior.EVENTS, 0.0)]
    by_replays = [] if told is None else [found[0] / told[:, None]]
    hold = [float((np.abs(one) <= 1.959964).mean()) for one in (*found, *by_replays)]
    cells = (float(found[0].std()), float(found[1].std()), float(exact.std()), *hold[:2])
    return name, trials, *cells, *((float(by_replays[0].std()), hold[2]) if by_replays else ("", ""))


def _sigmas(counts: IntArray, w: FloatArray, events: float) -> FloatArray:
    cells = counts.reshape(-1, *counts.shape[2:])
    with patch.object(prior, "EVENTS", events):
        return estimate(cells, w, "self", cells.sum(axis=-1), bayes=False).sigma()


def adaptive(scenario: Scenario, runs: int) -> tuple[IntArray, FloatArray]:
    """What runs at the defaults end with, and what their replays say that errors spread by."""
    plan = scenario.plan()
    ends = [one.end for one in play_stacked(scenario, plan, runs)]
    ended = [
        EndedRun(plan, end.counts, end.reason, math.inf, set_aside=False, judged=np.ones(len(end.counts)))
        for end in ends
    ]
    return np.array([end.counts for end in ends]), np.array([one.replay(REPLAYS).spread for one in ended])


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100, help="adaptive runs a row")
    options = parser.parse_args()
    runs, rows, checks = 10 if options.quick else options.runs, [], []
    for name, models in MODELS.items():
        world, rng = WORLDS[name](), np.random.default_rng(0)
        world = replace(world, p=world.p[:models], models=())
        for trials in FIXED:
            drawn = rng.multinomial(trials, np.broadcast_to(world.p, (10 * runs, *world.p.shape)))
            rows.append(row(name, str(trials), drawn, world))
        counts, told = adaptive(Scenario(name, world), runs)
        rows.append(row(name, "a run's", counts, world, told))
        for what, at in (("sd of errors", 2), ("sd by its spread", 7)):
            value = float(str(rows[-1][at]))
            checks.append(Check(f"{name}: {what}", round(value, 3), f"{LOW} to {HIGH}", LOW <= value <= HIGH))
        print(*rows[-1], flush=True)
    about = __doc__.split("\n\n")[1]
    measured = f"{runs} adaptive runs a set, ten times as many at fixed numbers of trials"
    conclude(options, "The spread of standardised errors", about, measured, markdown(HEADER, rows), checks)


if __name__ == "__main__":
    main()
