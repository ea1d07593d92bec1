"""What becomes of a rule when the horizon is changed after looks were taken.

`sequential` has shared its error out over the way to its horizon. On another horizon a comparison may spend what is
left of its error, given what its looks have shown, and no more (`scorio.sinf.exchange`): calls between exact ties stay
as rare as promised, whoever changes the horizon, when, how often, and why. What has used its error up is out of reach
for good. `anytime` never needed a horizon: its boundary stays where it was. The other rules do not know of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.rules import Anytime, Rule, Sequential
from adaptive_eval.core.settings import Pace, Trials
from scorio.moments import FloatArray
from scorio.sinf.exchange import Exchange, Looked, exchange


@dataclass(frozen=True, slots=True)
class Stage:
    """A horizon that the run had before, with the pace of that time, until so many looks were taken."""

    trials: Trials
    pace: Pace
    looks: int


class Extension(NamedTuple):
    """A change of the horizon, as it was carried out."""

    before: int
    """`trials.max` until then."""
    now: int
    looks: int
    """Looks that had been taken."""
    left: FloatArray
    """Per pair that was not decided: what was left of its error, given its looks; empty for rules without a horizon."""
    boundary: FloatArray
    """Per such pair: what |z| must reach at the new horizon; infinite where nothing was left."""


@dataclass(frozen=True, slots=True, eq=False)
class SpentError:
    """The exchanges of all pairs at one change of the horizon, by the path that is followed."""

    either: Exchange
    first: Exchange
    second: Exchange
    below: Exchange | None
    """Of (delta - d)/s, which certifies that the difference is below delta."""
    above: Exchange | None


@dataclass(frozen=True, slots=True, eq=False)
class ContinuedSequential:
    """`sequential` after changes of the horizon: its heights count as those of the first horizon."""

    rule: Sequential
    spent: tuple[SpentError, ...]

    @property
    def confidence(self) -> float:
        return self.rule.confidence

    def boundary(self, evidence: Evidence) -> FloatArray:
        height = self.critical(evidence)
        for one in self.spent:
            height = one.either.new_height(height)
        return self._at(evidence, height)

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        height = np.maximum(sign * evidence.z, 0.0) * _reached(evidence) ** self.rule.kappa
        for one in reversed(self.spent):
            height = (one.first if sign > 0 else one.second).old_height(height)
        return self.rule.p_at_horizon(height)

    def at_level(self, alpha: float) -> "ContinuedSequential":
        return replace(self, rule=self.rule.at_level(alpha))

    def tied(self, evidence: Evidence, delta: float) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Both (delta - d)/s and (delta + d)/s reach what they must: each is a test of its own."""
        below = above = self.critical(evidence)
        for one in self.spent:
            if one.below is None or one.above is None:
                return np.zeros(len(evidence.z), bool)
            below, above = one.below.new_height(below), one.above.new_height(above)
        margins = _margins(evidence, delta)
        reached = [margin >= self._at(evidence, to) for margin, to in zip(margins, (below, above), strict=True)]
        return np.asarray(reached[0] & reached[1])

    def left(self, evidence: Evidence) -> FloatArray:
        """Of each pair, the chance that it would have been called under the last horizon but one."""
        height = self.critical(evidence)
        for one in self.spent[:-1]:
            height = one.either.new_height(height)
        return np.where(np.isfinite(height), self.spent[-1].either.chance_left(np.minimum(height, 1e9)), 0.0)

    def critical(self, evidence: Evidence) -> FloatArray:
        """The constant of the first horizon."""
        return np.full(len(evidence.z), self.rule.critical)

    def _at(self, evidence: Evidence, height: FloatArray) -> FloatArray:
        return np.asarray(height * _reached(evidence) ** -self.rule.kappa)


@dataclass(frozen=True, slots=True, eq=False)
class RescaledAnytime:
    """`anytime` after changes of the horizon: information is counted as it was under the first one."""

    rule: Anytime
    ratio: FloatArray

    @property
    def confidence(self) -> float:
        return self.rule.confidence

    def boundary(self, evidence: Evidence) -> FloatArray:
        return self.rule.boundary(self._before(evidence))

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        return self.rule.p_value(self._before(evidence), sign)

    def at_level(self, alpha: float) -> "RescaledAnytime":
        return replace(self, rule=self.rule.at_level(alpha))

    def _before(self, evidence: Evidence) -> Evidence:
        return replace(evidence, information=evidence.information * self.ratio)


def carried_over(rule: Rule, looks: Sequence[Evidence], now: Evidence, delta: float) -> Rule:
    """The rule under another horizon: `looks` were taken under the old one, `now` is the last of them under the new."""
    if isinstance(rule, Sequential):
        return ContinuedSequential(rule, (_spent(rule, looks, now, delta, rule.start),))
    if isinstance(rule, ContinuedSequential):
        return replace(rule, spent=(*rule.spent, _spent(rule.rule, looks, now, delta, 0.0)))
    if isinstance(rule, Anytime | RescaledAnytime):
        known = (now.information > 0.0) & (looks[-1].information > 0.0)
        grown = looks[-1].information / np.where(known, now.information, 1.0)
        ratio = np.where(known, grown, np.median(grown[known]) if known.any() else 1.0)
        return RescaledAnytime(rule, ratio) if isinstance(rule, Anytime) else replace(rule, ratio=rule.ratio * ratio)
    return rule


def _spent(rule: Sequential, looks: Sequence[Evidence], now: Evidence, delta: float, start: float) -> SpentError:
    def path(values: Sequence[FloatArray], sides: int) -> Exchange:
        seen = [Looked(z, look.information) for z, look in zip(values, looks, strict=True)]
        return exchange(seen, now.information, rule.kappa, start, sides)

    z = [look.z for look in looks]
    margins = [_margins(look, delta) for look in looks] if delta > 0.0 else []
    return SpentError(
        either=path(z, 2),
        first=path(z, 1),
        second=path([-values for values in z], 1),
        below=path([below for below, _ in margins], 1) if margins else None,
        above=path([above for _, above in margins], 1) if margins else None,
    )


def _margins(evidence: Evidence, delta: float) -> tuple[FloatArray, FloatArray]:
    """(delta - d)/s and (delta + d)/s; 0 of a pair that is not known, and large where nothing is uncertain."""
    sigma = np.where(np.isfinite(evidence.sigma), np.maximum(evidence.sigma, 1e-12), np.inf)
    return (delta - evidence.difference) / sigma, (delta + evidence.difference) / sigma


def _reached(evidence: Evidence) -> FloatArray:
    return np.clip(evidence.information, np.finfo(float).tiny, 1.0)
