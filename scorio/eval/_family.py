"""Pass@k and its relatives: a table of metrics, each of which makes two functions.

A metric is a `Score` of k draws, or a `Blend` x^a y^b of Pass@k with another one. The plain function is an unbiased
estimate from the observed trials: the mean over all draws of k of a question's trials, so it needs k trials of every
question. The `_ci` function gives (mu, sigma, lo, hi) of the value that k fresh draws would have, under a
Beta(alpha0, beta0) prior of each question's success probability. A blend takes the posterior means, and carries the
posterior covariance to first order, with the derivatives a g / x and b g / y of g = x^a y^b.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scorio import _validate
from scorio._made import bound_arguments, present
from scorio.eval._inputs import (
    UNIT,
    Bounds,
    Outcomes,
    Summary,
    Value,
    as_value,
    bank_draws,
    binary_questions,
    summary,
)
from scorio.eval._posterior import JointMoments, posterior_moments
from scorio.eval._scores import (
    Distinct,
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
from scorio.moments import FloatArray, Moments


class Blend(NamedTuple):
    """x^a y^b of Pass@k and another score: of each question, or of their averages over the questions."""

    first: Score
    second: Score
    powers: tuple[float, float]
    by_question: bool = False

    def of(self, values: FloatArray) -> FloatArray:
        """The blend of values (x, y)."""
        blend: FloatArray = values[0] ** self.powers[0] * values[1] ** self.powers[1]
        return blend

    def carried(self, moments: JointMoments) -> Moments:
        """First-order mean and variance of the blend; a term whose mean is zero has no variance to carry."""
        blend = self.of(moments.mean)
        (x, y), ((var_x, cov), (_, var_y)) = np.where(moments.mean > 0.0, moments.mean, np.inf), moments.cov
        slope_x, slope_y = self.powers[0] * blend / x, self.powers[1] * blend / y
        var = slope_x * slope_x * var_x + slope_y * slope_y * var_y + 2.0 * slope_x * slope_y * cov
        return Moments(blend, np.maximum(var, 0.0))


class DrawMetric(NamedTuple):
    """One row of the table."""

    name: str
    says: str
    """The first line of the docstring; the part before the colon is the metric's title."""
    scores: Callable[..., Score | Blend]
    """What it is for k draws and its own arguments."""
    example: Mapping[str, object]
    estimate: float
    interval: str
    """What the example gives, of both functions."""
    any_k: bool
    """Whether the posterior is asked for more draws than any question has trials."""


_SEEN = "[[1, 0, 1, 1], [0, 0, 1, 0]]"
_R = "A vector, an (M, N) matrix or a data frame of zeros and ones, or binary `Counts`."
_K = "How many draws; every question needs as many trials."
_OWN = {
    "tau": "Share of the draws that must succeed, in [0, 1].",
    "weights": "The weights w_1, ..., w_k, none negative, with a sum of at most 1.",
    "pass_power": "The power a of Pass@k, not negative.",
    "unanimous_power": "The power b of Pass^k, not negative.",
    "lam": "The power lambda of Pass@k, in [0, 1].",
    "confidence": "Probability of the two-sided interval, between 0 and 1.",
    "bounds": "Ends that the interval is clipped to; None for no clipping.",
    "alpha0": "First parameter of the Beta prior, for successes.",
    "beta0": "Second parameter of the Beta prior, for failures.",
}
_OPTIONAL = {
    "weights": "The weights w_1, ..., w_k of the spectrum; None for mG-Pass@k.",
    "lambda_": "Another name of `lam`; give only one of them.",
}
"""Of arguments that are None unless they are given."""
_VALUE = "The score, a float for one model and an array for a batch."
_SUMMARY = "A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch."


def _estimate(metric: DrawMetric, R: Outcomes, k: int, **options: Any) -> Value:
    questions = binary_questions(R)
    scores = metric.scores(bank_draws(k, questions.min_trials), **options)
    if isinstance(scores, Score):
        return as_value(questions.mean(bank_values((scores,), questions)[0]))
    values = bank_values((scores.first, scores.second), questions)
    return as_value(questions.mean(scores.of(values)) if scores.by_question else scores.of(questions.mean(values)))


def _interval(
    metric: DrawMetric,
    R: Outcomes,
    k: int,
    confidence: float = 0.95,
    bounds: Bounds = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
    **options: Any,
) -> Summary:
    questions = binary_questions(R)
    most = None if metric.any_k else questions.max_trials  # as for the bank
    draws = _validate.integer(k, "k", 1, most, "the largest number of trials of a question")
    scores = metric.scores(draws, **options)
    pair = (scores,) if isinstance(scores, Score) else (scores.first, scores.second)
    joint = posterior_moments(pair, questions, alpha0, beta0)
    return summary(*_averaged(scores, joint, questions), confidence, bounds)


