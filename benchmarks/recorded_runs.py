"""A build against a recorded baseline, with seeds of their own and coupled: what is called wrongly, and the cost.

Each answer is right if a random number is below its question's chance. A share of the trials uses the same number for
both models. 30 questions, of which many are easy or hard; the baseline has 80 recorded trials of each, or 40.

    python benchmarks/recorded_runs.py [--quick] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tables import Check, arguments, conclude, markdown

from adaptive_eval.core import Baseline, Bench, Controller, Outcome, Plan, Trials, Verdict
from adaptive_eval.core.objectives import Gate, Objective
from adaptive_eval.core.rounds import MISSING
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Margin, RecordedTrials

QUESTIONS, MAX_TRIALS, DELTA = 30, 80, 0.03
DEPTH = 4 * MAX_TRIALS
"""Weighted questions may have more trials than the horizon."""
SHARES = (0.0, 0.5, 0.9)
MOST_CALLED, MOST_WRONG, MOST_ERRORS = 0.10, 0.05, 2.0
HEADER = ("same numbers in", "seeds, recorded", "equal: called", "equal: PASS", "trials", "edge: PASS", "edge: FAIL")
EXPLAINED = """\
"Equal: called": how often one of two equal models is called better, of which the promise allows 10%. The other columns
are a gate with a delta of 3 points: "equal" is a build as good as the baseline, with its trials per question, "edge"
one that is exactly 3 points worse, of which 5% may pass and 5% may fail. At most 80 trials a question, a look after
each round of one."""


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
    controller = Controller(plan, keep_looks=False)
    while controller.finished is None:
        asks = controller.ask(10**6)
        controller.tell(Outcome(a.model, a.question, a.trial, int(outcomes[1, a.question, a.trial])) for a in asks)
    look = controller.latest_look()
    assert look is not None
    (pair,) = look.comparisons
    winner = pair.winner if pair.verdict is Verdict.RESOLVED else None
    return Ended(0 if winner is None else 2 * winner - 1, float(controller.trials[1]) / QUESTIONS)


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    runs = 4 if options.quick else 200
    table, checks = [], []
    for share, coupled, recorded in ((0.0, False, 80), *product(SHARES, (True,), (80, 40))):
        ended: list[list[Ended]] = []
        for objective, lost in ((Baseline(0), 0.0), (Gate(Margin(0, DELTA)), 0.0), (Gate(Margin(0, DELTA)), DELTA)):
            drawn = [draw_outcomes(np.random.default_rng(seed), share, lost) for seed in range(runs)]
            ended.append([run(plan_of(pool, recorded, objective, coupled=coupled), pool) for pool in drawn])
        equal, gate, edge = ended
        called = np.mean([end.called != 0 for end in equal])
        passed, wrongly_passed = (np.mean([end.called == 1 for end in ends]) for ends in (gate, edge))
        failed, trials = np.mean([end.called == -1 for end in edge]), np.mean([end.trials for end in gate])
        label = f"{'coupled' if coupled else 'own'}, {recorded}"
        shares = [f"{value:.1%}" for value in (called, passed, wrongly_passed, failed)]
        table.append((f"{share:.0%} of trials", label, *shares[:2], f"{trials:.1f}", *shares[2:]))
        print(*table[-1], flush=True)
        for what, value, goal in (
            ("equal models called", called, MOST_CALLED),
            ("PASS at the edge", wrongly_passed, MOST_WRONG),
            ("FAIL at the edge", failed, MOST_WRONG),
        ):
            limit = goal + MOST_ERRORS * np.sqrt(goal * (1.0 - goal) / runs)
            check = f"{share:.0%} alike, {label}: {what}"
            checks.append(Check(check, round(float(value), 3), f"<= {limit:.3f}", bool(value <= limit)))
    title = "A build against a recorded baseline"
    conclude(options, title, EXPLAINED, f"{runs} runs a cell", markdown(HEADER, table), checks)


if __name__ == "__main__":
    main()
