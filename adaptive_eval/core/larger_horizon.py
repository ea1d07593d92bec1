"""The larger horizons with which a run that has ended out of reach goes on, by the rule that it would go on with."""

import itertools
from collections.abc import Collection, Iterator
from dataclasses import replace
from math import ceil, inf

import numpy as np

from adaptive_eval.core.evidence import AT_HORIZON, cautious
from adaptive_eval.core.judge import forecast
from adaptive_eval.core.look import AvailableTrials, JudgedLook, is_futile, reachable_information
from adaptive_eval.core.look_taker import LookTaker
from adaptive_eval.core.rules import has_error_left, judges_by_pair
from adaptive_eval.core.stages import extended
from adaptive_eval.core.types import VERDICTS, Verdict

Pair = frozenset[int]
"""The numbers of its models; of one alone if it is compared with a fixed value."""
EVEN_CHANCE = 0.5
GROWTH = 1.5
"""Factor from one horizon that is tried to the next."""
MAX_TIMES, MAX_EACH = 20, 1000
"""A horizon is implausible if it is more than so many times the present one, and more than so many trials per question.
"""


def larger_horizons(
    taker: LookTaker, look: JudgedLook, available: AvailableTrials, computed: Collection[Pair] = ()
) -> dict[Pair, int | None]:
    """For each pair out of reach but those `computed` before: the first `trials.max` with which the run goes on with it
    and has at least an even chance to decide it, if caps allow that; None if no plausible one does."""
    plan, out_of_reach = taker.plan, look.pairs[look.verdicts == VERDICTS.index(Verdict.OUT_OF_REACH)]
    keys = [frozenset(pair) - {plan.bench.models} for pair in out_of_reach.tolist()]
    if not plan.source.asks_all or not keys:
        return {}
    horizons: dict[Pair, int | None] = {key: None for key in keys if key not in computed}
    at, available = look.evidence.positions(out_of_reach), replace(available, affordable=inf)
    if judges_by_pair(look.rule):
        where = np.arange(len(at))
    else:  # the rule has state of all pairs, since the horizon or the models have changed before
        where, at = at, np.arange(len(look.evidence.z))
    has_trials_left = (np.append(available.remaining, 0)[out_of_reach] > 0).any(axis=1)
    looks = [earlier.at_positions(at) for earlier in taker.evidence]
    for max_trials in _candidates(plan.trials.max, is_capped=plan.budget.is_capped):
        if None not in horizons.values():
            break
        graded, readings = taker.at_horizon(max_trials)
        later, given_up = look.rule, look.memory.given_up[at]
        if max_trials > plan.trials.max:
            later = extended(look.rule, looks, graded.at_positions(at), plan.judging.delta)
            given_up = given_up & (not has_error_left(later))
        now = cautious([reading.at_positions(at) for reading in readings])
        reach = reachable_information(now, available, look.fixed[at])
        ahead = forecast(now, later, plan.judging.delta, reach, given_up)
        goes_on = (now.information[where] < AT_HORIZON) & ~is_futile(ahead, where, plan.judging.futility_under(later))
        if max_trials == plan.trials.max:
            goes_on &= has_trials_left
        has_chance = goes_on & (ahead.power(where) >= EVEN_CHANCE)
        for key in itertools.compress(keys, has_chance.tolist()):
            if horizons.get(key, max_trials) is None:
                horizons[key] = max_trials
    return horizons


def _candidates(max_trials: int, *, is_capped: bool) -> Iterator[int]:
    """The present horizon, if a cap alone may stand in the way, and larger ones: numbers of two digits."""
    if is_capped:
        yield max_trials
    horizon = _next_horizon(max_trials)
    while horizon <= most_plausible(max_trials):
        yield horizon
        horizon = _next_horizon(horizon)


def _next_horizon(horizon: int) -> int:
    return ceil(float(f"{GROWTH * horizon:.2g}"))


def most_plausible(max_trials: int) -> int:
    """The largest `trials.max` that may follow the present one."""
    return max(MAX_TIMES * max_trials, MAX_EACH)
