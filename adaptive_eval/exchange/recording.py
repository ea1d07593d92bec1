"""Recorded outcomes in an .npz file, for exports, imports and replays; all values are validated.

    R               (L, M, N) integers: the category of each trial, -1 for no trial
    kinds           (L, M, N) integers: the kinds of each answer, as the sum of `AnswerKind`; 16: it was cut off
    correct, count  (L, M) integers: right answers, and trials
    models          (L,) names; default: model-01, model-02 ...
    questions       (M,) names; default: q1, q2 ...
    weights         (K,) numbers: the value of each category; a replay takes those of a rubric
    categories      (K,) names: what each category is called

Arrays of Python objects are not read, since unpickling a file can run code.

A stored run can also be read as a recording: its trials in order, with the weights of its rubric.
"""

import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.roster import Roster
from adaptive_eval.config.benchmarks import Weighing, weigh_questions
from adaptive_eval.config.prepare import stored_config
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.answer_kinds import AnswerKind, answer_kinds
from adaptive_eval.core.settings import MAX_CATEGORIES
from adaptive_eval.endpoints.types import Answer, Signal
from adaptive_eval.exchange.log_files import LogFile
from adaptive_eval.exchange.samples import NO_ANSWER, Record
from adaptive_eval.exchange.source import ExportSource, OnProgress
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.machine.facts import facts_of
from adaptive_eval.machine.repeats import AnswerWatch, Sampled, watched_questions
from adaptive_eval.notes import TrialsImported, events_of_kind
from adaptive_eval.report.reader import RunReader
from scorio.moments import IntArray

NO_TRIAL = -1
"""Marks a missing trial in `R`."""
NO_GRADE = -2
"""Marks a trial without a grade in the outcomes of a run."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Recorded outcomes of L models on M questions."""

    models: tuple[str, ...]
    questions: tuple[str, ...]
    counts: IntArray
    """(L, M, K): trials by category, at least one per cell; K is at least 2."""
    outcomes: IntArray | None
    """(L, M, N), -1 for no trial, -2 for one without a grade; None if the order of trials is unknown."""
    kinds: IntArray | None = None
    """(L, M, N): the kinds of the answers, if recorded."""
    weights: NDArray[np.float64] | None = None
    """The weight of each category, if recorded."""
    categories: tuple[str, ...] | None = None
    """The name of each category, if recorded."""
    answers: tuple["RecordedAnswers", ...] | None = None
    """Facts about each model's answers, if more than grades were recorded."""
    weighing: Weighing | None = None
    """Weights of the questions, if they belong to several benchmarks."""
    config: RunConfig | None = None
    """The configuration of the run, if it was recorded by one."""
    repeats_count: bool = False
    """Whether its import has counted repeated answers as samples."""


class RecordedAnswers(NamedTuple):
    """A model's answers, to find repeats, and how they are sampled."""

    watch: AnswerWatch
    sampled: Sampled | None


def read_recording(path: Path, *, untried: bool = False) -> Recording:
    """Read a recording from a file; raises `ConfigError` if anything is wrong.

    `untried` allows cells without a trial, which a replay cannot use.
    """
    with _opened(path) as file:
        if _has_outcomes(file):
            outcomes = _outcomes(file, untried)
            counts = count_outcomes(outcomes)
        else:
            outcomes, counts = None, _counts(file, untried)
        weights = _weights(file, counts.shape[-1])
        if weights is not None:
            counts = np.pad(counts, ((0, 0), (0, 0), (0, len(weights) - counts.shape[-1])))
        models, questions, categories = counts.shape
        return Recording(
            models=_names(file, "models", models) or tuple(f"model-{number + 1:02d}" for number in range(models)),
            questions=_names(file, "questions", questions) or tuple(f"q{number + 1}" for number in range(questions)),
            counts=counts,
            outcomes=outcomes,
            kinds=_kinds(file, outcomes),
            weights=weights,
            categories=None if weights is None else _names(file, "categories", categories),
        )


