"""Two benchmarks in one run, beside a run of each: the trials that it takes to decide comparisons of their mean.

Each of the two runs ranks the models on its own benchmark until nothing is open. Then the means are compared, with all
that both have asked: a pair is called where |z| is beyond the boundary of the rule at the information that is there,
which the rule allows at any look. The one run is by the same plan with both benchmarks, and is read at its first look
with as many calls. Models differ on both benchmarks alike, but for a part of their own on each.

    python benchmarks/benchmarks_together.py [--quick] [--runs 60] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit
from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.core import Bench, Controller, Plan, Trials
from adaptive_eval.core.evidence import Estimates, update
from adaptive_eval.core.judge import Criteria, LatchedVerdicts
from adaptive_eval.core.look import AvailableTrials, evidence_readings, judge_look
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import VERDICTS, Verdict
from adaptive_eval.study.drive import drive_rounds
from scorio.moments import FloatArray, IntArray

MODELS, W = 8, np.array([0.0, 1.0])
HEADER = ("questions", "weights", "trials of two runs", "calls", "trials of one run for as many", "ratio",
          "trials of it in all", "calls in all", "wrong calls: two, one")  # fmt: skip


class Setting(NamedTuple):
    """Sizes and weights of the two benchmarks."""

    sizes: tuple[int, int]
    shares: tuple[float, float]


SETTINGS = (Setting((30, 30), (0.5, 0.5)), Setting((30, 120), (0.5, 0.5)), Setting((30, 120), (0.8, 0.2)))


class Compared(NamedTuple):
    """One world, by both ways."""

    of_two: int
    called: int
    wrong: int
    of_one: int
    """Trials of the one run at its first look with as many calls; all of them where it never has."""
    trials_whole: int
    called_whole: int
    wrong_whole: int


def main() -> None:
    """Run every setting on all cores."""
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=60)
    chosen = parser.parse_args()
    runs = 8 if chosen.quick else chosen.runs
    rows, checks = [], []
    with ProcessPoolExecutor() as pool:
        for setting in SETTINGS:
            results = list(pool.map(compared, [setting] * runs, range(runs)))
            means = [float(np.mean(column)) for column in zip(*results, strict=True)]
            mean = dict(zip(Compared._fields, means, strict=True))
            ratio = mean["of_one"] / mean["of_two"]
            described = (
                f"{setting.sizes[0]} and {setting.sizes[1]}",
                f"{setting.shares[0]:.0%}, {setting.shares[1]:.0%}",
            )
            rows.append((
                *described, f"{mean['of_two']:,.0f}", f"{mean['called']:.2f}", f"{mean['of_one']:,.0f}", f"{ratio:.2f}",
                f"{mean['trials_whole']:,.0f}", f"{mean['called_whole']:.2f}",
                f"{mean['wrong']:.3f}, {mean['wrong_whole']:.3f}",
            ))  # fmt: skip
            name = f"trials for as many calls, one run in two: {' questions, weights '.join(described)}"
            checks.append(Check(name, round(ratio, 3), "<= 0.7", ratio <= 0.7))
    intro = f"Means over {runs} worlds of {MODELS} models; `trials: {{min: 4, max: 80}}`, everything else by default."
    text = "\n\n".join([machine(), intro, markdown(HEADER, rows), check_table(checks)])
    publish(chosen, text, checks)


def compared(setting: Setting, seed: int) -> Compared:
    """One world: a run of each benchmark, and one of both."""
    rng = np.random.default_rng(seed)
    sizes, labels = setting.sizes, np.repeat([0, 1], setting.sizes)
    ability = 0.5 * rng.normal(size=MODELS)[:, None] + 0.25 * rng.normal(size=(MODELS, 2))
    right = expit(ability[:, labels] + rng.normal(0.0, 1.5, len(labels)) + 0.5 * rng.normal(size=(MODELS, len(labels))))
    weights = np.array(setting.shares)[labels] / np.array(sizes)[labels]
    bench = Bench(MODELS, len(labels), W, question_weights=weights, benchmark_of=labels)
    both = Plan(bench, trials=Trials(min=4, max=80))
    chances, draws = np.stack([1.0 - right, right], axis=-1), np.random.default_rng([seed, 1])
    counts = np.zeros((MODELS, len(labels), 2), dtype=np.int32)
    for label in (0, 1):
        single = replace(both, bench=Bench(MODELS, sizes[label], W))
        tape = Tape.from_chances(chances[:, labels == label], W, draws)
        counts[:, labels == label] = drive_rounds(Controller(single), tape).counts
    truth = bench.mean(right)
    called = list(calls_on_the_mean(both, counts))
    joint = drive_rounds(Controller(both), Tape.from_chances(chances, W, draws))
    looks = [(sum(look.trials), look.count(Verdict.RESOLVED)) for look in joint.looks]
    last = [pair for pair in joint.looks[-1].comparisons if pair.verdict is Verdict.RESOLVED]
    return Compared(
        of_two=int(counts.sum()),
        called=len(called),
        wrong=wrong(called, truth),
        of_one=next((trials for trials, calls in looks if calls >= len(called)), looks[-1][0]),
        trials_whole=looks[-1][0],
        called_whole=len(last),
        wrong_whole=sum(bool(truth[pair.winner] < max(truth[pair.first], truth[pair.second])) for pair in last),
    )


def calls_on_the_mean(plan: Plan, counts: IntArray) -> Iterator[tuple[int, int]]:
    """Neighbours by the mean that one look at these counts calls, the better first."""
    bench = plan.bench
    estimates = update(Estimates.nothing(bench), np.arange(MODELS), counts, bench, plan.prior, plan.trials.max)
    trials = counts.sum(axis=(1, 2))
    nobody, nothing = np.zeros(MODELS, dtype=bool), np.zeros(MODELS, dtype=np.int64)
    remaining = np.maximum(80 * bench.questions - trials, 0)
    available = AvailableTrials(trials, remaining, np.inf, nobody, nothing, nobody, nothing)
    pairs = LatchedVerdicts.blank(MODELS * (MODELS - 1) // 2)
    criteria = Criteria(plan.objective, plan.deciding_rule, plan.judging)
    look = judge_look(estimates, evidence_readings(estimates, criteria), pairs, criteria, available)
    resolved = look.verdicts == VERDICTS.index(Verdict.RESOLVED)
    yield from map(tuple, look.pairs[resolved].tolist())


def wrong(called: list[tuple[int, int]], truth: FloatArray) -> int:
    """Calls for a model that is truly worse."""
    return sum(bool(truth[better] < truth[worse]) for better, worse in called)


if __name__ == "__main__":
    main()
