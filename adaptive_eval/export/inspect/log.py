"""Writing the logs: every model's trials are read once, and only their summaries are kept until the end."""

import re
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import orjson

from adaptive_eval.export.inspect.header import Samples, Subject, header_of, reductions_of, start_of
from adaptive_eval.export.inspect.sample import Json, Scale, sample_of, summary_of
from adaptive_eval.export.source import Source, Told
from adaptive_eval.reading import restored_results
from adaptive_eval.store import is_held

ENDING = ".eval"
LEVEL = 4
"""Of deflate: texts come out a twentieth larger than at the default, in half of the time."""


def write_logs(source: Source, folder: Path, told: Told) -> None:
    """One log a model."""
    config, reader = source.stored.config, source.reader
    results = restored_results(reader, source.stored, running=is_held(reader.directory))
    scale = Scale(config.grader.kind, source.rubric.names, source.rubric.weights)
    before = 0
    for name, file in zip(source.models, _file_names(source.models), strict=True):
        with ZipFile(folder / file, "w", ZIP_DEFLATED, compresslevel=LEVEL) as archive:
            before = _write_log(archive, Subject(source, name, scale, results), before, told)


def _write_log(archive: ZipFile, subject: Subject, before: int, told: Told) -> int:
    """Write every member, the header last, as Inspect does; gives the samples written so far."""
    source, start, samples = subject.source, start_of(subject), Samples(len(subject.source.questions))
    place = {question.id: at for at, question in enumerate(source.questions)}
    summaries: list[Json] = []
    _put(archive, "_journal/start.json", start)
    for record in source.reader.trials_of(subject.name):
        at = place[record.question]
        question = source.questions[at]
        sample = sample_of(record, question, source.prompt(subject.name, question), subject.scale)
        _put(archive, f"samples/{question.id}_epoch_{sample['epoch']}.json", sample)
        summaries.append(summary_of(sample))
        samples.count(at, record, subject.scale.weights)
        told(before + samples.written)
    _put(archive, "summaries.json", summaries)
    _put(archive, "reductions.json", reductions_of(subject, samples))
    _put(archive, "header.json", header_of(subject, start, samples))
    return before + samples.written


def _put(archive: ZipFile, member: str, value: object) -> None:
    archive.writestr(member, orjson.dumps(value))


def _file_names(models: tuple[str, ...]) -> list[str]:
    """A file name for each model: its name without what a file system may not have, numbered where two are alike."""
    names: list[str] = []
    for model in models:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip(".-") or "model"
        taken, name = {one.casefold() for one in names}, plain
        number = 2
        while f"{name}{ENDING}".casefold() in taken:
            name, number = f"{plain}-{number}", number + 1
        names.append(f"{name}{ENDING}")
    return names
