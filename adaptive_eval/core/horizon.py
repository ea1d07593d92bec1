"""Changes of the horizon after looks were taken: what a run had before, and what each change came to.

What becomes of the rule, it says itself (`rules.Extendable`); one that does not goes on as it is.
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
    """A horizon that the run had before, with the pace of that time, until so many looks were taken."""

    trials: Trials
    pace: Pace
    looks: int


class Extension(NamedTuple):
    """A change of the horizon, as it was carried out.

    The arrays are of the pairs that were not decided; they are empty for rules that leave no part of an error.
    """

    before: int
    """`trials.max` until then."""
    now: int
    looks: int
    """Looks that had been taken."""
    leaves_error: bool
    """The rule leaves each pair what it has not spent of its error (`rules.ErrorLeft`)."""
    left: FloatArray
    """What that is, given its looks."""
    was: FloatArray
    """What |z| had to reach at the horizon before."""
    boundary: FloatArray
    """What |z| must reach at the new one; infinite where nothing was left."""


def carried_over(rule: Rule, looks: Sequence[Evidence], now: Evidence, delta: float) -> Rule:
    """The rule under another horizon: `looks` were taken under the old one, `now` is the last of them under the new."""
    return rule.extended(looks, now, delta) if isinstance(rule, Extendable) else rule
