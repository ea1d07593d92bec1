"""Position bias of a judge that compares two answers, and scores corrected for it.

Each comparison is asked in both orders. For the graded answer a reply is x = 1, 0 or -1: better, tie, worse. With
probability u it goes by content, and otherwise by position alone. With e the share of comparisons that are better or
worse, and d how much more often the first position is preferred,

    E[x1 x2] + d^2 = u^2 e,    E[(x1^2 + x2^2) / 2] = u e + 1 - u,

so both orders give u and e without any label. A score s is graded as 1/2 + u (s - 1/2) on average: the bias moves no
model ahead of another, but draws all scores to the middle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.graders.comparing import COMPARISON_RUBRIC
from adaptive_eval.graders.judge import Judge
from adaptive_eval.record.lines import several
from adaptive_eval.record.results import ModelRow
from adaptive_eval.store import ComparisonCount, RunReader

MIN_COMPARISONS = 50
"""Fewest comparisons for which scores are corrected."""
MIN_MEANT_SHARE = 0.2
"""Share of replies by content below which scores say nothing."""


@dataclass(frozen=True, slots=True)
class ScoreByMeaning:
    """A model's score without replies by position, with its 95% interval."""

    name: str
    score: float
    lo: float
    hi: float


@dataclass(frozen=True, slots=True)
class OrderEffect:
    """The effect of the order in which a judge sees two answers."""

    said: str
    """How often the order decided, in sentences."""
    models: tuple[ScoreByMeaning, ...]
    """Best first; empty if scores are not corrected."""


def order_effect(reader: RunReader, config: RunConfig, rows: Sequence[ModelRow]) -> OrderEffect | None:
    """Measure the effect on the scores of these models; None if nothing was compared."""
    grader = config.grader
    if not isinstance(grader, Judge) or grader.against is None:
        return None
    counts = reader.comparisons()
    compared = sum(one.trials for one in counts)
    if not compared:
        return None
    dependent = sum(one.order_dependent * one.trials for one in counts) / compared
    towards = sum(one.prefers_first * one.trials for one in counts) / compared
    place = "first" if towards > 0 else "second"
    leaning = f", by {abs(towards):.1%} in favour of the {place} place" if round(abs(towards), 3) else ""
    of_order = f"{dependent:.1%} depend on the order of the two answers, and count as ties{leaning}"
    said = f"Of {several(compared, 'comparison')} {of_order}."
    usual = grader.all_votes == 1 and config.rubric == COMPARISON_RUBRIC
    found = share_by_content([one for one in counts if one.asked]) if usual else None
    if found is None or not dependent:
        return OrderEffect(said, ())
    u, sigma = found
    if u < MIN_MEANT_SHARE:
        return OrderEffect(f"{said} The judge goes by little else: its scores say nothing.", ())
    return OrderEffect(f"{said} {_CORRECTED.format(u=u)}", tuple(_corrected(rows, u, sigma)))


_CORRECTED = (
    "This draws all scores to 50%: about {u:.0%} of the replies are meant, and the others follow the place. The "
    "corrected scores are without those. The order of the models stays, and verdicts are by the scores as graded. "
    "Errors that are the same in both orders remain: only labels show them."
)


def _corrected(rows: Sequence[ModelRow], u: float, sigma_u: float) -> Iterator[ScoreByMeaning]:
    for row in rows:
        if row.score is not None and row.sigma is not None:
            away = (row.score - 0.5) / u
            half = TWO_SIDED_95 * sqrt(row.sigma**2 + (away * sigma_u) ** 2) / u
            score = 0.5 + away
            yield ScoreByMeaning(row.name, min(max(score, 0.0), 1.0), max(score - half, 0.0), min(score + half, 1.0))


def share_by_content(counts: Sequence[ComparisonCount]) -> tuple[float, float] | None:
    """The share u of replies by content, at most 1, and its standard error; None below `MIN_COMPARISONS`."""
    trials = np.array([one.trials for one in counts], dtype=float)
    if trials.sum() < MIN_COMPARISONS:
        return None
    d = np.array([one.prefers_first for one in counts])
    v = np.maximum(np.abs(d), [one.decided for one in counts])  # 1/2 where one order is a tie
    c = np.where(np.abs(d) == 1.0, -1.0, np.where(d == 0.0, v, 0.0))
    share = trials / trials.sum()
    of_c, of_v, of_d = (float(share @ one) for one in (c, v, d))
    root = sqrt(max((1.0 - of_v) ** 2 + 4.0 * (of_c + of_d**2), 0.0))
    u = min((1.0 - of_v + root) / 2.0, 1.0)
    moved = (c - of_c) - u * (v - of_v) + 2.0 * of_d * (d - of_d)
    return u, sqrt(float(share @ moved**2) / trials.sum()) / max(root, MIN_MEANT_SHARE)
