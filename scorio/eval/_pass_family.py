"""Pass@k and its relatives: each is one `Score`, averaged over a finite bank or under the posterior.

The plain functions are unbiased estimates from the observed trials: the mean over all draws of k of a question's
trials, so they need k trials of every question. The `_ci` functions give (mu, sigma, lo, hi) of the value that k fresh
draws would have, under a Beta(alpha0, beta0) prior of each question's success probability.
"""

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
    observed_draws,
    summary,
)
from scorio.eval._posterior import posterior_moments
from scorio.eval._scores import (
    Member,
    Score,
    above_half,
    all_successes,
    any_success,
    area,
    bank_values,
    majority,
    share,
    spectrum,
)


def pass_at_k(R: Outcomes, k: int) -> Value:
    """Pass@k: the chance that at least one of k draws succeeds (Chen et al. 2021, arXiv:2107.03374).

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; every question needs as many trials.

    Returns:
        The score, a float for one model and an array for a batch.

    Examples:
        >>> from scorio.eval import pass_at_k
        >>> round(pass_at_k([[1, 0, 1, 1], [0, 0, 1, 0]], k=2), 4)
        0.75
    """
    return _bank_mean(R, k, any_success)


def pass_at_k_ci(
    R: Outcomes, k: int, confidence: float = 0.95, bounds: Bounds = UNIT, alpha0: float = 1.0, beta0: float = 1.0
) -> Summary:
    """Posterior summary of Pass@k, g(p) = 1 - (1-p)^k.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; some question needs as many trials.
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for no clipping.
        alpha0: First parameter of the Beta prior, for successes.
        beta0: Second parameter of the Beta prior, for failures.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import pass_at_k_ci
        >>> np.round(pass_at_k_ci([[1, 0, 1, 1], [0, 0, 1, 0]], k=2), 4)
        array([0.6905, 0.1326, 0.4307, 0.9503])
    """
    return _posterior_summary(R, k, any_success, confidence, bounds, alpha0, beta0)


def pass_hat_k(R: Outcomes, k: int) -> Value:
    """Pass^k: the chance that all of k draws succeed (Yao et al. 2024, arXiv:2406.12045).

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; every question needs as many trials.

    Returns:
        The score, a float for one model and an array for a batch.

    Examples:
        >>> from scorio.eval import pass_hat_k
        >>> round(pass_hat_k([[1, 0, 1, 1], [0, 0, 1, 0]], k=2), 4)
        0.25
    """
    return _bank_mean(R, k, all_successes)


def pass_hat_k_ci(
    R: Outcomes, k: int, confidence: float = 0.95, bounds: Bounds = UNIT, alpha0: float = 1.0, beta0: float = 1.0
) -> Summary:
    """Posterior summary of Pass^k, g(p) = p^k.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; some question needs as many trials.
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for no clipping.
        alpha0: First parameter of the Beta prior, for successes.
        beta0: Second parameter of the Beta prior, for failures.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import pass_hat_k_ci
        >>> np.round(pass_hat_k_ci([[1, 0, 1, 1], [0, 0, 1, 0]], k=2), 4)
        array([0.3095, 0.1326, 0.0497, 0.5693])
    """
    return _posterior_summary(R, k, all_successes, confidence, bounds, alpha0, beta0)


def naive_pass_hat_k(R: Outcomes, k: int) -> Value:
    """Naive Pass^k: 1 - (1 - c/n)^k of each question, averaged (paper, section 2.7); for any k, and biased below 1.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws, at least 1; there may be fewer trials.

    Returns:
        The score, a float for one model and an array for a batch.

    Examples:
        >>> from scorio.eval import naive_pass_hat_k
        >>> round(naive_pass_hat_k([[1, 0, 1, 1], [0, 0, 1, 0]], k=2), 4)
        0.6875
    """
    questions, draws = binary_questions(R), any_draws(k)
    if questions.fewest < 1:
        raise ValueError("R must have a trial of every question, got a question without any")
    wrong = questions.failures / (questions.successes + questions.failures)
    return as_value(questions.mean(1.0 - wrong**draws))


unanimous_at_k = pass_hat_k
unanimous_at_k_ci = pass_hat_k_ci


def g_pass_at_k(R: Outcomes, k: int) -> Value:
    """G-Pass@k, the name of Pass^k where thresholds are in use (Liu et al. 2024, arXiv:2412.13147).

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; every question needs as many trials.

    Returns:
        The score, a float for one model and an array for a batch.

    Examples:
        >>> from scorio.eval import g_pass_at_k
        >>> round(g_pass_at_k([[1, 0, 1, 1], [0, 0, 1, 0]], k=2), 4)
        0.25
    """
    return pass_hat_k(R, k)


