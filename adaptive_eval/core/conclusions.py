"""What follows from the latest look: which models are still wanted, and why a run or a model of it ends.

A comparison is decided for good once its verdict has latched, or a rule has given it up. Any other that is out of reach
may be reopened by new trials of either model, and a comparison outside the objective's current ones by a change of the
order. So a model is still wanted if it is in an open comparison or in flight, or linked to such a model by a chain of
undecided comparisons. As long as there are such models, the members of any comparison that would be open if the order
brought it up are wanted as well. The servers of all others can be released.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.judge import BoolArray
from adaptive_eval.core.look import VERDICTS, AvailableTrials, JudgedLook
from adaptive_eval.core.objectives import Objective
from adaptive_eval.core.types import Cause, Lost, Reason, Verdict

SILENT = (
    "{timed_out} of the {trials} requests of a round ran out of time at every attempt, and time-outs count as answers "
    "only beside as many real ones: raise sampling.timeout if its answers take longer, or mend its server; the next "
    "start asks them again"
)
"""Why a model is set aside that hardly ever answers."""
UNPAID = (
    "the trials that it lacks do not fit the budget, which counts those that are there of earlier settings, too: raise "
    "the budget, and the next start asks for them"
)
"""Why a model that joins or comes back is set aside, if more was spent on it before than the budget leaves room for."""


def why_no_further(standing: JudgedLook, fits: bool, set_aside: Iterable[Lost]) -> Reason:
    """Why there is no further round; `fits`: whether the caps would allow one for every open comparison."""
    verdicts = {VERDICTS[each] for each in standing.verdicts.tolist()}
    unpaid = {lost.cause for lost in set_aside} == {Cause.BUDGET} and Verdict.BLOCKED in verdicts
    if unpaid or (Verdict.OPEN in verdicts and not fits):
        return Reason.BUDGET
    if Verdict.OUT_OF_REACH in verdicts or Verdict.OPEN in verdicts:
        return Reason.OUT_OF_REACH
    return Reason.BLOCKED if Verdict.BLOCKED in verdicts else Reason.SETTLED


_OPEN, _LATCHED = VERDICTS.index(Verdict.OPEN), VERDICTS.index(Verdict.TIED)


def still_wanted(
    standing: JudgedLook, available: AvailableTrials, objective: Objective, in_flight: BoolArray, *, latch: bool
) -> BoolArray:
    """(L,): models that may still be asked for trials, by the latest look; without `latch` no verdict is final."""
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
    return np.asarray(_linked_models(wanted, pairs[undecided])[:models] & there[:models])


def _linked_models(wanted: BoolArray, pairs: NDArray[np.intp]) -> BoolArray:
    """Models linked to a wanted one by a chain of these pairs; a reference, the last, links nothing."""
    models = pairs[(pairs < len(wanted) - 1).all(axis=1)]
    while True:
        reached = models[wanted[models].any(axis=1)].ravel()
        if wanted[reached].all():
            return wanted
        wanted[reached] = True
