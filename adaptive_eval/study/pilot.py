"""A pilot: trials of another run, or of the same one, as models and questions of the planned run.

The usage of trials (tokens, USD, GPU time, seconds) is stored as means by model and category, since wrong answers are
longer and only sums over a run matter. Seconds are log-normal around their mean, since a round waits for its last
answer.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.lists import first_few
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.base.roster import Roster
from adaptive_eval.config.fingerprint import differences, shared_differences
from adaptive_eval.config.planning import prompt_bytes, usage_cost
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.batching import MAX_REQUESTS
from adaptive_eval.endpoints.types import Prompt
from adaptive_eval.exchange.recording import count_outcomes
from adaptive_eval.notes import BatchEnded, BatchTaken, Event, ServerLaunched
from adaptive_eval.report.other_costs import HeldServers, extra_costs
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import JudgeUse, TrialFacts
from adaptive_eval.store.header import RunHeader
from scorio.moments import FloatArray

BYTES_PER_TOKEN = 4.0
"""Bytes per token of an English prompt, according to the makers of tokenizers."""
GUESSED_SHARE = 0.25
"""Guessed length of an answer as a share of `max_tokens`."""
GUESSED_TOKENS_PER_SECOND = 40.0
"""Guessed tokens per second of one answer among many on a busy server."""
GUESSED_WRONG_FACTOR = 2.0
"""Guessed length of a wrong answer relative to a right one."""
GUESSED_SPREAD = 0.5
"""Standard deviation of the logarithm of an answer's seconds."""
GUESSED_BATCH_SECONDS = 3600.0
"""Guessed seconds until a batch is answered: services promise a day, and most take an hour at most."""