def g_pass_at_k_ci(
    R: Outcomes, k: int, confidence: float = 0.95, bounds: Bounds = UNIT, alpha0: float = 1.0, beta0: float = 1.0
) -> Summary:
    """Posterior summary of G-Pass@k, that of Pass^k.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; some question needs as many trials.
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for no clipping.
        alpha0: First parameter of the Beta prior, for successes.
        beta0: Second parameter of the Beta prior, for failures.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import g_pass_at_k_ci
        >>> np.round(g_pass_at_k_ci([[1, 0, 1, 1], [0, 0, 1, 0]], k=2), 4)
        array([0.3095, 0.1326, 0.0497, 0.5693])
    """
    return pass_hat_k_ci(R, k, confidence, bounds, alpha0, beta0)


def g_pass_at_k_tau(R: Outcomes, k: int, tau: float) -> Value:
    """G-Pass@k_tau: the chance of at least ceil(tau k) successes among k draws; Pass@k at 0, Pass^k at 1.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; every question needs as many trials.
        tau: Share of the draws that must succeed, in [0, 1].

    Returns:
        The score, a float for one model and an array for a batch.

    Examples:
        >>> from scorio.eval import g_pass_at_k_tau
        >>> round(g_pass_at_k_tau([[1, 0, 1, 1], [0, 0, 1, 0]], k=3, tau=0.5), 4)
        0.5
    """
    tau = _validate.fraction(tau, "tau")
    return _bank_mean(R, k, lambda draws: share(draws, tau))


def g_pass_at_k_tau_ci(
    R: Outcomes,
    k: int,
    tau: float,
    confidence: float = 0.95,
    bounds: Bounds = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
) -> Summary:
    """Posterior summary of G-Pass@k_tau.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; some question needs as many trials.
        tau: Share of the draws that must succeed, in [0, 1].
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for no clipping.
        alpha0: First parameter of the Beta prior, for successes.
        beta0: Second parameter of the Beta prior, for failures.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import g_pass_at_k_tau_ci
        >>> np.round(g_pass_at_k_tau_ci([[1, 0, 1, 1], [0, 0, 1, 0]], k=3, tau=0.5), 4)
        array([0.5   , 0.1587, 0.1889, 0.8111])
    """
    tau = _validate.fraction(tau, "tau")
    return _posterior_summary(R, k, lambda draws: share(draws, tau), confidence, bounds, alpha0, beta0)


def mg_pass_at_k(R: Outcomes, k: int) -> Value:
    """mG-Pass@k: G-Pass@k_tau averaged over tau in [1/2, 1] (Liu et al. 2024, arXiv:2412.13147).

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; every question needs as many trials.

    Returns:
        The score, a float for one model and an array for a batch.

    Examples:
        >>> from scorio.eval import mg_pass_at_k
        >>> round(mg_pass_at_k([[1, 0, 1, 1], [0, 0, 1, 0]], k=3), 4)
        0.0833
    """
    return _bank_mean(R, k, above_half)


def mg_pass_at_k_ci(
    R: Outcomes, k: int, confidence: float = 0.95, bounds: Bounds = UNIT, alpha0: float = 1.0, beta0: float = 1.0
) -> Summary:
    """Posterior summary of mG-Pass@k.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; some question needs as many trials.
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for no clipping.
        alpha0: First parameter of the Beta prior, for successes.
        beta0: Second parameter of the Beta prior, for failures.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import mg_pass_at_k_ci
        >>> np.round(mg_pass_at_k_ci([[1, 0, 1, 1], [0, 0, 1, 0]], k=3), 4)
        array([0.1429, 0.0845, 0.    , 0.3085])
    """
    return _posterior_summary(R, k, above_half, confidence, bounds, alpha0, beta0)


def maj_at_k(R: Outcomes, k: int) -> Value:
    """Maj@k: the chance that more than half of k draws succeed.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; every question needs as many trials.

    Returns:
        The score, a float for one model and an array for a batch.

    Examples:
        >>> from scorio.eval import maj_at_k
        >>> round(maj_at_k([[1, 0, 1, 1], [0, 0, 1, 0]], k=3), 4)
        0.5
    """
    return _bank_mean(R, k, majority)


