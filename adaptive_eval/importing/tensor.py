"""Arrays: an .npz file with R (L, M, N), -1 for no trial, or with counts, as a replay reads them."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.importing.record import LogFile, Record
from adaptive_eval.replay.recording import Recording, read_recording

SEED = 0
"""Decides the order of trials of which only counts are known: with right ones first, it would mean something."""


def read_tensor(file: LogFile) -> Iterator[Record]:
    """The trials of an array; its models keep their names."""
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
                )


def _trials(recording: Recording, model: int, question: int, rng: np.random.Generator) -> list[int]:
    if recording.outcomes is not None:
        held: list[int] = recording.outcomes[model, question].tolist()
        return held
    counts: NDArray[np.integer] = recording.counts[model, question]
    mixed: list[int] = rng.permutation(np.repeat(np.arange(len(counts)), counts)).tolist()
    return mixed
