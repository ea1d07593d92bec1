"""A build against a recorded baseline, with seeds of their own and coupled: what is called wrongly, and the cost.

Each answer is right if a random number is below its question's chance. A share of the trials uses the same number for
both models. 30 questions, of which many are easy or hard; the baseline has 80 recorded trials of each, or 40.

    python benchmarks/recorded_runs.py [--quick] [--json PATH]
"""

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tables import arguments, at_most, markdown, publish, with_errors

from adaptive_eval.core import Baseline, Bench, Controller, Plan, Trials, Verdict
from adaptive_eval.core.objectives import Gate, Objective
from adaptive_eval.core.rounds import MISSING
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Margin, RecordedTrials
from adaptive_eval.core.tape import Tape
from adaptive_eval.study.drive import drive

QUESTIONS, MAX_TRIALS, DELTA = 30, 80, 0.03
DEPTH = 4 * MAX_TRIALS
"""Weighted questions may have more trials than the horizon."""
SHARES = (0.0, 0.5, 0.9)
MOST_CALLED, MOST_WRONG = 0.10, 0.05
HEADER = ("same numbers in", "seeds, recorded", "equal: called", "equal: PASS", "trials", "edge: PASS", "edge: FAIL")


class Ended(NamedTuple):
    """How a run ended."""

    called: int
    """1: for the build, -1: for the baseline, 0: undecided."""
    trials: float
    """Trials per question of the build."""


def draw_outcomes(rng: np.random.Generator, share: float, lost: float) -> NDArray[np.uint8]:
    """Outcomes (2, M, N) of the baseline and of a build that is so much worse."""
    chance = 0.05 + 0.9 * rng.beta(0.7, 0.7, (QUESTIONS, 1))
    numbers = rng.random((2, QUESTIONS, DEPTH))
    same = rng.random((QUESTIONS, DEPTH)) < share
    numbers[1][same] = numbers[0][same]
    return (numbers < np.stack([chance, chance - lost])).astype(np.uint8)


def plan_of(outcomes: NDArray[np.uint8], recorded: int, objective: Objective, *, coupled: bool) -> Plan:
    categories = np.full((2, QUESTIONS, recorded), MISSING, np.uint8)
    categories[0] = outcomes[0, :, :recorded]
    counts = np.stack([(categories == category).sum(axis=-1) for category in (0, 1)], axis=-1)
    bench = Bench(
        2,
        QUESTIONS,
        weights=np.array([0.0, 1.0]),
        prior_counts=counts,
        recorded=frozenset({0}),
        recorded_trials=RecordedTrials(categories, np.zeros(categories.shape, dtype=bool)),
    )
    trials = Trials(min=4, max=MAX_TRIALS)
    rule = Sequential(start=trials.min / trials.max)
    return Plan(bench, objective=objective, rule=rule, trials=trials, coupled=coupled)


def run(plan: Plan, outcomes: NDArray[np.uint8]) -> Ended:
    tape = Tape(iter(np.moveaxis(outcomes, 2, 0)), plan.bench.weights)
    controller = drive(Controller(plan, keep_looks=False), tape)
    look = controller.latest_look()
    assert look is not None
    (pair,) = look.comparisons
    winner = pair.winner if pair.verdict is Verdict.RESOLVED else None
    return Ended(0 if winner is None else 2 * winner - 1, float(controller.trials[1]) / QUESTIONS)


def main() -> None:
    options = arguments(__doc__, runs=200, quick_runs=4).parse_args()
    runs, table, checks = options.runs, [], []
    gate = Gate(Margin(0, DELTA))
    for share, coupled, recorded in ((0.0, False, 80), *product(SHARES, (True,), (80, 40))):
        ended: list[list[Ended]] = []
        for objective, lost in ((Baseline(0), 0.0), (gate, 0.0), (gate, DELTA)):
            drawn = [draw_outcomes(np.random.default_rng(seed), share, lost) for seed in range(runs)]
            ended.append([run(plan_of(pool, recorded, objective, coupled=coupled), pool) for pool in drawn])
        of_equal, of_gate, at_edge = ended
        called, passed = np.mean([end.called != 0 for end in of_equal]), np.mean([end.called == 1 for end in of_gate])
        wrongly_passed, failed = (np.mean([end.called == call for end in at_edge]) for call in (1, -1))
        label, trials = f"{'coupled' if coupled else 'own'}, {recorded}", np.mean([end.trials for end in of_gate])
        shares = [f"{value:.1%}" for value in (called, passed, wrongly_passed, failed)]
        table.append((f"{share:.0%} of trials", label, *shares[:2], f"{trials:.1f}", *shares[2:]))
        for what, value, goal in (
            ("equal models called", called, MOST_CALLED),
            ("PASS at the edge", wrongly_passed, MOST_WRONG),
            ("FAIL at the edge", failed, MOST_WRONG),
        ):
            checks.append(at_most(f"{share:.0%} alike, {label}: {what}", float(value), with_errors(goal, runs)))
    title = "A build against a recorded baseline"
    publish(options, title, __doc__, f"{runs} runs a cell.", markdown(HEADER, table), checks=checks)


if __name__ == "__main__":
    main()
