"""What a sceptic asks for: the cost beside the smallest fixed number of trials that calls as many pairs.

A fixed design with 80 trials a question calls more pairs than the controller, which gives up what it cannot settle:
half of that design's trials is not half of what a fixed design needs. So the number is chosen here, for each set, by
who knows the outcome: the smallest N at which one look, at the threshold that 95% asks for, calls at least as many
pairs in the mean. The look uses the standard errors that the run itself uses. As a check, the same number is also
computed from the sample variance alone, p(1 - p) / (N - 1) for each question, as most tools would.

    python benchmarks/as_many_calls.py [--quick] [--runs 200] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from concurrent.futures import ProcessPoolExecutor
from math import ceil
from typing import NamedTuple

import numpy as np
from scenarios import RECORDED_CAPS, Scenario, recorded, simulated
from stacked import Ended, replay_stacked
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.core.optimal import Optimal
from adaptive_eval.study.fixed import Z_95, first_outcomes, fixed_calls, smallest_fixed
from scorio.moments import FloatArray

FIXED_DRAWS = 20
"""Of the fixed design, in one job."""
GOAL = 0.72
"""Of the mean over the recorded sets."""
HEADER = ("set", "cost", "called", "any wrong", "fixed N", "by sample variance", "its any wrong", "cost over its")
EXPLAINED = """\
Costs are shares of the trials of the fixed design of 80 trials a question (gpqa and livecodebench: 10). "Fixed N" is
the smallest number of trials a question at which a fixed design with one look calls as many pairs in the mean as the
controller does at its defaults, judged with the same standard errors; "> 80": not even the whole design does. "By
sample variance": the same number with the sample variance of each question in their place."""


class Found(NamedTuple):
    """One set: the controller, and the fixed design that calls as many."""

    scenario: Scenario
    adaptive: Ended
    number: float | None
    """None: more than the cap."""
    by_sample_variance: float | None
    wrong: float
    """The share of runs in which the fixed design, at that number or the cap, makes a wrong call."""

    @property
    def fixed_cost(self) -> float:
        """At most: of the cap, where even that calls fewer."""
        return 1.0 if self.number is None else self.number / self.scenario.cap

    @property
    def ratio(self) -> float:
        """The controller's cost over that of the fixed design, at most."""
        return self.adaptive.cost / self.fixed_cost


def fixed(job: tuple[Scenario, int]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """How much the fixed design calls after each trial, how often any of it wrongly, and how much it calls by the
    sample variance, in the mean of many draws."""
    scenario, seed = job
    models, questions, _ = scenario.world.p.shape
    draws = [
        fixed_calls(scenario.tape(FIXED_DRAWS * seed + draw), scenario.world.truth, questions, scenario.cap)
        for draw in range(FIXED_DRAWS)
    ]
    called = np.mean([calls.sum(axis=1) for calls, _ in draws], axis=0)
    plain = [sample_variance_calls(scenario, FIXED_DRAWS * seed + draw) for draw in range(FIXED_DRAWS)]
    return called, np.mean([wrong.any(axis=1) for _, wrong in draws], axis=0), np.mean(plain, axis=0)


def sample_variance_calls(scenario: Scenario, seed: int) -> FloatArray:
    """(N,): neighbours whose scores differ by 1.645 standard errors of the sample variance; none after one trial."""
    models, questions, _ = scenario.world.p.shape
    worth = scenario.world.w[first_outcomes(scenario.tape(seed), models, questions, scenario.cap)]
    number = np.arange(1, scenario.cap + 1)
    mean = worth.cumsum(axis=2) / number
    around = np.maximum((worth**2).cumsum(axis=2) / number - mean**2, 0.0)
    scores = mean.mean(axis=1)
    variances = (around / np.maximum(number - 1, 1)).mean(axis=1) / questions
    order = np.argsort(-scores, axis=0, kind="stable")
    scores, variances = (np.take_along_axis(values, order, axis=0) for values in (scores, variances))
    apart = scores[:-1] - scores[1:] >= Z_95 * np.sqrt(variances[:-1] + variances[1:])
    apart &= scores[:-1] > scores[1:]
    apart[:, 0] = False
    return np.asarray(apart.sum(axis=0), dtype=np.float64)


def find(scenario: Scenario, runs: int, pool: ProcessPoolExecutor) -> Found:
    """The smallest number that calls as many in the mean over the draws."""
    adaptive = replay_stacked(scenario, "default", runs, rule=Optimal(start=scenario.start))
    done = list(pool.map(fixed, [(scenario, seed) for seed in range(runs // FIXED_DRAWS)]))
    target = float(adaptive.called.mean())
    number = smallest_fixed(np.mean([called for called, _, _ in done], axis=0), target)
    plain = smallest_fixed(np.mean([called for _, _, called in done], axis=0), target)
    at = scenario.cap if number is None else ceil(number)
    return Found(scenario, adaptive, number, plain, float(np.mean([wrong[at - 1] for _, wrong, _ in done])))


def cells(row: Found) -> tuple[object, ...]:
    """A row of the table."""
    cap = row.scenario.cap
    numbers = [f"> {cap}" if number is None else f"{number:.1f}" for number in (row.number, row.by_sample_variance)]
    return (
        row.scenario.name, row.adaptive.cost, f"{row.adaptive.called.mean():.2f}", row.adaptive.wrong, *numbers,
        row.wrong, row.ratio,
    )  # fmt: skip


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    add_data(parser)
    parser.add_argument("--runs", type=int, default=200, help="seeded runs a row")
    options = parser.parse_args()
    runs = 20 if options.quick else options.runs
    started = time.perf_counter()
    sets = [simulated(name) for name in ("coins", "shared_difficulty", "rubric", "many_close")]
    if options.data.is_dir():
        sets += [recorded(options.data, name) for name in RECORDED_CAPS]
    rows, sets = [], sets[:2] if options.quick else sets
    with ProcessPoolExecutor() as pool:
        for scenario in sets:
            rows.append(find(scenario, runs, pool))
            print(scenario.name, rows[-1].number, round(rows[-1].ratio, 3), flush=True)
    of_records = [row.ratio for row in rows if row.scenario.counts is not None]
    title = "cost over a fixed design with as many calls"
    checks = [Check(f"{row.scenario.name}: {title}", round(row.ratio, 3), "reported", None) for row in rows]
    if of_records:
        value = float(np.mean(of_records))
        checks.append(Check("mean over the recorded sets", round(value, 3), f"<= {GOAL}", value <= GOAL))
    took = (time.perf_counter() - started) / 60.0
    tables = f"{check_table(checks)}\n\n{markdown(HEADER, [cells(row) for row in rows])}"
    text = (
        f"# The fixed design that calls as many\n\n{EXPLAINED}\n\n{runs} seeded runs a row. Machine: {machine()}. "
        f"The whole took {took:.0f} minutes.\n\n{tables}"
    )
    publish(options, text, checks)


if __name__ == "__main__":
    main()
