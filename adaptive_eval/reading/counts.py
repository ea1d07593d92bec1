"""The stored trials of a run as counts by model, question and category."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.reading.restore import stored_run
from adaptive_eval.store import RunReader


@dataclass(frozen=True, slots=True, eq=False)
class RunCounts:
    """Counts (L, M, K) with the names of models and questions."""

    models: tuple[str, ...]
    questions: tuple[str, ...]
    cells: NDArray[np.int64]

    def of(self, models: Sequence[str], questions: Sequence[str]) -> NDArray[np.int64]:
        """The counts of these models and questions, in this order."""
        rows = [self.models.index(name) for name in models]
        at = {key: column for column, key in enumerate(self.questions)}
        return self.cells[np.ix_(rows, [at[key] for key in questions])]


def read_counts(directory: Path) -> RunCounts:
    """Every graded trial of a run, those of an incomplete round too."""
    reader = RunReader.open(directory)
    try:
        with reader.one_moment():
            stored = stored_run(reader.header())
            models = tuple(model.name for model in stored.config.models)
            questions = tuple(question.id for question in stored.questions)
            categories = len(open_rubric(stored.config.rubric).weights)
            cells = np.zeros((len(models), len(questions), categories), dtype=np.int64)
            row, column = ({name: at for at, name in enumerate(names)} for names in (models, questions))
            for (name, key, category), number in reader.categories().items():
                if name in row:
                    cells[row[name], column[key], category] = number
            return RunCounts(models, questions, cells)
    finally:
        reader.close()
