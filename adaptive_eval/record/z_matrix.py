"""z of every model against every other, as displays and reports show it beside the comparisons that were judged."""

from collections.abc import Sequence
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.drawn import drawn_pairs
from adaptive_eval.record.results import Results
from scorio.sinf.compare import compare


def z_matrix(results: Results | None) -> tuple[tuple[float | None, ...], ...]:
    """z of every model against every other, best first; None where a model has no score."""
    if results is None:
        return ()
    score = np.array([np.nan if model.score is None else model.score for model in results.models])
    variance = np.array([np.nan if model.sigma is None else model.sigma**2 for model in results.models])
    z = compare(score[:, None], variance[:, None], score, variance).z
    return _rows(z)


def z_of_drawn(
    results: Results | None, models: Sequence[str], counts: NDArray[np.integer]
) -> tuple[tuple[float | None, ...], ...]:
    """z of every pair on the questions that both were asked, by counts (L, M, K) of all trials of these models; of
    pairs that are judged it is that of the latest look."""
    if results is None:
        return ()
    names = [row.name for row in results.models]
    ordered = counts[[models.index(name) for name in names]]
    first, second = np.triu_indices(len(names), 1)
    (paired,) = drawn_pairs(ordered, np.zeros(ordered.shape[:2], dtype=int), np.array(results.weights), first, second)
    z = np.full((len(names), len(names)), np.nan)
    z[first, second] = paired.found.mean / np.sqrt(paired.found.var)
    for pair in results.pairs:
        if pair.worse is not None and pair.difference is not None and pair.sigma:
            z[names.index(pair.better), names.index(pair.worse)] = pair.difference / pair.sigma
            z[names.index(pair.worse), names.index(pair.better)] = -pair.difference / pair.sigma
    z = np.where(np.isnan(z), -z.T, z)
    return _rows(z)


def _rows(z: NDArray[np.float64]) -> tuple[tuple[float | None, ...], ...]:
    """JSON knows no nan."""
    return tuple(tuple(value if isfinite(value) else None for value in row) for row in z.tolist())
