"""Reads and writes .npz arrays with R (L, M, N), -1 for no trial, or with counts.

Exports write them; imports and `adaptive-eval replay` read them (see `recording`).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.exchange.recording import NO_TRIAL, Recording, read_recording, write_recording
from adaptive_eval.exchange.samples import LogFile, Record
from adaptive_eval.exchange.source import ExportSource, OnProgress


def write_npz(source: ExportSource, path: Path, on_progress: OnProgress) -> None:
    """Write all outcomes; ungraded answers are written as missing."""
    categories = len(source.rubric.weights)
    shape = (*source.extent.shape, int(source.extent.max()))
    outcomes = np.full(shape, NO_TRIAL, dtype=np.int8 if categories <= np.iinfo(np.int8).max else np.int16)
    for number, outcome in enumerate(source.reader.outcomes(), 1):
        if outcome.category is not None:
            outcomes[(*source.roster.cell(outcome.model, outcome.question), outcome.trial)] = outcome.category
        on_progress(number)
    with path.open("wb") as file:
        questions = tuple(source.roster.questions)
        write_recording(file, outcomes, source.models, questions, source.rubric.weights, source.rubric.names)


SEED = 0
"""Seed of the random order given to trials of which only counts are known."""


def read_tensor(file: LogFile) -> Iterator[Record]:
    """Read the trials of an array; its models keep their names."""
    recording = read_recording(file.path, untried=True)
    rng = np.random.default_rng(SEED)
    cells = len(recording.models) * len(recording.questions)
    for number, (model, question) in enumerate(np.ndindex(len(recording.models), len(recording.questions)), start=1):
        file.share = number / cells
        for trial, category in enumerate(_trials(recording, model, question, rng)):
            if category >= 0:
                yield Record(
                    place=f"cell ({model}, {question}), trial {trial}",
                    model=recording.models[model],
                    question=recording.questions[question],
                    trial=trial,
                    category=category,
                    label=None if recording.categories is None else recording.categories[category],
                    value=None if recording.weights is None else float(recording.weights[category]),
                    own=True,
                )


def _trials(recording: Recording, model: int, question: int, rng: np.random.Generator) -> list[int]:
    if recording.outcomes is not None:
        held: list[int] = recording.outcomes[model, question].tolist()
        return held
    counts: NDArray[np.integer] = recording.counts[model, question]
    mixed: list[int] = rng.permutation(np.repeat(np.arange(len(counts)), counts)).tolist()
    return mixed
