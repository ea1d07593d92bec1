"""What the answers that timed out may have done to a score: nobody knows what they would have been."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scorio.moments import FloatArray


class Bounds(NamedTuple):
    """A score, had every answer that timed out been as bad, or as good, as can be."""

    lowest: float
    highest: float


def score_bounds(
    score: float, timed_out: NDArray[np.integer], trials: NDArray[np.integer], weights: FloatArray
) -> Bounds | None:
    """The bounds of one model's score; None where nothing of it timed out.

    a + (1/M) sum_q sum_k t_qk (w' - w_k) / N_q with w' = min w or max w, `timed_out` t (M, K) and `trials` N (M,).
    """
    if not timed_out.any():
        return None
    shares = timed_out / np.maximum(trials, 1)[:, None]
    moved = [float((shares * (end - weights)).sum() / len(trials)) for end in (weights.min(), weights.max())]
    return Bounds(score + moved[0], score + moved[1])
