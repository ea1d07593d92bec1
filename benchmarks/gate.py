"""What a gate passes and fails, at the edge of delta and away from it, and the trials that it takes.

    python benchmarks/gate.py [--quick] [--runs 400] [--json PATH] [--markdown PATH]

A baseline that is right in 80% and a build, on 30 questions with chances around that, delta five points, 4 to 80
trials a question: as the difference goes from ten points worse to three better, how many runs say PASS, FAIL and
UNDECIDED, and what they spend beside the test for equality within the same delta.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.core import Bench, Controller, Optimal, Pace, Plan, Trials, Verdict
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.objectives import Baseline, Gate
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.settings import Margin
from scorio.moments import FloatArray

BASELINE, DELTA, PROMISED = 0.80, 0.05, 0.05
DIFFERENCES = (-0.10, -0.075, -0.05, -0.025, -0.01, 0.0, 0.03)
BINARY, QUESTIONS, TRIALS = np.array([0.0, 1.0]), 30, Trials(4, 80)


class Found(NamedTuple):
    """Shares of runs, and the mean of trials a question and model."""

    passed: float
    failed: float
    trials: float


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=400)
    options = parser.parse_args()
    runs = 40 if options.quick else options.runs
    began = time.perf_counter()
    plan = _plan()
    schedules = {
        "every round": plan,
        "all questions alike": _plan(policy=Uniform()),
        "three rounds ahead": _plan(pace=Pace(3)),
    }
    edge = {name: simulated(schedule, -DELTA, runs) for name, schedule in schedules.items()}
    power = {difference: simulated(plan, difference, runs) for difference in DIFFERENCES}
    tie = Plan(plan.bench, objective=Baseline(0), rule=plan.rule, judging=Judging(delta=DELTA), trials=TRIALS)
    equality = {difference: simulated(tie, difference, runs // 4) for difference in DIFFERENCES}
    checks = _checks(edge, power, runs)
    publish(options, _document(edge, power, equality, checks, runs, time.perf_counter() - began), checks)


def _plan(**changes: object) -> Plan:
    rule = Optimal(start=TRIALS.min / TRIALS.max)
    given = {"objective": Gate(Margin(0, DELTA)), "rule": rule, "trials": TRIALS} | changes
    return Plan(Bench(2, QUESTIONS, BINARY), **given)  # type: ignore[arg-type]


def simulated(plan: Plan, difference: float, runs: int) -> Found:
    """Runs to their end; where the two are compared for equality, neither passes nor fails what is tied."""
    spread = np.random.default_rng(4).uniform(-0.1, 0.1, QUESTIONS)
    easy = BASELINE + spread - spread.mean()
    chances = np.stack([easy, easy + difference])
    ended = [_run(plan, chances, seed) for seed in range(runs)]
    winners = [winner for winner, _ in ended]
    return Found(winners.count(1) / runs, winners.count(0) / runs, float(np.mean([trials for _, trials in ended])))


def _run(plan: Plan, chances: FloatArray, seed: int) -> tuple[int | None, float]:
    rng, controller = np.random.default_rng(seed), Controller(plan, keep_looks=False)
    while controller.finished is None:
        for asked in controller.ask_rounds():
            right = rng.binomial(asked.extra, chances)
            controller.tell_round(asked, np.stack([asked.extra - right, right], axis=-1))
    look = controller.latest_look()
    assert look is not None
    (pair,) = look.comparisons
    called = pair.verdict is Verdict.RESOLVED and not pair.reversed
    return pair.first if called else None, float(controller.trials.mean()) / QUESTIONS


def _checks(edge: dict[str, Found], power: dict[float, Found], runs: int) -> list[Check]:
    allowed = PROMISED + 3.0 * (PROMISED * (1.0 - PROMISED) / runs) ** 0.5
    goal = f"<= {PROMISED:.2f} (Monte Carlo: {allowed:.3f})"
    checks = []
    for name, result in edge.items():
        checks.append(Check(f"PASS at the edge, {name}", round(result.passed, 4), goal, result.passed <= allowed))
        checks.append(Check(f"FAIL at the edge, {name}", round(result.failed, 4), goal, result.failed <= allowed))
    equal = power[0.0]
    checks.append(Check("FAIL of an equal build", round(equal.failed, 4), "0", equal.failed == 0.0))
    checks.append(Check("PASS of an equal build", round(equal.passed, 4), ">= 0.90", equal.passed >= 0.90))
    return checks


def _document(
    edge: dict[str, Found],
    power: dict[float, Found],
    equality: dict[float, Found],
    checks: Sequence[Check],
    runs: int,
    seconds: float,
) -> str:
    rows = [
        (f"{100 * difference:+g}", result.passed, result.failed, 1.0 - result.passed - result.failed, result.trials,
         equality[difference].trials)
        for difference, result in power.items()
    ]  # fmt: skip
    return "\n\n".join(
        [
            "# The gate",
            "What `benchmarks/gate.py` prints. A baseline that is right in 80% and a build, on 30 questions, delta 5 "
            f"points, confidence 0.95, 4 to 80 trials a question; {runs} runs a row.",
            check_table(checks),
            "## Outcomes by the true difference, in points",
            markdown(
                ("build - baseline", "PASS", "FAIL", "UNDECIDED", "trials a question", "by a test for equality"), rows
            ),
            "A gate asks one question, which side of -delta the difference lies on, so that it takes most trials at "
            "the edge, and fewer the better the build is.",
            f"{machine()}; {seconds:.0f} s.",
        ]
    )


if __name__ == "__main__":
    main()
