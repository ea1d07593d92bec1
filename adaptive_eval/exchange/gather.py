"""Combines records of many files into the trials of one run, with their models, questions and numbers.

Contradictions are errors that name both places: a duplicate trial, a model with two sampling settings, or a question
with two answer keys.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from adaptive_eval.config.run import MAX_MODEL_NAME, MODEL_NAME
from adaptive_eval.endpoints.failures import FAILED, finish_word
from adaptive_eval.exchange.log_files import LogError, LogFile
from adaptive_eval.exchange.matching import ConfiguredRun
from adaptive_eval.exchange.samples import LoggedQuestion, LoggedSettings, Record, tidy_text
from adaptive_eval.machine.facts import answer_digest, text_size
from adaptive_eval.machine.repeats import MIN_LONG_BYTES

KEY_SEPARATOR = "\0"
"""Separates task and id in the key of a question."""


@dataclass
class _Cell:
    """The trials of one question by one model."""

    trials: int = 0
    last: int = -1
    numbered: int = -1
    """The highest number that the log gives to a trial that counts; -1 if it gives none."""
    keeps_numbers: bool = False
    """Whether trials must keep their numbers, which determine seeds: a renumbered trial could be asked again."""


class RepeatFilter:
    """Passes on the trials that count, and holds back trials that may turn out to be repeats.

    A server that ignores the seed, or has a cache, repeats its answer to a question; such answers are not independent,
    and count once. A long text is not repeated by chance. A short one may be, such as the letter of a choice, so short
    repeats count if the model's answers to some question differ, which shows that it was sampled.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], set[int]] = defaultdict(set)
        self._held_back: dict[str, list[Record]] = {}
        self._vary: set[str] = set()
        self._long: Counter[str] = Counter()

    def take(self, record: Record) -> list[Record]:
        """Add a trial; returns the trials that count now: none, this one, or this one after those held back."""
        answer, model = record.answer if record.has_text else None, record.model
        digest = None if answer is None else answer_digest(answer)
        if answer is None or digest is None:
            return [record]
        seen, released = self._seen[model, record.question], list[Record]()
        if digest in seen and text_size(answer.text) + text_size(answer.reasoning) >= MIN_LONG_BYTES:
            self._long[model] += 1
            return []
        if digest in seen and model not in self._vary:
            self._held_back.setdefault(model, []).append(record)
            return []
        if seen and digest not in seen:
            self._vary.add(model)
            released = self._held_back.pop(model, [])
        seen.add(digest)
        return [*released, record]

    @property
    def dropped(self) -> dict[str, int]:
        """Number of repeats that do not count, by model."""
        return dict(self._long + Counter({model: len(held) for model, held in self._held_back.items()}))


