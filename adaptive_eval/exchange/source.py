"""A consistent view of a stored run for exports, even while another process writes it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import StoreError
from adaptive_eval.base.roster import Names, Roster
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.questions import Question
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.stored import StoredRun, open_run

OnProgress = Callable[[int], None]
"""Called with the number of trials written so far."""


@dataclass(frozen=True, slots=True, eq=False)
class ExportSource:
    """The trials and questions of a run to export."""

    run: StoredRun
    roster: Roster
    """All models with a trial, in the order in which they joined the run; some may have left it since."""
    extent: NDArray[np.int32]
    """(L, M): one more than the highest trial number; 0 without a trial."""

    @property
    def reader(self) -> RunReader:
        """The reader of the run's trials."""
        return self.run.reader

    @property
    def models(self) -> tuple[str, ...]:
        """The names of all models with a trial."""
        return tuple(self.roster.models)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions in the order of the run."""
        return self.run.setup.questions

    def model(self, name: str) -> ModelConfig | None:
        """The configuration of a model; None if it has left the run."""
        return next((model for model in self.run.setup.config.models if model.name == name), None)


@contextmanager
def opened_source(directory: Path) -> Iterator[ExportSource]:
    """Open a run for export; raises `StoreError` if there is none, or it has no trials."""
    with open_run(directory) as run:
        roster = Roster(Names(run.reader.log.models()), run.setup.roster.questions)
        extent = np.zeros((len(roster.models), len(roster.questions)), dtype=np.int32)
        for cell in run.reader.cells(run.reader.newest_trial_id):
            extent[roster.cell(cell.model, cell.question)] = cell.extent
        tried = np.flatnonzero(extent.any(axis=1))
        if not len(tried):
            raise StoreError(f"{directory} has no trials yet; export it later")
        models = Names(roster.models[at] for at in tried.tolist())
        yield ExportSource(run, Roster(models, roster.questions), extent[tried])
