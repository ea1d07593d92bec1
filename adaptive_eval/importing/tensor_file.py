"""An import as one array in an .npz file, which `adaptive-eval replay` reads (see `replay.recording`)."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.export.drafts import new_file
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.importing.gather import Gathering
from adaptive_eval.replay.recording import NO_TRIAL, write_recording
from adaptive_eval.store import TrialRecord


class Outcomes:
    """The categories of trials by model, question and number."""

    def __init__(self) -> None:
        self.by_cell: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)

    def take(self, records: Iterable[TrialRecord]) -> None:
        """Keep the category of each; an answer without a grade is missing."""
        for record in records:
            category = NO_TRIAL if record.category is None else record.category
            self.by_cell[record.model, record.question][record.trial] = category

    def array(self, models: Sequence[str], keys: Sequence[str]) -> NDArray[np.int8]:
        """R, each cell's trials from 0 on in their order."""
        most = max(len(trials) for trials in self.by_cell.values())
        array = np.full((len(models), len(keys), most), NO_TRIAL, dtype=np.int8)
        for row, model in enumerate(models):
            for column, key in enumerate(keys):
                trials = self.by_cell.get((model, key), {})
                array[row, column, : len(trials)] = [trials[number] for number in sorted(trials)]
        return array


def write_tensor(path: Path, outcomes: Outcomes, gathering: Gathering, rubric: Rubric) -> None:
    """The array in an .npz file, which must not be there yet."""
    models, keys = list(gathering.models), gathering.keys
    array = outcomes.array(models, list(keys.values()))
    with new_file(path, force=False) as draft, draft.open("wb") as file:
        write_recording(file, array, models, list(keys), rubric.weights, rubric.names)
