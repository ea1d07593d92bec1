"""Trials that the grader cannot grade, or that no server answers: deciding without knowing their grades.

Such a trial was issued and is over, so rounds and looks go on, but it has no category. Scores are made of graded trials
alone. If the grader fails on certain answers, that is a selection, so nothing is called that such answers could undo: a
comparison is called, or tied, only if it would be with all of them in the best category for one model and in the worst
for the other, and vice versa (`judge`). So the rule's promise holds whatever their grades would have been. A model is
set aside only if this no longer allows any decision: see `why_unjudgeable`.

A time-out differs: it is an answer (too late, beside as many real ones), has a category, and counts in decisions.
Results bound the score for both alike, since either could differ with another grader or another time limit.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Estimates
from scorio.moments import CountArray, FloatArray

MOST_SHARE = 0.05
"""Above this share a model is set aside: its score could be off by five points of a hundred, while neighbours on a
leaderboard are one to three apart, so that further trials would cost money and hardly decide anything."""
ALWAYS_BORNE = 2
"""This few ungraded answers, whatever their share, never set a model aside."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreBounds:
    """The estimates with all unknown grades in the worst category, and in the best."""

    lowest: Estimates
    highest: Estimates


def score_bounds(
    estimate: Callable[[NDArray[np.intp], CountArray], Estimates],
    known: Estimates,
    counts: CountArray,
    ungraded: NDArray[np.integer],
    weights: FloatArray,
    timed_out: CountArray | None = None,
) -> ScoreBounds | None:
    """The bounds, given the tally (L, M, K), ungraded trials (L, M), and trials of the tally (L, M, K) that count as
    unknown; None if nothing is unknown. `estimate` updates some models' estimates from the counts of all."""
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
    """Why a model cannot be judged, from its graded and ungraded trials (M,) each; None if it can. With `some`, not
    every question needs a grade."""
    if not some and not graded.all():
        question = int(np.argmin(graded)) + 1
        return f"no trial of question {question} of {len(graded)} has a grade, so there is no score"
    failed, trials = int(ungraded.sum()), int(graded.sum() + ungraded.sum())
    if failed > max(ALWAYS_BORNE, MOST_SHARE * trials):
        return f"{failed} of its {trials} trials have no grade, more than {MOST_SHARE:.0%}"
    return None
