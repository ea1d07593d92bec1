"""Trials that the grader cannot grade, or that no server answers: what is decided without knowing their grades.

Such a trial was issued and is over, so rounds and looks go on, but it has no category. The scores are made of the
graded trials alone. If the grader fails on certain answers, that is a selection, and so nothing is called that such
answers could undo: a comparison is called, or tied, only where it would be with all of them of the best category for
one model and of the worst for the other, and the other way round (`judge`). So the rule's promise holds whatever their
grades would have been. A model is set aside only where this says nothing any more: see `why_unjudgeable`.

A time-out differs: it is an answer (too late, beside as many real ones), has a category, and is decided on. Results
bound the score for both alike, since either could be otherwise with another grader or another time limit.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Estimates
from scorio.moments import CountArray, FloatArray

MOST_SHARE = 0.05
"""Beyond this share a model is set aside: its score could be off by five points of a hundred, where neighbours on a
leaderboard are one to three apart, so that further trials would be paid for and hardly decide anything."""
ALWAYS_BORNE = 2
"""So few ungraded answers, whatever their share, set nobody aside."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreBounds:
    """The estimates with all that is not known in the worst category, and in the best."""

    lowest: Estimates
    highest: Estimates


def bounds_of(
    estimate: Callable[[NDArray[np.intp], CountArray], Estimates],
    known: Estimates,
    counts: CountArray,
    ungraded: NDArray[np.integer],
    weights: FloatArray,
    timed_out: CountArray | None = None,
) -> ScoreBounds | None:
    """The bounds, from the tally (L, M, K), the ungraded trials (L, M) and those of the tally (L, M, K) that are not
    known either; None where everything is known. `estimate` makes those of some models anew from counts of all."""
    settled = counts if timed_out is None else counts - timed_out
    unknown = ungraded if timed_out is None else ungraded + timed_out.sum(axis=-1)
    rows = np.flatnonzero(unknown.any(axis=1) & np.isfinite(known.score))
    if not len(rows):
        return None
    ways = []
    for category in (weights.argmin(), weights.argmax()):
        filled = settled.copy()
        filled[:, :, category] += unknown
        ways.append(estimate(rows, filled))
    return ScoreBounds(*ways)


def why_unjudgeable(graded: NDArray[np.integer], ungraded: NDArray[np.integer], *, some: bool = False) -> str | None:
    """Why a model cannot be judged, from its trials with and without a grade (M,) each; None where it can. With `some`
    it is judged by some of the questions."""
    if not some and not graded.all():
        question = int(np.argmin(graded)) + 1
        return f"no trial of question {question} of {len(graded)} has a grade, so there is no score"
    failed, trials = int(ungraded.sum()), int(graded.sum() + ungraded.sum())
    if failed > max(ALWAYS_BORNE, MOST_SHARE * trials):
        return f"{failed} of its {trials} trials have no grade, more than {MOST_SHARE:.0%}"
    return None
