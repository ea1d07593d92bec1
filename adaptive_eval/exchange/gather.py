"""Records of many files as the trials of one run: which model and question each is of, and its number.

Nothing is guessed: a trial that is there twice, one model under two samplings, or one question with two answer keys is
an error that names both places.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from adaptive_eval.endpoints.failures import FAILED, finish_word
from adaptive_eval.exchange.repeats import GivenAnswer, Repeats
from adaptive_eval.exchange.samples import LogError, LogFile, LoggedQuestion, LoggedSettings, Record, tidy_text

MODEL_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
BETWEEN = "\0"
"""Separator of task and id in the key of a question, until it is known whether there are several tasks."""


class PlacedRecord(NamedTuple):
    """A trial with its place in the run."""

    record: Record
    place: str
    """The file and the record."""
    question: str
    """The key of the question."""
    trial: int


class KnownNames(NamedTuple):
    """The models and questions of a configuration that is given."""

    models: Collection[str]
    questions: Collection[str]


@dataclass
class _Model:
    settings: LoggedSettings
    place: str


class _Question(NamedTuple):
    task: str
    id: str
    asked: LoggedQuestion
    place: str


@dataclass
class _Cell:
    """The trials of one question by one model."""

    trials: int = 0
    last: int = -1
    keeps_numbers: bool = False
    """Seeds follow from the numbers, so that another trial under one of them could be the same answer again."""


class RecordGatherer:
    """Takes records one by one, and knows in the end what they are trials of."""

    def __init__(
        self, known: KnownNames | None, left_out: Collection[str], further: bool, *, repeats_are_samples: bool = False
    ) -> None:
        self._repeats = None if repeats_are_samples else Repeats[PlacedRecord]()
        self._known, self._left_out, self._further = known, left_out, further
        self._models: dict[str, _Model] = {}
        self._questions: dict[str, _Question] = {}
        self._cells: dict[tuple[str, str], _Cell] = defaultdict(_Cell)
        self._seen: dict[tuple[str, str, int | str], tuple[str, str | None]] = {}
        self._failed: dict[tuple[str, str, int | str | None], str] = {}
        """Records that are no trials; another attempt, or a later start, may have those of a run's own samples."""
        self._shift: dict[tuple[str, str], int] = {}
        self._in_file: Counter[tuple[str, str]] = Counter()
        self._found_left_out: set[str] = set()
        self._tidy: set[tuple[str, str, str]] = set()
        """Names of model, question and task that can be used as they are."""
        self.files: list[str] = []
        """Their names, in the order in which they were read."""
        self.copies = 0
        """Records that were copies of others."""
        self.without_text = 0
        """Trials of which only the grade is known."""
        self.put_differently = 0
        """Records whose question was put in other words than the first of it."""

    def next_file(self, file: LogFile) -> None:
        """The records that follow are of this file."""
        self.files.append(file.path.name)
        self._in_file.clear()
        if self._further:
            self._shift = {cell: held.last + 1 for cell, held in self._cells.items()}

    def take(self, file: LogFile, record: Record) -> list[PlacedRecord]:
        """The trials that count now, with their places: this one, if it is one, and those that waited for it."""
        place = f"{file.path}: {record.place}"
        if (names := (record.model, record.question, record.task)) not in self._tidy or not record.asked.is_plain:
            record = _named(record, place)
            if names == (record.model, record.question, record.task):
                self._tidy.add(names)
        if self._is_left_out(record):
            return []
        question = self._question(record, place)
        self._require_model(record, place)
        if (why := _why_missing(record)) is not None:
            self._failed[record.model, question, record.trial if record.of_task else place] = why
            return []
        cell = (record.model, question)
        trial = self._in_file[cell] if record.trial is None else record.trial
        self._in_file[cell] += 1
        trial += self._shift.get(cell, 0)
        by_seed = self._further and record.own and record.seed is not None
        if self._is_copy((*cell, f"seed {record.seed}" if by_seed else trial), place, record):
            return []
        held = self._cells[cell]
        held.last = max(held.last, trial)
        held.keeps_numbers |= self._known is not None and (record.own or record.seed is not None)
        self.without_text += not record.has_text
        return self._counting(PlacedRecord(record, place, question, trial))

    def _counting(self, placed: PlacedRecord) -> list[PlacedRecord]:
        """The trials that are known to count, now that this one has come."""
        record, counting = placed.record, [placed]
        if self._repeats is not None and not record.own:
            answer = record.answer if record.has_text else None
            counting = self._repeats.take(GivenAnswer(record.model, placed.question, answer), placed)
        for one in counting:
            self._cells[one.record.model, one.question].trials += 1
        return counting

    # -- in the end -------------------------------------------------------------------------------------------------

    @property
    def models(self) -> Mapping[str, LoggedSettings]:
        """The models that have trials, and how they were asked."""
        having = {model for model, _ in self._cells}
        return {name: model.settings for name, model in self._models.items() if name in having}

    @property
    def keys(self) -> Mapping[str, str]:
        """The key of each question that somebody has a trial of, by its id: with its task where there are several."""
        having = dict.fromkeys(question for _, question in self._cells)
        if self._known is not None:
            return {question: question for question in having}
        met = {key: self._questions[key] for key in having}
        several = len({question.task for question in met.values()}) > 1
        named = {key: f"{one.task}/{one.id}" if several else one.id for key, one in met.items()}
        ids = {name: key for key, name in named.items()}
        if len(ids) < len(named):
            raise LogError("two tasks have questions with the same name; import them one by one")
        return ids

    @property
    def asked(self) -> Mapping[str, LoggedQuestion]:
        """The questions as they were asked, by id."""
        return {name: self._questions[key].asked for name, key in self.keys.items()}

    @property
    def missing(self) -> Mapping[str, Mapping[str, int]]:
        """Number of records of each model that are no trials, by the reason."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for trial, why in self._failed.items():
            if trial not in self._seen:
                found[trial[0]][why] += 1
        return found

    @property
    def repeated(self) -> Mapping[str, int]:
        """Number of answers of each model that repeat another one, and are not counted beside it."""
        return {} if self._repeats is None else self._repeats.dropped

    @property
    def trials(self) -> Mapping[tuple[str, str], int]:
        """Trials by model and key of the question."""
        return {cell: held.trials for cell, held in self._cells.items()}

    @property
    def gaps(self) -> list[tuple[str, str]]:
        """Cells to be numbered anew, since their numbers do not run from 0 without a gap."""
        return [cell for cell, held in self._cells.items() if held.last + 1 != held.trials and not held.keeps_numbers]

    def require_left_out(self) -> None:
        """Refuse names that nothing has: they are mistyped."""
        if unknown := sorted(set(self._left_out) - self._found_left_out):
            raise LogError(f"--leave-out names {', '.join(unknown)}, but no model and no question is called so")

    # -- single records -----------------------------------------------------------------------------------------------

    def _is_left_out(self, record: Record) -> bool:
        if not self._left_out:
            return False
        found = {record.model, record.question, f"{record.task}/{record.question}"} & set(self._left_out)
        self._found_left_out |= found
        return bool(found)

    def _require_model(self, record: Record, place: str) -> None:
        if self._known is not None and record.model not in self._known.models:
            known = ", ".join(self._known.models)
            raise LogError(
                f"{place}: the configuration has no model {record.model!r}, but {known}; name the model of the file "
                f"with NAME=FILE, or leave it out with --leave-out {record.model!r}"
            )
        model = self._models.setdefault(record.model, _Model(record.settings, place))
        if model.settings.sampling != record.settings.sampling:
            ours, theirs = dict(record.settings.sampling), dict(model.settings.sampling)
            raise LogError(
                f"{place}: {record.model} was asked with {ours or 'no settings'} here, and with "
                f"{theirs or 'no settings'} in {model.place}; these are two models: name each with NAME=FILE"
            )

    def _question(self, record: Record, place: str) -> str:
        if self._known is not None:
            names = (record.question, f"{record.task}/{record.question}")
            found = next((name for name in names if name in self._known.questions), None)
            if found is None:
                raise LogError(
                    f"{place}: the configuration has no question {record.question!r}; leave it out with "
                    f"--leave-out {record.question!r}, or give a configuration that has it"
                )
            return found
        key = f"{record.task}{BETWEEN}{record.question}"
        known = self._questions.setdefault(key, _Question(record.task, record.question, record.asked, place))
        if known.asked != record.asked:
            self._require_same_question(known, record, place)
        return key

    def _require_same_question(self, known: _Question, record: Record, place: str) -> None:
        before, now = known.asked, record.asked
        if (before.answer, before.choices) != (now.answer, now.choices):
            what = "answer" if before.answer != now.answer else "choices"
            raise LogError(
                f"{place}: the {what} of question {record.question!r} is {getattr(now, what)!r:.80} here, and "
                f"{getattr(before, what)!r:.80} in {known.place}; are these logs of one benchmark?"
            )
        self.put_differently += 1

    def _is_copy(self, trial: tuple[str, str, int | str], place: str, record: Record) -> bool:
        """The trial was taken from another place, of which this is a copy; a second outcome is an error."""
        before = self._seen.setdefault(trial, (place, record.identity))
        if before[0] == place:
            return False
        if record.identity is not None and record.identity == before[1]:
            self.copies += 1
            return True
        raise LogError(
            f"{place}: trial {trial[2]} of question {record.question!r} by {record.model} is in {before[0]} too; "
            "remove one of the two, or give --further if the trials of each file come on top of those before"
        )


def _named(record: Record, place: str) -> Record:
    """The record with names that a run can have."""
    model, question, task = (
        tidy_text(record.model).strip(),
        tidy_text(record.question).strip(),
        tidy_text(record.task).strip(),
    )
    if not MODEL_NAME.fullmatch(model):
        raise LogError(f"{place}: {model!r:.80} can be no model's name; write NAME=FILE to give it one")
    if not question or BETWEEN in question:
        raise LogError(f"{place}: {question!r:.80} can be no question's id")
    asked = _tidied(record.asked)
    if asked is record.asked and (model, question, task) == (record.model, record.question, record.task):
        return record
    return record._replace(model=model, question=question, task=task, asked=asked)


def _tidied(asked: LoggedQuestion) -> LoggedQuestion:
    """The question without halves of surrogate pairs, which no server could be sent."""
    if asked.is_plain:
        return asked
    prompt, answer, choices, cluster = asked
    return LoggedQuestion(
        tidy_text(prompt),
        tidy_text(answer),
        tuple(map(tidy_text, choices)),
        None if cluster is None else tidy_text(cluster),
    )


def _why_missing(record: Record) -> str | None:
    """Why a record is no trial: nothing came of it, it was not finished, or nothing is known of what came; None for a
    trial."""
    if record.answer is not None and finish_word(record.answer.finish_reason) in FAILED:
        return record.missing or f"the server gave up in the middle (finish reason {record.answer.finish_reason!r})"
    if record.missing is not None or record.has_text or record.grader_error is None:
        return record.missing
    return record.grader_error if record.category is None and record.value is None else None
