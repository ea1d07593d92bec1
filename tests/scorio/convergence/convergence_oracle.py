"""Convergence by the words of the paper: one replicate, one trial, one model at a time, in exact fractions."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import comb

import numpy as np

Outcomes = Sequence[Sequence[int]]
"""The outcomes of one model: a list per question."""
Score = Callable[[Outcomes], Fraction]


def average(w: Sequence[str] = ("0", "1"), prior: Outcomes | None = None) -> Score:
    """Mean weight of the trials, and of the prior ones where given; weights as decimal text."""
    value = [Fraction(text) for text in w]

    def score(outcomes: Outcomes) -> Fraction:
        rows = [[*row, *(prior[q] if prior else [])] for q, row in enumerate(outcomes)]
        return sum(sum(value[label] for label in row) / Fraction(len(row)) for row in rows) / len(rows)

    return score


def pass_at(k: int) -> Score:
    """The unbiased estimator of Chen et al. (2021): paper, Eq. 21."""

    def score(outcomes: Outcomes) -> Fraction:
        return sum((1 - Fraction(comb(len(row) - sum(row), k), comb(len(row), k)) for row in outcomes), Fraction(0))

    return score


def ranks(scores: Sequence[Fraction]) -> list[int]:
    """Competition ranks: one more than the number of better models."""
    return [1 + sum(other > score for other in scores) for score in scores]


def rankings(R: np.ndarray, score: Score | Sequence[Score], first: int = 1) -> list[list[int]]:
    """Ranks after `first`, ..., N trials of an (L, M, N) tensor; a score per model where they differ."""
    by_model = score if isinstance(score, Sequence) else [score] * len(R)
    return [
        ranks([model_score(model[:, :trials].tolist()) for model_score, model in zip(by_model, R, strict=True)])
        for trials in range(first, R.shape[2] + 1)
    ]


def converged_at(history: list[list[int]], gold: list[int], first: int = 1) -> int:
    """The least s <= N - 1 from which the ranking is gold and stays so; 0 if there is none."""
    last = first + len(history) - 1
    for s in range(first, last):
        if all(ranking == gold for ranking in history[s - first :]):
            return s
    return 0


def resampled(R: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """One replicate from its draws (N, M), or (N, 1) for all questions alike."""
    models, questions, trials = R.shape
    out = np.empty_like(R)
    for model in range(models):
        for q in range(questions):
            for s in range(trials):
                out[model, q, s] = R[model, q, draws[s, q if draws.shape[1] > 1 else 0]]
    return out