def count_outcomes(outcomes: IntArray, categories: int = 2) -> NDArray[np.int64]:
    """Counts (L, M, K) of outcomes (L, M, N), without -1 for no trial; K is at least `categories`."""
    number_of_categories = max(int(outcomes.max(initial=NO_TRIAL)) + 1, categories)
    return np.stack([(outcomes == category).sum(axis=2) for category in range(number_of_categories)], axis=-1)


class _File:
    """An open .npz file."""

    def __init__(self, path: Path, arrays: "np.lib.npyio.NpzFile") -> None:
        self.path, self._arrays = path, arrays

    def has(self, name: str) -> bool:
        return name in self._arrays.files

    @property
    def array_names(self) -> str:
        """The names of its arrays, for messages."""
        return ", ".join(self._arrays.files) or "no array"

    def integers(self, name: str, axes: str, hint: str) -> IntArray:
        """An integer array with an axis for each letter of `axes`, none of them empty."""
        if not self.has(name):
            raise self.config_error(f"has no array {name}, but {self.array_names}; {hint}")
        values = self.array(name)
        if values.dtype.kind == "b":
            values = values.astype(np.int8)
        if values.dtype.kind not in "iu":
            raise self.config_error(f"array {name} must contain integers, but got {values.dtype}; {hint}")
        if values.ndim != len(axes) or 0 in values.shape:
            raise self.config_error(f"array {name} must have shape ({', '.join(axes)}), but got {values.shape}; {hint}")
        return values

    def array(self, name: str) -> NDArray[Any]:
        """Load an array."""
        try:
            return np.asarray(self._arrays[name])
        except _DAMAGES as error:
            hint = "arrays of Python objects are not read: save names as texts, with np.array(names, dtype=str)"
            raise self.config_error(f"array {name} cannot be read: {error}; {hint}") from error

    def config_error(self, what: str) -> ConfigError:
        return ConfigError(f"{self.path}: {what}")


