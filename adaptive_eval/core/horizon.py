"""Changes of the horizon after looks were taken: earlier horizons, and the effect of each change.

A rule says itself how it continues (`rules.Extendable`); one that does not goes on unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.rules import Extendable, Rule
from adaptive_eval.core.settings import Pace, Trials
from scorio.moments import FloatArray


@dataclass(frozen=True, slots=True)
class PastHorizon:
    """An earlier horizon of the run, with its pace, until `looks` looks were taken."""

    trials: Trials
    pace: Pace
    looks: int


class Extension(NamedTuple):
    """A change of the horizon, as it was carried out.

    The arrays cover the undecided pairs; they are empty for rules without remaining error.
    """

    before: int
    """`trials.max` before the change."""
    now: int
    looks: int
    """Looks that had been taken."""
    leaves_error: bool
    """Whether the rule limits each pair to its unspent error (`rules.ErrorLeft`)."""
    left: FloatArray
    """The unspent error of each pair, given its looks."""
    was: FloatArray
    """What |z| had to reach at the previous horizon."""
    boundary: FloatArray
    """What |z| must reach at the new one; infinite if no error was left."""


def carried_over(rule: Rule, looks: Sequence[Evidence], now: Evidence, delta: float) -> Rule:
    """The rule under another horizon: `looks` were taken under the old one, `now` is their last under the new."""
    return rule.extended(looks, now, delta) if isinstance(rule, Extendable) else rule
