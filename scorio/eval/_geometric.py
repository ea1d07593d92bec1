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
    """Geom@k: the blend Pass@k^a Pass^k^b of each question, averaged over the questions."""
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
    """Posterior summary of Geom@k, for any k >= 1; the delta method question by question."""
    powers = _powers(pass_power, unanimous_power)
    questions, k = binary_questions(R), any_draws(k)
    each = _delta(posterior_moments((any_success(k), all_successes(k)), questions, alpha0, beta0), powers)
    return summary(questions.mean(each.mean), questions.var_of_mean(each.var), confidence, bounds)


def geom_ds_at_k(R: Outcomes, k: int, pass_power: float = 0.5, unanimous_power: float = 0.5) -> Value:
    """The blend Pass@k^a Pass^k^b of the two averages over the questions."""
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
    """Posterior summary of `geom_ds_at_k`, for any k >= 1."""
    powers = _powers(pass_power, unanimous_power)
    return summary(*_posterior_blend(R, k, all_successes, powers, alpha0, beta0), confidence, bounds)


def geo_spectrum_at_k(
    R: Outcomes, k: int, lam: float = 0.5, weights: ArrayLike | None = None, lambda_: float | None = None
) -> Value:
    """GeoSpectrum_lambda,w@k: Pass@k^lambda S_w,k^(1-lambda), of the averages over the questions.

    Without `weights` the spectrum is mG-Pass@k; `lambda_` is another name of `lam`.
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
    """Posterior summary of GeoSpectrum_lambda,w@k, for any k >= 1."""
    powers = _coupling(lam, lambda_)
    return summary(*_posterior_blend(R, k, _spectrum(weights), powers, alpha0, beta0), confidence, bounds)


def geo_spectrum_star_at_k(R: Outcomes, k: int) -> Value:
    """GeoSpectrum*@k = sqrt(Pass@k mG-Pass@k)."""
    return geo_spectrum_at_k(R, k)


def geo_spectrum_star_at_k_ci(
    R: Outcomes, k: int, confidence: float = 0.95, bounds: Bounds = UNIT, alpha0: float = 1.0, beta0: float = 1.0
) -> Summary:
    """Posterior summary of GeoSpectrum*@k, for any k >= 1."""
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