class RecordGatherer:
    """Collects records one by one and assigns them to trials."""

    def __init__(
        self,
        configured: ConfiguredRun | None,
        left_out: Collection[str],
        further: bool,
        *,
        repeats_are_samples: bool = False,
    ) -> None:
        """`configured`: the models and questions of a given configuration."""
        self._repeats = None if repeats_are_samples else RepeatFilter()
        self._configured, self._left_out, self._further = configured, left_out, further
        self._models: dict[str, LoggedSettings] = {}
        """The settings of each model in its first record."""
        self._asked: dict[tuple[str, str], tuple[LoggedSettings, str]] = {}
        """The settings of each model for each task, and the place of the first record."""
        self._questions: dict[str, Record] = {}
        """The first record of each question, without its answer, by key."""
        self._cells: dict[tuple[str, str], _Cell] = defaultdict(_Cell)
        self._seen: dict[tuple[str, str, int | str], tuple[str, str | None]] = {}
        self._failed: dict[tuple[str, str, int | str | None], str] = {}
        """Records that are not trials, with the reason; another attempt or a later start may have succeeded."""
        self._shift: dict[tuple[str, str], int] = {}
        self._in_file: Counter[tuple[str, str]] = Counter()
        self._found_left_out: set[str] = set()
        self.files: list[str] = []
        """Names of the files, in the order in which they were read."""
        self.copies = 0
        """Number of records that are copies of others."""
        self.without_text = 0
        """Number of trials with only a grade."""
        self.reworded = 0
        """Number of records whose question is worded differently from its first record."""

    def next_file(self, file: LogFile) -> None:
        """Begin a new file."""
        self.files.append(file.path.name)
        self._in_file.clear()
        if self._further:
            self._shift = {cell: held.last + 1 for cell, held in self._cells.items()}

    def take(self, file: LogFile, record: Record) -> list[Record]:
        """Add a record; returns the trials that count now: this one if it is one, and any that were held back.

        They have the file in their places, the key of the question, and their numbers in the run.
        """
        record = _clean_record(record._replace(place=f"{file.path}: {record.place}"))
        if self._is_left_out(record):
            return []
        question = self._question(record)
        self._require_model(record)
        if self._configured is not None:
            self._configured.require_same(record, question)
        if (why := _why_missing(record)) is not None:
            self._failed[record.model, question, record.trial if record.of_task else record.place] = why
            return []
        cell = (record.model, question)
        trial = self._in_file[cell] if record.trial is None else record.trial
        self._in_file[cell] += 1
        trial += self._shift.get(cell, 0)
        by_seed = self._further and record.is_own_export and record.seed is not None
        if self._is_copy((*cell, f"seed {record.seed}" if by_seed else trial), record):
            return []
        held = self._cells[cell]
        held.last = max(held.last, trial)
        held.keeps_numbers |= self._configured is not None and (record.is_own_export or record.seed is not None)
        self.without_text += not record.has_text
        record = record._replace(question=question, number=trial)
        is_from_run = record.is_own_export or record.of_task  # the run has filtered repeats
        counting = [record] if self._repeats is None or is_from_run else self._repeats.take(record)
        for counted in counting:
            own = self._cells[counted.model, counted.question]
            own.trials += 1
            if counted.trial is not None:
                own.numbered = max(own.numbered, counted.number)
        return counting

    # -- results ----------------------------------------------------------------------------------------------------

    @property
    def models(self) -> Mapping[str, LoggedSettings]:
        """The models with trials, and the settings that they had for every task."""
        with_trials, models = {model for model, _ in self._cells}, dict[str, LoggedSettings]()
        for name, settings in self._models.items():
            if name in with_trials:
                differing = self._differing_sampling(name)
                common = {key: value for key, value in settings.sampling.items() if key not in differing}
                models[name] = settings._replace(sampling=common)
        return models

    @property
    def differing(self) -> Mapping[str, Sequence[str]]:
        """The sampling settings that differ between tasks, by model; models without any are omitted."""
        differing = {name: self._differing_sampling(name) for name in self._models}
        return {name: keys for name, keys in differing.items() if keys}

    @property
    def keys(self) -> Mapping[str, str]:
        """Keys of the questions with trials, by id, which includes the task if there are several tasks."""
        with_trials = dict.fromkeys(question for _, question in self._cells)
        if self._configured is not None:
            return {question: question for question in with_trials}
        questions = {key: self._questions[key] for key in with_trials}
        has_tasks = len({first.task for first in questions.values()}) > 1
        named = {
            key: f"{first.task}/{first.question}" if has_tasks else first.question for key, first in questions.items()
        }
        ids = {name: key for key, name in named.items()}
        if len(ids) < len(named):
            raise LogError("two tasks have questions of the same name; import them separately")
        return ids

    @property
    def asked(self) -> Mapping[str, LoggedQuestion]:
        """The questions as they were asked, by id."""
        return {name: self._questions[key].asked for name, key in self.keys.items()}

    @property
    def missing(self) -> Mapping[str, Mapping[str, int]]:
        """Number of records that are not trials, by model and reason."""
        reasons: dict[str, Counter[str]] = defaultdict(Counter)
        for trial, why in self._failed.items():
            if trial not in self._seen:
                reasons[trial[0]][why] += 1
        return reasons

    @property
    def repeated(self) -> Mapping[str, int]:
        """Number of answers that repeat another one and are not counted, by model."""
        return {} if self._repeats is None else self._repeats.dropped

    @property
    def trials(self) -> Mapping[tuple[str, str], int]:
        """Number of trials by model and key of the question."""
        return {cell: held.trials for cell, held in self._cells.items()}

    @property
    def gaps(self) -> list[tuple[str, str]]:
        """Cells to renumber, since their trial numbers are not consecutive from 0."""
        return [cell for cell, held in self._cells.items() if held.last + 1 != held.trials and not held.keeps_numbers]

    @property
    def renumbered(self) -> list[tuple[str, str, int, int]]:
        """Cells whose trials have other numbers in the log: model, question, the highest number, and that of the same
        trial in the run. Files that are added to others have such numbers anyway."""
        names = {key: name for name, key in self.keys.items()}
        cells = [(cell, self._cells[cell]) for cell in ([] if self._further else self.gaps)]
        return [
            (model, names[key], held.numbered, held.trials - 1)
            for (model, key), held in cells
            if held.numbered >= held.trials
        ]

    def require_left_out(self) -> None:
        """Raise `LogError` for names in `left_out` that do not occur."""
        if unknown := sorted(set(self._left_out) - self._found_left_out):
            raise LogError(f"--leave-out names {', '.join(unknown)}, but there is no such model or question")

    def _differing_sampling(self, model: str) -> Sequence[str]:
        samplings = [settings.sampling for (name, _), (settings, _) in self._asked.items() if name == model]
        keys = dict.fromkeys(key for sampling in samplings for key in sampling)
        first = samplings[0]
        return [key for key in keys if any(other.get(key) != first.get(key) for other in samplings)]

    # -- single records -----------------------------------------------------------------------------------------------

    def _is_left_out(self, record: Record) -> bool:
        if not self._left_out:
            return False
        names = {record.model, record.question, f"{record.task}/{record.question}"} & set(self._left_out)
        self._found_left_out |= names
        return bool(names)

    def _require_model(self, record: Record) -> None:
        if self._configured is not None and record.model not in self._configured.models:
            names = ", ".join(self._configured.models)
            raise LogError(
                f"{record.place}: the configuration has no model {record.model!r}, but {names}; leave it out with "
                f"--leave-out {record.model!r}, or if the file has no other model, name it with NAME=FILE"
            )
        self._models.setdefault(record.model, record.settings)
        settings, before = self._asked.setdefault((record.model, record.task), (record.settings, record.place))
        if settings.sampling != record.settings.sampling:
            ours, theirs = dict(record.settings.sampling), dict(settings.sampling)
            raise LogError(
                f"{record.place}: {record.model} was asked with {ours or 'no settings'} here, and with "
                f"{theirs or 'no settings'} in {before}; these count as two models: name each with NAME=FILE"
            )

    def _question(self, record: Record) -> str:
        if self._configured is not None:
            names = (record.question, f"{record.task}/{record.question}")
            key = next((name for name in names if name in self._configured.questions), None)
            if key is None:
                raise LogError(
                    f"{record.place}: the configuration has no question with the id {record.question!r}; leave it out "
                    f"with --leave-out {record.question!r}, or give a configuration that has it"
                )
            return key
        key = f"{record.task}{KEY_SEPARATOR}{record.question}"
        if key not in self._questions:
            self._questions[key] = record._replace(answer=None)
        elif self._questions[key].asked != record.asked:
            self._require_same_question(self._questions[key], record)
        return key

    def _require_same_question(self, earlier: Record, record: Record) -> None:
        before, now = earlier.asked, record.asked
        if (before.answer, before.choices) != (now.answer, now.choices):
            what = "answer" if before.answer != now.answer else "choices"
            raise LogError(
                f"{record.place}: the {what} of question {record.question!r} is {getattr(now, what)!r:.80} here, and "
                f"{getattr(before, what)!r:.80} in {earlier.place}; are these logs of one benchmark?"
            )
        self.reworded += 1

    def _is_copy(self, trial: tuple[str, str, int | str], record: Record) -> bool:
        """Whether a record is a copy of an earlier one; raises `LogError` if its trial has another outcome there."""
        before = self._seen.setdefault(trial, (record.place, record.identity))
        if before[0] == record.place:
            return False
        if record.identity is not None and record.identity == before[1]:
            self.copies += 1
            return True
        raise LogError(
            f"{record.place}: trial {trial[2]} of question {record.question!r} by {record.model} is also in "
            f"{before[0]}; remove one of them, or give --append to add the trials of each file to those before"
        )