class MeasuredUsage(NamedTuple):
    """Usage of the answers of a pilot, by model and category."""

    trials: FloatArray
    """(L, K)."""
    sums: FloatArray
    """(5, L, K): prompt tokens, completion tokens, seconds, cached prompt tokens, and USD of all trials."""
    log_spread: FloatArray
    """(L,): standard deviation of the logarithm of an answer's seconds within its category; nan where unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class AnswerUsage:
    """Mean usage (L, K) of a trial by model and category; nan if unknown."""

    prompt_tokens: FloatArray
    completion_tokens: FloatArray
    seconds: FloatArray
    log_spread: FloatArray
    cached_tokens: FloatArray | float = 0.0
    """Of the prompt tokens; a guess has none."""
    usd: FloatArray | float = 0.0
    """Of answers of commands, which report it."""

    @property
    def knows_tokens(self) -> bool:
        return bool(np.isfinite(self.completion_tokens).all())

    @property
    def knows_seconds(self) -> bool:
        return bool(np.isfinite(self.seconds).all())


def guessed_lengths(weights: FloatArray) -> FloatArray:
    """(K,): lengths of answers by category, over their mean."""
    lengths = np.where(weights == weights.max(), 1.0, GUESSED_WRONG_FACTOR)
    return np.asarray(lengths / lengths.mean())


def guess(models: Sequence[ModelConfig], prompts: Sequence[Sequence[Prompt]], weights: FloatArray) -> AnswerUsage:
    """A guess without a pilot; nan for a model without `max_tokens`."""
    max_tokens = np.array([model.sampling.max_tokens or np.nan for model in models], dtype=float)
    prompt_sizes = np.array(
        [np.mean([prompt_bytes(prompt) for prompt in model_prompts]) / BYTES_PER_TOKEN for model_prompts in prompts]
    )
    completion = GUESSED_SHARE * max_tokens[:, None] * guessed_lengths(weights)
    prompt_tokens = np.repeat(prompt_sizes[:, None], len(weights), axis=1)
    return AnswerUsage(
        prompt_tokens, completion, completion / GUESSED_TOKENS_PER_SECOND, np.full(len(models), GUESSED_SPREAD)
    )


def request_slots(model: ModelConfig, max_requests: int) -> int:
    """Requests at a time; for a batch service all that there may be, which is `max_requests`."""
    if model.batch is not None:
        return min(MAX_REQUESTS[model.batch], max_requests)
    return model.concurrency.in_flight * len(model.replicas)


def batch_seconds(models: Sequence[ModelConfig], seen: Mapping[str, Sequence[float]]) -> tuple[FloatArray, list[str]]:
    """(L,): seconds that a batch of each model takes, nan for models without batches; with sentences on the source.

    `seen` has the seconds of past batches by model; a model without any gets those of the others.
    """
    all_durations = [seconds for durations in seen.values() for seconds in durations]
    expected, remarks = np.full(len(models), np.nan), dict[str, None]()
    for number, model in enumerate(models):
        if model.batch is None:
            continue
        measured = seen.get(model.name) or all_durations
        if measured:
            expected[number] = float(np.median(measured))
            remarks[
                f"a batch is expected to be answered in {plain_number(expected[number] / 3600.0, 2)} h, as in the pilot"
            ] = None
        else:
            expected[number] = GUESSED_BATCH_SECONDS
            remarks[f"a batch is guessed to be answered in {GUESSED_BATCH_SECONDS / 3600.0:g} h, whatever its size"] = (
                None
            )
    return expected, list(remarks)


def measured_batch_seconds(events: Sequence[Event]) -> dict[str, list[float]]:
    """Seconds from the submission of each batch until its answers were stored, by model."""
    submitted = {event.key: event.since for event in events if isinstance(event, BatchTaken)}
    durations: dict[str, list[float]] = {}
    for event in events:
        if isinstance(event, BatchEnded) and event.came and event.key in submitted:
            durations.setdefault(event.model, []).append(max(event.at - submitted[event.key], 0.0))
    return durations


def merge_usage(
    measured: MeasuredUsage, otherwise: AnswerUsage
) -> tuple[AnswerUsage, NDArray[np.bool_], NDArray[np.bool_]]:
    """The pilot's means; models without tokens or seconds get those of its other models, else a guess.

    Also returns which models have their own tokens, and which their own seconds.
    """
    _, own_tokens, own_seconds, *_ = has_usage = measured.sums.sum(axis=2) > 0.0
    has_usage[[0, 3]], has_usage[4] = own_tokens, measured.trials.any(axis=1)
    nothing = np.zeros(measured.trials.shape)
    others = otherwise.prompt_tokens, otherwise.completion_tokens, otherwise.seconds, nothing, nothing
    columns = zip(measured.sums, has_usage, others, strict=True)
    prompt_tokens, completion_tokens, seconds, *rest = (_fill_means(measured.trials, *column) for column in columns)
    spread = np.where(own_seconds & np.isfinite(measured.log_spread), measured.log_spread, otherwise.log_spread)
    return AnswerUsage(prompt_tokens, completion_tokens, seconds, spread, *rest), own_tokens, own_seconds


def _fill_means(
    trials: FloatArray, sums: FloatArray, has_usage: NDArray[np.bool_], otherwise: FloatArray
) -> FloatArray:
    """Means by model and category; a category without answers gets the mean of all the model's answers."""
    if not has_usage.any():
        return otherwise
    pooled = _means(sums[has_usage].sum(axis=0), trials[has_usage].sum(axis=0))
    means = _means(sums, trials)
    return np.where(has_usage[:, None], means, pooled)


def _means(sums: FloatArray, trials: FloatArray) -> FloatArray:
    overall = sums.sum(axis=-1, keepdims=True) / np.maximum(trials.sum(axis=-1, keepdims=True), 1.0)
    return np.where(trials > 0.0, sums / np.maximum(trials, 1.0), overall)


