"""What people say of answers: labels, one line each, in a file beside the run.

A label is the verdict that the answer should have had. It changes nothing in the run; a later label of the same answer
counts instead of an earlier one.
"""

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import orjson

from adaptive_eval.config.run import RunConfig
from adaptive_eval.errors import ConfigError, StoreError
from adaptive_eval.files import read_whole, require_plain
from adaptive_eval.graders.ballots import VERDICT, BallotField
from adaptive_eval.graders.comparing import REFERENCE, ByComparison
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.scoring import SCORE
from adaptive_eval.graders.types import SignalValue
from adaptive_eval.graders.verifier import CALLED, Verifier
from adaptive_eval.questions.types import Question

LABELS_FILE = "labels.jsonl"
JOINED = ", "
"""Between the levels of several criteria."""
RIGHT, WRONG = "correct", "wrong"
MOST_BYTES = 64 * 1024 * 1024
NUMBER = re.compile("[0-9]{1,18}")
COLUMNS = ("model", "question", "trial", "label")


class Labelled(NamedTuple):
    """One answer that has a label."""

    model: str
    question: str
    trial: int


Labels = Mapping[Labelled, str]


def label_fields(config: RunConfig) -> tuple[BallotField, ...]:
    """What an answer of this run may be labelled: a judge's verdicts, a verifier's, else correct or wrong.

    Of several criteria each by itself; a label then has a level of each.
    """
    if isinstance(config.grader, Judge):
        return config.grader.form.label_ballot
    return (BallotField(VERDICT, CALLED if isinstance(config.grader, Verifier) else (RIGHT, WRONG)),)


def texts_to_label(config: RunConfig, question: Question, answer: str) -> dict[str, str]:
    """What is shown of an answer that is to be labelled, by what it is."""
    texts = {"question": question.prompt, "reference": question.answer, "answer": answer}
    form = config.grader.form if isinstance(config.grader, Judge) else None
    if isinstance(form, ByComparison):
        if form.against == REFERENCE:
            del texts["reference"]
        texts["compared with"] = form.opponent(question)
    return texts


def signals_of_level(config: RunConfig, level: str) -> dict[str, SignalValue]:
    """What the grader would have said of an answer with this label."""
    if isinstance(config.grader, Judge):
        return config.grader.signals_of(tuple(level.split(JOINED)))
    return config.grader.signals_of(level) if isinstance(config.grader, Verifier) else {"is_correct": level == RIGHT}


def require_labels_say_something(config: RunConfig, rubric: Rubric) -> None:
    """A label is what the grader should have said; a rubric that goes by something else is not corrected by it."""
    said = {VERDICT, SCORE, "is_correct", *(one.name for one in label_fields(config))}
    if isinstance(config.grader, Verifier):
        said |= config.grader.signals_of(RIGHT).keys()
    if not rubric.needs & said:
        raise ConfigError(
            "labels say what the grader should have said, and the rubric of this run goes by "
            f"{', '.join(sorted(rubric.needs))}, which no label says; look at it under another one with "
            "`adaptive-eval regrade RUN --config CONFIG`"
        )


def labels_given(config: RunConfig, rubric: Rubric) -> Labels:
    """The labels of the file that a configuration names (`labels`); `ConfigError` where they cannot be what is
    meant."""
    if config.labels is None:
        return {}
    require_labels_say_something(config, rubric)
    path = config.folder / config.labels
    labels = labels_in(path)
    require_levels(labels, label_fields(config), path)
    return labels


def take_labels(directory: Path, labels: Labels) -> int:
    """Add to a run what its labels have never said; gives how many that were.

    What somebody has said otherwise since then stands: the file is not taken again for it.
    """
    path = directory / LABELS_FILE
    heard = set(_parsed(path, _lines(path))) if labels and path.exists() else set()
    new = {at: label for at, label in labels.items() if (at, label) not in heard}
    if new:
        add_labels(directory, new)
    return len(new)


