"""A simulated server of models whose answers are known in every respect, and of a verifier that knows them."""

import re
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import numpy as np
from known_answers import AnswerPopulation

from adaptive_eval.simulate.answering import ANSWER_WORDS, Respondent, SimulatedAnswer, filler, other_answer
from adaptive_eval.simulate.judging import SimulatedVerifier, marked_texts
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import World

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


def answer_at(population: AnswerPopulation, model: int, question: int, number: int) -> PopulationAnswer:
    """One of the answers."""
    where = model, question, number
    return PopulationAnswer(
        bool(population.is_correct[where]),
        bool(population.has_box[where]),
        int(population.words[where]),
        bool(population.cut_off[where]),
        float(population.bits[where]),
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

    def answer(self, model: str, question: str, seed: int) -> SimulatedAnswer:
        """The text, with the answer's number, box and length, and the properties of one of the answers."""
        first, _, third, fourth, noise = self.noise(model, question, seed)
        at = self._models[model], self._questions[question], self.population.drawn(first)
        drawn, right = answer_at(self.population, *at), self.answers[question]
        final = right if drawn.is_correct else other_answer(right, third)
        closing = f"So the answer is \\boxed{{{final}}}." if drawn.has_box else f"So the answer is {final}."
        opening = f"Take {fourth % 10**9} as seed of answer {self.population.serial(*at)}."
        between = filler(fourth, drawn.words - len(opening.split()) - len(closing.split()))
        seconds = self.world.latency.median * drawn.words / ANSWER_WORDS
        text = f"{opening} {between}{closing}"
        reason = "length" if drawn.cut_off else "stop"
        return SimulatedAnswer(text, seconds, noise, int(drawn.is_correct), reason, drawn.bits)


@dataclass(frozen=True, slots=True)
class KnowingVerifier(SimulatedVerifier):
    """A verifier for a population of answers: its calibrated probabilities are the labels of the answer."""

    population: AnswerPopulation | None = None

    def scores(self, prompt: str) -> tuple[float, float, float]:
        """The labels of the answer that the prompt shows; of any other text those of any verifier."""
        serial = answer_serial(marked_texts(prompt).get("answer", ""))
        if self.population is None or serial is None or not 0 <= serial < self.population.words.size:
            return SimulatedVerifier.scores(self, prompt)
        labels = self.population.labels[np.unravel_index(serial, self.population.words.shape)].tolist()
        a, b, c = (lean + log(share) for lean, share in zip(self.leaning, labels, strict=True))
        return a, b, c


def known_server(respondent: KnownRespondent) -> SimulatedServer:
    """A server of these models, and of a verifier that knows their answers."""
    verifier = KnowingVerifier(leaning=LEANING, population=respondent.population)
    return SimulatedServer(respondent.world, verifier=verifier, respondent=respondent)
