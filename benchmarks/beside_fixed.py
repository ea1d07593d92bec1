"""Whether what `report --beside-fixed` says of a run's cost beside the smallest fixed design is true.

A report says from one run's own outcomes what runs like it cost in the trials of the smallest fixed design that calls
as many pairs, with an 80% interval. Here the truth is known: the mean cost of many runs, over that of the fixed number
from which one look, over many draws of its answers, calls as many in the mean as they do.

    python benchmarks/beside_fixed.py [--quick] [--runs 12] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from typing import NamedTuple

import numpy as np
from scenarios import Scenario, recorded, simulated
from tables import Check, add_data, arguments, conclude, markdown

from adaptive_eval.core import Controller
from adaptive_eval.core.types import Verdict
from adaptive_eval.record.results import BesideFixed
from adaptive_eval.study.beside_fixed import compare_with_fixed
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.fixed import fixed_calls, smallest_fixed
from scorio.moments import IntArray

TRUE_RUNS = 60
FIXED_DRAWS = 200
CONFIDENCE = 0.95
CAPS = {"aime2024": 80}
WORLDS = ("coins", "shared_difficulty")
HEADER = ("set", "true cost", "told: mean", "least", "most", "sd of the error", "width of intervals", "in the interval")
EXPLAINED = """\
The cost is that of a run in the trials of the smallest fixed design that calls as many pairs. "Told" is what reports of
single runs say of it; the width is the mean of the 80% intervals. Their two constants, by how much the ratio of known
worlds is off and how much wider than the jackknife's they are, were chosen on the first eight runs of the coins and of
shared_difficulty."""


class OneRun(NamedTuple):
    """A run by the default plan, ended."""

    counts: IntArray
    called: int
    trials: float
    """A question."""


def run(scenario: Scenario, seed: int) -> OneRun:
    """With the outcomes of this seed."""
    models, questions, _ = scenario.world.p.shape
    controller = Controller(scenario.plan(trials=scenario.trials), keep_looks=False)
    drive_rounds(controller, scenario.tape(seed))
    look = controller.latest_look()
    assert look is not None
    trials = float(controller.trials.sum()) / (models * questions)
    return OneRun(controller.counts, look.count(Verdict.RESOLVED), trials)


def truth(scenario: Scenario, runs: list[OneRun]) -> float:
    """The cost of these runs in that of the fixed design with as many calls."""
    questions = scenario.world.p.shape[1]
    curve = np.mean(
        [
            fixed_calls(scenario.tape(10**6 + draw), scenario.world.truth, questions, scenario.cap)[0].sum(axis=1)
            for draw in range(FIXED_DRAWS)
        ],
        axis=0,
    )
    number = smallest_fixed(curve, float(np.mean([one.called for one in runs])))
    return float(np.mean([one.trials for one in runs])) / (number or scenario.cap)


def row(name: str, true: float, told: list[BesideFixed]) -> tuple[object, ...]:
    """Of the table."""
    costs = np.array([one.cost for one in told])
    width = float(np.mean([one.high - one.low for one in told]))
    off = float(np.sqrt(np.square(costs - true).mean()))
    return name, true, float(costs.mean()), float(costs.min()), float(costs.max()), off, width, held(true, told)


def held(true: float, told: list[BesideFixed]) -> float:
    """The share of intervals that hold the truth."""
    return float(np.mean([one.low <= true <= one.high for one in told]))


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    add_data(parser)
    parser.add_argument("--runs", type=int, default=12, help="runs a set of which a report is made")
    options = parser.parse_args()
    reports = 3 if options.quick else options.runs
    sets = [simulated(name) for name in WORLDS]
    if options.data.is_dir():
        sets += [recorded(options.data, name, cap=cap) for name, cap in CAPS.items()]
    rows, shares, checks = [], [], []
    for scenario in sets[:1] if options.quick else sets:
        runs = [run(scenario, seed) for seed in range(TRUE_RUNS)]
        true, plan = truth(scenario, runs), scenario.plan(trials=scenario.trials)
        made = (compare_with_fixed(plan, one.counts, CONFIDENCE, seed) for seed, one in enumerate(runs[:reports]))
        told = [one for one in made if one is not None]
        rows.append(row(scenario.name, true, told))
        shares += [held(true, told)] * len(told)
        checks.append(Check(f"{scenario.name}: in the interval", round(held(true, told), 3), "reported", None))
        print(*rows[-1], flush=True)
    share = float(np.mean(shares))
    checks.append(Check("all: in the 80% interval", round(share, 3), ">= 0.8", share >= 0.8))
    title = "What a report says of the smallest fixed design"
    conclude(options, title, EXPLAINED, f"{reports} reports a set", markdown(HEADER, rows), checks)


if __name__ == "__main__":
    main()
