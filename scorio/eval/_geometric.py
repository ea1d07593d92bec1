"""Geometric blends of Pass@k with Pass^k or with a threshold spectrum: x^a y^b, per question or for the data set.

The `_ci` functions blend the posterior means and carry the posterior covariance through the blend to first order, with
the derivatives a g / x and b g / y of g = x^a y^b.
"""

import numpy as np
from numpy.typing import ArrayLike

from scorio import _validate
from scorio.eval._inputs import (
    UNIT,
    Bounds,
    Outcomes,
    Summary,
    Value,
    any_draws,
    as_value,
    bank_draws,
    binary_questions,
    summary,
)
from scorio.eval._posterior import JointMoments, posterior_moments
from scorio.eval._scores import Member, above_half, all_successes, any_success, bank_values, spectrum
from scorio.moments import FloatArray, Moments

Powers = tuple[float, float]  # a of Pass@k, b of its partner


def geom_at_k(R: Outcomes, k: int, pass_power: float = 0.5, unanimous_power: float = 0.5) -> Value:
    """Geom@k: the blend Pass@k^a Pass^k^b of each question, averaged over the questions.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; every question needs as many trials.
        pass_power: The power a of Pass@k, not negative.
        unanimous_power: The power b of Pass^k, not negative.

    Returns:
        The score, a float for one model and an array for a batch.

    Examples:
        >>> from scorio.eval import geom_at_k
        >>> round(geom_at_k([[1, 0, 1, 1], [0, 0, 1, 0]], k=2), 4)
        0.3536
    """
    powers = _powers(pass_power, unanimous_power)
    questions = binary_questions(R)
    k = bank_draws(k, questions.fewest)
    values = bank_values((any_success(k), all_successes(k)), questions)
    return as_value(questions.mean(_blend(values, powers)))


def geom_at_k_ci(
    R: Outcomes,
    k: int,
    pass_power: float = 0.5,
    unanimous_power: float = 0.5,
    confidence: float = 0.95,
    bounds: Bounds = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
) -> Summary:
    """Posterior summary of Geom@k, for any k >= 1; the delta method question by question.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws, at least 1.
        pass_power: The power a of Pass@k, not negative.
        unanimous_power: The power b of Pass^k, not negative.
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for no clipping.
        alpha0: First parameter of the Beta prior, for successes.
        beta0: Second parameter of the Beta prior, for failures.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import geom_at_k_ci
        >>> np.round(geom_at_k_ci([[1, 0, 1, 1], [0, 0, 1, 0]], k=2), 4)
        array([0.4562, 0.137 , 0.1876, 0.7248])
    """
    powers = _powers(pass_power, unanimous_power)
    questions, k = binary_questions(R), any_draws(k)
    each = _delta(posterior_moments((any_success(k), all_successes(k)), questions, alpha0, beta0), powers)
    return summary(questions.mean(each.mean), questions.var_of_mean(each.var), confidence, bounds)


def geom_ds_at_k(R: Outcomes, k: int, pass_power: float = 0.5, unanimous_power: float = 0.5) -> Value:
    """The blend Pass@k^a Pass^k^b of the two averages over the questions.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; every question needs as many trials.
        pass_power: The power a of Pass@k, not negative.
        unanimous_power: The power b of Pass^k, not negative.

    Returns:
        The score, a float for one model and an array for a batch.

    Examples:
        >>> from scorio.eval import geom_ds_at_k
        >>> round(geom_ds_at_k([[1, 0, 1, 1], [0, 0, 1, 0]], k=2), 4)
        0.433
    """
    return _bank_blend(R, k, all_successes, _powers(pass_power, unanimous_power))


def geom_ds_at_k_ci(
    R: Outcomes,
    k: int,
    pass_power: float = 0.5,
    unanimous_power: float = 0.5,
    confidence: float = 0.95,
    bounds: Bounds = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
) -> Summary:
    """Posterior summary of `geom_ds_at_k`, for any k >= 1.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws, at least 1.
        pass_power: The power a of Pass@k, not negative.
        unanimous_power: The power b of Pass^k, not negative.
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for no clipping.
        alpha0: First parameter of the Beta prior, for successes.
        beta0: Second parameter of the Beta prior, for failures.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import geom_ds_at_k_ci
        >>> np.round(geom_ds_at_k_ci([[1, 0, 1, 1], [0, 0, 1, 0]], k=2), 4)
        array([0.4623, 0.1373, 0.1932, 0.7314])
    """
    powers = _powers(pass_power, unanimous_power)
    return summary(*_posterior_blend(R, k, all_successes, powers, alpha0, beta0), confidence, bounds)


def geo_spectrum_at_k(
    R: Outcomes, k: int, lam: float = 0.5, weights: ArrayLike | None = None, lambda_: float | None = None
) -> Value:
    """GeoSpectrum_lambda,w@k: Pass@k^lambda S_w,k^(1-lambda), of the averages over the questions.

    Without `weights` the spectrum is mG-Pass@k; `lambda_` is another name of `lam`.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; every question needs as many trials.
        lam: The power lambda of Pass@k, in [0, 1].
        weights: The weights w_1, ..., w_k of the spectrum; None for mG-Pass@k.
        lambda_: Another name of `lam`; give only one of them.

    Returns:
        The score, a float for one model and an array for a batch.

    Examples:
        >>> from scorio.eval import geo_spectrum_at_k
        >>> round(geo_spectrum_at_k([[1, 0, 1, 1], [0, 0, 1, 0]], k=3), 4)
        0.27
    """
    powers = _coupling(lam, lambda_)
    return _bank_blend(R, k, _spectrum(weights), powers)


