"""Whether the intervals of a run contain the true score under each of the twelve schemata of the Bayes@N paper.

    python benchmarks/rubric_coverage.py [--quick] [--json PATH] [--markdown PATH]

A world of 3 models and 30 questions whose answers have a joint distribution of correctness, box, length, bits per token
and verifier labels: of each model and question a population of 1,500 answers, from which trials are drawn. Each of 200
seeded runs (--quick: 20) is decided by the controller with its default rule and policy, 4 to 24 trials a question. The
thresholds of a schema are fitted on the run's own opening, as `rubric: {fit: opening}` fits them, and then frozen; the
true score is that of the whole population under these very thresholds. Nothing goes over HTTP here: what is measured is
the statistics. Exact Match and Length-Robust are one rubric. A coverage above the goal means intervals that are a
little too wide.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tables import Check, arguments, conclude, markdown

from adaptive_eval.core import Bench, Controller, Plan, Trials
from adaptive_eval.graders.frozen import fit_frozen
from adaptive_eval.graders.rubric import RubricConfig
from scorio.categorical import SCHEMATA, Schema, Signals, Thresholds, classify

MODELS, QUESTIONS, POPULATION = 3, 30, 1500
CAP = 32768
LEAST, MOST = 4, 24
LOW, HIGH = 0.93, 0.97
NORMAL = 1.959964
Columns = dict[str, NDArray[np.float64]]


def population(seed: int) -> Columns:
    """Every signal of every answer that there is, (L, M, P)."""
    rng = np.random.default_rng(seed)
    shape = (MODELS, QUESTIONS, POPULATION)
    hard = rng.normal(0.0, 1.5, QUESTIONS)[None, :, None]
    able = np.array([0.7, 0.2, -0.5])[:, None, None]
    right = rng.random(shape) < 1.0 / (1.0 + np.exp(hard - able))
    tokens = rng.lognormal(8.3, 0.5, shape) * np.where(right, 1.0, 1.5) * np.exp(0.3 * hard)
    labels = np.where(right[..., None], rng.dirichlet((5.0, 2.0, 0.5), shape), rng.dirichlet((2.0, 5.0, 0.5), shape))
    columns = {
        "is_correct": right,
        "has_box": rng.random(shape) < np.where(right, 0.95, 0.75),
        "token_ratio": np.minimum(tokens, CAP) / CAP,
        "repeated_pattern": tokens >= CAP,
        "completion_bpt": rng.gamma(4.0, np.where(right, 0.08, 0.11), shape) * np.exp(0.1 * hard),
        "prompt_bpt": np.broadcast_to(rng.gamma(9.0, 0.2, QUESTIONS)[None, :, None], shape),
        "verifier_a": labels[..., 0],
        "verifier_b": labels[..., 1],
        "verifier_c": labels[..., 2],
    }
    return {name: np.asarray(column, dtype=float) for name, column in columns.items()}


@dataclass(frozen=True)
class Some:
    """Signals of some of them, as the fit takes them."""

    columns: Columns

    def numbers(self, name: str) -> NDArray[np.float64]:
        return self.columns[name].ravel()


def chosen(everything: Columns, at: NDArray[np.int64]) -> Columns:
    """The answers that were drawn, `at` (L, M, N)."""
    return {name: np.take_along_axis(column, at, axis=2) for name, column in everything.items()}


def categories(columns: Columns, schema: Schema, thresholds: Thresholds) -> NDArray[np.int64]:
    """(L, M, P): what each answer is."""
    signals = Signals(**{name: columns[name].ravel() for name in schema.signals})
    found = np.asarray(classify(signals, schema, thresholds), dtype=np.int64)
    return found.reshape(columns["is_correct"].shape)


def intervals(everything: Columns, schema: Schema, seed: int) -> Iterator[tuple[float, float, float]]:
    """Of each model of one run: its score, its standard error, and the truth."""
    rng = np.random.default_rng((7, seed))
    draws = rng.integers(0, POPULATION, (MODELS, QUESTIONS, MOST * 2))
    opening = Some(chosen(everything, draws[..., :LEAST]))
    wanted = RubricConfig(name=schema.name).percentiles
    fitted = fit_frozen(opening, ["q"] * opening.numbers("is_correct").size, wanted, with_medians=False)
    labels = categories(everything, schema, Thresholds(**fitted.values))
    weights = np.array(schema.weights, dtype=float)
    drawn = np.take_along_axis(labels, draws, axis=2)
    controller = Controller(Plan(Bench(MODELS, QUESTIONS, weights), trials=Trials(LEAST, MOST)), keep_looks=False)
    while controller.finished is None:
        for one in controller.ask_rounds():
            for model, batch in one.batches.items():
                counts = np.zeros((QUESTIONS, len(weights)), dtype=np.int64)
                for question in np.flatnonzero(batch.extra).tolist():
                    first = int(batch.first[question])
                    some = drawn[model, question, first : first + int(batch.extra[question])]
                    counts[question] = np.bincount(some, minlength=len(weights))
                controller.tell_batch(batch, counts)
    look = controller.latest_look()
    assert look is not None
    truth = weights[labels].mean(axis=(1, 2))
    yield from zip(look.scores, look.sigmas, truth.tolist(), strict=True)


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    runs = 20 if options.quick else 200
    everything = population(1)
    rows, checks = [], []
    for schema in SCHEMATA.values():
        if schema.name == "length_robust":
            continue
        found = np.array([one for seed in range(runs) for one in intervals(everything, schema, seed)])
        covered = float(np.mean(np.abs(found[:, 0] - found[:, 2]) <= NORMAL * found[:, 1]))
        bias, sigma = float(np.mean(found[:, 0] - found[:, 2])), float(found[:, 1].mean())
        rows.append(
            (schema.title, len(schema.thresholds), len(found), round(covered, 3), round(sigma, 4), round(bias, 5))
        )
        holds = None if options.quick else LOW <= covered <= HIGH
        checks.append(
            Check(f"{schema.name}: 95% intervals that contain the truth", round(covered, 3), "0.93-0.97", holds)
        )
    head = ("schema", "thresholds", "intervals", "coverage", "mean sigma", "mean error")
    conclude(options, "Coverage under the schemata", __doc__, f"{runs} runs of each", markdown(head, rows), checks)


if __name__ == "__main__":
    main()
