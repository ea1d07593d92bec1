"""Label scores at a fixed answer slot: from the likeliest first tokens of a reply to probabilities of the labels.

A server gives the log-probabilities of the likeliest tokens alone. A label that is not among them is less likely than
each that is, and than all that is left: that is its bound, and it counts as likely as that, never as impossible. What
this leaves open in the calibrated probabilities is known, and where it is too much there is no grade.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

from adaptive_eval.errors import GraderError

Slot = Sequence[tuple[str, float]]
"""Tokens that could have stood first in a reply, with natural log-probabilities."""
LEAST_SHARE = 0.1
"""Of the probability at the slot that the labels must have together: else the reply is something else than a label."""
MOST_OPEN = 0.05
"""That a label out of sight may leave open in any probability."""
ABOVE_ZERO = 1e-3
"""By which rounding may raise a log-probability, or a sum of probabilities above one."""
NOTHING_LEFT = 1e-12
IMPOSSIBLE = -1e4
"""Far below any log-probability of a token."""
_SPACES = " \t\n▁Ġ"
"""Around a label: as text, and as vocabularies write a space."""


class LabelScores(NamedTuple):
    """The log-probability of each label; of those that are out of sight the bound."""

    values: tuple[float, ...]
    unseen: frozenset[int] = frozenset()

    @property
    def share(self) -> float:
        """Share of the probability at the slot that is on the labels in sight."""
        return sum(math.exp(value) for at, value in enumerate(self.values) if at not in self.unseen)


def label_scores(slot: Slot, labels: Sequence[str]) -> LabelScores:
    """Score of each label at a slot; raises `GraderError` if it holds no label, or no log-probabilities."""
    shown = _different(slot)
    total = sum(math.exp(value) for value in shown.values())
    if not shown or max(shown.values()) > ABOVE_ZERO or total > 1.0 + ABOVE_ZERO * len(shown):
        raise GraderError("the server gives no log-probabilities at the answer slot")
    bound = min(min(shown.values()), math.log(max(1.0 - total, NOTHING_LEFT)))
    found = [[value for token, value in shown.items() if token.strip(_SPACES) == label] for label in labels]
    if not any(found):
        likeliest = max(shown, key=lambda token: shown[token])
        raise GraderError(f"the verifier replied with none of {', '.join(labels)}, but with {likeliest!r:.40}")
    unseen = frozenset(at for at, ways in enumerate(found) if not ways)
    return LabelScores(tuple(_added(ways) if ways else bound for ways in found), unseen)


def label_probabilities(
    scores: LabelScores, baseline: Sequence[float], temperature: float
) -> tuple[tuple[float, ...], float]:
    """The calibrated probability of each label, and by how much any of them may be off for labels out of sight."""
    from scorio.categorical.signals import calibrate_verifier  # with numpy, which the processes that grade do without

    def at(values: Sequence[float]) -> tuple[float, ...]:
        found = calibrate_verifier(list(values), list(baseline), temperature)
        return tuple(float(value) for value in found)

    told = at(scores.values)
    ends = [(value, IMPOSSIBLE) if one in scores.unseen else (value,) for one, value in enumerate(scores.values)]
    # each probability rises or falls with each score, so its extremes are among the corners
    corners = [at(corner) for corner in product(*ends)] if scores.unseen else [told]
    return told, max(max(each) - min(each) for each in zip(*corners, strict=True))


def _different(slot: Slot) -> Mapping[str, float]:
    """Each token once: what was drawn may come besides the likeliest, and be one of them."""
    shown: dict[str, float] = {}
    for token, value in slot:
        if math.isfinite(value):
            shown[token] = max(shown.get(token, IMPOSSIBLE), value)
    return shown


def _added(values: Sequence[float]) -> float:
    """The log of the probability of one or the other: a label may be written with a space and without."""
    most = max(values)
    return most + math.log(sum(math.exp(value - most) for value in values))
