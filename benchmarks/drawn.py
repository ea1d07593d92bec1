"""Questions drawn at random: large benchmarks of which a run asks some (`trials.draw`), beside one that asks all.

First the promise: pairs that are exactly tied over all questions, looked at after every block to the last question,
alone in a run, so that one that rests ends. Then what it costs and calls, how far scores are off, and how long a look
takes: 20 models of recorded LiveCodeBench shares on its 400 questions, 20 and 200 made-up models on 10,000.

    python benchmarks/drawn.py [--quick] [--runs 40] [--json PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scenarios import recorded
from scipy.special import expit
from tables import arguments, at_most, markdown, publish, with_errors

from adaptive_eval.core import Bench, Controller, Plan, Trials
from adaptive_eval.core.optimal import WORTH, Optimal
from adaptive_eval.core.tape import Tape
from adaptive_eval.simulate.worlds import BINARY
from adaptive_eval.study.drive import drive_rounds
from scorio.moments import FloatArray
from scorio.sinf.futility import predictive_power
from scorio.sinf.optimal import optimal_stopping
from scorio.sinf.prior import EVENTS

TIES = (
    *("questions", "blocks of", "asked at most", "tie", "called: first", "second"),
    *("if none rested: first", "second"),
)
COSTS = (
    *("set", "block", "at most", "trials a cell, at the end", "pairs called", "wrong pairs", "bias"),
    "slowest look, CPU s",
)


def ties(questions: int) -> dict[str, FloatArray]:
    """Chances (2, M) of two models that are tied over all questions."""
    rng = np.random.default_rng(5)
    chances = rng.beta(0.3, 0.3, questions)
    few = questions // 20
    better = np.full(questions, 0.5 - 0.5 * few / (questions - few))
    better[:few] = 1.0
    sure = np.arange(questions) < questions // 50
    return {
        "alike": np.stack([chances, chances]),
        "alike, 99% right": np.full((2, questions), 0.99),
        "other questions": np.stack([chances, rng.permutation(chances)]),
        "few much better": np.stack([better, np.full(questions, 0.5)]),
        "few known by heart": np.stack([sure.astype(float), np.full(questions, 0.02)]),
    }


def heights(chances: FloatArray, block: int, cap: int, runs: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """z (runs, looks) of pairs at all looks, and the information there; with code of its own."""
    rng, looks = np.random.default_rng(seed), np.arange(block, cap + 1, block)
    rows = []
    for _ in range(runs):
        order = rng.permutation(chances.shape[1])[:cap]
        d = np.subtract(*(rng.random((2, cap)) < chances[:, order]).astype(int))
        total, squares = np.cumsum(d)[looks - 1], np.cumsum(d * d)[looks - 1]
        mean = total / looks
        var = ((squares - looks * mean**2) / (looks - 1) + EVENTS / looks) / looks
        rows.append(mean / np.sqrt(var))
    return np.array(rows), looks / cap


def called(z: FloatArray, bound: FloatArray, given_up: NDArray[np.bool_]) -> tuple[float, float]:
    """The shares that are called for the first, and for the second, before they are `given_up`."""
    calls = (np.abs(z) >= bound) & (np.cumsum(given_up, axis=1) - given_up == 0)
    first = np.take_along_axis(np.sign(z), calls.argmax(axis=1)[:, None], axis=1)[:, 0] * calls.any(axis=1)
    return float((first > 0).mean()), float((first < 0).mean())


def tie_rows(runs: int) -> Iterator[tuple[Any, ...]]:
    """How often ties are called on a side, and how often they would be if no pair rested."""
    for questions, block, cap in ((2000, 100, 2000), (10_000, 200, 3000), (10_000, 50, 1000)):
        share = block / cap
        pair = Optimal(start=share, rests=True)
        alpha = (0.1 - pair.reserve) * (1.0 + pair.unspent)
        rule = optimal_stopping(alpha, share * (1.0 - 1e-9), WORTH, 0.0, 2.0 * share, 0.5 * share)
        for name, chances in ties(questions).items():
            z, t = heights(chances, block, cap, runs, 7)
            given_up = np.stack(
                [rule.gives_up(column, np.full(len(z), now)) for column, now in zip(z.T, t, strict=True)], 1
            )
            rests = predictive_power(z, t[None], rule.boundary(np.ones(1))) < pair.futility * (1.0 - t)
            bound = rule.boundary(t)
            rows = called(z, bound, given_up | rests), called(z, bound, given_up)
            yield questions, block, cap, name, *rows[0], *rows[1]


class Run(NamedTuple):
    """What came of one."""

    cells: float
    called: float
    wrong: float
    errors: FloatArray
    slowest: float


def carried_out(p: FloatArray, block: int, cap: int, seed: int) -> Run:
    """A whole run of models with chances (L, M) that is asked `cap` of the questions, in an order of its own."""
    rng = np.random.default_rng(seed)
    (models, questions), truth = p.shape, p.mean(axis=1)
    order = rng.permutation(questions)[:cap]
    right = (rng.random((models, cap)) < p[:, order]).astype(np.int32)
    outcomes = np.stack([1 - right, right], axis=-1)
    rule, trials = Optimal(start=block / cap), Trials(min=1, max=1)
    plan = Plan(Bench(models, cap, BINARY), rule=rule, trials=trials, drawn=block)
    controller, slowest = Controller(plan, keep_looks=False), 0.0
    two = replace(plan, bench=Bench(2, cap, BINARY))  # makes the table of the rule, once a process
    drive_rounds(Controller(two, keep_looks=False), Tape.from_chances(np.full((2, cap, 2), 0.5), BINARY, rng))
    while controller.finished is None:
        for batch in controller.ask_batches():
            counts = outcomes[batch.model] * batch.slots.extra[:, None]
            begun = time.process_time()
            controller.tell_counts([(batch, counts)])
            slowest = max(slowest, time.process_time() - begun)
    standing = controller.last_look
    assert standing is not None
    evidence, call = standing.evidence, standing.memory.call
    ahead = np.sign(truth[evidence.first] - truth[evidence.second])
    wrong = float(((call != 0) & (call != ahead)).sum())
    cells, errors = float(controller.trials.sum()) / p.size, standing.estimates.score - truth
    return Run(cells, float((call != 0).mean()), wrong, errors, slowest)


def made_up(models: int, questions: int) -> FloatArray:
    """Questions that are hard or easy for everyone, abilities evenly apart."""
    difficulty = np.random.default_rng(1).normal(0.0, 3.5, questions)
    return np.asarray(expit(np.linspace(-1.0, 1.0, models)[:, None] - difficulty[None, :]))


def main() -> None:
    options = arguments(__doc__, runs=40, quick_runs=4, data=True).parse_args()
    pairs, runs, large = (300, options.runs, 1) if options.quick else (4000, options.runs, 4)
    tied = list(tie_rows(pairs))
    sets = [("20 x 10,000", made_up(20, 10_000), 200, cap, runs) for cap in (3000, 10_000)]
    if options.data.is_dir():
        scenario = recorded(options.data, "livecodebench", best=20)
        sets.append(("LiveCodeBench, 20 x 400", scenario.world.p @ scenario.world.w, 50, 400, runs))
    sets += [("200 x 10,000", made_up(200, 10_000), 200, cap, large) for cap in (3000, 10_000)]
    worst = max(max(row[4:6]) for row in tied)
    checks = [at_most("the largest share of ties called, a side", worst, with_errors(0.05, pairs))]
    rows = []
    for name, p, block, cap, times in sets:
        ended = [carried_out(p, block, cap, seed) for seed in range(times)]
        cells, called, wrong = (float(np.mean(values)) for values in list(zip(*ended, strict=True))[:3])
        bias = 100.0 * np.abs(np.mean([run.errors for run in ended], axis=0)).max()
        slowest, models = max(run.slowest for run in ended), len(p)
        of_pairs = f"{called:.1%}", f"{wrong:.2f} of {models * (models - 1) // 2}"
        rows.append((name, block, cap, cells, *of_pairs, f"{bias:.2f}", f"{slowest:.2f}"))
        if models == 200:
            title = f"{name}, {cap:,} at most: "
            checks.append(at_most(title + "trials at the end over one of each cell", cells, 0.15))
            checks.append(at_most(title + "CPU seconds of the slowest look", slowest, 0.5))
    about = f"{pairs:,} pairs a tie, {runs} seeded runs a row, {large} of 200 models."
    tables = markdown(TIES, tied), markdown(COSTS, rows)
    publish(options, "Questions drawn at random", __doc__, about, *tables, checks=checks)


if __name__ == "__main__":
    main()
