"""Entering labels: the texts shown for an answer, labels from a user's file, and adding labels to a run."""

import io
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import orjson

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.base.files import FileLock, held_in_words, require_plain
from adaptive_eval.exchange.tables.writer import unescape_formula
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.judge_forms import REFERENCE, ComparisonForm
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.questions.readers import csv_rows
from adaptive_eval.questions.types import Question
from adaptive_eval.report.label_file import (
    COLUMNS,
    DIGEST,
    JOINED,
    LABELS_FILE,
    GivenLabel,
    Labelled,
    Labels,
    digest_of_answer,
    grader_of,
    is_label,
    json_lines,
    label_fields,
    parse_labels,
    read_text,
)
from adaptive_eval.report.reader import RunReader

LABELS_LOCK = "labels.lock"
MAX_ROW = 100_000
"""Maximum characters of a row in a CSV file of labels."""


def texts_to_label(grader: GraderOptions, question: Question, answer: str) -> dict[str, str]:
    """Texts shown to label an answer, by name."""
    texts = {"question": question.prompt, "reference": question.answer, "answer": answer}
    form = grader.form if isinstance(grader, Judge) else None
    if isinstance(form, ComparisonForm):
        if form.compare_to == REFERENCE:
            del texts["reference"]
        texts["compared with"] = form.other_answer(question)
    return texts


def parse_labels_file(path: Path) -> list[tuple[Labelled, GivenLabel]]:
    """Read a user's file of labels, JSON lines or CSV with model, question, trial and label, in its order."""
    if not path.is_file():
        raise ConfigError(f"{path} is not a file; give one with the columns {', '.join(COLUMNS)}")
    if path.suffix.lower() == ".csv":
        return [*parse_labels(path, _csv_rows(path))]
    labels = [*parse_labels(path, json_lines(path))]
    if not labels and (text := read_text(path).strip()):
        raise ConfigError(f"{path} has no label: its only line is not JSON: {text!r:.60}")
    return labels


def _csv_rows(path: Path) -> Iterator[Mapping[str, str]]:
    """The rows of a CSV file, without the apostrophe of an export before a formula."""
    try:
        for place, row, problem in csv_rows(io.StringIO(read_text(path), newline="\n"), MAX_ROW):
            if problem is not None:
                raise ConfigError(f"{path}, {place}: {problem}")
            yield {name: unescape_formula(str(value)) for name, value in row.items()}
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


def require_levels(labels: Labels, grader: GraderOptions, questions: Sequence[str], source: Path) -> None:
    """Raise `ConfigError` if a label of one of these questions has an unknown level."""
    known_questions = set(questions)
    for at, (label, _) in labels.items():
        if at.question not in known_questions:
            continue  # it is not counted, as the report notes
        fields = label_fields(grader_of(grader, at.question))
        if not is_label(fields, label):
            expected = JOINED.join(
                f"one of {' | '.join(field.levels) if len(fields) > 1 else JOINED.join(field.levels)}"
                for field in fields
            )
            raise ConfigError(
                f"{source}: the label of {at.model}, {at.question}, trial {at.trial} must be {expected}, "
                f"but got {label!r:.60}"
            )


def labels_of_answers(labels: Labels, reader: RunReader) -> Labels:
    """The labels, each with the digest of its answer in the run; those without an answer are left out."""
    cells: dict[tuple[str, str], dict[int, GivenLabel]] = defaultdict(dict)
    for at, given in labels.items():
        if given.digest is None:
            cells[at.model, at.question][at.trial] = given
    known = {at: given for at, given in labels.items() if given.digest is not None}
    for (model, question), wanted in cells.items():
        for record in reader.cell(model, question):
            if record.trial in wanted:
                digest = digest_of_answer(record.answer)
                known[Labelled(model, question, record.trial)] = wanted[record.trial]._replace(digest=digest)
    return known


def writable_labels_file(directory: Path) -> Path:
    """Path of a run's labels; raises `StoreError` if it cannot be written. Who opens the run says if there is none."""
    path = directory / LABELS_FILE
    if path.is_symlink():
        raise StoreError(f"{path} is a link, and labels are not written through links; remove it")
    if directory.is_dir() and not os.access(path if path.exists() else directory, os.W_OK):
        raise StoreError(f"{path} cannot be written; label a copy of the run")
    return path


def lock_labels(directory: Path) -> FileLock:
    """Lock the labels of a run, to which one process at a time adds; raises `StoreError` naming the holder."""
    path = writable_labels_file(directory).with_name(LABELS_LOCK)
    try:
        return FileLock.take(path)
    except BlockingIOError as error:
        held = held_in_words(directory / LABELS_FILE, path)
        raise StoreError(f"{held}. Two processes cannot add labels at once: wait for it, or stop it") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}; label a copy of the run") from error


def add_labels(directory: Path, labels: Labels) -> None:
    """Append labels to the file of a run; earlier lines stay."""
    rows = (dict(zip((*COLUMNS, DIGEST), (*at, *given), strict=True)) for at, given in labels.items())
    data = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    path = writable_labels_file(directory)
    try:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644), "ab+") as file:
            require_plain(path)
            _end_last_line(file)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}; label a copy of the run") from error


def _end_last_line(file: BinaryIO) -> None:
    """Add the line break that a user's last line may lack; remove the line if a kill has cut it off."""
    file.seek(0)
    if last := file.read().rpartition(b"\n")[2]:
        try:
            orjson.loads(last)
        except orjson.JSONDecodeError:
            file.truncate(file.tell() - len(last))
        else:
            file.write(b"\n")
