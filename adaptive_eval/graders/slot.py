"""Computes probabilities of labels from the likeliest first tokens of a reply.

A server gives log-probabilities of only the likeliest tokens. A label that is not among them is at most as likely as
the least likely of these, and as all remaining probability: it counts as likely as this bound. The resulting
uncertainty of the calibrated probabilities is known, and if it is too large there is no grade.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

from adaptive_eval.errors import GraderError

Slot = Sequence[tuple[str, float]]
"""Candidates for the first token of a reply, with natural log-probabilities."""
LEAST_SHARE = 0.1
"""Least total probability of the labels: with less, the reply is something else than a label."""
MOST_OPEN = 0.05
"""Largest uncertainty of a probability that unseen labels may cause."""
ABOVE_ZERO = 1e-3
"""How far rounding may raise a log-probability above zero, or a sum of probabilities above one."""
NOTHING_LEFT = 1e-12
IMPOSSIBLE = -1e4
"""Far below any log-probability of a token."""
_SPACES = " \t\n▁Ġ"
"""Whitespace around a label, including the spaces of tokenizer vocabularies."""


class LabelScores(NamedTuple):
    """The log-probability of each label, or its upper bound for `unseen` ones."""

    values: tuple[float, ...]
    unseen: frozenset[int] = frozenset()

    @property
    def share(self) -> float:
        """The total probability of the seen labels."""
        return sum(math.exp(value) for at, value in enumerate(self.values) if at not in self.unseen)


def label_scores(slot: Slot, labels: Sequence[str]) -> LabelScores:
    """The scores of labels at a slot; raises `GraderError` if it has no label, or no log-probabilities."""
    shown = _unique_tokens(slot)
    total = sum(math.exp(value) for value in shown.values())
    if not shown or max(shown.values()) > ABOVE_ZERO or total > 1.0 + ABOVE_ZERO * len(shown):
        raise GraderError("the server gives no log-probabilities at the answer slot")
    bound = min(min(shown.values()), math.log(max(1.0 - total, NOTHING_LEFT)))
    found = [[value for token, value in shown.items() if token.strip(_SPACES) == label] for label in labels]
    if not any(found):
        likeliest = max(shown, key=lambda token: shown[token])
        raise GraderError(f"the verifier replied with none of {', '.join(labels)}, but with {likeliest!r:.40}")
    unseen = frozenset(at for at, ways in enumerate(found) if not ways)
    return LabelScores(tuple(_log_sum(ways) if ways else bound for ways in found), unseen)


def label_probabilities(
    scores: LabelScores, baseline: Sequence[float], temperature: float
) -> tuple[tuple[float, ...], float]:
    """The calibrated probability of each label, and their largest error because of unseen labels."""
    from scorio.categorical.signals import calibrate_verifier  # loads numpy, which grading processes do not need

    def at(values: Sequence[float]) -> tuple[float, ...]:
        found = calibrate_verifier(list(values), list(baseline), temperature)
        return tuple(float(value) for value in found)

    told = at(scores.values)
    ends = [(value, IMPOSSIBLE) if one in scores.unseen else (value,) for one, value in enumerate(scores.values)]
    # each probability is monotonic in each score, so its extremes are among the corners
    corners = [at(corner) for corner in product(*ends)] if scores.unseen else [told]
    return told, max(max(each) - min(each) for each in zip(*corners, strict=True))


def _unique_tokens(slot: Slot) -> Mapping[str, float]:
    """The log-probability of each token, without duplicates: the sampled token may be listed twice."""
    shown: dict[str, float] = {}
    for token, value in slot:
        if math.isfinite(value):
            shown[token] = max(shown.get(token, IMPOSSIBLE), value)
    return shown


def _log_sum(values: Sequence[float]) -> float:
    """Add probabilities given as logarithms: a label may be written with a space and without."""
    most = max(values)
    return most + math.log(sum(math.exp(value - most) for value in values))