def cost_table(
    models: Sequence[ModelConfig], usage: AnswerUsage, grade: Cost = NO_COST
) -> tuple[tuple[Cost, ...], ...]:
    """Cost of a trial of each model and category including its `grade`; unknown amounts count as 0.

    Models that share their servers share the time of these.
    """
    cached_tokens, usd = (np.broadcast_to(part, usage.prompt_tokens.shape) for part in (usage.cached_tokens, usage.usd))
    columns = (usage.prompt_tokens, usage.completion_tokens, usage.seconds, cached_tokens, usd)
    rows = zip(models, *(np.nan_to_num(column).tolist() for column in columns), strict=True)
    costs = []
    for model, *model_usage in rows:
        cost = partial(usage_cost, model, concurrent_answers=_concurrent_answers(model, models))
        of_categories = [
            cost(*used, cached_tokens=cached) if model.command is None else Cost(round(sum(used[:2])), reported)
            for *used, cached, reported in zip(*model_usage, strict=True)
        ]
        costs.append(tuple(each.plus(grade) for each in of_categories))
    return tuple(costs)


def _concurrent_answers(model: ModelConfig, models: Sequence[ModelConfig]) -> int:
    """Answers in flight at each server of a model, of all models that share them."""
    shared = model.shared_addresses
    others = [other for other in models if shared and other.shared_addresses == shared] or [model]
    return sum(other.concurrency.in_flight for other in others)


CAPS_BESIDE = "trials", "tokens", "usd", "gpu_seconds"
MAX_SHOWN = 3
"""Names or differences listed in one sentence."""


