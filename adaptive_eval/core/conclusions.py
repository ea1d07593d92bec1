"""Conclusions from the latest look: which models are still needed, why a run or a model of it ends, and what would
decide the rest.

A comparison is decided for good once its verdict has latched, or a rule has given it up. New trials of either model may
reopen any other comparison that is out of reach, and a change of the order may add comparisons to the objective's
current ones. So a model is still needed if it is in an open comparison or in flight, or linked to such a model by a
chain of undecided comparisons. As long as there are such models, the members of any comparison that a change of the
order would open are needed as well. The servers of all others can be released.

For runs that end with undecided pairs, the advice is how large a horizon would probably decide each. A larger horizon
spends only the error that a pair has left, and makes its boundary stricter. So the advice follows from the rule as it
would go on (`stages.extended`), not from the boundary of this horizon.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.cheapest import NOBODY
from adaptive_eval.core.evidence import Evidence, IndexArray
from adaptive_eval.core.judge import BoolArray, forecast_power
from adaptive_eval.core.look import JudgedLook
from adaptive_eval.core.objectives import Objective
from adaptive_eval.core.pair_trials import AvailableTrials, information_from, trials_for
from adaptive_eval.core.rules import judges_by_pair
from adaptive_eval.core.stages import extended
from adaptive_eval.core.types import VERDICTS, Cause, Lost, Reason, Verdict
from scorio.moments import FloatArray

if TYPE_CHECKING:
    from adaptive_eval.core.look_taker import LookTaker

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


LIKELY = 0.7
"""The chance of being settled that a horizon must give if all differences were equally likely beforehand. Of close
pairs of two models, it decided 30 of 32, 33 of 45 and 10 of 53 with true differences of 5, 3 and 1.5 points."""
MAX_TIMES, MAX_TRIALS = 20, 1000
"""No `trials.max` is advised that is more than so many times the first one, and more than so many trials."""
LEAST_INFORMATION = 1e-9
"""Information that counts as none."""
STEPS = 6
"""Halvings of the range of horizons on a log scale, which then are found to within a tenth."""


def deciding_horizons(taker: "LookTaker", look: JudgedLook, at: IndexArray) -> FloatArray:
    """The least `trials.max` that would probably decide each pair at these positions; infinite if no plausible one."""
    plan = taker.plan
    if not taker.evidence or plan.drawn or not len(at):
        return np.full(len(at), np.inf)
    rule, looks, fixed = look.rule, taker.evidence, look.fixed
    state = replace(look.evidence, unknown=look.cautious.unknown)
    _, readings = taker.read_evidence()
    unknown = _moved_by_unknown(readings)
    if judges_by_pair(rule):
        looks, state = [each.at_positions(at) for each in looks], state.at_positions(at)
        fixed, unknown, at = fixed[at], unknown[at], np.arange(len(at))

    def is_enough(times: FloatArray) -> BoolArray:
        now = _under_horizon(state, fixed, times)
        later = extended(rule, looks, now, plan.judging.delta)
        power = forecast_power(now, later, plan.judging.delta, np.ones(len(times)), unknown=unknown)
        return np.asarray(power >= LIKELY)

    begun = taker.extensions[0].before if taker.extensions else plan.trials.max
    most = max(MAX_TIMES * begun, MAX_TRIALS) / plan.trials.max
    low, high = np.ones(len(fixed)), np.full(len(fixed), max(most, 1.0))
    reachable, high = is_enough(high), np.where(is_enough(low), low, high)
    for _ in range(STEPS):
        middle = np.sqrt(low * high)
        enough = is_enough(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(reachable, np.ceil(plan.trials.max * high), np.inf)[at]


def _moved_by_unknown(readings: Sequence[Evidence]) -> FloatArray:
    """How far ungraded and incomplete answers could move each difference, by the readings of the evidence."""
    differences = np.stack([reading.difference for reading in readings])
    return np.asarray(np.abs(differences - differences[0]).max(axis=0))


def _under_horizon(evidence: Evidence, fixed: FloatArray, times: FloatArray) -> Evidence:
    """The evidence with its information under a `trials.max` that is so many times as large."""
    growth = trials_for(1.0 / np.clip(evidence.information, LEAST_INFORMATION, 1.0), fixed)
    return replace(evidence, information=1.0 / information_from(growth * times, fixed))
