"""Labels that people give to answers, one line each, in a file beside the run.

A label is the verdict that the answer should have had. It changes nothing in the run; a later label of the same answer
replaces an earlier one.
"""

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import orjson

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.base.files import read_whole, require_plain
from adaptive_eval.config.run import RunConfig
from adaptive_eval.graders.ballots import VERDICT, BallotField
from adaptive_eval.graders.comparing import REFERENCE, ByComparison
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.scoring import SCORE
from adaptive_eval.graders.types import SignalValue
from adaptive_eval.graders.verifier import CALLED, Verifier
from adaptive_eval.questions.types import Question
from adaptive_eval.record.labelled import LABELS_FILE

JOINED = ", "
"""Separator of the levels of several criteria."""
RIGHT, WRONG = "correct", "wrong"
MAX_BYTES = 64 * 1024 * 1024
NUMBER = re.compile("[0-9]{1,18}")
COLUMNS = ("model", "question", "trial", "label")


class Labelled(NamedTuple):
    """One answer that has a label."""

    model: str
    question: str
    trial: int


Labels = Mapping[Labelled, str]


def label_fields(config: RunConfig) -> tuple[BallotField, ...]:
    """Fields of a label in this run with their levels: verdicts of a judge or verifier, else correct or wrong.

    With several criteria a label has a level for each of them.
    """
    if isinstance(config.grader, Judge):
        return config.grader.form.label_ballot
    return (BallotField(VERDICT, CALLED if isinstance(config.grader, Verifier) else (RIGHT, WRONG)),)


def texts_to_label(config: RunConfig, question: Question, answer: str) -> dict[str, str]:
    """Texts shown to label an answer, by name."""
    texts = {"question": question.prompt, "reference": question.answer, "answer": answer}
    form = config.grader.form if isinstance(config.grader, Judge) else None
    if isinstance(form, ByComparison):
        if form.against == REFERENCE:
            del texts["reference"]
        texts["compared with"] = form.other_answer(question)
    return texts


def signals_of_level(config: RunConfig, level: str) -> dict[str, SignalValue]:
    """Signals that the grader would have given with this label."""
    if isinstance(config.grader, Judge):
        return config.grader.make_signals(tuple(level.split(JOINED)))
    return config.grader.make_signals(level) if isinstance(config.grader, Verifier) else {"is_correct": level == RIGHT}


def require_useful_labels(config: RunConfig, rubric: Rubric) -> None:
    """Raise `ConfigError` if the rubric uses no signal that a label gives."""
    said = {VERDICT, SCORE, "is_correct", *(one.name for one in label_fields(config))}
    if isinstance(config.grader, Verifier):
        said |= config.grader.make_signals(RIGHT).keys()
    if not rubric.needs & said:
        raise ConfigError(
            "labels say what the grader should have said, and the rubric of this run goes by "
            f"{', '.join(sorted(rubric.needs))}, which no label says; look at it under another one with "
            "`adaptive-eval regrade RUN --config CONFIG`"
        )


def level_from_signals(config: RunConfig, signals: Mapping[str, SignalValue]) -> str:
    """The level that the grader gave; "" if none, as for an empty answer."""
    if isinstance(config.grader, Judge):
        return JOINED.join(config.grader.said_by(signals))
    if isinstance(config.grader, Verifier) and config.grader.beside is None:
        return str(signals.get(VERDICT, ""))
    return RIGHT if float(signals.get("is_correct", 0.0)) >= 0.5 else WRONG


def read_labels(directory: Path) -> Labels:
    """Read the labels of a run; empty without a file."""
    path = directory / LABELS_FILE
    if not path.exists():
        return {}
    return dict(_parse_labels(path, _json_lines(path)))


def parse_labels_file(path: Path) -> Labels:
    """Read a user's file of labels: JSON lines or CSV with model, question, trial and label."""
    if not path.is_file():
        raise ConfigError(f"{path} is not a file; give one with the columns {', '.join(COLUMNS)}")
    if path.suffix.lower() == ".csv":
        try:
            rows = list(csv.DictReader(io.StringIO(_read_text(path), newline="")))
        except csv.Error as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error
        return dict(_parse_labels(path, rows))
    return dict(_parse_labels(path, _json_lines(path)))


def is_label(fields: Sequence[BallotField], label: str) -> bool:
    """Whether the label has a valid level for each field."""
    said = label.split(JOINED)
    return len(said) == len(fields) and all(level in one.levels for level, one in zip(said, fields, strict=True))


def levels_among(fields: Sequence[BallotField], occurring: Iterable[str]) -> tuple[str, ...]:
    """All possible labels; with several criteria only those that occur, as there may be very many."""
    if len(fields) == 1:
        return fields[0].levels
    return tuple(sorted({label for label in occurring if is_label(fields, label)}))


def require_levels(labels: Labels, fields: Sequence[BallotField], source: Path) -> None:
    """Raise `ConfigError` if a label has an unknown level."""
    for at, label in labels.items():
        if not is_label(fields, label):
            wanted = JOINED.join(
                f"one of {' | '.join(one.levels) if len(fields) > 1 else JOINED.join(one.levels)}" for one in fields
            )
            raise ConfigError(
                f"{source}: the label of {at.model}, {at.question}, trial {at.trial} must be {wanted}, "
                f"but got {label!r:.60}"
            )


def writable_labels_file(directory: Path) -> Path:
    """Path of a run's labels; raises `StoreError` if it cannot be written."""
    path = directory / LABELS_FILE
    if path.is_symlink():
        raise StoreError(f"{path} is a link, and labels are not written through links; remove it")
    if not os.access(path if path.exists() else directory, os.W_OK):
        raise StoreError(f"{path} cannot be written; label a copy of the run")
    return path


def add_labels(directory: Path, labels: Labels) -> None:
    """Append labels to the file of a run; earlier lines stay."""
    rows = (dict(zip(COLUMNS, (*at, label), strict=True)) for at, label in labels.items())
    data = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    path = writable_labels_file(directory)
    try:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644), "ab+") as file:
            require_plain(path)
            _truncate_torn_line(file)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}; label a copy of the run") from error


def _truncate_torn_line(file: BinaryIO) -> None:
    """Remove an incomplete last line, which a kill may leave."""
    file.seek(0)
    there = file.read()
    file.truncate(there.rfind(b"\n") + 1)
    file.seek(0, os.SEEK_END)


def _read_text(path: Path) -> str:
    try:
        return read_whole(path, MAX_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _json_lines(path: Path) -> Iterator[object]:
    lines = _read_text(path).split("\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError as error:
                if number == len(lines):  # cut off by a kill
                    return
                raise ConfigError(f"{path}, line {number}: is not JSON: {error}") from error


def _parse_labels(path: Path, rows: Iterator[object] | Sequence[object]) -> Iterator[tuple[Labelled, str]]:
    for number, row in enumerate(rows, start=1):
        found = [row.get(name) for name in COLUMNS] if isinstance(row, dict) else []
        model, question, trial, label = found or (None,) * len(COLUMNS)
        number_of = int(trial) if isinstance(trial, int | str) and NUMBER.fullmatch(str(trial)) else None
        texts = [one for one in (model, question, label) if isinstance(one, str) and one]
        if number_of is None or len(texts) < len(COLUMNS) - 1 or isinstance(trial, bool):
            raise ConfigError(f"{path}, entry {number}: must have {', '.join(COLUMNS)}, with trial a number from 0")
        yield Labelled(texts[0], texts[1], number_of), texts[2]
