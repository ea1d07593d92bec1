"""What the trials still to come can settle: predictive power, trials needed, the smallest zone that can be certified.

With a flat prior on the true difference, the difference at the horizon, given today's, is normal around today's with
variance s^2 - s_h^2, where s_h = s/sqrt(q) is the standard error at the horizon and q = horizon/t the information
still to come. So z at the horizon is N(z sqrt(q), q - 1). Stopping on low power adds no false call: it only forgoes
crossings.
"""

import numpy as np
from scipy.special import ndtr

from scorio.moments import FloatArray


def predictive_power(
    z: FloatArray,
    t: FloatArray,
    bound_at_horizon: FloatArray | float,
    sigma: FloatArray | None = None,
    delta: float = 0.0,
    horizon: FloatArray | float = 1.0,
    zone_bound: FloatArray | float | None = None,
) -> FloatArray:
    """Probability that a pair is settled at the horizon: resolved (|z| >= b), or tied (|d| + b s <= delta).

    P(|z_h| >= b) + P(|z_h| <= min(b, delta/s_h - b)) with z_h ~ N(z sqrt(q), q - 1); at or past the horizon 1 or 0.

    Args:
        z: The z-score of each pair today.
        t: The information of each pair today.
        bound_at_horizon: The boundary b on |z| at the horizon.
        sigma: The standard error of the difference today; needed where delta > 0.
        delta: The indifference zone; 0 for none.
        horizon: The information at the horizon.
        zone_bound: The boundary for ties; None: b.

    Returns:
        The probability of each pair, in [0, 1].

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import predictive_power
        >>> np.round(predictive_power(np.array([0.5, 1.5]), np.array([0.5, 0.5]), 2.5), 4)
        array([0.0372, 0.3525])
    """
    z, t = np.broadcast_arrays(np.abs(np.asarray(z, dtype=float)), np.asarray(t, dtype=float))
    q = np.maximum(horizon / np.maximum(t, np.finfo(float).tiny), 1.0)
    mean, spread = z * np.sqrt(q), np.sqrt(q - 1.0)
    settled = _below(-bound_at_horizon - mean, spread) + _below(mean - bound_at_horizon, spread)
    if delta > 0.0:
        if sigma is None:
            raise ValueError("delta > 0 needs sigma, the standard error of the difference; got sigma=None")
        with np.errstate(divide="ignore"):
            to_tie = bound_at_horizon if zone_bound is None else zone_bound
            zone = np.minimum(delta * np.sqrt(q) / sigma - to_tie, bound_at_horizon)
        inside = _below(zone - mean, spread) - _below(-zone - mean, spread)
        settled = settled + np.where(zone >= 0.0, inside, 0.0)
    return np.minimum(settled, 1.0)


def _below(distance: FloatArray, spread: FloatArray) -> FloatArray:
    """Phi(distance/spread), the step function (1 at distance 0) where spread is 0."""
    certain = np.where(distance >= 0.0, np.inf, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(ndtr(np.where(spread > 0.0, distance / spread, certain)))


def trials_needed(z: FloatArray, n: FloatArray, bound: FloatArray | float) -> FloatArray:
    """Trials at which today's difference would reach the bound: n (b/z)^2; infinite for a difference of exactly 0.

    A bound of 0 is reached by any difference.

    Args:
        z: The z-score of each pair today.
        n: The trials of each pair today.
        bound: The boundary b on |z|.

    Returns:
        The trials of each pair.

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import trials_needed
        >>> trials_needed(np.array([1.0, 2.0]), np.array([100, 100]), 2.5)
        array([625.  , 156.25])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(n * np.where(np.equal(bound, 0.0), 0.0, np.square(bound / np.abs(z))))


def smallest_delta(sigma_at_horizon: FloatArray, bound: FloatArray | float) -> FloatArray:
    """The smallest indifference zone that the budget can certify: b s_h, reached by a difference of exactly 0.

    Args:
        sigma_at_horizon: The standard error of the difference at the horizon.
        bound: The boundary b on |z|.

    Returns:
        The zone of each pair.

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import smallest_delta
        >>> smallest_delta(np.array([0.01, 0.02]), 2.5)
        array([0.025, 0.05 ])
    """
    return bound * sigma_at_horizon
