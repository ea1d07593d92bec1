"""Writes a run as Inspect logs, one a model: samples, task and results.

Each model's trials are read once, and only their summaries are kept in memory.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import orjson

from adaptive_eval import __version__
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.exchange.inspect.sample import InspectScale, Json, inspect_sample, sample_summary, usage
from adaptive_eval.exchange.source import ExportSource, OnProgress
from adaptive_eval.record.ending import is_imported_alone
from adaptive_eval.record.results import ModelRow, Results
from adaptive_eval.record.snapshot import iso_time
from adaptive_eval.store import TrialRecord, is_held

VERSION = 2
"""Version of Inspect's log format."""
GENERATION = {"temperature", "top_p", "top_k", "max_tokens", "frequency_penalty", "presence_penalty"}
"""Sampling settings with the same name in Inspect."""
METRICS = {
    "avg": "score",
    "avg_sigma": "sigma",
    "avg_lo": "lo",
    "avg_hi": "hi",
    "bayes": "bayes",
    "bayes_sigma": "bayes_sigma",
}
"""Names of metrics in the log, with those in results.json."""


@dataclass(frozen=True, slots=True, eq=False)
class LoggedModel:
    """The model that a log is about."""

    source: ExportSource
    name: str
    scale: InspectScale
    results: Results | None
    """Results of the run; None before its first look."""

    @property
    def model(self) -> ModelConfig | None:
        """The configuration of the model; None if it has left the run."""
        return self.source.model(self.name)

    @property
    def row(self) -> ModelRow | None:
        """The row of the model in the results."""
        return (
            None if self.results is None else next((row for row in self.results.models if row.name == self.name), None)
        )

    @property
    def epochs(self) -> int:
        """The allowed trials a question, or more if some question had more, since the limit is a mean."""
        there = int(self.source.extent.max())
        run = self.source.run
        return there if is_imported_alone(run.events) else max(there, run.setup.config.trials.max)


class SampleCounts:
    """Counts and sums over the written samples of a model."""

    def __init__(self) -> None:
        self.written = self.scored = 0
        self.usage = dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), 0)

    def count(self, record: TrialRecord) -> None:
        """Add a sample."""
        self.written += 1
        for name, tokens in usage(record.answer).items():
            self.usage[name] += tokens
        self.scored += record.category is not None


def header_member(subject: LoggedModel, start: Json, samples: SampleCounts) -> Json:
    """The header of a log."""
    reader = subject.source.reader
    return {
        **start,
        "status": "success" if _is_whole(subject) else "cancelled",
        "results": _results(subject, samples),
        "stats": {
            "started_at": iso_time(reader.created),
            "completed_at": iso_time(max([reader.created, *(event.at for event in subject.source.run.events)])),
            "model_usage": {subject.name: samples.usage},
        },
    }


def _is_whole(subject: LoggedModel) -> bool:
    """Whether a log is complete: the run is finished, or consists of imported logs only.

    Inspect calls an incomplete log without an error, of a run that was stopped or is still active, cancelled.
    """
    results = subject.results
    finished = results is not None and results.run.status == "finished"
    return finished or is_imported_alone(subject.source.run.events)


def _spec(subject: LoggedModel) -> Json:
    source, model, scale = subject.source, subject.model, subject.scale
    config, created = source.run.setup.config, source.reader.created
    return {
        "eval_id": _identity(config.name, created, subject.name),
        "run_id": _identity(config.name, created),
        "created": iso_time(created),
        "task": config.name,
        "task_id": _identity(config.name, created, "task", subject.name),
        "task_version": 0,
        "dataset": _dataset(source),
        "model": subject.name,
        "model_base_url": None if model is None else model.replicas[0],
        "model_generate_config": {} if model is None else model.sampling.model_dump(mode="json", include=GENERATION),
        "config": {"epochs": subject.epochs, "epochs_reducer": ["mean"]},
        "packages": {"adaptive_eval": __version__},
        "scorers": [{"name": scale.scorer, "options": {}, "metadata": {"categories": scale.categories}}],
        "metadata": {"served_as": None if model is None else model.model, **config.stated()},
    }


