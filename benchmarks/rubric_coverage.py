"""Whether the intervals of a run contain the true score under each of the twelve schemata of the Bayes@N paper.

    python benchmarks/rubric_coverage.py [--quick] [--live 1] [--json PATH] [--markdown PATH]

The models of `known_answers.py`: 3 models and 30 questions; of each model to each question there are 200 answers,
whose correctness, box, length, bits per token and verifier labels go together, and a trial draws one of them. Each of
200 seeded runs (--quick: 20) has default settings and 4 to 24 trials a question. The thresholds of a schema are fitted
on a pilot of 4 trials a question with another seed (`rubric: {thresholds: {from: RUN}}`); the true score is the mean of
all answers under these very thresholds. Exact Match and Length-Robust are one rubric.

What a run decides follows from its answers, and these from its seed. So the runs are made twice: without HTTP, by the
same core, draws, fit and plan, all of them; and live, the first few of each schema (--live), with the models and the
verifier behind HTTP, the grader `math` beside it, and a store. A live run has to find the same thresholds, scores and
intervals to nine digits, and as many trials: then those without HTTP stand for it.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from known_answers import AnswerPopulation, KnownRespondent, answer_serial, known_models, known_server
from numpy.typing import NDArray
from tables import Check, arguments, check_table, machine, markdown, publish

import adaptive_eval
from adaptive_eval.base.seeds import hashed_base, trial_seed
from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.planning import plan_on
from adaptive_eval.core import Bench, Controller
from adaptive_eval.graders.frozen import fit_frozen
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.notes import ThresholdsFrozen, events_of_kind
from adaptive_eval.report.reader import RunReader
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.server import serving
from adaptive_eval.simulate.worlds import Latency, World
from scorio.categorical import SCHEMATA, Schema, Thresholds, classify
from scorio.moments import FloatArray, question_moments
from scorio.sinf.prior import self_centred_average_moments, self_centred_prior, unseen_variance

LEAST, MOST, DEEPEST = 4, 24, 48
"""Trials of a question at least and on average, and of any question at most."""
FIXED = 12
LOW, HIGH = 0.93, 0.97
CLOSE = 1e-9
DRAWN = 300
PILOT = 1000
"""Added to the seed of a run for that of its pilot."""
ABOUT_RUNS = """\
*trials*: of a run, in the mean. *error*: mean of score less truth. *sd of z*: standard deviation of the errors over
their sigma, 1 where intervals are as wide as they say."""
ABOUT_SIGMA = f"""\
How wide sigma is: of {FIXED} trials of each question, with thresholds that are known beforehand, over the true standard
error (root mean squares). *sigma*: as it is. *without*: without the variance of three further deviating trials that
every model's sigma has added (`scorio.sinf.prior`: else a model with few trials beats its equal too often, where
failures are rare); this is to be 1. *of all*: the same with one concentration for all categories, as it was before: how
sure, how long or how well formed right answers are differs little from question to question, whether they are right
differs much, and one number for both is too large for the latter."""


class RunEnd(NamedTuple):
    """What a run came to; its models in the order of the world."""

    scores: FloatArray
    sigmas: FloatArray
    halves: FloatArray
    """Of the 95% intervals."""
    trials: int
    thresholds: dict[str, float]


@dataclass(frozen=True)
class AnswerColumns:
    """Signals of some answers, as the fit takes them."""

    population: AnswerPopulation
    serials: NDArray[np.int64]

    def numbers(self, name: str) -> FloatArray:
        values = getattr(self.population.signals, name)
        return np.asarray(values.ravel()[self.serials.ravel()], dtype=float)


def known_respondent() -> KnownRespondent:
    """The models, which answer at once."""
    world, population = known_models()
    return KnownRespondent(replace(world, latency=Latency(median=0.001)), population)


def drawn_answers(respondent: KnownRespondent, seed: int) -> NDArray[np.int64]:
    """(L, M, N): the numbers of the answers that the server gives to each trial of a run."""

    def answers_of(model: str, question: str) -> list[int]:
        base = hashed_base(seed, model, question)
        texts = (respondent.answer(model, question, trial_seed(base, trial)).text for trial in range(DEEPEST))
        return [serial for text in texts if (serial := answer_serial(text)) is not None]

    return np.array(
        [[answers_of(model, question) for question in respondent.world.questions] for model in respondent.world.models]
    )


def run_without_http(
    respondent: KnownRespondent, schema: Schema, serials: NDArray[np.int64], pilot: NDArray[np.int64]
) -> RunEnd:
    """The decisions of a run on these answers, with thresholds of a pilot."""
    population = respondent.population
    percentiles = RubricConfig(name=schema.name).percentiles
    columns = AnswerColumns(population, pilot[..., :LEAST])
    fitted = fit_frozen(columns.numbers, ["q"] * columns.serials.size, percentiles, with_medians=False).values
    labels = classify(population.signals, schema, Thresholds(**fitted)).ravel()[serials]
    weights = np.array(schema.weights, dtype=float)
    section = Decisions.model_validate({"rubric": {"name": schema.name}, "trials": {"min": LEAST, "max": MOST}})
    models, questions, _ = serials.shape
    controller = Controller(plan_on(Bench(models, questions, weights), section, respondent.world.models))
    while controller.finished is None:
        for asked in controller.ask_rounds():
            for model, batch in asked.batches.items():
                counts = np.zeros((questions, len(weights)), dtype=np.int64)
                for question in np.flatnonzero(batch.slots.extra).tolist():
                    first = int(batch.slots.first[question])
                    outcomes = labels[model, question, first : first + int(batch.slots.extra[question])]
                    counts[question] = np.bincount(outcomes, minlength=len(weights))
                controller.tell_batch(batch, counts)
    result = controller.result()
    assert result is not None
    rows = sorted(result.models, key=lambda row: row.model)
    return RunEnd(
        np.array([row.score for row in rows]),
        np.array([row.sigma for row in rows]),
        np.array([(row.hi - row.lo) / 2.0 for row in rows]),
        result.trials,
        dict(fitted),
    )


def run_live(world: World, schema: Schema, seed: int, url: str, folder: Path, beside: str = "math") -> RunEnd:
    """The same over HTTP."""
    (folder / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in question_rows(world)))
    settings: dict[str, Any] = {
        "name": "live",
        "seed": seed,
        "questions": str(folder / "questions.jsonl"),
        "models": [{"name": model, "base_url": url, "prompt_logprobs": "vllm"} for model in world.models],
        "sampling": {"temperature": 0.6, "max_tokens": 4000, "logprobs": True},
        "concurrency": 64,
        "grader": {
            "kind": "verifier",
            "server": {"base_url": url, "model": "verifier"},
            "key_grader": beside,
            "concurrency": {"in_flight": 64},
        },
        "trials": {"min": LEAST, "max": MOST, "optimize": "cost"},
    }
    rubric: dict[str, Any] = {"name": schema.name}
    if schema.thresholds:
        few = {"trials": {"min": LEAST, "max": LEAST, "optimize": "cost"}}
        adaptive_eval.run(settings | few | {"seed": PILOT + seed}, directory=folder / "pilot", display="none")
        rubric["thresholds"] = {"from": str(folder / "pilot")}
    settings["rubric"] = rubric
    record = adaptive_eval.run(settings, directory=folder / "run", display="none")
    assert record.results is not None
    rows = {row.name: row for row in record.results.models}
    numbers = np.array([[rows[name].score, rows[name].sigma, rows[name].lo, rows[name].hi] for name in world.models])
    with RunReader.intact(folder / "run") as reader:
        frozen = events_of_kind(reader.events(), ThresholdsFrozen)
    thresholds = dict(frozen[-1].values) if frozen else {}
    trials = sum(row.trials for row in rows.values())
    return RunEnd(numbers[:, 0], numbers[:, 1], (numbers[:, 3] - numbers[:, 2]) / 2.0, trials, thresholds)


def is_same(first: RunEnd, other: RunEnd) -> bool:
    """To nine digits."""
    numbers = [(getattr(first, name), getattr(other, name)) for name in ("scores", "sigmas", "halves")]
    close = all(np.allclose(mine, its, rtol=0.0, atol=CLOSE) for mine, its in numbers)
    fitted = first.thresholds.keys() == other.thresholds.keys() and all(
        abs(value - other.thresholds[name]) < CLOSE for name, value in first.thresholds.items()
    )
    return close and fitted and first.trials == other.trials


def sigma_ratios(population: AnswerPopulation, schema: Schema) -> tuple[float, float, float]:
    """Sigma over the true standard error of `FIXED` trials: as it is, without what is added, and as it was."""
    weights = np.array(schema.weights, dtype=float)
    labels = classify(population.signals, schema, population.thresholds)
    shares = np.stack([(labels == k).mean(axis=2) for k in range(len(weights))], axis=-1)
    variance = shares @ weights**2 - (shares @ weights) ** 2
    true = variance.mean(axis=1) / FIXED / variance.shape[1]
    counts = np.random.default_rng(5).multinomial(FIXED, shares, size=(DRAWN, *shares.shape[:2]))
    added = (unseen_variance(counts.sum(axis=-1), weights) / FIXED).sum(axis=-1) / variance.shape[1] ** 2

    def own(prior: FloatArray) -> FloatArray:
        nu = counts + prior[..., None, :]
        return self_centred_average_moments(counts, nu, weights, question_moments(nu, weights)).var

    now, before = own(self_centred_prior(counts, weights)), own(self_centred_prior(counts))
    first, second, third = (
        float(np.sqrt((var.mean(axis=0) / true).mean())) for var in (now, now - added, before - added)
    )
    return first, second, third


def compared(
    respondent: KnownRespondent, options: argparse.Namespace
) -> Iterator[tuple[Schema, list[tuple[RunEnd, FloatArray]], int]]:
    """Of each schema all runs with their truths, and how many of those that were live are the same."""
    runs = 20 if options.quick else 200
    drawn = [(drawn_answers(respondent, seed), drawn_answers(respondent, PILOT + seed)) for seed in range(runs)]
    with serving(known_server(respondent)) as url:
        for schema in SCHEMATA.values():
            if schema.name == "length_robust":
                continue
            ends = [run_without_http(respondent, schema, *answers) for answers in drawn]
            truths = [respondent.population.scores(schema, Thresholds(**end.thresholds)) for end in ends]
            same = 0
            for seed, end in enumerate(ends[: options.live]):
                with tempfile.TemporaryDirectory() as folder:
                    same += is_same(run_live(respondent.world, schema, seed, url, Path(folder)), end)
            yield schema, list(zip(ends, truths, strict=True)), same


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--live", type=int, default=None, help="runs of each schema that are made over HTTP, too")
    options = parser.parse_args()
    if options.live is None:
        options.live = 0 if options.quick else 1
    respondent = known_respondent()
    rows, why, checks = [], [], []
    number, alike = 0, 0
    for schema, results, same in compared(respondent, options):
        errors = np.array([end.scores - truth for end, truth in results])
        sigmas, halves = np.array([end.sigmas for end, _ in results]), np.array([end.halves for end, _ in results])
        covered = float(np.mean(np.abs(errors) <= halves))
        trials = round(float(np.mean([end.trials for end, _ in results])))
        spread = float((errors / sigmas).std())
        rows.append((schema.title, len(schema.thresholds), trials, covered, spread, round(float(errors.mean()), 5)))
        why.append((schema.title, *sigma_ratios(respondent.population, schema)))
        number, alike = number + min(options.live, len(results)), alike + same
        holds = None if options.quick else LOW <= round(covered, 3) <= HIGH
        title = f"{schema.name}: 95% intervals that contain the truth"
        checks.append(Check(title, round(covered, 3), "0.93-0.97", holds))
    if number:
        checks.append(Check(f"{number} live runs that found the same", alike, str(number), alike == number))
    runs = 20 if options.quick else 200
    parts = [
        "# Coverage under the schemata",
        (__doc__ or "").strip(),
        f"On {machine()}; {runs} runs of each schema, three intervals each; {number} runs of them also over HTTP.",
        ABOUT_RUNS,
        markdown(("schema", "thresholds", "trials", "coverage", "sd of z", "error"), rows),
        check_table(checks),
        ABOUT_SIGMA,
        markdown(("schema", "sigma", "without", "of all"), why),
    ]
    publish(options, "\n\n".join(parts), checks)


if __name__ == "__main__":
    main()
