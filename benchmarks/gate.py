"""What a gate passes and fails, at the edge of delta and away from it, and the trials that it takes.

    python benchmarks/gate.py [--quick] [--runs 400] [--json PATH]

A baseline that is right in 80% and a build, on 30 questions with chances around that, delta five points, 4 to 80
trials a question: as the difference goes from ten points worse to three better, how many runs say PASS, FAIL and
UNDECIDED, and what they spend beside the test for equality within the same delta.

Then a gate on the value 62%, with delta 0 and three points, for models three points above the value to six below it,
on 30 questions like those of AIME, 30 that are all equally hard, and 198.
"""

from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit
from tables import Check, arguments, at_least, at_most, markdown, publish, with_errors

from adaptive_eval.core import Bench, Controller, Optimal, Pace, Plan, Trials, Verdict
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.objectives import Baseline, Gate
from adaptive_eval.core.policies import Uniform, UnresolvedPairs
from adaptive_eval.core.settings import Margin
from adaptive_eval.core.types import PairVerdict
from adaptive_eval.simulate.worlds import BINARY
from scorio.moments import FloatArray

BASELINE, DELTA, PROMISED = 0.80, 0.05, 0.05
DIFFERENCES = (-0.10, -0.075, -0.05, -0.025, -0.01, 0.0, 0.03)
QUESTIONS, TRIALS = 30, Trials(min=4, max=80)

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

    @property
    def shares(self) -> tuple[float, float, float]:
        """Of PASS, FAIL and UNDECIDED."""
        return self.passed, self.failed, 1.0 - self.passed - self.failed


def main() -> None:
    options = arguments(__doc__, runs=400, quick_runs=40).parse_args()
    runs, plan, checks = options.runs, _plan(), list[Check]()
    schedules = {
        "every round": plan,
        "all questions alike": _plan(policy=Uniform()),
        "three rounds ahead": _plan(pace=Pace(3)),
    }
    for name, schedule in schedules.items():
        edge = simulated(schedule, -DELTA, runs)
        checks.append(at_most(f"PASS at the edge, {name}", edge.passed, with_errors(PROMISED, runs, 3.0)))
        checks.append(at_most(f"FAIL at the edge, {name}", edge.failed, with_errors(PROMISED, runs, 3.0)))
    tie, rows = _plan(objective=Baseline(0), judging=Judging(delta=DELTA)), list[tuple[object, ...]]()
    for difference in DIFFERENCES:
        result, equality = simulated(plan, difference, runs), simulated(tie, difference, runs // 4)
        rows.append((f"{100 * difference:+g}", *result.shares, result.trials, equality.trials))
        if difference == 0.0:
            checks.append(at_most("FAIL of an equal build", result.failed, 0.0))
            checks.append(at_least("PASS of an equal build", result.passed, 0.90))
    on_value, value_checks = _gates_on_value(40 if options.quick else max(runs, 1000), quick=options.quick)
    shares = ("PASS", "FAIL", "UNDECIDED", "trials a question")
    publish(
        options,
        "The gate",
        f"{runs} runs a row; differences in points.",
        markdown(("build - baseline", *shares, "by a test for equality"), rows),
        f"A gate on the value {VALUE:.0%}.",
        markdown(("questions", "delta", "trials.max", "score - value", *shares), on_value),
        checks=[*checks, *value_checks],
    )


def _plan(**changes: object) -> Plan:
    rule = Optimal(start=TRIALS.min / TRIALS.max)
    given = {"objective": Gate(Margin(0, DELTA)), "rule": rule, "trials": TRIALS} | changes
    return Plan(Bench(2, QUESTIONS, BINARY), **given)  # type: ignore[arg-type]


def simulated(plan: Plan, difference: float, runs: int) -> Found:
    """Runs to their end; where the two are compared for equality, neither passes nor fails what is tied."""
    spread = np.random.default_rng(4).uniform(-0.1, 0.1, QUESTIONS)
    easy = BASELINE + spread - spread.mean()
    chances = np.stack([easy, easy + difference])
    ended = [_ended(plan, chances, seed) for seed in range(runs)]
    winners = [pair.first for controller in ended for pair in _called(controller)]
    trials = float(np.mean([controller.trials.mean() for controller in ended])) / QUESTIONS
    return Found(winners.count(1) / runs, winners.count(0) / runs, trials)


def _ended(plan: Plan, chances: FloatArray, seed: int) -> Controller:
    """A run of models with these chances, to its end."""
    rng, controller = np.random.default_rng(seed), Controller(plan, keep_looks=False)
    while controller.finished is None:
        for batch in controller.ask_batches():
            right = rng.binomial(batch.slots.extra, chances[batch.model])
            controller.tell_counts([(batch, np.stack([batch.slots.extra - right, right], axis=-1))])
    return controller


def _called(controller: Controller) -> list[PairVerdict]:
    """The comparisons that ended with a winner."""
    look = controller.latest_look()
    assert look is not None
    return [pair for pair in look.comparisons if pair.verdict is Verdict.RESOLVED and not pair.reversed]


def _gates_on_value(runs: int, *, quick: bool) -> tuple[list[tuple[object, ...]], list[Check]]:
    """Rows, and their goals; a FAIL can be asked for below value - delta, where a wrong FAIL and a wrong PASS are as
    likely."""
    rows, checks = list[tuple[object, ...]](), list[Check]()
    for world, (easiness, horizons) in WORLDS.items():
        for delta, max_trials in product((0.0, POINTS), horizons[:1] if quick else horizons):
            name = f"{world}, delta {100 * delta:g}, {max_trials} trials"
            for difference in (POINTS, 0.0, -POINTS, -2 * POINTS):
                result = _judge_by_value(easiness, delta, max_trials, difference, runs)
                points = f"{100 * delta:g}", max_trials, f"{100 * difference:+g}"
                rows.append((world, *points, *result.shares, f"{result.trials:.1f}"))
                if difference == POINTS:
                    checks.append(at_most(f"FAIL 3 above, {name}", result.failed, 0.01))
                if difference == -delta:
                    for word, share in (("PASS", result.passed), ("FAIL", result.failed)):
                        allowed = with_errors(PROMISED, runs, 3.0)
                        checks.append(at_most(f"{word} at value - delta, {name}", share, allowed))
                if difference == -delta - POINTS:
                    checks.append(at_least(f"FAIL {-100 * difference:g} below, {name}", result.failed, 0.95))
    return rows, checks


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
    controller = _ended(plan, chances(shift), 0)
    passed = [pair.z > 0.0 for pair in _called(controller)]
    trials_each = float(controller.trials.mean()) / len(easiness)
    return Found(sum(passed) / runs, (len(passed) - sum(passed)) / runs, trials_each)


if __name__ == "__main__":
    main()