@dataclass(frozen=True, slots=True, eq=False)
class Pilot:
    """Outcomes and usage of the planned run's L models on its M questions."""

    outcomes: NDArray[np.int16]
    """(L, M, N): categories by trial number, -1 for no trial."""
    counts: NDArray[np.int64]
    """(L, M, K)."""
    measured: MeasuredUsage
    elapsed: float
    """Seconds that the pilot was active."""
    header: RunHeader
    remarks: tuple[str, ...]
    """Sentences on mismatches with the planned run."""
    batches: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Seconds that its batches took, by model."""
    grading: JudgeUse | None = None
    """Usage of its grades, if models were asked for them."""
    start_seconds: float | None = None
    """The median over models of the longest start of a server; None if it started none."""
    held_gpu_seconds: float = 0.0
    """For which it held the servers that the planned run starts itself."""
    spent_beside: Mapping[str, float] = field(default_factory=dict)
    """Its spending besides the stored answers of the planned models, by cap."""


def read_pilot(directory: Path, prepared: PreparedRun) -> Pilot:
    """Read the trials of a run directory, matching models by name and questions by id; raises `ConfigError`."""
    with RunReader.intact(directory) as reader:
        header, elapsed, events, held = reader.header(), reader.log.elapsed, reader.events(), reader.held_times()
        graded = list(reader.trial_facts())
        grading = reader.judge_use()
        beside = extra_costs(reader, prepared.roster.models, HeldServers((), ()), events)
    _require_same_rubric(directory, header, prepared)
    models, questions = prepared.models, tuple(question.id for question in prepared.questions)
    matched, roster = _matching(directory, graded, prepared.roster), prepared.roster
    places = [(roster.models.position(use.model), roster.questions.position(use.question)) for use in matched]
    model, question = np.array(places, dtype=np.intp).T
    trial, category = np.array([(use.trial, use.category) for use in matched], dtype=np.intp).T
    used = [(use.prompt_tokens, use.completion_tokens, use.latency, use.cached_tokens, use.usd) for use in matched]
    categories = prepared.plan.bench.categories
    if category.max() >= categories:
        raise ConfigError(
            f"the pilot {directory} has trials of category {category.max()}, but the rubric has the categories "
            f"0 to {categories - 1}; give a pilot that was graded with the same rubric"
        )
    outcomes = np.full((len(models), len(questions), int(trial.max()) + 1), -1, dtype=np.int16)
    outcomes[model, question, trial] = category
    counts = count_outcomes(outcomes, categories)
    return Pilot(
        outcomes=outcomes,
        counts=counts,
        measured=measure(model * categories + category, np.array(used, dtype=float), (len(models), categories)),
        elapsed=elapsed,
        header=header,
        remarks=(*_missing_in_pilot(counts, prepared), *_differences_from_pilot(header, prepared.header)),
        batches=measured_batch_seconds(events),
        grading=grading,
        start_seconds=_start_seconds(events),
        held_gpu_seconds=sum(
            held[models[index]].gpu_seconds for index in prepared.config.launched if models[index] in held
        ),
        spent_beside={cap: sum(getattr(row, cap) for row in beside) for cap in CAPS_BESIDE},
    )


def _start_seconds(events: Sequence[Event]) -> float | None:
    longest = dict(sorted((event.model, event.seconds) for event in events if isinstance(event, ServerLaunched)))
    return float(np.median(list(longest.values()))) if longest else None


def _require_same_rubric(directory: Path, header: RunHeader, prepared: PreparedRun) -> None:
    changes = list(differences(header.meaning.get("rubric"), prepared.header.meaning["rubric"], "rubric"))
    if changes:
        raise ConfigError(
            f"the pilot {directory} was graded with another rubric ({changes[0]}), so that its categories have other "
            f"meanings; `adaptive-eval regrade {shlex.quote(str(directory))} --config CONFIG` grades it again, or plan "
            "without it"
        )


def _matching(directory: Path, graded: Sequence[TrialFacts], roster: Roster) -> list[TrialFacts]:
    """The trials of planned models on planned questions."""
    if not graded:
        raise ConfigError(f"the pilot {directory} has no graded trial; give a run that has some, or plan without one")
    matched = [use for use in graded if (use.model, use.question) in roster]
    if not matched:
        kind = "model" if not any(use.model in roster.models for use in graded) else "question"
        pilot_names = sorted({getattr(use, kind) for use in graded})
        raise ConfigError(
            f"the pilot {directory} has no {kind} of the configuration, but {first_few(pilot_names, MAX_SHOWN)}; "
            "models are matched by name, questions by id"
        )
    return matched


def measure(cell: NDArray[np.intp], used: FloatArray, shape: tuple[int, int]) -> MeasuredUsage:
    """Sums by model and category, of which a `cell` is the number; `used` has the columns of
    `MeasuredUsage.sums` for each trial."""

    def summed(values: FloatArray | None) -> FloatArray:
        return np.bincount(cell, values, shape[0] * shape[1]).reshape(shape).astype(float)

    trials, logs = summed(None), np.log(np.maximum(used[:, 2], 1e-6))
    within = np.maximum(summed(logs**2) - summed(logs) ** 2 / np.maximum(trials, 1.0), 0.0).sum(axis=1)
    freedom = np.maximum(trials - 1.0, 0.0).sum(axis=1)
    spread = np.where(freedom > 0.0, np.sqrt(within / np.maximum(freedom, 1.0)), np.nan)
    return MeasuredUsage(trials, np.array([summed(values) for values in used.T]), spread)


def _missing_in_pilot(counts: NDArray[np.int64], prepared: PreparedRun) -> list[str]:
    """Sentences on models that are asked and questions that the pilot lacks."""
    remarks, asked = list[str](), prepared.plan.bench.asked
    models, questions = list(compress(prepared.models, asked)), [question.id for question in prepared.questions]
    for kind, names, axes in (("models", models, (1, 2)), ("questions", questions, (0, 2))):
        trials = counts[asked].sum(axis=axes).tolist()
        missing = [name for name, number in zip(names, trials, strict=True) if not number]
        if missing:
            remarks.append(
                f"{len(missing)} of {len(names)} {kind} have no graded answers ({first_few(missing, MAX_SHOWN)}): "
                "drawn as the others vary"
            )
    return remarks


def _differences_from_pilot(then: RunHeader, now: RunHeader) -> Iterator[str]:
    """Differences of models with the same name, and of questions with the same id."""
    changes = [
        *shared_differences(then, now),
        *differences(then.meaning.get("grader"), now.meaning["grader"], "grader"),
    ]
    if changes:
        yield f"the pilot was asked or graded otherwise: {first_few(list(map(str, changes)), MAX_SHOWN)}"
