"""Writes a run as Inspect logs, one per model: samples, task and results.

Each model's trials are read once, and only their summaries are kept in memory.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import orjson

from adaptive_eval import __version__
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.endpoints.types import Answer, AnswerLogprobs, Prompt
from adaptive_eval.exchange.samples import GRADE_ONLY
from adaptive_eval.exchange.source import ExportSource, OnProgress
from adaptive_eval.questions import Question
from adaptive_eval.report.ending import is_imported_alone
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.report.results import Results
from adaptive_eval.report.snapshot import iso_time
from adaptive_eval.store.lock import is_held
from adaptive_eval.store.packing import valid_text

Json = dict[str, Any]

VERSION = 2
"""Version of Inspect's log format."""
STOP_REASONS = {
    "stop": "stop",
    "length": "max_tokens",
    "context_length": "model_length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}
"""Inspect's names of finish reasons; all others become `unknown`."""
SUMMARISED = (
    *("id", "epoch", "input", "choices", "target", "scores", "metadata", "model_usage"),
    *("total_time", "working_time", "uuid"),
)
MAX_SUMMARY_CHARACTERS = 1000
"""Characters of a text in a summary."""
GENERATION = {"temperature", "top_p", "top_k", "max_tokens"}
"""Sampling settings with the same name in Inspect."""
METRICS = {
    "avg": "score",
    "avg_sigma": "sigma",
    "avg_lo": "lo",
    "avg_hi": "hi",
    "bayes": "bayes",
    "bayes_sigma": "bayes_sigma",
}
"""Metrics by their name in the log, with the field of results.json: avg@N, which unequal numbers of trials do not bias,
and Bayes@N."""
ENDING = ".eval"
COMPRESSION_LEVEL = 4
"""Compression level: files are 5% larger than at the default, in half the time."""


def write_logs(source: ExportSource, folder: Path, on_progress: OnProgress) -> None:
    """Write one log for each model."""
    results = source.run.results(running=is_held(source.reader.directory))
    before = 0
    plain = (re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip(".-") or "model" for model in source.models)
    for name, file in zip(source.models, make_distinct(plain), strict=True):
        with ZipFile(folder / f"{file}{ENDING}", "w", ZIP_DEFLATED, compresslevel=COMPRESSION_LEVEL) as archive:
            before = _write_log(archive, LoggedModel(source, name, results), before, on_progress)


def make_distinct(names: Iterable[str], joint: str = "-") -> list[str]:
    """The names, with a number appended to those that equal an earlier one ignoring case."""
    distinct: dict[str, str] = {}
    for plain in names:
        name, number = plain, 2
        while name.casefold() in distinct:
            name, number = f"{plain}{joint}{number}", number + 1
        distinct[name.casefold()] = name
    return list(distinct.values())


@dataclass(frozen=True, slots=True, eq=False)
class LoggedModel:
    """The model of a log."""

    source: ExportSource
    name: str
    results: Results | None
    """Results of the run; None before its first look."""

    @property
    def model(self) -> ModelConfig | None:
        """The configuration of the model; None if it has left the run."""
        return self.source.model(self.name)

    @property
    def scorer(self) -> str:
        """The name of the score."""
        return self.source.run.setup.config.grader.kind

    @property
    def epochs(self) -> int:
        """The allowed trials per question, or more if some question had more, since the limit is a mean."""
        max_stored = int(self.source.extent.max())
        run = self.source.run
        return max_stored if is_imported_alone(run.events) else max(max_stored, run.setup.config.trials.max)

    @property
    def is_whole(self) -> bool:
        """Whether the log is complete: the run is finished, or consists of imported logs only.

        Inspect calls an incomplete log without an error, of a run that was stopped or is still active, cancelled.
        """
        finished = self.results is not None and self.results.run.status == "finished"
        return finished or is_imported_alone(self.source.run.events)


def _write_log(archive: ZipFile, subject: LoggedModel, before: int, on_progress: OnProgress) -> int:
    """Write a log, with the header last as Inspect does; returns the samples written so far."""
    source, summaries = subject.source, list[Json]()
    start: Json = {"version": VERSION, "eval": _spec(subject), "plan": _plan(subject)}
    _put(archive, "_journal/start.json", start)
    for record in source.reader.model_trials(subject.name):
        question = source.questions[source.roster.questions.position(record.question)]
        sample = _sample(record, question, source.prompt(subject.name, question), subject)
        _put(archive, f"samples/{question.id}_epoch_{sample['epoch']}.json", sample)
        summaries.append(_summary(sample))
        on_progress(before + len(summaries))
    _put(archive, "summaries.json", summaries)
    _put(archive, "header.json", {**start, **_ending(subject, summaries)})
    return before + len(summaries)


def _put(archive: ZipFile, member: str, value: object) -> None:
    archive.writestr(member, orjson.dumps(value))


# -- the header ----------------------------------------------------------------------------------------------------


def _spec(subject: LoggedModel) -> Json:
    source, model = subject.source, subject.model
    config, created = source.run.setup.config, source.reader.created
    rubric = source.run.rubric
    asked, categories = config.questions, dict(zip(rubric.names, rubric.weights, strict=True))
    return {
        "eval_id": _identity(config.name, created, subject.name),
        "run_id": _identity(config.name, created),
        "created": iso_time(created),
        "task": config.name,
        "task_id": _identity(config.name, created, "task", subject.name),
        "task_version": 0,
        "dataset": {
            "name": asked.dataset or asked.world or (None if asked.path is None else asked.path.name),
            "samples": len(source.questions),
            "sample_ids": [question.id for question in source.questions],
            "shuffled": asked.shuffle,
        },
        "model": subject.name,
        "model_base_url": None if model is None else model.replicas[0],
        "model_generate_config": {} if model is None else model.sampling.model_dump(mode="json", include=GENERATION),
        "config": {"epochs": subject.epochs, "epochs_reducer": ["mean"]},
        "packages": {"adaptive_eval": __version__},
        "scorers": [{"name": subject.scorer, "options": {}, "metadata": {"categories": categories}}],
        "metadata": {"served_as": None if model is None else model.model, **config.stated()},
    }


def _identity(*parts: object) -> str:
    """A stable identifier, so that a new export of the same run replaces the previous one in a collection of logs."""
    return blake2b("\0".join(map(str, parts)).encode(), digest_size=11).hexdigest()


def _plan(subject: LoggedModel) -> Json:
    system = None if subject.model is None else subject.model.prompt.system
    steps: list[Json] = [] if system is None else [{"solver": "system_message", "params": {"template": system}}]
    return {"name": "plan", "steps": [*steps, {"solver": "generate", "params": {}}], "config": {}}


def _ending(subject: LoggedModel, samples: Sequence[Json]) -> Json:
    """Summary of all samples, for the header."""
    reader, events = subject.source.reader, subject.source.run.events
    scored = sum("scores" in sample for sample in samples)
    rows = [] if subject.results is None else [row for row in subject.results.models if row.name == subject.name]
    values = {name: getattr(row, attribute, None) for row in rows for name, attribute in METRICS.items()}
    score = {
        "name": subject.scorer,
        "scorer": subject.scorer,
        "reducer": "mean",
        "scored_samples": scored,
        "unscored_samples": len(samples) - scored,
        "params": {},
        "metrics": {name: {"name": name, "value": value} for name, value in values.items() if value is not None},
    }
    usages = [sample["model_usage"][subject.name] for sample in samples]
    return {
        "status": "success" if subject.is_whole else "cancelled",
        "results": {
            "total_samples": len(subject.source.questions) * subject.epochs,
            "completed_samples": scored,
            "scores": [score],
        },
        "stats": {
            "started_at": iso_time(reader.created),
            "completed_at": iso_time(max([reader.created, *(event.at for event in events)])),
            "model_usage": {subject.name: {key: sum(sample[key] for sample in usages) for key in usages[0]}},
        },
    }


# -- samples -------------------------------------------------------------------------------------------------------


def _sample(record: TrialRecord, question: Question, prompt: Prompt, subject: LoggedModel) -> Json:
    """Convert a trial; an ungraded one has an error instead of a score, and one without text has no choice."""
    answer, asked = record.answer, _messages(prompt)
    message = {"role": "assistant", "content": _content(answer), "source": "generate", "model": record.model}
    reason = STOP_REASONS.get(answer.finish_reason, "unknown")
    choices = [{"message": message, "stop_reason": reason, **_logprobs(answer.token_logprobs)}]
    if answer.finish_reason == GRADE_ONLY:
        choices = []
    read, written = answer.prompt_tokens, answer.completion_tokens
    usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    sample: Json = {
        "id": question.id,
        "epoch": record.trial + 1,
        "input": asked[0]["content"] if len(asked) == 1 else asked,
        "target": question.answer,
        "messages": [*asked, *(choice["message"] for choice in choices)],
        "output": {
            "model": record.model,
            "choices": choices,
            "completion": valid_text(answer.text),
            "usage": usage,
            "time": answer.latency,
        },
        "metadata": _metadata(record, question),
        "model_usage": {record.model: usage},
        "total_time": answer.latency,
        "working_time": answer.latency,
        "uuid": f"{record.model}/{question.id}/{record.trial + 1}",
    }
    if question.choices:
        sample["choices"] = list(question.choices)
    if record.category is None:
        error = f"the grader failed: {record.grader_error}"
        sample["error"] = {"message": error, "traceback": error, "traceback_ansi": error}
    else:
        rubric, category = subject.source.run.rubric, record.category
        sample["scores"] = {
            subject.scorer: {
                "value": _score(record, rubric.weights[category], rubric.weights),
                "answer": record.extracted,
                "explanation": None,
                "metadata": {
                    "category": category,
                    "label": rubric.names[category],
                    "signals": dict(record.signals),
                },
            }
        }
    return sample


def _score(record: TrialRecord, weight: float, weights: Sequence[float]) -> str | float:
    """The score: the weight, or if all weights are 0, 1/2 or 1 a letter for incorrect or no answer, partially correct,
    or correct."""
    if not set(weights) <= {0.0, 0.5, 1.0}:
        return float(weight)
    if weight:
        return "C" if weight == 1.0 else "P"
    return "N" if record.signals.get("has_answer") is False else "I"


def _summary(sample: Mapping[str, Any]) -> Json:
    """The summary of a sample."""
    summary: Json = {key: sample[key] for key in SUMMARISED if key in sample}
    if isinstance(asked := sample["input"], str):
        summary["input"] = asked[:MAX_SUMMARY_CHARACTERS]
    if "error" in sample:
        summary["error"] = sample["error"]["message"]
    return summary | {"completed": True, "message_count": len(sample["messages"])}


def _messages(prompt: Prompt) -> list[Json]:
    if prompt.messages is None:
        return [{"role": "user", "content": prompt.text, "source": "input"}]
    return [{"role": message.role, "content": message.content, "source": "input"} for message in prompt.messages]


def _content(answer: Answer) -> object:
    if answer.reasoning is None:
        return valid_text(answer.text)
    return [
        {"type": "reasoning", "reasoning": valid_text(answer.reasoning)},
        {"type": "text", "text": valid_text(answer.text)},
    ]


def _logprobs(logprobs: AnswerLogprobs | None) -> Json:
    """The log-probabilities of an answer's tokens, without tokens that have none."""
    if logprobs is None:
        return {}
    pairs = zip(logprobs.tokens, logprobs.values, strict=True)
    return {
        "logprobs": {"content": [{"token": valid_text(token), "logprob": p} for token, p in pairs if p is not None]}
    }


def _metadata(record: TrialRecord, question: Question) -> Json:
    """Facts without a field in Inspect's format."""
    answer = record.answer
    return {
        **question.metadata,
        "seed": answer.seed,
        "round": record.round,
        "replica": answer.replica,
        "attempts": answer.attempts,
        "finish_reason": answer.finish_reason,
        "flags": sorted(answer.signals),
        "tokens": record.cost.tokens,
        "usd": record.cost.usd,
        "gpu_seconds": record.cost.gpu_seconds,
        "ttft": answer.ttft,
        "completion_bpt": answer.completion_bpt,
        "prompt_bpt": answer.prompt_bpt,
        "grader_error": record.grader_error,
    }