def _clean_record(record: Record) -> Record:
    """The record without invalid Unicode; raises `LogError` for names that a run cannot have."""
    given = record.model, record.question, record.task
    model, question, task = (tidy_text(name).strip() for name in given)
    if len(model) > MAX_MODEL_NAME or not re.fullmatch(MODEL_NAME, model):
        raise LogError(f"{record.place}: {model!r:.80} is not a valid model name; give one with NAME=FILE")
    if not question or KEY_SEPARATOR in question:
        raise LogError(f"{record.place}: {question!r:.80} is not a valid question id")
    prompt, answer, choices, cluster = record.asked
    clean = tidy_text(prompt), tidy_text(answer), tuple(map(tidy_text, choices)), tidy_text(cluster or "") or None
    if clean == record.asked and (model, question, task) == given:
        return record
    return record._replace(model=model, question=question, task=task, asked=LoggedQuestion(*clean))


def _why_missing(record: Record) -> str | None:
    """Why a record is not a trial: it failed, is incomplete, or has neither text nor grade; None for a trial."""
    if record.answer is not None and finish_word(record.answer.finish_reason) in FAILED:
        return record.missing or f"the server failed during the answer (finish reason {record.answer.finish_reason!r})"
    never_came = record.answer is not None and "unanswered" in record.answer.signals  # no grader takes it for an answer
    if record.missing is not None or record.has_text or record.grader_error is None or never_came:
        return record.missing
    return record.grader_error if record.category is None and record.value is None else None
