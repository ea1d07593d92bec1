"""The clairvoyant bound: what the decidable pairs would cost someone who knows the true probabilities."""

import numpy as np
from scenarios import Scenario
from scipy.optimize import minimize

Z = 1.645


def clairvoyant(scenario: Scenario) -> tuple[float, int]:
    """The smallest share of the fixed cost with which the expected z passes 1.645 for each pair that N = cap decides.

    With v_q the variance of one trial, a model that spends n trials a question on average, in proportion to sqrt(v_q),
    has variance V/n, V = (sum_q sqrt(v_q))^2 / M^3; minimise sum n under V_i/n_i + V_j/n_j <= (d/z)^2: convex in 1/n.
    """
    world = scenario.world
    truth = world.truth
    order = np.argsort(-truth, kind="stable")
    value = world.p @ world.w
    v = (world.p @ world.w**2 - value**2)[order]
    models, questions = v.shape
    spread = np.square(np.sqrt(np.maximum(v, 0.0)).sum(axis=1)) / questions**3
    gap = -np.diff(truth[order])
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