def level_said(config: RunConfig, signals: Mapping[str, SignalValue]) -> str:
    """The level that the grader gave; "" where it gave none, as to an empty answer."""
    if isinstance(config.grader, Judge):
        return JOINED.join(config.grader.said_by(signals))
    if isinstance(config.grader, Verifier) and config.grader.beside is None:
        return str(signals.get(VERDICT, ""))
    return RIGHT if float(signals.get("is_correct", 0.0)) >= 0.5 else WRONG


def read_labels(directory: Path) -> Labels:
    """The labels of a run; none where there is no such file."""
    path = directory / LABELS_FILE
    if not path.exists():
        return {}
    return dict(_parsed(path, _lines(path)))


def labels_in(path: Path) -> Labels:
    """The labels of a user's own file: JSON lines, or CSV, with model, question, trial and label."""
    if not path.is_file():
        raise ConfigError(f"{path} is no file; give one with the columns {', '.join(COLUMNS)}")
    if path.suffix.lower() == ".csv":
        try:
            rows = list(csv.DictReader(io.StringIO(_text(path), newline="")))
        except csv.Error as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error
        return dict(_parsed(path, rows))
    return dict(_parsed(path, _lines(path)))


def is_label(fields: Sequence[BallotField], label: str) -> bool:
    """Whether a label has a level for each field."""
    said = label.split(JOINED)
    return len(said) == len(fields) and all(level in one.levels for level, one in zip(said, fields, strict=True))


def levels_among(fields: Sequence[BallotField], occurring: Iterable[str]) -> tuple[str, ...]:
    """Every label that there may be; of several criteria those that occur, since there may be very many."""
    if len(fields) == 1:
        return fields[0].levels
    return tuple(sorted({label for label in occurring if is_label(fields, label)}))


def require_levels(labels: Labels, fields: Sequence[BallotField], source: Path) -> None:
    """Every label is one that this run knows."""
    for at, label in labels.items():
        if not is_label(fields, label):
            wanted = JOINED.join(
                f"one of {' | '.join(one.levels) if len(fields) > 1 else JOINED.join(one.levels)}" for one in fields
            )
            raise ConfigError(
                f"{source}: the label of {at.model}, {at.question}, trial {at.trial} must be {wanted}, "
                f"but got {label!r:.60}"
            )


def add_labels(directory: Path, labels: Labels) -> None:
    """Add lines to the file of a run; what was said before stays in it."""
    rows = (dict(zip(COLUMNS, (*at, label), strict=True)) for at, label in labels.items())
    data = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    path = directory / LABELS_FILE
    if path.is_symlink():
        raise StoreError(f"{path} is a link, and labels are not written to wherever it leads; remove it")
    try:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644), "ab+") as file:
            require_plain(path)
            _without_torn_line(file)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}") from error


def _without_torn_line(file: BinaryIO) -> None:
    """A kill may have left the beginning of a line, which is no label."""
    file.seek(0)
    there = file.read()
    file.truncate(there.rfind(b"\n") + 1)
    file.seek(0, os.SEEK_END)


def _text(path: Path) -> str:
    try:
        return read_whole(path, MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _lines(path: Path) -> Iterator[object]:
    lines = _text(path).split("\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError as error:
                if number == len(lines):  # a kill in the middle of a line that was being added
                    return
                raise ConfigError(f"{path}, line {number}: is not JSON: {error}") from error


def _parsed(path: Path, rows: Iterator[object] | Sequence[object]) -> Iterator[tuple[Labelled, str]]:
    for number, row in enumerate(rows, start=1):
        found = [row.get(name) for name in COLUMNS] if isinstance(row, dict) else []
        model, question, trial, label = found or (None,) * len(COLUMNS)
        number_of = int(trial) if isinstance(trial, int | str) and NUMBER.fullmatch(str(trial)) else None
        texts = [one for one in (model, question, label) if isinstance(one, str) and one]
        if number_of is None or len(texts) < len(COLUMNS) - 1 or isinstance(trial, bool):
            raise ConfigError(f"{path}, entry {number}: must have {', '.join(COLUMNS)}, with trial a number from 0")
        yield Labelled(texts[0], texts[1], number_of), texts[2]
