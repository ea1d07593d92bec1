"""Questions drawn at random: large benchmarks of which a run asks some (`trials.draw`), beside one that asks all.

First the promise: pairs that are exactly tied over all questions, looked at after every block to the last question,
alone in a run, so that one that rests ends. Then what it costs and calls, how far scores are off, and how long a look
takes: 20 models of recorded LiveCodeBench shares on its 400 questions, 20 and 200 made-up models on 10,000.

    python benchmarks/drawn.py [--quick] [--runs 40] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scenarios import recorded
from scipy.special import expit
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.core import Bench, Controller, Plan, Trials
from adaptive_eval.core.optimal import WORTH, Optimal
from scorio.sinf.futility import predictive_power
from scorio.sinf.optimal import optimal_stopping
from scorio.sinf.prior import EVENTS

BINARY = np.array([0.0, 1.0])
FloatArray = NDArray[np.float64]
TIES = ("questions", "blocks of", "asked at most", "tie", "called: first, second", "if none rested")
COSTS = (
    "set", "block", "at most", "trials a cell, at the end", "pairs called", "wrong pairs", "runs with one",
    "neighbours called", "bias", "of fixed part", "sd of errors", "slowest look, CPU s",
)  # fmt: skip
EXPLAINED = """\
Of ties, the share of pairs that are called for the first model, and for the second: each at most 5%. "If none rested":
where both models go on to the end for the sake of other pairs. Questions are drawn anew for each pair. "At most" is how
many questions are asked at most; where that is all, nothing of the between-question variance is left at the end, and z
is too small by that (no correction for a finite number is made).

