"""Labels that people give to answers, one line each, in a file in the run's directory.

A label is the verdict that the answer should have had. It changes no trial; a later label of the same answer replaces
an earlier one. It has a digest of its answer, since a trial that is asked again gets another one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import orjson

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.files import read_file
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.ballots import VERDICT, BallotField
from adaptive_eval.graders.by_benchmark import ByBenchmark, graders_by_benchmark
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.types import GraderOptions, SignalValue
from adaptive_eval.graders.verifier import VERDICTS, Verifier
from adaptive_eval.questions.load import benchmark_named

LABELS_FILE = "labels.jsonl"
"""The labels of a run, in its directory."""
JOINED = ", "
"""Separator of the levels of several criteria."""
RIGHT, WRONG = "correct", "wrong"
MAX_BYTES = 64 * 1024 * 1024
NUMBER = re.compile("[0-9]{1,18}")
COLUMNS = ("model", "question", "trial", "label")
DIGEST = "digest"


class Labelled(NamedTuple):
    """One answer that has a label."""

    model: str
    question: str
    trial: int


class GivenLabel(NamedTuple):
    """A label as it is stored."""

    label: str
    digest: str | None = None
    """Digest of the answer; None if it was not known."""

    def fits(self, answer: Answer) -> bool:
        """Whether the label can be one of this answer."""
        return self.digest is None or self.digest == digest_of_answer(answer)


Labels = Mapping[Labelled, GivenLabel]


def digest_of_answer(answer: Answer) -> str:
    """A digest of what a label is about: the answer's text and reasoning."""
    parts = (text.encode("utf-8", "surrogatepass") for text in (answer.text, answer.reasoning or ""))
    return blake2b(b"\0".join(parts), digest_size=8).hexdigest()


def labels_digest(directory: Path) -> str | None:
    """Digest of a run's file of labels; None without labels."""
    path = directory / LABELS_FILE
    text = read_text(path).strip() if path.exists() else ""
    return blake2b(text.encode(), digest_size=16).hexdigest() if text else None


def read_labels(directory: Path) -> Labels:
    """Read the labels of a run; empty without a file."""
    path = directory / LABELS_FILE
    if not path.exists():
        return {}
    return dict(parse_labels(path, json_lines(path)))


def read_text(path: Path) -> str:
    """Read a file of labels; raises `ConfigError` if it cannot be read."""
    try:
        return read_file(path, MAX_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def json_lines(path: Path) -> Iterator[object]:
    """Parse JSON lines; a last line that a kill has cut off is left out."""
    lines = read_text(path).split("\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError as error:
                if number == len(lines):
                    return
                raise ConfigError(f"{path}, line {number}: is not JSON: {error}") from error


def parse_labels(path: Path, rows: Iterator[object] | Sequence[object]) -> Iterator[tuple[Labelled, GivenLabel]]:
    """Parse rows of a file of labels; raises `ConfigError` if one lacks a column."""
    for number, row in enumerate(rows, start=1):
        values = [row.get(name) for name in COLUMNS] if isinstance(row, dict) else []
        model, question, trial, label = values or (None,) * len(COLUMNS)
        trial_number = int(trial) if isinstance(trial, int | str) and NUMBER.fullmatch(str(trial)) else None
        texts = [text for text in (model, question, label) if isinstance(text, str) and text]
        if trial_number is None or len(texts) < len(COLUMNS) - 1 or isinstance(trial, bool):
            expected = f"must have {', '.join(COLUMNS)}, with trial a number from 0"
            raise ConfigError(f"{path}, entry {number}: {expected}, but got {row!r:.100}")
        digest = row.get(DIGEST) if isinstance(row, dict) else None
        given = GivenLabel(texts[2], digest if isinstance(digest, str) and digest else None)
        yield Labelled(texts[0], texts[1], trial_number), given


# -- what a label says -------------------------------------------------------------------------------------------------


def grader_of(grader: GraderOptions, question: str) -> GraderOptions:
    """The grader of a question, by its id."""
    return grader.graders[benchmark_named(question)] if isinstance(grader, ByBenchmark) else grader


def label_fields(grader: GraderOptions) -> tuple[BallotField, ...]:
    """Fields of a label of answers that this grader has graded: verdicts of a judge or verifier, else correct or wrong.

    With several criteria a label has a level for each of them.
    """
    if isinstance(grader, Judge):
        return grader.form.label_ballot
    return (BallotField(VERDICT, VERDICTS if isinstance(grader, Verifier) else (RIGHT, WRONG)),)


def is_label(fields: Sequence[BallotField], label: str) -> bool:
    """Whether the label has a valid level for each field."""
    levels = label.split(JOINED)
    return len(levels) == len(fields) and all(
        level in field.levels for level, field in zip(levels, fields, strict=True)
    )


def levels_among(grader: GraderOptions, occurring: Iterable[str]) -> tuple[str, ...]:
    """All possible labels of a run; with several criteria only those that occur, as there may be very many."""
    levels: list[str] = []
    labels = sorted(set(occurring))
    for benchmark_grader in graders_by_benchmark(grader).values():
        fields = label_fields(benchmark_grader)
        levels += fields[0].levels if len(fields) == 1 else [label for label in labels if is_label(fields, label)]
    return tuple(dict.fromkeys(levels))


def signals_of_level(grader: GraderOptions, level: str) -> dict[str, SignalValue]:
    """Signals that the grader would have given with this label."""
    if isinstance(grader, Judge):
        return grader.make_signals(tuple(level.split(JOINED)))
    return grader.make_signals(level) if isinstance(grader, Verifier) else {"is_correct": level == RIGHT}


def level_from_signals(grader: GraderOptions, signals: Mapping[str, SignalValue]) -> str:
    """The level that the grader gave; "" if none, as for an empty answer."""
    if isinstance(grader, Judge):
        return JOINED.join(grader.levels_of(signals))
    if isinstance(grader, Verifier) and grader.key_grader is None:
        return str(signals.get(VERDICT, ""))
    return RIGHT if float(signals.get("is_correct", 0.0)) >= 0.5 else WRONG
