"""An independent, slow implementation of scores and comparisons, in loops over plain numbers."""

import math
from collections.abc import Sequence

Tally = Sequence[Sequence[int]]
"""Counts of one model by question and category."""


def average(tally: Tally, w: Sequence[float]) -> float:
    """a = (1/M) sum_q sum_k w_k n_qk / N_q."""
    return sum(sum(wk * n for wk, n in zip(w, row, strict=True)) / sum(row) for row in tally) / len(tally)


def trial_var(row: Sequence[int], w: Sequence[float], prior: float = 1.0) -> float:
    """sum_k w_k^2 p_k - (sum_k w_k p_k)^2 with p = nu/T."""
    nu = [n + prior for n in row]
    mean = sum(wk * v for wk, v in zip(w, nu, strict=True)) / sum(nu)
    return sum(wk**2 * v for wk, v in zip(w, nu, strict=True)) / sum(nu) - mean**2


def sigma(tally: Tally, w: Sequence[float]) -> float:
    """sqrt((1/M^2) sum_q (T_q/N_q)^2 v_q / (T_q + 1)), uniform prior."""
    total = 0.0
    for row in tally:
        t, n = sum(row) + len(row), sum(row)
        total += (t / n) ** 2 * trial_var(row, w) / (t + 1)
    return math.sqrt(total) / len(tally)


def bayes(tally: Tally, w: Sequence[float]) -> tuple[float, float]:
    """Bayes@N with its sigma, uniform prior."""
    mean = var = 0.0
    for row in tally:
        t = sum(row) + len(row)
        mean += sum(wk * (n + 1) for wk, n in zip(w, row, strict=True)) / t
        var += trial_var(row, w) / (t + 1)
    return mean / len(tally), math.sqrt(var) / len(tally)


def z(first: Tally, second: Tally, w: Sequence[float]) -> float:
    """(a - b) / sqrt(var_a + var_b)."""
    return (average(first, w) - average(second, w)) / math.hypot(sigma(first, w), sigma(second, w))


def information(tallies: Sequence[Tally], w: Sequence[float], horizon: float) -> float:
    """(sum_q v_q/N_max) / (sum_q v_q/N_q) over the questions of all these models."""
    rows = [row for tally in tallies for row in tally]
    at_horizon = sum(trial_var(row, w) / horizon for row in rows)
    return at_horizon / sum(trial_var(row, w) / sum(row) for row in rows)


def needed(tallies: Sequence[Tally], w: Sequence[float], times: float) -> float:
    """Trials per question at which the information has grown by so much, if first the model that has fewer gets them:
    the smallest of them, by bisection. Below 1 it is so many times their mean."""
    trials = [sum(map(sum, tally)) / len(tally) for tally in tallies]
    if times <= 1.0:
        return times * sum(trials) / len(trials)
    noise = [sum(trial_var(row, w) / sum(row) for row in tally) for tally in tallies]

    def growth(level: float) -> float:
        return sum(noise) / sum(each * n / max(n, level) for each, n in zip(noise, trials, strict=True))

    low, high = min(trials), 2.0 * times * max(trials)
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (low, middle) if growth(middle) >= times else (middle, high)
    return high


def power(z_now: float, t: float, bound: float, reach: float = 1.0, steps: int = 4000) -> float:
    """P(|z at the horizon| >= bound), summing the density of N(z sqrt(q), q - 1) step by step."""
    q = max(reach / t, 1.0)
    mean, spread = z_now * math.sqrt(q), math.sqrt(q - 1.0)
    width = 16.0 * spread / steps
    points = (mean - 8.0 * spread + width * (step + 0.5) for step in range(steps))
    density = (math.exp(-0.5 * ((x - mean) / spread) ** 2) for x in points if abs(x) >= bound)
    return sum(density) * width / (spread * math.sqrt(2.0 * math.pi))


def holm(p: Sequence[float], alpha: float) -> set[int]:
    """Step down: reject the smallest while it is at most alpha over the number remaining."""
    rejected: set[int] = set()
    for step, place in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if p[place] > alpha / (len(p) - step):
            break
        rejected.add(place)
    return rejected
