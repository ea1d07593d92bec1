"""What a sceptic asks for: the cost beside the smallest fixed number of trials that calls as many pairs.

A fixed design with 80 trials a question calls more pairs than the controller, which gives up what it cannot settle:
half of that design's trials is not half of what a fixed design needs. So the number is chosen here, for each set, by
who knows the outcome: the smallest N at which one look, at the threshold that 95% asks for, calls at least as many
pairs in the mean. The look uses the standard errors that the run itself uses. As a check, the same number is also
computed from the sample variance alone, p(1 - p) / (N - 1) for each question, as most tools would.

    python benchmarks/as_many_calls.py [--quick] [--runs 200] [--json PATH]
"""

from concurrent.futures import ProcessPoolExecutor
from math import ceil
from typing import NamedTuple

import numpy as np
from replays import Ended, replay_all
from scenarios import Scenario, all_recorded, simulated
from tables import Check, arguments, at_most, markdown, publish

from adaptive_eval.core.optimal import Optimal
from adaptive_eval.study.fixed import Z_95, first_outcomes, fixed_calls, smallest_fixed
from scorio.moments import FloatArray

FIXED_DRAWS = 20
"""Of the fixed design, in one job."""
GOAL = 0.72
"""Of the mean over the recorded sets."""
HEADER = ("set", "cost", "called", "any wrong", "fixed N", "by sample variance", "its any wrong", "cost over its")


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
    def ratio(self) -> float:
        """The controller's cost over that of the fixed design; of the cap, where even that calls fewer."""
        return self.adaptive.cost / (1.0 if self.number is None else self.number / self.scenario.cap)

    def cells(self) -> tuple[object, ...]:
        """A row of the table."""
        name, adaptive, cap = self.scenario.name, self.adaptive, self.scenario.cap
        numbers = [f"> {cap}" if number is None else f"{number:.1f}" for number in self[2:4]]
        return name, adaptive.cost, f"{adaptive.called:.2f}", adaptive.wrong, *numbers, self.wrong, self.ratio


def fixed(scenario: Scenario, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """How much the fixed design calls after each trial, how often any of it wrongly, and how much it calls by the
    sample variance, in the mean of many draws."""
    questions, seeds = scenario.world.p.shape[1], range(FIXED_DRAWS * seed, FIXED_DRAWS * (seed + 1))
    draws = [fixed_calls(scenario.tape(draw), scenario.world.truth, questions, scenario.cap) for draw in seeds]
    called = np.mean([calls.sum(axis=1) for calls, _ in draws], axis=0)
    plain = [sample_variance_calls(scenario, draw) for draw in seeds]
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
    adaptive = replay_all(scenario, runs, rule=Optimal(start=scenario.start))
    jobs = range(runs // FIXED_DRAWS)
    done = list(pool.map(fixed, [scenario] * len(jobs), jobs))
    called, wrong, plain = (np.mean(curves, axis=0) for curves in zip(*done, strict=True))
    number = smallest_fixed(called, adaptive.called)
    at = scenario.cap if number is None else ceil(number)
    return Found(scenario, adaptive, number, smallest_fixed(plain, adaptive.called), float(wrong[at - 1]))


def main() -> None:
    options = arguments(__doc__, runs=200, quick_runs=20, data=True).parse_args()
    sets = [simulated(name) for name in ("coins", "shared_difficulty", "rubric", "many_close")]
    sets += all_recorded(options.data)
    with ProcessPoolExecutor() as pool:
        rows = [find(scenario, options.runs, pool) for scenario in (sets[:2] if options.quick else sets)]
    title = "cost over a fixed design with as many calls"
    checks = [Check(f"{row.scenario.name}: {title}", round(row.ratio, 3), "reported") for row in rows]
    if of_records := [row.ratio for row in rows if row.scenario.counts is not None]:
        checks.append(at_most("mean over the recorded sets", float(np.mean(of_records)), GOAL))
    table = markdown(HEADER, [row.cells() for row in rows])
    publish(options, "The fixed design that calls as many", f"{options.runs} runs a row.", table, checks=checks)


if __name__ == "__main__":
    main()