def _dataset(source: ExportSource) -> Json:
    asked = source.run.setup.config.questions
    file = None if asked.path is None else asked.path.name
    return {
        "name": asked.dataset or asked.world or file,
        "samples": len(source.questions),
        "sample_ids": [question.id for question in source.questions],
        "shuffled": asked.shuffle,
    }


def _plan(subject: LoggedModel) -> Json:
    system = None if subject.model is None else subject.model.prompt.system
    steps: list[Json] = [] if system is None else [{"solver": "system_message", "params": {"template": system}}]
    return {"name": "plan", "steps": [*steps, {"solver": "generate", "params": {}}], "config": {}}


def _results(subject: LoggedModel, samples: SampleCounts) -> Json:
    scorer = subject.scale.scorer
    score = {
        "name": scorer,
        "scorer": scorer,
        "reducer": "mean",
        "scored_samples": samples.scored,
        "unscored_samples": samples.written - samples.scored,
        "params": {},
        "metrics": {name: {"name": name, "value": value} for name, value in _metrics(subject.row)},
    }
    return {
        "total_samples": len(subject.source.questions) * subject.epochs,
        "completed_samples": samples.scored,
        "scores": [score],
    }


def _metrics(row: ModelRow | None) -> Iterator[tuple[str, float]]:
    """The score as an average, which unequal numbers of trials do not bias, and as Bayes@N."""
    for metric, attribute in METRICS.items():
        value: float | None = getattr(row, attribute, None)
        if value is not None:
            yield metric, value


def _identity(*parts: object) -> str:
    """A stable identifier, so that a new export of the same run replaces the previous one in a collection of logs."""
    return blake2b("\0".join(map(str, parts)).encode(), digest_size=11).hexdigest()


ENDING = ".eval"
LEVEL = 4
"""Compression level: files are 5% larger than at the default, in half the time."""


def write_logs(source: ExportSource, folder: Path, on_progress: OnProgress) -> None:
    """Write one log for each model."""
    config, reader = source.run.setup.config, source.reader
    results = source.run.results(running=is_held(reader.directory))
    scale = InspectScale(config.grader.kind, source.rubric.names, source.rubric.weights)
    before = 0
    for name, file in zip(source.models, _file_names(source.models), strict=True):
        with ZipFile(folder / file, "w", ZIP_DEFLATED, compresslevel=LEVEL) as archive:
            before = _write_log(archive, LoggedModel(source, name, scale, results), before, on_progress)


def _write_log(archive: ZipFile, subject: LoggedModel, before: int, on_progress: OnProgress) -> int:
    """Write a log, with the header last as Inspect does; returns the samples written so far."""
    source, samples = subject.source, SampleCounts()
    start: Json = {"version": VERSION, "eval": _spec(subject), "plan": _plan(subject)}
    summaries: list[Json] = []
    _put(archive, "_journal/start.json", start)
    for record in source.reader.model_trials(subject.name):
        question = source.questions[source.roster.questions.position(record.question)]
        sample = inspect_sample(record, question, source.prompt(subject.name, question), subject.scale)
        _put(archive, f"samples/{question.id}_epoch_{sample['epoch']}.json", sample)
        summaries.append(sample_summary(sample))
        samples.count(record)
        on_progress(before + samples.written)
    _put(archive, "summaries.json", summaries)
    _put(archive, "header.json", header_member(subject, start, samples))
    return before + samples.written


def _put(archive: ZipFile, member: str, value: object) -> None:
    archive.writestr(member, orjson.dumps(value))


def make_distinct(names: Iterable[str]) -> list[str]:
    """The names, with a number appended to those that equal an earlier one ignoring case."""
    found: dict[str, str] = {}
    for plain in names:
        name, number = plain, 2
        while name.casefold() in found:
            name, number = f"{plain}-{number}", number + 1
        found[name.casefold()] = name
    return list(found.values())


def _file_names(models: Iterable[str]) -> list[str]:
    """A distinct, portable file name for each model."""
    plain = (re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip(".-") or "model" for model in models)
    return [f"{name}{ENDING}" for name in make_distinct(plain)]
