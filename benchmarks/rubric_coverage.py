"""Whether the intervals of a run contain the true score under each of the twelve schemata of the Bayes@N paper.

    python benchmarks/rubric_coverage.py [--quick] [--runs 200] [--json PATH]

The models of `known_answers.py`: 3 models and 30 questions; of each model to each question there are 200 answers,
whose correctness, box, length, bits per token and verifier labels go together, and a trial draws one of them. Each
seeded run has default settings and 4 to 24 trials a question. The thresholds of a schema are fitted on a pilot of 4
trials a question with another seed (`rubric: {thresholds: {from: RUN}}`); the true score is the mean of all answers
under these very thresholds. Exact Match and Length-Robust are one rubric.

*trials*: of a run, in the mean. *error*: mean of score less truth. *sd of z*: standard deviation of the errors over
their sigma, 1 where intervals are as wide as they say.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from known_answers import AnswerPopulation, known_models
from numpy.typing import NDArray
from tables import arguments, between, markdown, publish

from adaptive_eval.base.seeds import hashed_base, trial_seed
from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.planning import plan_on
from adaptive_eval.core import Bench, Controller
from adaptive_eval.core.tape import Tape
from adaptive_eval.graders.frozen import fit_frozen
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.simulate.answering import Respondent
from adaptive_eval.simulate.worlds import World
from adaptive_eval.study.drive import drive_rounds
from scorio.categorical import SCHEMATA, Schema, Thresholds, classify
from scorio.moments import FloatArray

LEAST, MOST, DEEPEST = 4, 24, 48
"""Trials of a question at least and on average, and of any question at most."""
LOW, HIGH = 0.93, 0.97
PILOT = 1000
"""Added to the seed of a run for that of its pilot."""


class RunEnd(NamedTuple):
    """What a run came to, beside the truth; its models in the order of the world."""

    errors: FloatArray
    sigmas: FloatArray
    halves: FloatArray
    """Of the 95% intervals."""
    trials: int


def drawn_answers(world: World, population: AnswerPopulation, seed: int) -> NDArray[np.int64]:
    """(L, M, N): the numbers of the answers that a simulated server would give to each trial of a run."""
    respondent, serials = Respondent(world), np.empty((*population.words.shape[:2], DEEPEST), dtype=np.int64)
    for (model, name), (question, asked) in product(enumerate(world.models), enumerate(world.questions)):
        base = hashed_base(seed, name, asked)
        for trial in range(DEEPEST):
            noise, *_ = respondent.noise(name, asked, trial_seed(base, trial))
            serials[model, question, trial] = population.serial(model, question, population.drawn(noise))
    return serials


def fitted_thresholds(population: AnswerPopulation, schema: Schema, serials: NDArray[np.int64]) -> Thresholds:
    """Those of a pilot with these answers."""

    def numbers(name: str) -> FloatArray:
        return np.asarray(getattr(population.signals, name).ravel()[serials.ravel()], dtype=float)

    percentiles = RubricConfig(name=schema.name).percentiles
    return Thresholds(**fit_frozen(numbers, ["q"] * serials.size, percentiles, with_medians=False).values)


def run(population: AnswerPopulation, schema: Schema, serials: NDArray[np.int64], pilot: NDArray[np.int64]) -> RunEnd:
    """A run on these answers, with thresholds of a pilot."""
    thresholds = fitted_thresholds(population, schema, pilot[..., :LEAST])
    labels = classify(population.signals, schema, thresholds).ravel()[serials]
    weights = np.array(schema.weights, dtype=float)
    decisions = Decisions.model_validate({"rubric": {"name": schema.name}, "trials": {"min": LEAST, "max": MOST}})
    models, questions, _ = serials.shape
    plan = plan_on(Bench(models, questions, weights), decisions, [f"model-{number}" for number in range(models)])
    result = drive_rounds(Controller(plan), Tape(iter(np.moveaxis(labels, 2, 0)), weights)).result()
    assert result is not None
    rows = sorted(result.models, key=lambda row: row.model)
    scores, sigmas, low, high = np.array([(row.score, row.sigma, row.lo, row.hi) for row in rows]).T
    return RunEnd(scores - population.scores(schema, thresholds), sigmas, (high - low) / 2.0, result.trials)


def row(schema: Schema, ends: Sequence[RunEnd]) -> tuple[str, int, int, float, float, float]:
    """A row of the table."""
    errors, sigmas, halves, trials = (np.array(values) for values in zip(*ends, strict=True))
    covered, spread = float(np.mean(np.abs(errors) <= halves)), float((errors / sigmas).std())
    return schema.title, len(schema.thresholds), round(trials.mean()), covered, spread, round(float(errors.mean()), 5)


def main() -> None:
    options = arguments(__doc__, runs=200, quick_runs=20).parse_args()
    world, population = known_models()
    drawn = [[drawn_answers(world, population, seed + added) for added in (0, PILOT)] for seed in range(options.runs)]
    rows, checks = [], []
    for schema in SCHEMATA.values():
        if schema.name != "length_robust":
            rows.append(row(schema, [run(population, schema, *answers) for answers in drawn]))
            if not options.quick:
                checks.append(between(f"{schema.name}: 95% intervals that contain the truth", rows[-1][3], LOW, HIGH))
    table = markdown(("schema", "thresholds", "trials", "coverage", "sd of z", "error"), rows)
    publish(options, "Coverage under the schemata", __doc__, table, checks=checks)


if __name__ == "__main__":
    main()
