"""Bootstrap replicates in chunks of bounded memory, the same ones whatever the size of a chunk."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from scorio import _validate
from scorio.convergence.scoring import Scoring, scoring
from scorio.convergence.study import Study
from scorio.moments import FloatArray, IntArray

MEMORY = 1 << 25
"""Bytes that the arrays of a chunk may take, about: small enough to stay near the caches."""

Progress = Callable[[int, int], None]
"""Called with the replicates done so far and their total."""


class Chunk(NamedTuple):
    """Replicates, scored."""

    scores: FloatArray
    """(B, steps, L)"""
    tolerance: FloatArray | float
    """The difference up to which two scores are equal."""


def bootstrap(
    study: Study, replicates: int, rng: np.random.Generator, resample: str, progress: Progress | None
) -> Iterator[Chunk]:
    """Resample N trials with replacement, all questions together ("columns") or each alone ("rows"): paper, 2.7."""
    total = _validate.integer(replicates, "replicates", low=1)
    if resample not in ("columns", "rows"):
        raise ValueError(f"resample must be 'columns' or 'rows', got {resample!r}")
    scorer = scoring(study, by_question=resample == "rows")
    shape = (study.trials, study.questions if resample == "rows" else 1)
    size = max(1, MEMORY // (scorer.footprint + _comparisons(study)))
    for first in range(0, total, size):
        # 32-bit draws come from one stream that is not cut at the end of a call, unlike 8- and 16-bit ones.
        draws = rng.integers(study.trials, size=(min(size, total - first), *shape), dtype=np.int32)
        yield _scored(scorer, draws)
        if progress is not None:
            progress(min(first + size, total), total)


def as_recorded(study: Study) -> Chunk:
    """The one replicate that takes the trials in the order in which they were recorded."""
    draws = np.arange(study.trials, dtype=np.int32).reshape(1, -1, 1)
    return _scored(scoring(study, by_question=False), draws)


def _comparisons(study: Study) -> int:
    """Bytes that comparing all pairs of models at every step takes."""
    return 16 * study.trials * study.models * (study.models - 1)


def _scored(scorer: Scoring, draws: IntArray) -> Chunk:
    scores = scorer.scores(draws)
    return Chunk(scores, scorer.tolerance(scores))
