"""How long simulated answers take: log-normal times, longer where an answer is wrong."""

from collections.abc import Iterator

import numpy as np

from adaptive_eval.core.tape import Layers, TrialArrays
from adaptive_eval.core.types import Ask
from adaptive_eval.simulate.worlds import Latency
from scorio.moments import FloatArray, IntArray


def latency_of_mean(
    seconds: float, chances: FloatArray, weights: FloatArray, sigma: float = 0.5, wrong_factor: float = 2.0
) -> Latency:
    """The latency with this mean over all answers of models with the chances (L, M, K): E = median factor e^(s^2/2)."""
    mean_factor = float((chances @ _factors(weights, wrong_factor)).mean()) * float(np.exp(sigma**2 / 2.0))
    return Latency(seconds / mean_factor, sigma, wrong_factor)


class AnswerTimes:
    """Seconds of each trial, log-normal and longer when wrong: a function of seed, model, question and trial only."""

    def __init__(self, latency: Latency, shape: tuple[int, int], weights: FloatArray, rng: np.random.Generator) -> None:
        self._median = latency.median * _factors(weights, latency.wrong_factor)
        self._spread = Layers[float](_spreads(latency.sigma, shape, rng))

    def of(self, ask: Ask, category: int) -> float:
        """How long one answer takes."""
        return float(self._median[category]) * self._spread.at(ask.model, ask.question, ask.trial)

    def __call__(self, trials: TrialArrays, categories: IntArray) -> FloatArray:
        """How long many answers take."""
        return np.asarray(self._median[categories] * self._spread.look_up(trials))


def _factors(weights: FloatArray, wrong_factor: float) -> FloatArray:
    """How many times as long an answer takes, by its category: longer at less than full weight."""
    return np.where(weights == weights.max(), 1.0, wrong_factor)


def _spreads(sigma: float, shape: tuple[int, int], rng: np.random.Generator) -> Iterator[FloatArray]:
    """Layers of exp(sigma x) with x standard normal: log-normal with median 1."""
    while True:
        yield np.exp(sigma * rng.standard_normal(shape))