def _averaged(scores: Score | Blend, joint: JointMoments, questions: Distinct) -> Moments:
    """Mean and variance over the questions."""
    if isinstance(scores, Score):
        return Moments(questions.mean(joint.mean[0]), questions.var_of_mean(joint.cov[0, 0]))
    if scores.by_question:
        moments = scores.carried(joint)
        return Moments(questions.mean(moments.mean), questions.var_of_mean(moments.var))
    return scores.carried(JointMoments(questions.mean(joint.mean), questions.var_of_mean(joint.cov)))


def _functions(*row: Any, any_k: bool = False) -> tuple[Callable[..., Value], Callable[..., Summary]]:
    """The estimate and the posterior summary of the metric of this row."""
    metric = DrawMetric._make((*row, any_k))
    given = ", ".join(f"{name}={value!r}" for name, value in metric.example.items())
    call = f"({_SEEN}, {given})"
    shown = [f"round({metric.name}{call}, 4)", f"{metric.estimate}"]
    plain = _function(metric, _estimate, metric.name, metric.says, [_K, _VALUE], shown)
    name, title = f"{metric.name}_ci", metric.says.split(":")[0].split(",")[0]
    says, k = f"Posterior summary of {title}.", _K.replace("every", "some")
    if metric.any_k:
        says, k = f"{says[:-1]}, for any k >= 1.", "How many draws, at least 1."
    shown = [f"np.round({name}{call}, 4)", f"array([{metric.interval}])"]
    return plain, _function(metric, _interval, name, says, [k, _SUMMARY], shown)


def _function(
    metric: DrawMetric, compute: Callable[..., Any], name: str, says: str, descriptions: list[str], example: list[str]
) -> Callable[..., Any]:
    """A function of this name, whose arguments are those of `compute` and the metric's own after k."""
    first, second, *others = list(inspect.signature(compute).parameters.values())[1:-1]
    metric_parameters = list(inspect.signature(metric.scores).parameters.values())[1:]
    arguments = [
        parameter.replace(kind=Parameter.POSITIONAL_OR_KEYWORD)
        for parameter in (first, second, *metric_parameters, *others)
    ]
    signature = inspect.Signature(arguments, return_annotation=inspect.signature(compute).return_annotation)

    def function(*args: Any, **kwargs: Any) -> Any:
        return compute(metric, **bound_arguments(name, signature, args, kwargs))

    k, result = descriptions
    lines = [
        f"    {parameter.name}: {_OWN[parameter.name] if parameter.default is not None else _OPTIONAL[parameter.name]}"
        for parameter in arguments[2:]
    ]
    lines = [says, "", "Args:", f"    R: {_R}", f"    k: {k}", *lines, "", "Returns:", f"    {result}", "", "Examples:"]
    lines += ["    >>> import numpy as np"] if example[0].startswith("np.") else []
    lines += [f"    >>> from scorio.eval import {name}", f"    >>> {example[0]}", f"    {example[1]}"]
    present(function, name, signature, "\n".join(lines))
    return function


# -- the metrics -----------------------------------------------------------------------------------------------------


def _share(k: int, tau: float) -> Score:
    return share(k, _validate.fraction(tau, "tau"))


def _weighted(k: int, weights: ArrayLike) -> Score:
    return spectrum(_validate.spectrum_weights(weights, k))


def _geometric(k: int, pass_power: float = 0.5, unanimous_power: float = 0.5) -> Blend:
    powers = _validate.real(pass_power, "pass_power"), _validate.real(unanimous_power, "unanimous_power")
    if min(powers) < 0.0 or max(powers) == 0.0:
        raise ValueError(f"pass_power and unanimous_power must be >= 0 and not both 0, got {powers[0]} and {powers[1]}")
    return Blend(any_success(k), all_successes(k), powers)


def _geometric_by_question(k: int, pass_power: float = 0.5, unanimous_power: float = 0.5) -> Blend:
    return _geometric(k, pass_power, unanimous_power)._replace(by_question=True)


def _geo_spectrum(k: int, lam: float = 0.5, weights: ArrayLike | None = None, lambda_: float | None = None) -> Blend:
    if lambda_ is not None:
        if lam != 0.5:
            raise ValueError(f"lam and lambda_ are one argument, give only one of them, got {lam!r} and {lambda_!r}")
        lam = lambda_
    power = _validate.fraction(lam, "lam")
    second = above_half(k) if weights is None else _weighted(k, weights)
    return Blend(any_success(k), second, (power, 1.0 - power))


def _geo_spectrum_star(k: int) -> Blend:
    return _geo_spectrum(k)


