"""An import as one array, which `adaptive-eval replay` reads, as it reads those of `adaptive-eval export`.

R           (L, M, N) integers: the category of each trial by its number, -1 for no trial
models      (L,) names
questions   (M,) ids
weights     (K,): the value of each category
categories  (K,): what each category is called
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from adaptive_eval.export.drafts import new_file
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.importing.gather import Gathering
from adaptive_eval.store import TrialRecord

MISSING = -1


class Outcomes:
    """The categories of trials by model, question and number."""

    def __init__(self) -> None:
        self.by_cell: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)

    def take(self, records: Iterable[TrialRecord]) -> None:
        """Keep the category of each; an answer without a grade is missing."""
        for record in records:
            category = MISSING if record.category is None else record.category
            self.by_cell[record.model, record.question][record.trial] = category

    def array(
        self, models: Iterable[str], keys: Iterable[str]
    ) -> "np.ndarray[tuple[int, int, int], np.dtype[np.int8]]":
        """R, each cell's trials from 0 on in their order."""
        rows, columns = list(models), list(keys)
        most = max(len(trials) for trials in self.by_cell.values())
        array = np.full((len(rows), len(columns), most), MISSING, dtype=np.int8)
        for row, model in enumerate(rows):
            for column, key in enumerate(columns):
                trials = self.by_cell.get((model, key), {})
                array[row, column, : len(trials)] = [trials[number] for number in sorted(trials)]
        return array


def write_tensor(path: Path, outcomes: Outcomes, gathering: Gathering, rubric: Rubric) -> None:
    """The array in an .npz file, which must not be there yet."""
    models, keys = list(gathering.models), gathering.keys
    with new_file(path, force=False) as draft, draft.open("wb") as file:
        np.savez_compressed(
            file,
            R=outcomes.array(models, keys.values()),
            models=np.array(models, dtype=str),
            questions=np.array(list(keys), dtype=str),
            weights=np.array(rubric.weights, dtype=np.float64),
            categories=np.array(rubric.names, dtype=str),
        )
