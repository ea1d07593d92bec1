"""The outcomes that a run's scores are made of, as counts by model, question and category."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.reading.restore import StoredRun, restored_controller, stored_run
from adaptive_eval.run.history import stored_prior_counts
from adaptive_eval.store import RunReader


@dataclass(frozen=True, slots=True, eq=False)
class RunCounts:
    """Counts (L, M, K) with the names of models and questions."""

    models: tuple[str, ...]
    questions: tuple[str, ...]
    cells: NDArray[np.int64]
    """R0 and all complete rounds."""
    before: NDArray[np.int64]
    """Of these, R0."""

    def of(self, models: Sequence[str], questions: Sequence[str]) -> "RunCounts":
        """The counts of these models and questions, in this order."""
        rows = [self.models.index(name) for name in models]
        at = {key: column for column, key in enumerate(self.questions)}
        chosen = np.ix_(rows, [at[key] for key in questions])
        return RunCounts(tuple(models), tuple(questions), self.cells[chosen], self.before[chosen])


def read_counts(directory: Path) -> RunCounts:
    """What the newest look of a run has judged.

    Graded trials of an incomplete round are left out, as the run leaves them out: short answers arrive first, and are
    more often right.
    """
    reader = RunReader.open(directory)
    try:
        with reader.one_moment():
            stored = stored_run(reader.header())
            models = tuple(model.name for model in stored.config.models)
            questions = tuple(question.id for question in stored.questions)
            if stored.config.plug_ins:
                committed, before = _looked_at(reader, stored, models, questions), stored_prior_counts(reader)
            else:
                controller, _ = restored_controller(reader, stored, reader.events())
                committed, before = controller.counts.astype(np.int64), controller.plan.bench.prior_counts
            known = np.zeros_like(committed) if before is None else before
            return RunCounts(models, questions, committed + known, known)
    finally:
        reader.close()


def _looked_at(
    reader: RunReader, stored: StoredRun, models: Sequence[str], questions: Sequence[str]
) -> NDArray[np.int64]:
    """(L, M, K): of each model the rounds, from the first on, that together are no more than the newest look has."""
    shape = len(models), len(questions), len(open_rubric(stored.config.rubric).weights)
    look = reader.latest_look()
    told = {} if look is None else look.body
    most = dict(zip(cast(list[str], told.get("models", [])), cast(list[int], told.get("trials", [])), strict=True))
    model_at = {name: row for row, name in enumerate(models)}
    question_at = {key: column for column, key in enumerate(questions)}
    rounds: dict[tuple[str, int], NDArray[np.int64]] = defaultdict(lambda: np.zeros(shape[1:], dtype=np.int64))
    for model, question, number, category, trials in reader.round_counts():
        rounds[model, number][question_at[question], category] += trials
    cells, over = np.zeros(shape, dtype=np.int64), set[str]()
    for model, number in sorted(rounds, key=lambda one: one[1]):
        if model not in model_at or model in over:
            continue
        row = cells[model_at[model]]
        if row.sum() + rounds[model, number].sum() > most.get(model, 0):
            over.add(model)
        else:
            row += rounds[model, number]
    return cells