pass_at_k, pass_at_k_ci = _functions(
    "pass_at_k",
    "Pass@k: the chance that at least one of k draws succeeds (Chen et al. 2021, arXiv:2107.03374).",
    any_success,
    {"k": 2},
    0.75,
    "0.6905, 0.1326, 0.4307, 0.9503",
)
pass_hat_k, pass_hat_k_ci = _functions(
    "pass_hat_k",
    "Pass^k: the chance that all of k draws succeed (Yao et al. 2024, arXiv:2406.12045).",
    all_successes,
    {"k": 2},
    0.25,
    "0.3095, 0.1326, 0.0497, 0.5693",
)
unanimous_at_k, unanimous_at_k_ci = pass_hat_k, pass_hat_k_ci
g_pass_at_k, g_pass_at_k_ci = _functions(
    "g_pass_at_k",
    "G-Pass@k: Pass^k by its name where thresholds are in use (Liu et al. 2024, arXiv:2412.13147).",
    all_successes,
    {"k": 2},
    0.25,
    "0.3095, 0.1326, 0.0497, 0.5693",
)
g_pass_at_k_tau, g_pass_at_k_tau_ci = _functions(
    "g_pass_at_k_tau",
    "G-Pass@k_tau: the chance of at least ceil(tau k) successes among k draws; Pass@k at 0, Pass^k at 1.",
    _share,
    {"k": 3, "tau": 0.5},
    0.5,
    "0.5   , 0.1587, 0.1889, 0.8111",
)
mg_pass_at_k, mg_pass_at_k_ci = _functions(
    "mg_pass_at_k",
    "mG-Pass@k: G-Pass@k_tau averaged over tau in [1/2, 1] (Liu et al. 2024, arXiv:2412.13147).",
    above_half,
    {"k": 3},
    0.0833,
    "0.1429, 0.0845, 0.    , 0.3085",
)
maj_at_k, maj_at_k_ci = _functions(
    "maj_at_k",
    "Maj@k: the chance that more than half of k draws succeed.",
    majority,
    {"k": 3},
    0.5,
    "0.5   , 0.1587, 0.1889, 0.8111",
)
auc_at_k, auc_at_k_ci = _functions(
    "auc_at_k",
    "AUC@K: the area under Pass@1, ..., Pass@k by the trapezoidal rule (Hu et al. 2026, arXiv:2601.08763).",
    area,
    {"k": 3},
    0.7187,
    "0.6667, 0.1273, 0.4172, 0.9162",
)
threshold_spectrum_at_k, threshold_spectrum_at_k_ci = _functions(
    "threshold_spectrum_at_k",
    "S_w,k: the sum over r = 1, ..., k of w_r times the chance of at least r successes among k draws.",
    _weighted,
    {"k": 2, "weights": [0.75, 0.25]},
    0.625,
    "0.5952, 0.1277, 0.345 , 0.8455",
    any_k=True,
)
geom_at_k, geom_at_k_ci = _functions(
    "geom_at_k",
    "Geom@k: the blend Pass@k^a Pass^k^b of each question, averaged over the questions.",
    _geometric_by_question,
    {"k": 2},
    0.3536,
    "0.4562, 0.137 , 0.1876, 0.7248",
    any_k=True,
)
geom_ds_at_k, geom_ds_at_k_ci = _functions(
    "geom_ds_at_k",
    "The data set's Geom@k: the blend Pass@k^a Pass^k^b of the two averages over the questions.",
    _geometric,
    {"k": 2},
    0.433,
    "0.4623, 0.1373, 0.1932, 0.7314",
    any_k=True,
)
geo_spectrum_at_k, geo_spectrum_at_k_ci = _functions(
    "geo_spectrum_at_k",
    "GeoSpectrum@k: Pass@k^lambda S_w,k^(1-lambda) of the averages over the questions; S is mG-Pass@k by default.",
    _geo_spectrum,
    {"k": 3},
    0.27,
    "0.335 , 0.1156, 0.1084, 0.5616",
    any_k=True,
)
geo_spectrum_star_at_k, geo_spectrum_star_at_k_ci = _functions(
    "geo_spectrum_star_at_k",
    "GeoSpectrum*@k: the square root of Pass@k times mG-Pass@k.",
    _geo_spectrum_star,
    {"k": 3},
    0.27,
    "0.335 , 0.1156, 0.1084, 0.5616",
    any_k=True,
)


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
    questions, draws = binary_questions(R), _validate.integer(k, "k", 1)
    if questions.min_trials < 1:
        raise ValueError("R must have a trial of every question, got a question without any")
    wrong = questions.failures / (questions.successes + questions.failures)
    return as_value(questions.mean(1.0 - wrong**draws))
