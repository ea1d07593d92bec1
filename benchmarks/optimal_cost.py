"""What the best stopping would cost that knows which gaps a set has, though not which pair has which.

Of each pair of neighbours alone this is an optimal-stopping problem: its drift is one of those that the set's own gaps
are, with either sign; a right call pays, information costs, and an exact tie may be called with probability 0.10. The
price of a call is such that as many pairs are called as by the runs beside it. That gives the mean information of each
gap. A ranking shares trials between neighbours, so its cost is that of the fewest trials with which each pair has its
mean information: with variances that questions weighted by each model's own true variances would have. What is not in
it: that variances must be estimated, that nobody knows the gaps, that rounds have one trial a question, that a model
which stands between two pairs cannot stop for one of them, that trials go where the order of the moment says. So it is
no cost that could be had. Nor is it a strict bound: a pair that is called when another one ended could wait for less,
and calls are not priced by whose trials are shared. Recorded trials of LiveCodeBench are drawn without replacement, 10
a question, of which the first look takes 3: there neither can be cheap, and the ratio says little.

    python benchmarks/optimal_cost.py [--quick] [--runs 200] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from typing import Any, NamedTuple

import numpy as np
from bounds import clairvoyant, fewest_trials, pairs_of_neighbours
from numpy.typing import NDArray
from scenarios import Scenario, recorded, simulated
from scipy.optimize import brentq
from stacked import replay_stacked
from tables import Check, add_data, arguments, conclude, markdown

from adaptive_eval.core.optimal import Optimal
from scorio.sinf import optimal

ALPHA, GOAL = 0.10, 1.25
STEP = 1.0 / 80.0
HEADER = ("set", "cost", "pairs called", "best stopping", "cost over it", "clairvoyant", "cost over that")
FloatArray = NDArray[np.float64]


class Stopped(NamedTuple):
    """Of each drift, under one pair of boundaries."""

    called: FloatArray
    information: FloatArray


def likelihoods(times: FloatArray, drifts: FloatArray) -> FloatArray:
    """(drifts, times, cells), against an exact tie: of |x|, where the drift has either sign."""
    x, theta = optimal._cells(), drifts[:, None, None]
    return np.asarray(np.exp(-0.5 * theta**2 * times[None, :, None]) * np.cosh(theta * x))


def ended(times: FloatArray, call: FloatArray, give: FloatArray, of: FloatArray) -> Stopped:
    """How often each of the drifts is called, and after how much information it ends."""
    x, last = optimal._cells(), len(times) - 1
    sides = np.where(x > 0.0, 2.0, 1.0)
    density = optimal._first_look(times[0]) / sides
    called, information = np.zeros(len(of)), np.zeros(len(of))
    for at, t in enumerate(times):
        calls = np.clip((x - call[at]) / optimal.CELL + 0.5, 0.0, 1.0)
        goes = np.clip((x - give[at]) / optimal.CELL + 0.5, 0.0, 1.0) if give[at] > 0.0 else np.ones_like(x)
        stays = (1.0 - calls) * goes if at < last else np.zeros_like(x)
        mass = density * sides
        called += of[:, at] @ (mass * calls)
        information += t * (of[:, at] @ (mass * (1.0 - stays)))
        if at < last:
            density = optimal._onwards(density * stays, times[at + 1] - t)
    return Stopped(called, information)


def best_stopping(drifts: FloatArray, start: float, called: float) -> Stopped:
    """The boundaries that call so many of the drifts with the least information, an exact tie with ALPHA."""
    times = optimal._times(start)
    of, tie = likelihoods(times, drifts), likelihoods(times, np.zeros(1))
    x, positive = optimal._cells(), drifts > 0.0
    up = np.exp(drifts[:, None, None] * x - 0.5 * drifts[:, None, None] ** 2 * times[None, :, None]) / 2.0
    right = (up * positive[:, None, None]).mean(axis=0)

    def solved(worth: float) -> tuple[FloatArray, FloatArray]:
        def excess(price: float) -> float:
            found = ended(times, *optimal._solve(times, right, of.mean(axis=0), worth, price), tie)
            return float(found.called[0]) - ALPHA

        if excess(0.0) <= 0.0:
            return optimal._solve(times, right, of.mean(axis=0), worth, 0.0)
        highest = worth
        while excess(highest) > 0.0:
            highest *= 2.0
        return optimal._solve(times, right, of.mean(axis=0), worth, float(brentq(excess, 0.0, highest, rtol=1e-4)))

    def missing(logarithm: float) -> float:
        return float(ended(times, *solved(np.exp(logarithm)), of).called.sum()) - called

    low, high = np.log(0.05), np.log(200.0)
    if missing(high) <= 0.0:
        return ended(times, *solved(np.exp(high)), of)
    return ended(times, *solved(np.exp(float(brentq(missing, low, high, xtol=1e-2)))), of)


def row_of(scenario: Scenario, runs: int) -> tuple[tuple[Any, ...], float]:
    """A row, and the cost of the controller over that of the best stopping."""
    start = scenario.start
    found = replay_stacked(scenario, "default", runs, rule=Optimal(start=start))
    cost, called = found.cost, float(found.called.mean())
    pairs = pairs_of_neighbours(scenario)
    drifts = pairs.gaps / np.sqrt((pairs.spread[:-1] + pairs.spread[1:]) / scenario.cap)
    best = best_stopping(drifts, start, called)
    bound = fewest_trials(pairs.spread, best.information * scenario.cap, start * scenario.cap) / scenario.cap
    sure, _ = clairvoyant(scenario)
    row = (scenario.name, cost, f"{called:.2f}", bound, f"{cost / bound:.2f}", sure, f"{cost / sure:.2f}")
    print(*row, flush=True)
    return row, cost / bound


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    add_data(parser)
    options = parser.parse_args()
    runs = 20 if options.quick else options.runs
    sets = [simulated("coins"), simulated("shared_difficulty")]
    if options.data.exists():
        sets += [recorded(options.data, "aime2024"), recorded(options.data, "livecodebench", cap=10)]
    rows, checks = [], []
    for scenario in sets:
        row, ratio = row_of(scenario, runs)
        rows.append(row)
        said = f"{scenario.name}: cost over the best stopping that knows the gaps"
        checks.append(Check(said, round(ratio, 2), f"<= {GOAL}", ratio <= GOAL))
    conclude(options, "The cost of the best stopping", __doc__.split("\n\n")[1], f"{runs} seeded runs a row",
             markdown(HEADER, rows), checks)  # fmt: skip


if __name__ == "__main__":
    main()
