"""Blinded labelling of one answer after another.

The page shows an answer's question, reference and text, but neither its model nor its grade. A label is stored on disk
before the next answer is shown.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.core.types import Verdict
from adaptive_eval.graders.ballots import BallotField
from adaptive_eval.graders.transcript import visible
from adaptive_eval.labels.file import add_labels, texts_to_label
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.report.label_effect import find_labelled, require_useful_labels
from adaptive_eval.report.label_file import (
    GivenLabel,
    Labelled,
    digest_of_answer,
    grader_of,
    is_label,
    label_fields,
    read_labels,
)
from adaptive_eval.report.rescore import judged_rows
from adaptive_eval.report.results import Results
from adaptive_eval.report.stored import StoredRun, open_run
from adaptive_eval.running.reporting import apply_labels

DECIDED = (Verdict.RESOLVED, Verdict.TIED)
CHOOSE_AT_A_TIME = 20
"""Answers chosen at a time, before the comparisons are evaluated again."""


class ChosenAnswer(NamedTuple):
    """An answer of a session."""

    at: Labelled
    digest: str
    fields: tuple[BallotField, ...]
    """The fields of a label, which has a level for each."""
    texts: Mapping[str, str]
    """Texts by name, with invisible characters written out."""


class LabelSession:
    """Labels a number of answers of a run, one after another."""

    def __init__(self, run: Path, number: int) -> None:
        self._run = run
        self.number = number
        """How many answers it labels."""
        self._chosen: list[ChosenAnswer] = []
        self._at = 0
        self._labels_by_place: dict[int, str] = {}
        """Labels by place; "" if it was skipped."""

    @property
    def current(self) -> ChosenAnswer | None:
        """The answer to label now; None if the session is over.

        Raises `ConfigError` if labels cannot be used in this run.
        """
        if self._at == len(self._chosen) and self._at < self.number:
            self._choose()
        return None if self._at == len(self._chosen) else self._chosen[self._at]

    @property
    def place(self) -> int:
        """The place of the current answer, from 1; 0 if the session is over."""
        return 0 if self.current is None else self._at + 1

    @property
    def earlier_label(self) -> str | None:
        """The earlier label of the current answer, if the user came back to it."""
        return self._labels_by_place.get(self._at)

    def label(self, label: str) -> bool:
        """Store the label of the current answer; False if its grader has no such label."""
        chosen = self.current
        if chosen is None or not is_label(chosen.fields, label):
            return False
        add_labels(self._run, {chosen.at: GivenLabel(label, chosen.digest)})
        self._advance(label)
        return True

    def skip(self) -> None:
        """Continue without changing the label of the current answer."""
        if self.current is not None:
            self._advance(self.earlier_label or "")

    def go_back(self) -> None:
        """Return to the previous answer: a later label replaces an earlier one."""
        self._at = max(self._at - 1, 0)

    def _advance(self, label: str) -> None:
        self._labels_by_place[self._at] = label
        self._at += 1

    def _choose(self) -> None:
        apply_labels(self._run)
        with open_run(self._run) as stored:
            grader = stored.setup.config.grader
            require_useful_labels(grader, stored.rubric)
            existing = find_labelled(stored.reader, read_labels(self._run), grader, stored.setup.roster).answers
            labelled = {*existing, *(chosen.at for chosen in self._chosen)}
            number = min(self.number - len(self._chosen), CHOOSE_AT_A_TIME)
            self._chosen += _open_answers(stored, choose_answers_to_label(stored, labelled, number))


def _open_answers(stored: StoredRun, chosen: Sequence[Labelled]) -> Iterator[ChosenAnswer]:
    """Each answer with its texts."""
    questions = {question.id: question for question in stored.setup.questions}
    for at in chosen:
        record = next(stored.reader.cell(at.model, at.question, at.trial - 1))
        grader = grader_of(stored.setup.config.grader, at.question)
        texts = texts_to_label(grader, questions[at.question], record.answer.text)
        shown = {name: visible(text) for name, text in texts.items()}
        yield ChosenAnswer(at, digest_of_answer(record.answer), label_fields(grader), shown)


# -- which answers come next ------------------------------------------------------------------------------------------


def choose_answers_to_label(stored: StoredRun, labelled: Collection[Labelled], number: int) -> list[Labelled]:
    """Choose the answers whose labels help most to decide comparisons; `labelled` are those that have one.

    The next model is the one whose next label most reduces the variances of comparisons that are undecided after
    correction. Its answers come from each benchmark and each question in turn, in a pseudorandom order that depends
    only on their names, so the choice does not depend on their content.
    """
    candidates = _unlabelled_answers(stored, labelled)
    results = stored.results(running=True)
    counts = Counter(at.model for at in labelled)
    chosen: list[Labelled] = []
    while len(chosen) < number and any(candidates.values()):
        models = (name for name, answers in candidates.items() if answers)
        model = max(models, key=lambda name: _label_gain(name, counts[name], results))
        chosen.append(candidates[model].pop(0))
        counts[model] += 1
    return chosen


def _label_gain(model: str, labels_so_far: int, results: Results | None) -> tuple[float, int]:
    """Sort key of a model with this many labels: how much the next label reduces the variances of its undecided
    comparisons, then the fewest labels."""
    labelled = () if results is None or results.labelled is None else results.labelled.models
    row = next((row for row in labelled if row.name == model), None)
    if results is None or row is None or row.shift_sigma is None:
        return float("inf"), -labels_so_far
    variance_drop = row.shift_sigma**2 * row.labels * (1.0 / labels_so_far - 1.0 / (labels_so_far + 1))
    undecided = (pair for pair in results.pairs if pair.verdict not in DECIDED and model in (pair.first, pair.second))
    return sum(variance_drop / pair.sigma**2 for pair in undecided if pair.sigma), -labels_so_far


def _unlabelled_answers(stored: StoredRun, labelled: Collection[Labelled]) -> dict[str, list[Labelled]]:
    """Answers without a label, by model, in the order of labelling."""
    cells: dict[tuple[str, str], list[Labelled]] = defaultdict(list)
    for row in judged_rows(stored):
        cells[row.model, row.question].append(Labelled(row.model, row.question, row.trial))
    queues: dict[tuple[str, str], list[tuple[int, bytes, Labelled]]] = defaultdict(list)
    has_benchmarks = bool(stored.setup.config.benchmarks)
    for (model, question), answers in cells.items():
        queue = queues[model, benchmark_named(question) if has_benchmarks else ""]
        queue += [(turn, _draw_key(at), at) for turn, at in enumerate(sorted(answers, key=_draw_key))]
    by_model: dict[str, list[tuple[int, bytes, Labelled]]] = defaultdict(list)
    for (model, _), queue in queues.items():
        by_model[model] += [(place, key, at) for place, (_, key, at) in enumerate(sorted(queue))]
    return {model: [at for _, _, at in sorted(answers) if at not in labelled] for model, answers in by_model.items()}


def _draw_key(at: Labelled) -> bytes:
    """A pseudorandom sort key that never changes."""
    return blake2b("\0".join((at.model, at.question, str(at.trial))).encode("utf-8", "surrogatepass")).digest()[:16]
