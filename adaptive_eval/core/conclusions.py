"""Conclusions from the latest look: which models are still needed, and why a run or a model of it ends.

A comparison is decided for good once its verdict has latched, or a rule has given it up. New trials of either model may
reopen any other comparison that is out of reach, and a change of the order may add comparisons to the objective's
current ones. So a model is still needed if it is in an open comparison or in flight, or linked to such a model by a
chain of undecided comparisons. As long as there are such models, the members of any comparison that a change of the
order would open are needed as well. The servers of all others can be released.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.cheapest import NOBODY
from adaptive_eval.core.judge import BoolArray
from adaptive_eval.core.look import JudgedLook
from adaptive_eval.core.objectives import Objective
from adaptive_eval.core.pair_trials import AvailableTrials
from adaptive_eval.core.types import VERDICTS, Cause, Lost, Reason, Verdict

SILENT = (
    "{timed_out} of the {trials} requests of a round timed out at every attempt. Raise sampling.timeout if its answers "
    "take longer, or fix its server; resuming retries them"
)
"""Reason for setting aside a model that hardly ever answers."""
UNPAID = "the budget cannot cover its missing trials (earlier trials count). Raise it and resume"
"""Reason for setting aside a model that joins or comes back, if the budget cannot cover its missing trials."""


def why_no_further(look: JudgedLook, fits: bool, set_aside: Iterable[Lost]) -> Reason:
    """The reason why there is no further round; `fits`: whether caps would allow one for every open comparison."""
    verdicts = {VERDICTS[index] for index in look.verdicts.tolist()}
    unpaid = {lost.cause for lost in set_aside} == {Cause.BUDGET} and Verdict.BLOCKED in verdicts
    if unpaid or (Verdict.OPEN in verdicts and not fits):
        return Reason.BUDGET
    if Verdict.OUT_OF_REACH in verdicts or Verdict.OPEN in verdicts:
        return Reason.OUT_OF_REACH
    return Reason.BLOCKED if Verdict.BLOCKED in verdicts else Reason.SETTLED


_OPEN, _LATCHED = VERDICTS.index(Verdict.OPEN), VERDICTS.index(Verdict.TIED)


def needed_models(
    look: JudgedLook, available: AvailableTrials, objective: Objective, in_flight: BoolArray, *, latch: bool
) -> BoolArray:
    """(L,): models that may still be asked for trials, by the latest look; without `latch` no verdict is final."""
    models = len(in_flight)
    if look.choice is not None:  # a model that is ruled out is neither a candidate nor a rival any more
        goes_on = bool(in_flight.any()) or len(look.open_pairs()) > 0
        return np.asarray(in_flight | (goes_on & (look.choice.ruled_out_by == NOBODY) & ~available.set_aside))
    family = objective.family(models)
    judged_pairs = np.stack([look.evidence.first, look.evidence.second], axis=1)
    pairs = judged_pairs if isinstance(family, int) else family
    at = look.evidence.positions(pairs)
    verdicts = look.verdicts_of(pairs, at)
    available_models = ~np.append(available.set_aside, False)
    is_final = look.memory.given_up[at] & (look.forecast.power(at) <= 0.0)
    undecided = available_models[pairs].all(axis=1) & (((verdicts < _LATCHED) & ~is_final) | (not latch))
    could_open = undecided & ((verdicts == _OPEN) | np.isfinite(available.affordable))
    needed = np.append(in_flight, False)
    needed[look.open_pairs().ravel()] = True
    if not needed[:models].any():
        return needed[:models]
    needed[pairs[could_open].ravel()] = True
    return np.asarray(_linked_models(needed, pairs[undecided])[:models] & available_models[:models])


def _linked_models(needed: BoolArray, pairs: NDArray[np.intp]) -> BoolArray:
    """The needed models, and all that a chain of these pairs links to them; a reference, the last, links nothing."""
    models = pairs[(pairs < len(needed) - 1).all(axis=1)]
    while True:
        reached = models[needed[models].any(axis=1)].ravel()
        if needed[reached].all():
            return needed
        needed[reached] = True
