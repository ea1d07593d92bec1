"""Models that no comparison can want again, whatever comes of the others: what serves them may go.

A comparison is decided for good once its verdict has latched, or once a rule that gives up itself has given it up. Any
other that is out of reach may be reopened by new trials of either model, and one that is not asked for today by a
change of the order. So everybody is still wanted who is in an open comparison or in flight, and everybody whom an
undecided comparison joins to one of these; and while there is anybody, so are the members of a comparison that would be
open if the order brought it up.
"""

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.judge import BoolArray
from adaptive_eval.core.look import VERDICTS, AvailableTrials, JudgedLook
from adaptive_eval.core.objectives import Objective
from adaptive_eval.core.types import Verdict

_OPEN, _LATCHED = VERDICTS.index(Verdict.OPEN), VERDICTS.index(Verdict.TIED)


def still_wanted(
    standing: JudgedLook, available: AvailableTrials, objective: Objective, in_flight: BoolArray, *, latch: bool
) -> BoolArray:
    """(L,): models of which trials may still be asked, by the latest look; without `latch` no verdict is for good."""
    models = len(in_flight)
    family = objective.family(models)
    everybody = np.stack([standing.evidence.first, standing.evidence.second], axis=1)
    pairs = everybody if isinstance(family, int) else family
    verdicts = standing.verdicts_of(pairs)
    there = ~np.append(available.set_aside, False)
    at = standing.evidence.positions(pairs)
    for_good = standing.memory.given_up[at] & (standing.forecast.power(at) <= 0.0)
    undecided = there[pairs].all(axis=1) & (((verdicts < _LATCHED) & ~for_good) | (not latch))
    could_open = undecided & ((verdicts == _OPEN) | np.isfinite(available.affordable))
    wanted = np.append(in_flight, False)
    wanted[standing.open_pairs().ravel()] = True
    if not wanted[:models].any():
        return wanted[:models]
    wanted[pairs[could_open].ravel()] = True
    return np.asarray(_joined(wanted, pairs[undecided])[:models] & there[:models])


def _joined(wanted: BoolArray, pairs: NDArray[np.intp]) -> BoolArray:
    """Everybody whom a chain of these pairs joins to one that is wanted; a reference, the last, joins nobody."""
    models = pairs[(pairs < len(wanted) - 1).all(axis=1)]
    while True:
        reached = models[wanted[models].any(axis=1)].ravel()
        if wanted[reached].all():
            return wanted
        wanted[reached] = True
