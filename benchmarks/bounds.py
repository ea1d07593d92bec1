"""The clairvoyant bound: what the decidable pairs would cost someone who knows the true probabilities."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scenarios import Scenario
from scipy.optimize import minimize

Z = 1.645
FloatArray = NDArray[np.float64]


class Neighbours(NamedTuple):
    """The models of a set from best to worst: between them the true gaps, and of each what n trials a question leave as
    variance, times n, where each question has its best share of them: V = (sum_q sqrt(v_q))^2 / M^3."""

    gaps: FloatArray
    spread: FloatArray


def pairs_of_neighbours(scenario: Scenario) -> Neighbours:
    """By the true probabilities."""
    world = scenario.world
    order = np.argsort(-world.truth, kind="stable")
    value = world.p @ world.w
    v = (world.p @ world.w**2 - value**2)[order]
    spread = np.square(np.sqrt(np.maximum(v, 0.0)).sum(axis=1)) / v.shape[1] ** 3
    return Neighbours(-np.diff(world.truth[order]), spread)


def fewest_trials(spread: FloatArray, information: FloatArray, least: float) -> float:
    """The mean over the models of the fewest trials a question, `least` or more, with which each pair of neighbours has
    a variance that n trials of both would leave; `information` is that n of each pair."""
    models = len(spread)
    allowed = (spread[:-1] + spread[1:]) / np.maximum(information, least)
    limits = [
        {"type": "ineq", "fun": lambda u, i=i: allowed[i] - spread[i] * u[i] - spread[i + 1] * u[i + 1]}
        for i in range(models - 1)
    ]
    found = minimize(  # type: ignore[call-overload]
        lambda u: float((1.0 / u).sum()),
        np.full(models, 1.0 / float(np.max(information))),
        jac=lambda u: -1.0 / u**2,
        bounds=[(1e-4, 1.0 / least)] * models,
        constraints=limits,
        method="SLSQP",
        options={"maxiter": 500},
    )
    return float(found.fun) / models


def clairvoyant(scenario: Scenario) -> tuple[float, int]:
    """The smallest share of the fixed cost with which the expected z passes 1.645 for each pair that N = cap decides.

    With v_q the variance of one trial, a model that spends n trials a question on average, in proportion to sqrt(v_q),
    has variance V/n, V = (sum_q sqrt(v_q))^2 / M^3; minimise sum n under V_i/n_i + V_j/n_j <= (d/z)^2: convex in 1/n.
    """
    gap, spread = pairs_of_neighbours(scenario)
    models = len(spread)
    decidable = [i for i in range(models - 1) if gap[i] >= Z * np.sqrt((spread[i] + spread[i + 1]) / scenario.cap)]
    members = sorted({i for pair in decidable for i in (pair, pair + 1)})
    if not members:
        return 0.0, 0
    inside = np.isin(np.arange(models), members)
    limits = [
        {"type": "ineq", "fun": lambda u, i=i: (gap[i] / Z) ** 2 - spread[i] * u[i] - spread[i + 1] * u[i + 1]}
        for i in decidable
    ]
    found = minimize(  # type: ignore[call-overload]
        lambda u: float((1.0 / u)[inside].sum()),
        np.full(models, 1.0 / scenario.cap),
        jac=lambda u: np.where(inside, -1.0 / u**2, 0.0),
        bounds=[(1.0 / scenario.cap, 1.0)] * models,
        constraints=limits,
        method="SLSQP",
        options={"maxiter": 500},
    )
    return float(found.fun / (models * scenario.cap)), len(decidable)