Of runs, "trials a cell" are over models x all questions, so that asking every question once is 1. "Wrong pairs" are of
all pairs of models, "neighbours" those that are next to each other in truth. Bias is the largest mean error of a score
over the models, in points, as the run shows it ("of fixed part": of the mean over the first block alone, which does
not depend on when a model was stopped). Errors are over the whole benchmark, whose score is the truth."""


class Ties(NamedTuple):
    """Chances (2, M) of two models that are tied over all questions."""

    name: str
    chances: FloatArray


def ties(questions: int) -> Iterator[Ties]:
    rng = np.random.default_rng(5)
    chances = rng.beta(0.3, 0.3, questions)
    yield Ties("alike", np.stack([chances, chances]))
    yield Ties("alike, 99% right", np.full((2, questions), 0.99))
    yield Ties("other questions", np.stack([chances, rng.permutation(chances)]))
    few = questions // 20
    better = np.full(questions, 0.5 - 0.5 * few / (questions - few))
    better[:few] = 1.0
    yield Ties("few much better", np.stack([better, np.full(questions, 0.5)]))
    sure = np.arange(questions) < questions // 50
    yield Ties("few known by heart", np.stack([sure.astype(float), np.full(questions, 0.02)]))


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


def called(z: FloatArray, bound: FloatArray, given_up: NDArray[np.bool_]) -> str:
    """The shares that are called for the first, and for the second, before they are `given_up`."""
    calls = (np.abs(z) >= bound) & (np.cumsum(given_up, axis=1) - given_up == 0)
    first = np.take_along_axis(np.sign(z), calls.argmax(axis=1)[:, None], axis=1)[:, 0] * calls.any(axis=1)
    return f"{(first > 0).mean():.3f}, {(first < 0).mean():.3f}"


def tie_rows(runs: int) -> Iterator[tuple[object, ...]]:
    for questions, block, cap in ((2000, 100, 2000), (10_000, 200, 3000), (10_000, 50, 1000)):
        share = block / cap
        pair = Optimal(start=share, rests=True)
        alpha = (0.1 - pair.reserve) * (1.0 + pair.unspent)
        rule = optimal_stopping(alpha, share * (1.0 - 1e-9), WORTH, 0.0, 2.0 * share, 0.5 * share)
        for tie in ties(questions):
            z, t = heights(tie.chances, block, cap, runs, 7)
            given_up = np.stack(
                [rule.gives_up(column, np.full(len(z), now)) for column, now in zip(z.T, t, strict=True)], 1
            )
            rests = predictive_power(z, t[None], rule.boundary(np.ones(1))) < pair.futility * (1.0 - t)
            bound = rule.boundary(t)
            yield questions, block, cap, tie.name, called(z, bound, given_up | rests), called(z, bound, given_up)


class Run(NamedTuple):
    """What came of one."""

    cells: float
    called: float
    wrong: float
    neighbours: float
    errors: FloatArray
    fixed_errors: FloatArray
    standard: FloatArray
    slowest: float


def carried_out(p: FloatArray, block: int, cap: int, seed: int) -> Run:
    """A whole run of models with chances (L, M) that is asked `cap` of the questions, in an order of its own."""
    rng = np.random.default_rng(seed)
    (models, questions), truth = p.shape, p.mean(axis=1)
    order = rng.permutation(questions)[:cap]
    right = (rng.random((models, cap)) < p[:, order]).astype(np.int32)
    outcomes, share = np.stack([1 - right, right], axis=-1), block / cap
    plan = Plan(Bench(models, cap, BINARY), rule=Optimal(start=share), trials=Trials(min=1, max=1), drawn=block)
    controller, slowest = Controller(plan, keep_looks=False), 0.0
    warm(plan)
    while controller.finished is None:
        for asked in controller.ask_rounds():
            counts = outcomes * asked.extra[..., None]
            begun = time.process_time()
            controller.tell_round(asked, counts)
            slowest = max(slowest, time.process_time() - begun)
    standing = controller.last_look
    assert standing is not None
    evidence, call, estimates = standing.evidence, standing.memory.call, standing.estimates
    ahead = np.sign(truth[evidence.first] - truth[evidence.second])
    by_truth = np.argsort(-truth, kind="stable")
    neighbours = evidence.positions(np.stack([by_truth[:-1], by_truth[1:]], axis=1))
    errors = estimates.score - truth
    return Run(
        cells=float(controller.trials.sum()) / p.size,
        called=float((call != 0).mean()),
        wrong=float(((call != 0) & (call != ahead)).sum()),
        neighbours=float((call[neighbours] == ahead[neighbours]).sum()),
        errors=errors,
        fixed_errors=right[:, :block].mean(axis=1) - truth,
        standard=errors / estimates.sigma(),
        slowest=slowest,
    )


def warm(plan: Plan) -> None:
    """The table of the rule, which is made once a process."""
    toy = Controller(
        Plan(Bench(2, plan.bench.questions, BINARY), rule=plan.rule, trials=Trials(min=1, max=1), drawn=plan.drawn)
    )
    while not toy.looks:
        for asked in toy.ask_rounds():
            toy.tell_round(asked, np.stack([0 * asked.extra, asked.extra], axis=-1))


def made_up(models: int, questions: int) -> FloatArray:
    """As in core_speed.py: hard or easy for everyone, abilities evenly apart."""
    difficulty = np.random.default_rng(1).normal(0.0, 3.5, questions)
    return np.asarray(expit(np.linspace(-1.0, 1.0, models)[:, None] - difficulty[None, :]))


def cost_row(name: str, p: FloatArray, block: int, cap: int, runs: int) -> tuple[tuple[Any, ...], list[Run]]:
    ended = [carried_out(p, block, cap, seed) for seed in range(runs)]
    models = len(p)

    def mean(what: str) -> float:
        return float(np.mean([getattr(run, what) for run in ended]))

    def bias(what: str) -> str:
        return f"{100.0 * np.abs(np.mean([getattr(run, what) for run in ended], axis=0)).max():.2f}"

    row = (
        name, block, cap, f"{mean('cells'):.3f}", f"{mean('called'):.1%}",
        f"{mean('wrong'):.2f} of {models * (models - 1) // 2}", f"{np.mean([run.wrong > 0 for run in ended]):.0%}",
        f"{mean('neighbours'):.1f} of {models - 1}", bias("errors"), bias("fixed_errors"),
        f"{np.std([run.standard for run in ended]):.3f}", f"{max(run.slowest for run in ended):.2f}",
    )  # fmt: skip
    print(*row, flush=True)
    return row, ended


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=40)
    add_data(parser)
    options = parser.parse_args()
    pairs, runs, large = (300, 4, 1) if options.quick else (4000, options.runs, 4)
    tied = []
    for row in tie_rows(pairs):
        print(*row, flush=True)
        tied.append(row)
    rows, sets = [], [("20 x 10,000", made_up(20, 10_000), 200, 3000, runs)]
    sets.append(("20 x 10,000", made_up(20, 10_000), 200, 10_000, runs))
    if options.data.exists():
        scenario = recorded(options.data, "livecodebench", best=20)
        sets.append(("LiveCodeBench, 20 x 400", scenario.world.p @ scenario.world.w, 50, 400, runs))
    sets += [("200 x 10,000", made_up(200, 10_000), 200, cap, large) for cap in (3000, 10_000)]
    ends: dict[tuple[str, int], list[Run]] = {}
    for name, p, block, cap, times in sets:
        row, ends[name, cap] = cost_row(name, p, block, cap, times)
        rows.append(row)
    worst = max(float(side) for row in tied for side in str(row[-2]).split(", "))
    beyond = 0.05 + 2.0 * float(np.sqrt(0.05 * 0.95 / pairs))
    checks = [Check("the largest share of ties called, a side", worst, f"<= {beyond:.4f}", worst <= beyond)]
    for cap in (3000, 10_000):
        ended = ends["200 x 10,000", cap]
        cells, slowest = float(np.mean([run.cells for run in ended])), max(run.slowest for run in ended)
        title = f"200 x 10,000, {cap:,} at most: "
        checks.append(Check(title + "trials at the end over one of each cell", cells, "<= 0.15", cells <= 0.15))
        checks.append(Check(title + "CPU seconds of the slowest look", slowest, "<= 0.5", slowest <= 0.5))
    report = "\n\n".join([
        "# Questions drawn at random", EXPLAINED,
        f"On {machine()}; {pairs:,} pairs a tie, {runs} seeded runs a row, {large} of 200 models.",
        markdown(TIES, tied), markdown(COSTS, rows), check_table(checks),
    ])  # fmt: skip
    publish(options, report, checks)


if __name__ == "__main__":
    main()