_DAMAGES = (OSError, EOFError, ValueError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""Errors that numpy and zipfile raise for damaged, encrypted or other files."""


@contextmanager
def _opened(path: Path) -> Iterator[_File]:
    try:
        handle = path.open("rb")  # numpy would leave a damaged file open
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    with handle:
        try:
            arrays = np.load(handle, allow_pickle=False)
        except ValueError as error:  # its message recommends loading it unsafely
            raise ConfigError(f"{path} is not an .npz file, or is damaged; write it with np.savez") from error
        except _DAMAGES as error:
            raise ConfigError(f"{path} is not an .npz file, or is damaged ({error}); write it with np.savez") from error
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise ConfigError(f"{path} contains one array without a name; write it with np.savez(file, R=array)")
        with arrays:
            yield _File(path, arrays)


def _has_outcomes(file: _File) -> bool:
    has_outcomes, has_counts = file.has("R"), file.has("correct")
    if has_outcomes and has_counts:
        raise file.config_error("has both R and correct; remove one of them")
    if not has_outcomes and not has_counts:
        hint = "rename the array of outcomes to R"
        raise file.config_error(f"must have R, or correct and count, but has {file.array_names}; {hint}")
    return has_outcomes


def _outcomes(file: _File, untried: bool) -> IntArray:
    hint = "it has the category of each trial, by model, question and trial, and -1 for no trial"
    outcomes = file.integers("R", "LMN", hint)
    low, high = int(outcomes.min()), int(outcomes.max())
    if low < -1 or high >= MAX_CATEGORIES:
        rule = f"array R must lie between -1 and {MAX_CATEGORIES - 1}"
        raise file.config_error(f"{rule}, but has {low if low < -1 else high}; {hint}")
    if not untried:
        _require_trials(file, "R", outcomes.max(axis=2) >= 0)
    return outcomes.astype(np.min_scalar_type(-max(high, 0) - 1))


def _kinds(file: _File, outcomes: IntArray | None) -> IntArray | None:
    if outcomes is None or not file.has("kinds"):
        return None
    hint = "it has the kinds of each answer in R, such as 16 for one that was cut off, and 0 for plain text"
    kinds = file.integers("kinds", "LMN", hint)
    if kinds.shape != outcomes.shape or kinds.min() < 0 or kinds.max() > sum(AnswerKind):
        got = f"{kinds.shape} with values from {kinds.min()} to {kinds.max()}"
        rule = f"array kinds must have the shape of R, {outcomes.shape}, and lie between 0 and {sum(AnswerKind)}"
        raise file.config_error(f"{rule}, but got {got}; {hint}")
    return kinds.astype(np.uint8)


def _counts(file: _File, untried: bool) -> NDArray[np.int64]:
    hint = "correct are the right answers of each model and question, count all its trials"
    correct = file.integers("correct", "LM", hint).astype(np.int64)
    count = file.integers("count", "LM", hint).astype(np.int64)
    if correct.shape != count.shape:
        raise file.config_error(
            f"correct and count must have one shape, but got {correct.shape} and {count.shape}; {hint}"
        )
    wrong = np.argwhere((correct < 0) | (correct > count))
    if len(wrong):
        cell = tuple(wrong[0].tolist())
        raise file.config_error(f"must have 0 <= correct <= count, but at {cell} got {correct[cell]} of {count[cell]}")
    if not untried:
        _require_trials(file, "count", count > 0)
    return np.stack([count - correct, correct], axis=-1)


def _require_trials(file: _File, name: str, tried: NDArray[np.bool_]) -> None:
    """Raise `ConfigError` if a cell has no trial, since its outcome would be unknown."""
    empty = np.argwhere(~tried)
    if len(empty):
        model, question = empty[0].tolist()
        more = f", and in {len(empty) - 1} more cells" if len(empty) > 1 else ""
        raise file.config_error(
            f"array {name} must have a trial of every question by every model, but has none of question {question} by "
            f"model {model} (counted from 0){more}; remove that question or that model"
        )


def _weights(file: _File, min_length: int) -> NDArray[np.float64] | None:
    """The weights of at least `min_length` categories; None if not recorded."""
    if not file.has("weights"):
        return None
    weights = file.array("weights")
    if weights.dtype.kind not in "iuf" or weights.ndim != 1 or not min_length <= len(weights) <= MAX_CATEGORIES:
        got = f"{weights.dtype} of shape {weights.shape}"
        raise file.config_error(
            f"array weights must have a number for each of {min_length} categories or more, but got {got}"
        )
    if not np.isfinite(weights).all():
        raise file.config_error("array weights must contain finite numbers")
    return weights.astype(np.float64)


def _names(file: _File, name: str, length: int) -> tuple[str, ...] | None:
    if not file.has(name):
        return None
    values = file.array(name)
    if values.dtype.kind not in "USiu" or values.shape != (length,):
        got = f"{values.dtype} of shape {values.shape}"
        raise file.config_error(f"array {name} must have shape ({length},) and contain texts or numbers, but got {got}")
    names = tuple(
        str(np.char.decode(name, "utf-8", "replace")) if values.dtype.kind == "S" else str(name) for name in values
    )
    if repeated := [name for name, times in Counter(names).items() if times > 1 or not name]:
        rule = "must contain distinct names, none of them empty"
        raise file.config_error(f"array {name} {rule}, but got {repeated[0]!r} twice or empty")
    return names


def recording_of_run(directory: Path) -> Recording:
    """Read the graded trials of a run; raises `ConfigError` if a model has none of some question."""
    with RunReader.intact(directory) as reader:
        header = reader.header()
        config = stored_config(header)
        weights = np.array(open_rubric(config.rubric).weights, dtype=float)
        trials = list(reader.graded_trials())
        repeats_count = any(event.repeats_count for event in events_of_kind(reader.events(), TrialsImported))
    roster = Roster.of(header.models, header.questions)
    longest = max((named.trial.number + 1 for named in trials), default=0)
    shape = (len(roster.models), len(roster.questions), longest)
    outcomes, kinds = np.full(shape, NO_TRIAL, dtype=np.min_scalar_type(-len(weights))), np.zeros(shape, dtype=np.uint8)
    for model, question, trial in trials:
        place = (*roster.cell(model, question), trial.number)
        outcomes[place], kinds[place] = NO_GRADE if trial.category is None else trial.category, trial.kinds
    counts = count_outcomes(outcomes, len(weights))
    untried = np.argwhere(counts.sum(axis=-1) == 0)
    if len(untried):
        at_model, at_question = untried[0].tolist()
        name = list(header.models)[at_model]
        hint = "continue the run first"
        if config.trials.draw is not None:
            hint = "it asked only some questions (trials.draw); use a run without"
        elif any(model.recorded for model in config.models if model.name == name):
            hint = "it is recorded there; replay the run that has asked it"
        raise ConfigError(
            f"{directory}: {name} has no graded trial of question "
            f"{list(header.questions)[at_question]}, so its outcome is unknown; {hint}"
        )
    sampled = {model.name: model.sampled for model in config.models}
    answers = {name: RecordedAnswers(AnswerWatch(), sampled.get(name)) for name in header.models}
    watched = watched_questions([*header.questions])
    for model, _, trial in trials:
        if trial.category is not None and trial.question in watched and (facts := facts_of(trial)) is not None:
            answers[model].watch.add(trial, facts)
    return Recording(
        tuple(header.models),
        tuple(header.questions),
        counts,
        outcomes,
        kinds,
        weights,
        answers=tuple(answers.values()),
        weighing=weigh_questions(config.benchmarks, tuple(header.questions)),
        config=config,
        repeats_count=repeats_count,
    )


def write_npz(source: ExportSource, path: Path, on_progress: OnProgress) -> IntArray:
    """Write all outcomes; returns their number (L, M). Ungraded answers and failures are written as missing."""
    shape = (*source.extent.shape, int(source.extent.max()))
    outcomes = np.full(shape, NO_TRIAL, dtype=np.min_scalar_type(-len(source.run.rubric.weights)))
    kinds = np.zeros(shape, dtype=np.uint8)
    for number, (model, question, trial) in enumerate(source.reader.graded_trials(), 1):
        if trial.category is not None:
            place = (*source.roster.cell(model, question), trial.number)
            outcomes[place], kinds[place] = trial.category, trial.kinds
        on_progress(number)
    with path.open("wb") as file:
        np.savez_compressed(
            file,
            R=outcomes,
            kinds=kinds,
            models=np.array(source.models, dtype=str),
            questions=np.array(tuple(source.roster.questions), dtype=str),
            weights=np.array(source.run.rubric.weights, dtype=np.float64),
            categories=np.array(source.run.rubric.names, dtype=str),
        )
    return np.asarray(np.count_nonzero(outcomes != NO_TRIAL, axis=2))


ORDER_SEED = 0
"""Seed of the random order given to trials of which only counts are known."""


def read_tensor(file: LogFile) -> Iterator[Record]:
    """Read the trials of an array."""
    recording = read_recording(file.path, untried=True)
    models = [file.name_model(name) for name in recording.models]
    rng = np.random.default_rng(ORDER_SEED)
    cells = len(recording.models) * len(recording.questions)
    for number, (model, question) in enumerate(np.ndindex(len(recording.models), len(recording.questions)), start=1):
        file.share = number / cells
        if not recording.counts[model].any():
            names = models[model], recording.questions[question]
            yield Record(f"cell ({model}, {question})", *names, trial=None, missing="the array has no trial of it")
        for trial, category in enumerate(_trials(recording, model, question, rng)):
            if category >= 0:
                yield Record(
                    place=f"cell ({model}, {question}), trial {trial}",
                    model=models[model],
                    question=recording.questions[question],
                    trial=trial,
                    answer=None if recording.kinds is None else _answer(int(recording.kinds[model, question, trial])),
                    category=category,
                    label=None if recording.categories is None else recording.categories[category],
                    value=None if recording.weights is None else float(recording.weights[category]),
                    is_own_export=True,
                )


def _answer(kinds: int) -> Answer:
    """An answer of these kinds, without its text."""
    return replace(NO_ANSWER, signals=frozenset(flag for flag in get_args(Signal) if answer_kinds(flag) & kinds))


def _trials(recording: Recording, model: int, question: int, rng: np.random.Generator) -> list[int]:
    if recording.outcomes is not None:
        stored: list[int] = recording.outcomes[model, question].tolist()
        return stored
    counts: NDArray[np.integer] = recording.counts[model, question]
    shuffled: list[int] = rng.permutation(np.repeat(np.arange(len(counts)), counts)).tolist()
    return shuffled