def geo_spectrum_at_k_ci(
    R: Outcomes,
    k: int,
    lam: float = 0.5,
    weights: ArrayLike | None = None,
    lambda_: float | None = None,
    confidence: float = 0.95,
    bounds: Bounds = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
) -> Summary:
    """Posterior summary of GeoSpectrum_lambda,w@k, for any k >= 1.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws, at least 1.
        lam: The power lambda of Pass@k, in [0, 1].
        weights: The weights w_1, ..., w_k of the spectrum; None for mG-Pass@k.
        lambda_: Another name of `lam`; give only one of them.
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for no clipping.
        alpha0: First parameter of the Beta prior, for successes.
        beta0: Second parameter of the Beta prior, for failures.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import geo_spectrum_at_k_ci
        >>> np.round(geo_spectrum_at_k_ci([[1, 0, 1, 1], [0, 0, 1, 0]], k=3), 4)
        array([0.335 , 0.1156, 0.1084, 0.5616])
    """
    powers = _coupling(lam, lambda_)
    return summary(*_posterior_blend(R, k, _spectrum(weights), powers, alpha0, beta0), confidence, bounds)


def geo_spectrum_star_at_k(R: Outcomes, k: int) -> Value:
    """GeoSpectrum*@k = sqrt(Pass@k mG-Pass@k).

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; every question needs as many trials.

    Returns:
        The score, a float for one model and an array for a batch.

    Examples:
        >>> from scorio.eval import geo_spectrum_star_at_k
        >>> round(geo_spectrum_star_at_k([[1, 0, 1, 1], [0, 0, 1, 0]], k=3), 4)
        0.27
    """
    return geo_spectrum_at_k(R, k)


def geo_spectrum_star_at_k_ci(
    R: Outcomes, k: int, confidence: float = 0.95, bounds: Bounds = UNIT, alpha0: float = 1.0, beta0: float = 1.0
) -> Summary:
    """Posterior summary of GeoSpectrum*@k, for any k >= 1.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws, at least 1.
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for no clipping.
        alpha0: First parameter of the Beta prior, for successes.
        beta0: Second parameter of the Beta prior, for failures.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import geo_spectrum_star_at_k_ci
        >>> np.round(geo_spectrum_star_at_k_ci([[1, 0, 1, 1], [0, 0, 1, 0]], k=3), 4)
        array([0.335 , 0.1156, 0.1084, 0.5616])
    """
    return geo_spectrum_at_k_ci(R, k, confidence=confidence, bounds=bounds, alpha0=alpha0, beta0=beta0)


def _bank_blend(R: Outcomes, k: int, partner: Member, powers: Powers) -> Value:
    questions = binary_questions(R)
    k = bank_draws(k, questions.fewest)
    values = bank_values((any_success(k), partner(k)), questions)
    return as_value(_blend(questions.mean(values), powers))


def _posterior_blend(R: Outcomes, k: int, partner: Member, powers: Powers, alpha0: float, beta0: float) -> Moments:
    questions, k = binary_questions(R), any_draws(k)
    each = posterior_moments((any_success(k), partner(k)), questions, alpha0, beta0)
    return _delta(JointMoments(questions.mean(each.mean), questions.var_of_mean(each.cov)), powers)


def _blend(values: FloatArray, powers: Powers) -> FloatArray:
    """x^a y^b of values (x, y)."""
    blend: FloatArray = values[0] ** powers[0] * values[1] ** powers[1]
    return blend


def _delta(moments: JointMoments, powers: Powers) -> Moments:
    """First-order mean and variance of the blend; a term whose mean is zero has no variance to carry."""
    blend = _blend(moments.mean, powers)
    (x, y), ((var_x, cov), (_, var_y)) = np.where(moments.mean > 0.0, moments.mean, np.inf), moments.cov
    slope_x, slope_y = powers[0] * blend / x, powers[1] * blend / y
    var = slope_x * slope_x * var_x + slope_y * slope_y * var_y + 2.0 * slope_x * slope_y * cov
    return Moments(blend, np.maximum(var, 0.0))


def _powers(pass_power: float, unanimous_power: float) -> Powers:
    powers = _validate.real(pass_power, "pass_power"), _validate.real(unanimous_power, "unanimous_power")
    if min(powers) < 0.0 or max(powers) == 0.0:
        raise ValueError(f"pass_power and unanimous_power must be >= 0 and not both 0, got {powers[0]} and {powers[1]}")
    return powers


def _coupling(lam: float, lambda_: float | None) -> Powers:
    if lambda_ is not None:
        if lam != 0.5:
            raise ValueError(f"lam and lambda_ are one argument, give only one of them, got {lam!r} and {lambda_!r}")
        lam = lambda_
    power = _validate.fraction(lam, "lam")
    return power, 1.0 - power


def _spectrum(weights: ArrayLike | None) -> Member:
    return above_half if weights is None else lambda k: spectrum(_validate.spectrum_weights(weights, k))
