"""Populations of answers with joint properties: right or not, boxed or not, length, confidence, and a verifier's
labels.

Each model has a number of equally likely answers to each question, so the true score under any rubric is an exact mean
over them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scorio.categorical import Schema, Signals, Thresholds, classify, fit_thresholds, token_ratio
from scorio.moments import FloatArray

SHORTEST = 16
"""Least words of an answer, for all that it must contain."""
LEAST_LABEL = 1e-4
"""The least probability of a verifier's label, so that each has a logarithm."""


class PopulationAnswer(NamedTuple):
    """One answer of a population."""

    is_correct: bool
    has_box: bool
    words: int
    """Its length in tokens."""
    cut_off: bool
    """It did not end by itself (`finish_reason: length`)."""
    bits: float
    """Bits per token."""


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

    def __post_init__(self) -> None:
        if self.words.min() < SHORTEST:
            raise ValueError(f"words must be {SHORTEST} or more, but got {self.words.min()}")
        if self.labels.min() < LEAST_LABEL / 2 or not np.allclose(self.labels.sum(axis=-1), 1.0):
            raise ValueError("labels must hold positive probabilities that sum to 1 over the three labels")

    @property
    def each(self) -> int:
        """Number of answers of a model to a question."""
        return int(self.words.shape[2])

    def at(self, model: int, question: int, number: int) -> PopulationAnswer:
        """One of the answers."""
        where = model, question, number
        return PopulationAnswer(
            bool(self.is_correct[where]),
            bool(self.has_box[where]),
            int(self.words[where]),
            bool(self.cut_off[where]),
            float(self.bits[where]),
        )

    def serial(self, model: int, question: int, number: int) -> int:
        """The unique number of an answer."""
        return int(np.ravel_multi_index((model, question, number), self.words.shape))

    def labels_of(self, serial: int) -> FloatArray | None:
        """(3,): the verifier's probabilities for the answer with this number; None if there is none."""
        return self.labels.reshape(-1, 3)[serial] if 0 <= serial < self.words.size else None

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

    @property
    def thresholds(self) -> Thresholds:
        """The percentiles of all answers."""
        return fit_thresholds(self.signals)

    def scores(self, schema: Schema, thresholds: Thresholds | None = None) -> FloatArray:
        """(L,): the true scores under a schema, with thresholds that a run has frozen, or those of all answers.

        A threshold that is the value of an answer to the last digit may fall on either side of it.
        """
        found = classify(self.signals, schema, self.thresholds if thresholds is None else thresholds)
        return np.asarray(np.array(schema.weights, dtype=float)[found].mean(axis=(1, 2)))


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
