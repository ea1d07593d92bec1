"""The outcomes as one array in an .npz file, which `adaptive-eval replay` reads.

R           (L, M, N) integers: the category of each trial by its number, -1 for no trial
models      (L,) names
questions   (M,) ids
weights     (K,): the value of each category
categories  (K,): what each category is called
"""

from pathlib import Path

import numpy as np

from adaptive_eval.export.source import Source, Told

MISSING = -1


def write_npz(source: Source, path: Path, told: Told) -> None:
    """All outcomes; an answer that has no grade is missing too."""
    weights = np.array(source.rubric.weights, dtype=np.float64)
    shape = (*source.extent.shape, int(source.extent.max()))
    outcomes = np.full(shape, MISSING, dtype=np.int8 if len(weights) <= np.iinfo(np.int8).max else np.int16)
    model_of = {name: place for place, name in enumerate(source.models)}
    question_of = {question.id: place for place, question in enumerate(source.questions)}
    for number, outcome in enumerate(source.reader.outcomes(), 1):
        if outcome.category is not None:
            outcomes[model_of[outcome.model], question_of[outcome.question], outcome.trial] = outcome.category
        told(number)
    with path.open("wb") as file:
        np.savez_compressed(
            file,
            R=outcomes,
            models=np.array(source.models, dtype=str),
            questions=np.array([question.id for question in source.questions], dtype=str),
            weights=weights,
            categories=np.array(source.rubric.names, dtype=str),
        )
