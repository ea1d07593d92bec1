"""Independent oracles: the definitions, by brute force, in exact arithmetic where that is possible."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations, product

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.special import betaln, xlogy
from scipy.stats import beta as beta_law

DrawScore = Callable[[tuple[int, ...]], Fraction]  # what k draws are worth


def weights_of_half(k: int) -> list[Fraction]:
    """mG-Pass@k as weights of "at least r successes": 2 / k for each r above ceil(k / 2)."""
    return [Fraction(2 * (r > math.ceil(k / 2)), k) for r in range(1, k + 1)]


def integral_of_half(k: int) -> list[Fraction]:
    """The same from 2 int_(1/2)^1 G-Pass@k_tau dtau: tau in ((r-1) / k, r / k] needs r successes."""
    cells = [(max(Fraction(r - 1, k), Fraction(1, 2)), Fraction(r, k)) for r in range(1, k + 1)]
    return [2 * max(upper - lower, Fraction(0)) for lower, upper in cells]


def pass_curve(draws: tuple[int, ...]) -> Fraction:
    """AUC@K of k draws: the trapezoid over Pass@1, ..., Pass@k of that bank of k, each by brute force."""
    k = len(draws)
    curve = [Fraction(sum(any(sub) for sub in combinations(draws, j)), math.comb(k, j)) for j in range(1, k + 1)]
    if k == 1:
        return curve[0]
    return sum(((lower + upper) / 2 for lower, upper in zip(curve, curve[1:], strict=False)), Fraction(0)) / (k - 1)


def spectrum_of(weights: list[Fraction]) -> DrawScore:
    return lambda draws: sum((w for r, w in enumerate(weights, 1) if sum(draws) >= r), Fraction(0))


def binary_scores(k: int) -> dict[str, DrawScore]:
    """Every member of the family that is linear in the outcomes, by its own definition."""
    return {
        "pass_at_k": lambda draws: Fraction(any(draws)),
        "pass_hat_k": lambda draws: Fraction(all(draws)),
        "g_pass_at_k": lambda draws: Fraction(all(draws)),
        "unanimous_at_k": lambda draws: Fraction(all(draws)),
        "maj_at_k": lambda draws: Fraction(2 * sum(draws) > k),
        "mg_pass_at_k": spectrum_of(weights_of_half(k)),
        "auc_at_k": pass_curve,
    }


def share_score(k: int, tau: Fraction) -> DrawScore:
    needed = max(1, math.ceil(tau * k))
    return lambda draws: Fraction(sum(draws) >= needed)


def best_reward(w: list[Fraction]) -> DrawScore:
    return lambda draws: max(w[draw] for draw in draws)


def bank_mean(rows: ArrayLike, k: int, score: DrawScore) -> Fraction:
    """Mean over questions of the mean over all subsets of k trials."""
    means = []
    for row in np.asarray(rows).tolist():
        subsets = list(combinations(row, k))
        means.append(sum((score(subset) for subset in subsets), Fraction(0)) / len(subsets))
    return sum(means, Fraction(0)) / len(means)


def urn(parameters: list[Fraction], draws: int) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Every sequence of draws with its chance under Dirichlet(parameters), by Polya's urn."""
    for sequence in product(range(len(parameters)), repeat=draws):
        chance, urn_now = Fraction(1), list(parameters)
        for draw in sequence:
            chance *= urn_now[draw] / sum(urn_now)
            urn_now[draw] += 1
        yield sequence, chance


def posterior_mean_var(parameters: list[Fraction], k: int, score: DrawScore) -> tuple[Fraction, Fraction]:
    """Moments of the latent score of one question: its square is the score of k draws times that of k others."""
    mean = sum((chance * score(draws) for draws, chance in urn(parameters, k)), Fraction(0))
    square = sum(
        (chance * score(draws[:k]) * score(draws[k:]) for draws, chance in urn(parameters, 2 * k)), Fraction(0)
    )
    return mean, square - mean * mean


def latent(k: int, scores: list[float], p: float) -> float:
    """g(p) = sum_j s_j C(k, j) p^j (1-p)^(k-j)."""
    return math.fsum(s * math.comb(k, j) * p**j * (1 - p) ** (k - j) for j, s in enumerate(scores))


def beta_mean(a: float, b: float, g: Callable[[float], float]) -> float:
    """E[g(p)] under Beta(a, b), a and b >= 1/2, by adaptive quadrature over t with p = sin^2 t."""
    bulk = np.arcsin(np.sqrt(beta_law(a, b).ppf([1e-6, 0.01, 0.25, 0.5, 0.75, 0.99, 1 - 1e-6])))
    scale = betaln(a, b)

    def integrand(t: float) -> float:
        s, c = math.sin(t), math.cos(t)
        return 2.0 * g(s * s) * math.exp(xlogy(2.0 * a - 1.0, s) + xlogy(2.0 * b - 1.0, c) - scale)

    value, _ = quad(integrand, 0.0, math.pi / 2, points=bulk, epsabs=1e-13, epsrel=1e-12, limit=400)
    return float(value)
