"""Labelling one answer after the other, blinded.

What is shown of an answer is its question, the reference and its text: whose it is and what the grader said of it is
told to nobody. A label is on disk before the next answer is shown.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from adaptive_eval.graders.ballots import BallotField
from adaptive_eval.graders.transcript import visible
from adaptive_eval.record.labelled import next_to_label
from adaptive_eval.record.labels import (
    Labelled,
    add_labels,
    is_label,
    label_fields,
    read_labels,
    require_labels_say_something,
    texts_to_label,
)
from adaptive_eval.record.restore import StoredRun, opened_run
from adaptive_eval.record.transcripts import is_from_inspect, transcript_ends

LAST_MESSAGE = "last message of its transcript"
AT_A_TIME = 20
"""Answers that are chosen before the comparisons are looked at anew."""


@dataclass(frozen=True, slots=True)
class AnswerToLabel:
    """An answer that waits for its label."""

    place: int
    """Counted from 1."""
    number: int
    """Answers of this session."""
    texts: Mapping[str, str]
    """Texts by name, with invisible characters written out."""
    fields: tuple[BallotField, ...]
    """The fields of a label; it has a level of each."""
    given: str | None = None
    """Its label, where somebody has come back to it."""


class LabelSession:
    """Labels a number of answers of a run, one after the other."""

    def __init__(self, run: Path, number: int) -> None:
        self._run, self._number = run, number
        self._chosen: list[tuple[Labelled, Mapping[str, str]]] = []
        self._at = 0
        self._given: dict[int, str] = {}
        """Labels by place; "" if it was skipped."""

    @property
    def current(self) -> AnswerToLabel | None:
        """The answer that is to be labelled now; None where the session is over.

        Raises `ConfigError` where labels say nothing of the run.
        """
        if self._at == len(self._chosen) and self._at < self._number:
            self._choose()
        if self._at == len(self._chosen):
            return None
        _, texts = self._chosen[self._at]
        return AnswerToLabel(self._at + 1, self._number, texts, self._fields, self._given.get(self._at))

    def label(self, label: str) -> bool:
        """Give the current answer its label; False, and nothing is kept, where it is none that this run knows."""
        if self.current is None or not is_label(self._fields, label):
            return False
        add_labels(self._run, {self._chosen[self._at][0]: label})
        self._go_on(label)
        return True

    def skip(self) -> None:
        """Leave the current answer without a label, or with the one that it has."""
        if self.current is not None:
            self._go_on(self._given.get(self._at, ""))

    def go_back(self) -> None:
        """Return to the answer before: a later label replaces an earlier one."""
        self._at = max(self._at - 1, 0)

    def _go_on(self, label: str) -> None:
        self._given[self._at] = label
        self._at += 1

    def _choose(self) -> None:
        with opened_run(self._run) as stored:
            config = stored.setup.config
            require_labels_say_something(config, stored.rubric)
            self._fields = label_fields(config)
            known = {**read_labels(self._run), **dict.fromkeys((at for at, _ in self._chosen), "")}
            wanted = min(self._number - len(self._chosen), AT_A_TIME)
            chosen = list(next_to_label(stored, known, wanted))
            self._chosen += zip(chosen, _texts(self._run, stored, chosen), strict=True)


def _texts(run: Path, stored: StoredRun, chosen: Sequence[Labelled]) -> Iterator[Mapping[str, str]]:
    """The texts of answers; of a sample of Inspect its last message too, where it is not the answer."""
    questions = {one.id: one for one in stored.setup.questions}
    records = {at: next(stored.reader.cell(at.model, at.question, at.trial - 1)) for at in chosen}
    inspected = [at for at, record in records.items() if is_from_inspect(record)]
    ends = dict(zip(inspected, transcript_ends(run, [records[at] for at in inspected]), strict=True))
    for at, record in records.items():
        texts = texts_to_label(stored.setup.config, questions[at.question].for_trial(at.trial), record.answer.text)
        if (end := ends.get(at)) is not None and end.text != record.answer.text:
            texts[LAST_MESSAGE] = end.text if end.role is None else f"{end.role}: {end.text}"
        yield {name: visible(text) for name, text in texts.items()}