def maj_at_k_ci(
    R: Outcomes, k: int, confidence: float = 0.95, bounds: Bounds = UNIT, alpha0: float = 1.0, beta0: float = 1.0
) -> Summary:
    """Posterior summary of Maj@k.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; some question needs as many trials.
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for no clipping.
        alpha0: First parameter of the Beta prior, for successes.
        beta0: Second parameter of the Beta prior, for failures.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import maj_at_k_ci
        >>> np.round(maj_at_k_ci([[1, 0, 1, 1], [0, 0, 1, 0]], k=3), 4)
        array([0.5   , 0.1587, 0.1889, 0.8111])
    """
    return _posterior_summary(R, k, majority, confidence, bounds, alpha0, beta0)


def auc_at_k(R: Outcomes, k: int) -> Value:
    """AUC@K: the area under Pass@1, ..., Pass@k by the trapezoidal rule (Hu et al. 2026, arXiv:2601.08763).

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; every question needs as many trials.

    Returns:
        The score, a float for one model and an array for a batch.

    Examples:
        >>> from scorio.eval import auc_at_k
        >>> round(auc_at_k([[1, 0, 1, 1], [0, 0, 1, 0]], k=3), 4)
        0.7187
    """
    return _bank_mean(R, k, area)


def auc_at_k_ci(
    R: Outcomes, k: int, confidence: float = 0.95, bounds: Bounds = UNIT, alpha0: float = 1.0, beta0: float = 1.0
) -> Summary:
    """Posterior summary of AUC@K.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; some question needs as many trials.
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for no clipping.
        alpha0: First parameter of the Beta prior, for successes.
        beta0: Second parameter of the Beta prior, for failures.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import auc_at_k_ci
        >>> np.round(auc_at_k_ci([[1, 0, 1, 1], [0, 0, 1, 0]], k=3), 4)
        array([0.6667, 0.1273, 0.4172, 0.9162])
    """
    return _posterior_summary(R, k, area, confidence, bounds, alpha0, beta0)


def threshold_spectrum_at_k(R: Outcomes, k: int, weights: ArrayLike) -> Value:
    """S_w,k: the sum over r = 1, ..., k of w_r times the chance of at least r successes among k draws.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws; every question needs as many trials.
        weights: The weights w_1, ..., w_k, none negative, with a sum of at most 1.

    Returns:
        The score, a float for one model and an array for a batch.

    Examples:
        >>> from scorio.eval import threshold_spectrum_at_k
        >>> round(threshold_spectrum_at_k([[1, 0, 1, 1], [0, 0, 1, 0]], k=2, weights=[0.75, 0.25]), 4)
        0.625
    """
    return _bank_mean(R, k, lambda draws: spectrum(_validate.spectrum_weights(weights, draws)))


def threshold_spectrum_at_k_ci(
    R: Outcomes,
    k: int,
    weights: ArrayLike,
    confidence: float = 0.95,
    bounds: Bounds = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
) -> Summary:
    """Posterior summary of S_w,k, for any k >= 1.

    Args:
        R: A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`.
        k: How many draws, at least 1.
        weights: The weights w_1, ..., w_k, none negative, with a sum of at most 1.
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for no clipping.
        alpha0: First parameter of the Beta prior, for successes.
        beta0: Second parameter of the Beta prior, for failures.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import threshold_spectrum_at_k_ci
        >>> np.round(threshold_spectrum_at_k_ci([[1, 0, 1, 1], [0, 0, 1, 0]], k=2, weights=[0.75, 0.25]), 4)
        array([0.5952, 0.1277, 0.345 , 0.8455])
    """

    def member(draws: int) -> Score:
        return spectrum(_validate.spectrum_weights(weights, draws))

    return _posterior_summary(R, k, member, confidence, bounds, alpha0, beta0, within_trials=False)


def _bank_mean(R: Outcomes, k: int, member: Member) -> Value:
    questions = binary_questions(R)
    values = bank_values((member(bank_draws(k, questions.fewest)),), questions)
    return as_value(questions.mean(values[0]))


def _posterior_summary(
    R: Outcomes,
    k: int,
    member: Member,
    confidence: float,
    bounds: Bounds,
    alpha0: float,
    beta0: float,
    within_trials: bool = True,
) -> Summary:
    questions = binary_questions(R)
    draws = observed_draws(k, questions.most) if within_trials else any_draws(k)
    moments = posterior_moments((member(draws),), questions, alpha0, beta0)
    mean, var = questions.mean(moments.mean[0]), questions.var_of_mean(moments.cov[0, 0])
    return summary(mean, var, confidence, bounds)
