"""Models whose answers are known in every respect: right or not, boxed or not, length, confidence, and a verifier's
labels.

Each model has a number of equally likely answers to each question, so the true score under any rubric is an exact mean
over them. A trial draws one of them; its text has its number, its box and its length.
"""

import re
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.simulate.answering import ANSWER_WORDS, DrawnAnswer, Respondent, filler, other_answer, unit_float
from adaptive_eval.simulate.judging import SimulatedVerifier, marked_texts
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import QUESTIONS, World, binary
from scorio.categorical import Schema, Signals, Thresholds, classify, fit_thresholds, token_ratio
from scorio.moments import FloatArray

SHORTEST = 16
"""Least words of an answer, for all that it must contain."""
LEAST_LABEL = 1e-4
"""The least probability of a verifier's label, so that each has a logarithm."""
LEANING = (0.5, 0.0, -0.5)
"""The leaning of the verifier without content."""
_SERIAL = re.compile(r"^Take \d+ as seed of answer (\d+)\.", re.MULTILINE)


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
        categories = classify(self.signals, schema, self.thresholds if thresholds is None else thresholds)
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


def answer_serial(text: str) -> int | None:
    """The number of an answer that was drawn from a population."""
    match = _SERIAL.search(text)
    return None if match is None else int(match[1])


class KnownRespondent(Respondent):
    """Models that draw their answers from a population."""

    def __init__(self, world: World, population: AnswerPopulation, seed: int = 0) -> None:
        super().__init__(world, seed)
        self.population = population
        self._models = {model: index for index, model in enumerate(world.models)}
        self._questions = {question: index for index, question in enumerate(world.questions)}

    def prompt_bits(self, prompt: str) -> float | None:
        """Those of the question."""
        question = self.question_in(prompt)
        return None if question is None else float(self.population.prompt_bits[self._questions[question]])

    def answer(self, model: str, question: str, seed: int) -> DrawnAnswer:
        """The text and the properties of one of the answers."""
        first, _, third, fourth, noise = self.noise(model, question, seed)
        at = self._models[model], self._questions[question], int(self.population.each * unit_float(first))
        drawn, right = self.population.at(*at), self.answers[question]
        final = right if drawn.is_correct else other_answer(right, third)
        closing = f"So the answer is \\boxed{{{final}}}." if drawn.has_box else f"So the answer is {final}."
        opening = f"Take {fourth % 10**9} as seed of answer {self.population.serial(*at)}."
        between = filler(fourth, drawn.words - len(opening.split()) - len(closing.split()))
        seconds = self.world.latency.median * drawn.words / ANSWER_WORDS
        text = f"{opening} {between}{closing}"
        return DrawnAnswer(int(drawn.is_correct), text, seconds, noise, drawn.cut_off, drawn.bits)


@dataclass(frozen=True, slots=True)
class KnowingVerifier(SimulatedVerifier):
    """A verifier for a population of answers: its calibrated probabilities are the labels of the answer."""

    population: AnswerPopulation | None = None

    def scores(self, prompt: str) -> tuple[float, float, float]:
        """The labels of the answer that the prompt shows; of any other text those of any verifier."""
        serial = answer_serial(marked_texts(prompt).get("answer", ""))
        labels = None if self.population is None or serial is None else self.population.labels_of(serial)
        if labels is None:
            return SimulatedVerifier.scores(self, prompt)
        a, b, c = (lean + log(share) for lean, share in zip(self.leaning, labels.tolist(), strict=True))
        return a, b, c


def known_models(
    models: int = 3, questions: int = QUESTIONS, answers: int = 200, seed: int = 8
) -> tuple[World, AnswerPopulation]:
    """Models and questions of a population, with the shares of right answers as probabilities."""
    rng = np.random.default_rng(seed)
    ability = np.linspace(0.7, -0.5, models)
    population = draw_population(ability, rng.normal(0.0, 1.5, questions), answers, rng)
    return World("schemata", binary(population.is_correct.mean(axis=2))), population


def known_server(respondent: KnownRespondent) -> SimulatedServer:
    """A server of these models, and of a verifier that knows their answers."""
    verifier = KnowingVerifier(leaning=LEANING, population=respondent.population)
    return SimulatedServer(respondent.world, verifier=verifier, respondent=respondent)
