"""Where the spread of standardised errors comes from: the variance, or the moment at which a run stops.

(score - truth)/sigma should have standard deviation 1. At a fixed number of trials it is looked at with the sigma of
the self-centred prior, with the same without the further deviating trials that it adds (`EVENTS`), and with the true
one. At the end of adaptive runs the same is done with the trials that they took. What is below 1 by the true sigma is
not the variance: runs give up pairs whose difference looks small, and so end when errors are small.

    python benchmarks/standard_errors.py [--quick] [--runs 100] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from unittest.mock import patch

import numpy as np
from tables import Check, arguments, conclude, markdown

from adaptive_eval.core import Bench, Controller, Plan
from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.tape import Tape
from adaptive_eval.simulate.worlds import WORLDS
from adaptive_eval.study.drive import drive_rounds
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
)


def row(name: str, trials: str, counts: IntArray, chances: FloatArray, w: FloatArray) -> tuple[object, ...]:
    """Of the table, from counts (R, L, M, K) of many runs."""
    runs, models, questions, _ = counts.shape
    truth, held = (chances @ w).mean(axis=1), counts.sum(axis=-1)
    spread = chances @ w**2 - (chances @ w) ** 2
    off = (counts @ w / held).mean(axis=-1) - truth
    exact = off / (np.sqrt((spread / held).sum(axis=-1)) / questions)
    found = [off / _sigmas(counts, w, events).reshape(runs, models) for events in (prior.EVENTS, 0.0)]
    hold = [float((np.abs(one) <= 1.959964).mean()) for one in found]
    return name, trials, float(found[0].std()), float(found[1].std()), float(exact.std()), *hold


def _sigmas(counts: IntArray, w: FloatArray, events: float) -> FloatArray:
    cells = counts.reshape(-1, *counts.shape[2:])
    with patch.object(prior, "EVENTS", events):
        return estimate(cells, w, "self", cells.sum(axis=-1), bayes=False).sigma()


def adaptive(chances: FloatArray, w: FloatArray, runs: int) -> IntArray:
    """What runs at the defaults end with."""
    models, questions, _ = chances.shape
    plan, found = Plan(Bench(models, questions, w)), []
    for seed in range(runs):
        controller = Controller(plan, keep_looks=False)
        drive_rounds(controller, Tape.of_chances(chances, w, np.random.default_rng(seed)))
        found.append(controller.counts)
    return np.array(found)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100, help="adaptive runs a row")
    options = parser.parse_args()
    runs, rows, checks = 10 if options.quick else options.runs, [], []
    for name, models in MODELS.items():
        world = WORLDS[name]()
        chances, rng = world.p[:models], np.random.default_rng(0)
        for trials in FIXED:
            drawn = rng.multinomial(trials, np.broadcast_to(chances, (10 * runs, *chances.shape)))
            rows.append(row(name, str(trials), drawn, chances, world.w))
        rows.append(row(name, "a run's", adaptive(chances, world.w, runs), chances, world.w))
        value = float(str(rows[-1][2]))
        checks.append(Check(f"{name}: sd of errors", round(value, 3), f"{LOW} to {HIGH}", LOW <= value <= HIGH))
        print(*rows[-1], flush=True)
    about = __doc__.split("\n\n")[1]
    measured = f"{runs} adaptive runs a set, ten times as many at fixed numbers of trials"
    conclude(options, "The spread of standardised errors", about, measured, markdown(HEADER, rows), checks)


if __name__ == "__main__":
    main()
