"""A stored run as exports need it: one moment of it, whether or not another process is writing it."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.run import ModelConfig
from adaptive_eval.endpoints.types import Message, Prompt
from adaptive_eval.errors import StoreError
from adaptive_eval.graders.rubric import Rubric, open_rubric
from adaptive_eval.questions import Question
from adaptive_eval.questions.prompts import render
from adaptive_eval.record.restore import StoredRun, stored_run
from adaptive_eval.store import RunReader

Told = Callable[[int], None]
"""Hears how many trials have been written so far."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What is exported."""

    reader: RunReader
    stored: StoredRun
    rubric: Rubric
    models: tuple[str, ...]
    """All that have a trial, in the order in which they joined the run; some may have left it since."""
    extent: NDArray[np.int64]
    """(L, M): one more than the highest number of a trial; 0 where there is none."""

    @property
    def questions(self) -> tuple[Question, ...]:
        """In the order of the run."""
        return self.stored.questions

    def model(self, name: str) -> ModelConfig | None:
        """How a model is configured; None where it has left the run."""
        return next((model for model in self.stored.config.models if model.name == name), None)

    def prompt(self, name: str, question: Question) -> Prompt:
        """What a model was asked; the question as it stands where the model has left the run."""
        model = self.model(name)
        if model is None:
            return Prompt(messages=(Message("user", question.prompt),))
        return render(model.prompt, question, model.api)


@contextmanager
def opened_source(directory: Path) -> Iterator[Source]:
    """Read a run; raises `StoreError` where there is none, or nothing in it."""
    with closing(RunReader.open(directory)) as reader, reader.one_moment():
        header = reader.header()
        stored = stored_run(header)
        place = {question.id: at for at, question in enumerate(stored.questions)}
        extent = {name: np.zeros(len(place), dtype=np.int64) for name in header.models}
        for outcome in reader.outcomes():
            row, at = extent[outcome.model], place[outcome.question]
            row[at] = max(row[at], outcome.trial + 1)
        models = tuple(name for name, row in extent.items() if row.any())
        if not models:
            raise StoreError(f"{directory} has no trials yet; export it when some are stored")
        rubric = open_rubric(stored.config.rubric)
        yield Source(reader, stored, rubric, models, np.stack([extent[name] for name in models]))
