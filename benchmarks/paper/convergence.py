"""How many trials recorded rankings take to settle (paper, sections 3.1 and 3.3, appendices F and G).

    python benchmarks/paper/convergence.py [DATA...] [--quick] [--top 11] [--json PATH]

DATA are runs or .npz files of outcomes; without any it is one matrix of 80 trials of the eleven coins. The gold ranking
is that of all trials, at most 80 a question. Over bootstraps of whole trials the tables give tau-b with the gold
ranking, and convergence@n: the smallest n <= N - 1 from which on the ranking is the gold one. A replicate without such
an n never converges, and is in no mean. Random subsets of models show the effect of their number. The paper's own
figures cannot be reproduced without its outcomes, which it does not print.
"""

import sys
from math import comb
from pathlib import Path
from typing import NamedTuple

import numpy as np
from coins import DRAWS

from adaptive_eval.exchange.recording import read_recording, recording_of_run
from adaptive_eval.simulate.worlds import coins
from scorio.convergence import BAYES, Convergence, Metric, Study, convergence_at_n, convergence_of_subsets, tau_curve
from scorio.moments import FloatArray, IntArray

sys.path.append(str(Path(__file__).parents[1]))
from tables import Check, arguments, markdown, publish

MOST_TRIALS, LOOKS = 80, (10, 20, 40, 80)
SUBSETS = {5: 50, 10: 20, 15: 20, 20: 1}
"""Subsets for each number of models."""


class Outcomes(NamedTuple):
    """Categories (L, M, N) of equally many trials of each question, best model first, with the weights."""

    name: str
    categories: IntArray
    weights: FloatArray

    def best(self, top: int | None) -> "Outcomes":
        order = np.argsort(-self.weights[self.categories].mean(axis=(1, 2)), kind="stable")[:top]
        return self._replace(categories=self.categories[order])


def coin_outcomes() -> Outcomes:
    chances = coins().p[..., 1]
    drawn = np.random.default_rng(0).random((*chances.shape, MOST_TRIALS)) < chances[..., None]
    return Outcomes("coins", drawn.astype(np.int64), np.array([0.0, 1.0]))


def read_outcomes(path: Path) -> Outcomes:
    """The first trials of each question in a run or an .npz file, as many as all have; in random order if only their
    counts are known."""
    recording = recording_of_run(path) if path.is_dir() else read_recording(path)
    if recording.weighing is not None:
        sys.exit(f"{path} has several benchmarks; give a run of one")
    counts, weights = recording.counts, recording.weights
    trials, recorded = min(int(counts.sum(axis=-1).min()), MOST_TRIALS), recording.outcomes
    if recorded is None:
        rng = np.random.default_rng([0, 0])
        cells = [rng.permutation(np.repeat(np.arange(len(cell)), cell))[:trials] for row in counts for cell in row]
        categories = np.reshape(cells, (*counts.shape[:2], trials))
    else:
        order = np.argsort(recorded < 0, axis=-1, kind="stable")[..., :trials]
        categories = np.take_along_axis(recorded, order, axis=-1).astype(np.int64)
    return Outcomes(path.stem, categories, np.array([0.0, 1.0]) if weights is None else weights)


def metrics(outcomes: Outcomes) -> dict[str, Metric]:
    """Bayes@N, and for answers that are right or wrong those of k draws."""
    if outcomes.weights.size != 2:
        return {"Bayes@N": BAYES}
    return {"Bayes@N": BAYES, **DRAWS}


def subset_rows(outcomes: Outcomes, replicates: int) -> list[tuple[object, ...]]:
    """By number of models: subsets, mean convergence@n, and how often there is none."""
    models, rng, rows = len(outcomes.categories), np.random.default_rng([0, 3]), list[tuple[object, ...]]()
    study = Study.of(outcomes.categories, w=outcomes.weights)
    for size, number in SUBSETS.items():
        if size > models:
            break
        chosen: set[tuple[int, ...]] = set()
        while len(chosen) < min(number, comb(models, size)):
            chosen.add(tuple(sorted(rng.choice(models, size, replace=False).tolist())))
        results = convergence_of_subsets(study, sorted(chosen), replicates, np.random.default_rng([0, 4]))
        means = [at.mean for at in results if at.never < 1.0]
        never = float(np.mean([at.never for at in results]))
        rows.append((size, len(results), float(np.mean(means)) if means else "", never))
    return rows


def sections(outcomes: Outcomes, replicates: int) -> tuple[str, Convergence]:
    """The tables of one data set, and convergence@n of Bayes@N."""
    rows, first = list[tuple[object, ...]](), list[Convergence]()
    for name, metric in metrics(outcomes).items():
        study = Study.of(outcomes.categories, w=outcomes.weights, metric=metric)
        at = convergence_at_n(study, replicates, np.random.default_rng([0, 1]))
        curve = tau_curve(study, max(1, replicates // 10), np.random.default_rng([0, 2]))
        tau = dict(zip(curve.trials.tolist(), curve.tau.tolist(), strict=True))
        first.append(at)
        rows.append((name, *(tau.get(n, "") for n in LOOKS), "" if at.never == 1.0 else at.mean, at.never))
    models, questions, trials = outcomes.categories.shape
    table = markdown(("metric", *(f"tau {n}" for n in LOOKS), "mean n", "never"), rows)
    panels = markdown(("models", "subsets", "mean n", "never"), subset_rows(outcomes, max(1, replicates // 10)))
    head = f"{outcomes.name}: {models} models, {questions} questions, {trials} trials; {replicates} bootstraps."
    return f"{head}\n\n{table}\n\nBayes@N, random subsets of models:\n\n{panels}", first[0]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", nargs="*", type=Path, help="runs, or .npz files of outcomes")
    parser.add_argument("--top", type=int, help="only this many models, the best ones")
    options = parser.parse_args()
    replicates = 500 if options.quick else 100_000
    parts, checks = list[str](), list[Check]()
    for outcomes in [*map(read_outcomes, options.data)] or [coin_outcomes()]:
        text, at = sections(outcomes.best(options.top), replicates)
        total = float(at.pmf.sum()) + at.never
        what = f"{outcomes.name}: shares of convergence@n and of none, together"
        parts.append(text)
        checks.append(Check(what, round(total, 6), "1", abs(total - 1.0) < 1e-6))
    publish(options, "Convergence", __doc__, *parts, checks=checks)


if __name__ == "__main__":
    main()
