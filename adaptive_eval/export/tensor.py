"""The outcomes as one array in an .npz file, which `adaptive-eval replay` reads (see `replay.recording`)."""

from pathlib import Path

import numpy as np

from adaptive_eval.export.source import Source, Told
from adaptive_eval.replay.recording import NO_TRIAL, write_recording


def write_npz(source: Source, path: Path, told: Told) -> None:
    """All outcomes; an answer that has no grade is missing too."""
    categories = len(source.rubric.weights)
    shape = (*source.extent.shape, int(source.extent.max()))
    outcomes = np.full(shape, NO_TRIAL, dtype=np.int8 if categories <= np.iinfo(np.int8).max else np.int16)
    model_of = {name: place for place, name in enumerate(source.models)}
    question_of = {question.id: place for place, question in enumerate(source.questions)}
    for number, outcome in enumerate(source.reader.outcomes(), 1):
        if outcome.category is not None:
            outcomes[model_of[outcome.model], question_of[outcome.question], outcome.trial] = outcome.category
        told(number)
    with path.open("wb") as file:
        questions = [question.id for question in source.questions]
        write_recording(file, outcomes, source.models, questions, source.rubric.weights, source.rubric.names)
