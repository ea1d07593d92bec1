"""Worlds of exactly tied models, and how often each rule calls a winner in them when it looks at every round.

A run is two models with the same true score (the mean of their questions' success probabilities), sampled up to
HORIZON trials a question. A schedule says how many trials each of the two has at every look.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from scorio.moments import FloatArray, average_moments
from scorio.sinf import (
    Mixture,
    WangTsiatis,
    compare,
    information_fraction,
    self_centred_average_moments,
    self_centred_prior,
    trial_variance,
    variance_at,
)

CONFIDENCE = 0.95
HORIZON = 80
START = 0.05
BINARY = np.array([0.0, 1.0])

World = Callable[[np.random.Generator, tuple[int, int]], tuple[FloatArray, FloatArray]]
Schedule = list[tuple[np.ndarray, np.ndarray]]


def coins(p: float) -> World:
    """Every question is the same coin."""
    return lambda rng, shape: (np.full(shape, p),) * 2


def logit_normal(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[FloatArray, FloatArray]:
    """Questions differ in difficulty, which the models share."""
    return (1.0 / (1.0 + np.exp(-rng.normal(0.0, 2.0, shape))),) * 2


def aime_like(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[FloatArray, FloatArray]:
    """Most questions are nearly always or nearly never solved: Beta with the concentration measured on AIME."""
    return (rng.beta(0.3, 0.3, shape),) * 2


def near_deterministic(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[FloatArray, FloatArray]:
    """Success probabilities of 0.98 and 0.02, on other questions for each of the two models."""
    p = np.where(np.arange(shape[1]) < shape[1] // 2, 0.98, 0.02)
    return rng.permuted(np.tile(p, (shape[0], 1)), axis=1), rng.permuted(np.tile(p, (shape[0], 1)), axis=1)


def one_open_question(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[FloatArray, FloatArray]:
    """All questions are nearly always solved but one, a fair coin."""
    return (np.where(np.arange(shape[1]) == 0, 0.5, 0.995) * np.ones((shape[0], 1)),) * 2


def equal(questions: int) -> Schedule:
    """Both models have one trial more of every question at each look."""
    ones = np.ones(questions, dtype=np.intp)
    return [(k * ones, k * ones) for k in range(1, HORIZON + 1)]


def head_start(questions: int) -> Schedule:
    """The first model began with 24 trials a question."""
    ones = np.ones(questions, dtype=np.intp)
    return [(min(k + 24, HORIZON) * ones, k * ones) for k in range(1, HORIZON + 1)]


def newcomer(questions: int) -> Schedule:
    """The first model has all its trials before the second begins."""
    ones = np.ones(questions, dtype=np.intp)
    return [(HORIZON * ones, k * ones) for k in range(1, HORIZON + 1)]


def faster(questions: int) -> Schedule:
    """The first model grows three times as fast."""
    ones = np.ones(questions, dtype=np.intp)
    return [(min(3 * k, HORIZON) * ones, k * ones) for k in range(1, HORIZON + 1)]


def ragged(questions: int) -> Schedule:
    """Half of the questions get four trials for each ten of the others."""
    pace = np.where(np.arange(questions) % 2 == 0, 0.4, 1.0)
    rounds = [np.ceil(k * pace).astype(np.intp) for k in range(1, HORIZON + 1)]
    return [(n, n) for n in rounds]


class Calls(NamedTuple):
    """Shares of the runs in which the first, or the second, of two tied models was ever called better."""

    first: float
    second: float

    @property
    def any(self) -> float:
        return self.first + self.second


def ever_called(
    world: World, schedule: Callable[[int], Schedule], runs: int, seed: int, questions: int = 30
) -> dict[tuple[str, str], Calls]:
    """The rates of first calls by (rule, prior), for rules that look from information START on."""
    rng = np.random.default_rng(seed)
    successes = [
        (rng.random((runs, questions, HORIZON)) < p[..., None]).cumsum(axis=-1, dtype=np.int16)
        for p in world(rng, (runs, questions))
    ]
    looks = schedule(questions)
    final = np.stack(looks[-1])[:, None, :]
    shape, mixture = WangTsiatis(start=START), Mixture(2 * (1 - CONFIDENCE))
    constant = shape.critical(2 * (1 - CONFIDENCE))
    call: dict[tuple[str, str], np.ndarray] = {}
    for trials in looks:
        n = np.stack([_counts(s, k) for s, k in zip(successes, trials, strict=True)])
        v = trial_variance(n + 1.0, BINARY)
        t = information_fraction(variance_at(v, final).sum(axis=0), variance_at(v, n.sum(axis=-1)).sum(axis=0))
        late_enough = t >= START * (1 - 1e-9)
        boundaries = {
            "zscore": np.where(late_enough, 1.645, np.inf),
            "sequential": shape.at(t, constant),
            "anytime": np.where(late_enough, mixture.at(t), np.inf),
        }
        for prior, z in _scores(n).items():
            for rule, boundary in boundaries.items():
                now = np.where(np.abs(z) >= boundary, np.sign(z), 0.0)
                before = call.get((rule, prior), np.zeros(runs))
                call[rule, prior] = np.where(before == 0.0, now, before)
    return {key: Calls(float(np.mean(c > 0)), float(np.mean(c < 0))) for key, c in call.items()}


def _counts(successes: np.ndarray, trials: np.ndarray) -> np.ndarray:
    right = successes[:, np.arange(trials.size), trials - 1].astype(np.intp)
    return np.stack([trials - right, right], axis=-1)


def _scores(n: np.ndarray) -> dict[str, FloatArray]:
    nu = n + self_centred_prior(n)[..., None, :]
    moments = {"uniform": average_moments(n, n + 1.0, BINARY), "self": self_centred_average_moments(n, nu, BINARY)}
    return {name: compare(m.mean[0], m.var[0], m.mean[1], m.var[1]).z for name, m in moments.items()}
