"""Models whose answers are known in every respect: right or not, boxed or not, length, confidence, and a verifier's
labels.

Each model has a number of equally likely answers to each question, so the true score under any rubric is an exact mean
over them. A trial draws one of them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.simulate.answering import unit_float
from adaptive_eval.simulate.worlds import QUESTIONS, World, binary
from scorio.categorical import Schema, Signals, Thresholds, classify, token_ratio
from scorio.moments import FloatArray

SHORTEST = 16
"""Least words of an answer, for all that it must contain."""
LEAST_LABEL = 1e-4
"""The least probability of a verifier's label, so that each has a logarithm."""


@dataclass(frozen=True, slots=True, eq=False)
class AnswerPopulation:
    """All answers, as arrays over models, questions and answers (L, M, P)."""

    is_correct: NDArray[np.bool_]
    has_box: NDArray[np.bool_]
    words: NDArray[np.int64]
    cut_off: NDArray[np.bool_]
    bits: FloatArray
    """Bits per token of the completion."""
    labels: FloatArray
    """(L, M, P, 3): a verifier's probabilities of correct, wrong and invalid."""
    prompt_bits: FloatArray
    """(M,): bits per token of each question."""

    @property
    def each(self) -> int:
        """Number of answers of a model to a question."""
        return int(self.words.shape[2])

    def drawn(self, noise: int) -> int:
        """Which of the answers a uniform 64-bit integer draws."""
        return int(self.each * unit_float(noise))

    def serial(self, model: int, question: int, number: int) -> int:
        """The unique number of an answer."""
        return int(np.ravel_multi_index((model, question, number), self.words.shape))

    @property
    def signals(self) -> Signals:
        """The signals of each answer that a run would find."""
        return Signals(
            is_correct=self.is_correct.astype(float),
            has_box=self.has_box.astype(float),
            token_ratio=token_ratio(self.words),
            repeated_pattern=self.cut_off.astype(float),
            completion_bpt=self.bits,
            prompt_bpt=np.broadcast_to(self.prompt_bits[:, None], self.words.shape),
            verifier_a=self.labels[..., 0],
            verifier_b=self.labels[..., 1],
            verifier_c=self.labels[..., 2],
        )

    def scores(self, schema: Schema, thresholds: Thresholds) -> FloatArray:
        """(L,): the true scores under a schema, with thresholds that a run has frozen.

        A threshold that is the value of an answer to the last digit may fall on either side of it.
        """
        categories = classify(self.signals, schema, thresholds)
        return np.asarray(np.array(schema.weights, dtype=float)[categories].mean(axis=(1, 2)))


def draw_population(
    ability: FloatArray, difficulty: FloatArray, answers: int, rng: np.random.Generator
) -> AnswerPopulation:
    """Draw answers with correlated properties: right ones are shorter, more confident, and more often boxed and
    believed; hard questions take longer."""
    shape = len(ability), len(difficulty), answers
    hard = difficulty[None, :, None]
    right = rng.random(shape) < 1.0 / (1.0 + np.exp(hard - ability[:, None, None]))
    length = 60.0 * rng.lognormal(0.0, 0.4, shape) * np.where(right, 1.0, 1.5) * np.exp(0.2 * hard)
    believed = np.where(right[..., None], rng.dirichlet((5.0, 2.0, 0.5), shape), rng.dirichlet((2.0, 5.0, 0.5), shape))
    labels = believed + LEAST_LABEL
    return AnswerPopulation(
        is_correct=right,
        has_box=rng.random(shape) < np.where(right, 0.95, 0.75),
        words=np.maximum(np.rint(length).astype(np.int64), SHORTEST),
        cut_off=rng.random(shape) < np.where(right, 0.01, 0.06),
        bits=rng.gamma(4.0, np.where(right, 0.08, 0.11), shape) * np.exp(0.1 * hard),
        labels=labels / labels.sum(axis=-1, keepdims=True),
        prompt_bits=rng.gamma(9.0, 0.2, len(difficulty)),
    )


def known_models(
    models: int = 3, questions: int = QUESTIONS, answers: int = 200, seed: int = 8
) -> tuple[World, AnswerPopulation]:
    """Models and questions of a population, with the shares of right answers as probabilities."""
    rng = np.random.default_rng(seed)
    ability = np.linspace(0.7, -0.5, models)
    population = draw_population(ability, rng.normal(0.0, 1.5, questions), answers, rng)
    return World("schemata", binary(population.is_correct.mean(axis=2))), population
