"""Models that are never asked: their outcomes come from an earlier run, and are known from the start.

The uncertainty of a recorded model's score stays, whatever the other model of a pair is asked, so information does not
grow in proportion to the trials. If a share f of today's variance of a difference is fixed, n times the other model's
trials make the variance (1 - f)/n + f times as large: information can grow at most 1/f times.

Looks at such a pair still have the joint distribution that the rules are computed for: with the recorded mean held
fixed, the differences at two looks have the variance of the later one as their covariance (Scharfstein, Tsiatis and
Robins 1997), whatever share is fixed.
"""

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Estimates, Evidence, side
from scorio.moments import FloatArray


def fixed_share(estimates: Estimates, evidence: Evidence, recorded: NDArray[np.bool_]) -> FloatArray:
    """For each pair, the share of sum_q v_q / N_q due to recorded models: 0 if both are asked, 1 if neither is."""
    if not recorded.any():
        return np.zeros(len(evidence.z))
    fixed = np.append(recorded, True)  # the reference is known exactly
    first, second = evidence.first, evidence.second
    reference = 0.0 if evidence.against_reference else None
    one, two = (side(estimates, reference, members, evidence.gate).noise for members in (first, second))
    never = np.where(fixed[first], one, 0.0) + np.where(fixed[second], two, 0.0)
    with np.errstate(invalid="ignore"):
        share = never / np.maximum(one + two, np.finfo(float).tiny)
    both = fixed[first] & fixed[second]
    return np.where(both, 1.0, np.where(np.isfinite(share), share, 0.0))


def trials_for(information: FloatArray, fixed: FloatArray) -> FloatArray:
    """The multiple of today's trials that gives this multiple of the information; infinite if none does."""
    left = 1.0 / np.maximum(information, np.finfo(float).tiny) - fixed
    with np.errstate(divide="ignore", invalid="ignore"):
        times = (1.0 - fixed) / np.maximum(left, 0.0)
    return np.where(fixed == 0.0, information, np.where(left > 0.0, times, np.inf))


def information_from(trials: FloatArray, fixed: FloatArray) -> FloatArray:
    """The multiple of today's information that this multiple of the trials gives."""
    with np.errstate(divide="ignore"):
        grown = 1.0 / ((1.0 - fixed) / trials + fixed)
    return np.where(fixed == 0.0, trials, grown)
