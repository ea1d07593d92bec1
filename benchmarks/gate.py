"""What a gate passes and fails, at the edge of delta and away from it, and the trials that it takes.

    python benchmarks/gate.py [--quick] [--only value] [--runs 400] [--json PATH] [--markdown PATH]

A baseline that is right in 80% and a build, on 30 questions with chances around that, delta five points, 4 to 80
trials a question: as the difference goes from ten points worse to three better, how many runs say PASS, FAIL and
UNDECIDED, and what they spend beside the test for equality within the same delta.

Then a gate on the value 62%, with delta 0 and three points, for models three points above the value to six below it,
on 30 questions like those of AIME, 30 that are all equally hard, and 198.
"""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit
from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.core import Bench, Controller, Optimal, Pace, Plan, Trials, Verdict
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.objectives import Baseline, Gate
from adaptive_eval.core.policies import Uniform, UnresolvedPairs
from adaptive_eval.core.settings import Margin
from scorio.moments import FloatArray

BASELINE, DELTA, PROMISED = 0.80, 0.05, 0.05
DIFFERENCES = (-0.10, -0.075, -0.05, -0.025, -0.01, 0.0, 0.03)
BINARY, QUESTIONS, TRIALS = np.array([0.0, 1.0]), 30, Trials(min=4, max=80)

VALUE, POINTS = 0.62, 0.03
WORLDS = {
    "30 like AIME": (np.clip(np.random.default_rng(4).beta(0.6, 0.4, 30), 0.01, 0.99), (80, 160)),
    "30 equally hard": (np.full(30, VALUE), (80, 160)),
    "198": (np.clip(np.random.default_rng(4).beta(1.0, 0.8, 198), 0.01, 0.99), (10, 20)),
}
"""Questions of each world, before a shift to the score that a model is to have, and `trials.max` to try."""


class Found(NamedTuple):
    """Shares of runs, and the mean of trials a question and model."""

    passed: float
    failed: float
    trials: float


class OnValue(NamedTuple):
    """A row of the table of gates on a value."""

    world: str
    delta: float
    max_trials: int
    difference: float
    """Of the true score from the value."""
    result: Found
    runs: int


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--only", choices=["value"], help="measure the gate on a value alone")
    options = parser.parse_args()
    runs = 40 if options.quick else options.runs
    began = time.perf_counter()
    on_value = list(_gates_on_value(40 if options.quick else max(runs, 1000), quick=options.quick))
    if options.only:
        publish(options, _value_section(on_value), _value_checks(on_value))
        return
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
    document = _document(edge, power, equality, checks, runs, time.perf_counter() - began)
    publish(options, f"{document}\n\n{_value_section(on_value)}", [*checks, *_value_checks(on_value)])


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


def _gates_on_value(runs: int, *, quick: bool) -> Iterator[OnValue]:
    for world, (easiness, horizons) in WORLDS.items():
        for delta in (0.0, POINTS):
            for max_trials in horizons[:1] if quick else horizons:
                for difference in (POINTS, 0.0, -POINTS, -2 * POINTS):
                    result = _judge_by_value(easiness, delta, max_trials, difference, runs)
                    yield OnValue(world, delta, max_trials, difference, result, runs)


def _judge_by_value(easiness: FloatArray, delta: float, max_trials: int, difference: float, runs: int) -> Found:
    """As many models as runs, all with the same chances, each judged by itself with all questions alike."""

    def chances(shift: float) -> FloatArray:
        return np.asarray(expit(logit(easiness) + shift))

    shift = brentq(lambda shift: float(chances(shift).mean()) - VALUE - difference, -9.0, 9.0)
    trials = Trials(min=min(4, -(-3 * max_trials // 10)), max=max_trials)  # the defaults of a configuration
    plan = Plan(
        Bench(runs, len(easiness), BINARY),
        objective=Gate(Margin(runs, delta), VALUE),
        rule=Optimal(start=trials.min / trials.max),
        policy=UnresolvedPairs(),
        trials=trials,
    )
    rng, controller = np.random.default_rng(0), Controller(plan, keep_looks=False)
    while controller.finished is None:
        for asked in controller.ask_rounds():
            right = rng.binomial(asked.extra, chances(shift))
            controller.tell_round(asked, np.stack([asked.extra - right, right], axis=-1))
    look = controller.latest_look()
    assert look is not None
    passed = [pair.z > 0.0 for pair in look.comparisons if pair.verdict is Verdict.RESOLVED and not pair.reversed]
    trials_each = float(controller.trials.mean()) / len(easiness)
    return Found(sum(passed) / runs, (len(passed) - sum(passed)) / runs, trials_each)


def _value_checks(rows: Sequence[OnValue]) -> list[Check]:
    """The goals; a FAIL can be asked for below value - delta, where a wrong FAIL and a wrong PASS are as likely."""
    checks = []
    for world, delta, max_trials, difference, result, runs in rows:
        name = f"{world}, delta {100 * delta:g}, {max_trials} trials"
        allowed = PROMISED + 3.0 * (PROMISED * (1.0 - PROMISED) / runs) ** 0.5
        if difference == POINTS:
            checks.append(Check(f"FAIL 3 above, {name}", round(result.failed, 4), "<= 0.01", result.failed <= 0.01))
        if difference == -delta:
            goal = f"<= 0.05 (Monte Carlo: {allowed:.3f})"
            for word, share in (("PASS", result.passed), ("FAIL", result.failed)):
                checks.append(Check(f"{word} at value - delta, {name}", round(share, 4), goal, share <= allowed))
        if difference == -delta - POINTS:
            below = f"FAIL {100 * -difference:g} below, {name}"
            checks.append(Check(below, round(result.failed, 4), ">= 0.95", result.failed >= 0.95))
    return checks


def _value_section(rows: Sequence[OnValue]) -> str:
    cells = [
        (row.world, f"{100 * row.delta:g}", row.max_trials, f"{100 * row.difference:+g}", row.result.passed,
         row.result.failed, 1.0 - row.result.passed - row.result.failed, f"{row.result.trials:.1f}")
        for row in rows
    ]  # fmt: skip
    head = ("questions", "delta", "trials.max", "score - value", "PASS", "FAIL", "UNDECIDED", "trials a question")
    return "\n\n".join(
        [
            "## A gate on a value",
            f"The value is {VALUE:.0%}; delta and differences in points; confidence 0.95; {rows[0].runs} runs a row.",
            markdown(head, cells),
            check_table(_value_checks(rows)),
        ]
    )


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
