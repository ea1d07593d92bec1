"""The outcomes that a run's scores are made of, as counts by model, question and category."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.reading.restore import restored_controller, stored_run
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
            controller, _ = restored_controller(reader, stored, reader.events())
            before = controller.plan.bench.prior_counts
            committed = controller.counts.astype(np.int64)
            known = np.zeros_like(committed) if before is None else before
            models = tuple(model.name for model in stored.config.models)
            questions = tuple(question.id for question in stored.questions)
            return RunCounts(models, questions, committed + known, known)
    finally:
        reader.close()
