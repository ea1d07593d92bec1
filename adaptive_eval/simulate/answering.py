"""Answers of simulated models: a pure function of (world seed, model, question, request seed).

If a world shares its noise, all models use the same random numbers for a question and a seed.

The category is drawn from the world's probabilities. It determines a text that a grader puts into that category, its
length and its time. So a request always gets the same answer, independent of order, load and faults.

A category's text depends on its weight, as in the rubric world: the largest weight is the right answer in a box, a
partial weight is the right answer without a box, the last zero is a wrong answer, and other zeros are no answer.
"""

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import blake2b
from math import exp, log
from statistics import NormalDist
from typing import NamedTuple

from adaptive_eval.simulate.worlds import World

ANSWER_WORDS = 200
"""Median length of a right answer."""
ANSWER_LOW, ANSWER_COUNT = 100, 900
"""Answers are the integers from 100 to 999."""

_PHRASES = (
    "Let us write down what is given.",
    "The remainder follows from the two equations above.",
    "Substituting this value gives a shorter expression.",
    "We check the smallest cases first.",
    "The sum telescopes, and only two terms are left.",
    "By symmetry it is enough to count one half.",
    "Squaring both sides loses no solution here.",
    "Hence the last digit repeats with period four.",
)
_WORDS = tuple(word for phrase in _PHRASES for word in phrase.split())
_FILLER = " ".join(_WORDS * 64)
_STARTS = tuple(match.start() for match in re.finditer(r"\S+", _FILLER))
_LONGEST = len(_STARTS) - len(_WORDS) - 1

_WORD = re.compile(r"\S+\s*")
_QUESTION_ID = re.compile(r"^\[([^\[\]\s]+)\]", re.MULTILINE)
_normal = NormalDist()


class AnswerForm(Enum):
    """The form of a category's answers."""

    RIGHT = "right"
    UNBOXED = "unboxed"
    WRONG = "wrong"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SimulatedAnswer:
    """An answer of a simulated model; each word is a token."""

    text: str
    seconds: float
    noise: int = 0
    """Seed for further data of the response, such as log-probabilities."""
    category: int = 0
    finish_reason: str = "stop"
    bits: float | None = None
    """Mean bits per token, if defined."""
    slot: tuple[tuple[str, float], ...] = ()
    """Most likely first tokens with log-probabilities, in descending order."""
    scored: bool = True
    """Whether log-probabilities are sent on request."""
    reasoning: str = ""
    """Reasoning, sent separately from the answer."""

    @property
    def tokens(self) -> int:
        text = self.text or self.reasoning
        return text.count(" ") + 1 if text else 0

    def cut_short(self, limit: int | None, stop: object) -> "SimulatedAnswer":
        """The answer cut by its limit on tokens and by stop sequences."""
        text, reason = self.text, self.finish_reason
        for sequence in stop if isinstance(stop, list) else [stop]:
            if isinstance(sequence, str) and sequence:
                text = text.partition(sequence)[0]
        if limit is not None and text.count(" ") + 1 > limit:
            text, reason = " ".join(text.split(" ")[:limit]), "length"
        return replace(self, text=text, finish_reason=reason)


def forms(weights: tuple[float, ...]) -> tuple[AnswerForm, ...]:
    """The form of each category."""
    best, lowest = max(weights), min(weights)
    last_zero = max(k for k, weight in enumerate(weights) if weight == lowest)
    return tuple(
        AnswerForm.RIGHT
        if weight == best
        else AnswerForm.WRONG
        if k == last_zero
        else AnswerForm.NONE
        if weight == lowest
        else AnswerForm.UNBOXED
        for k, weight in enumerate(weights)
    )


def hashed_integers(count: int, *parts: object) -> tuple[int, ...]:
    """`count` (at most 8) uniform 64-bit integers that depend only on the parts."""
    text = "\x1f".join(map(str, parts)).encode()
    return struct.unpack(f"<{count}Q", blake2b(text, digest_size=8 * count).digest())


def unit_float(number: int) -> float:
    """A 64-bit integer as a float in (0, 1)."""
    return ((number >> 12) + 0.5) * 2.0**-52


def right_answer(question: str) -> int:
    """The answer to a question, derived from its id."""
    return ANSWER_LOW + hashed_integers(1, "answer", question)[0] % ANSWER_COUNT


def question_rows(world: World) -> Iterator[dict[str, str]]:
    """The world's questions as rows of a question file; the server finds the id at the start of the prompt."""
    for question in world.questions:
        prompt = f"[{question}] Which integer from 100 to 999 does this question stand for?"
        yield {"id": question, "prompt": prompt, "answer": str(right_answer(question))}


class OwnQuestions(NamedTuple):
    """The user's own questions; their world has two categories, wrong and right."""

    asked: Mapping[str, str]
    """The id of the question by prompt."""
    right: Mapping[str, str]
    """A text that is graded correct, by id. For other questions with other keys it is wrong."""

    def text(self, question: str, form: AnswerForm, words: int, third: int, fourth: int) -> str:
        """An answer after reasoning, which graders ignore."""
        right = answer = self.right[question]
        if form is not AnswerForm.RIGHT:
            others = [text for text in self.right.values() if text != right] or ["I do not know."]
            answer = others[third % len(others)]
        return f"<think>Take {fourth % 10**9} as seed. {filler(fourth, words)}</think>\n{answer}"


class Respondent:
    """All models of a world, ready to answer."""

    def __init__(self, world: World, seed: int = 0, own: OwnQuestions | None = None) -> None:
        self.world = world
        self._seed = seed
        self._own = own
        self._forms = forms(tuple(world.w.tolist()))
        edges = world.p.cumsum(axis=-1)[..., :-1].tolist()
        self._edges: dict[str, dict[str, list[float]]] = {
            model: dict(zip(world.questions, edges[index], strict=True)) for index, model in enumerate(world.models)
        }
        self.answers = {question: right_answer(question) for question in world.questions}

    @property
    def scope(self) -> str:
        """The prompts that have an answer, in words."""
        if self._own is None:
            return f"the questions of {self.world.name}"
        return f"the exact prompts of {self.world.name} (same questions, same template)"

    def question_in(self, prompt: str) -> str | None:
        """The last id in a prompt, as `[id]` at the start of a line; earlier ids are those of examples.

        Raises `KeyError` if the question is not in this world. The user's own questions are looked up by prompt.
        """
        if self._own is not None:
            return self._own.asked.get(prompt)
        ids = _QUESTION_ID.findall(prompt)
        if not ids:
            return None
        if ids[-1] not in self.answers:
            raise KeyError(ids[-1])
        return str(ids[-1])

    def serves(self, model: str) -> bool:
        return model in self._edges

    def answer(self, model: str, question: str, seed: int) -> SimulatedAnswer:
        """The answer of a model to a question under a request seed."""
        first, second, third, fourth, noise = self.noise(model, question, seed)
        category = bisect_right(self._edges[model][question], unit_float(first))
        form = self._forms[category]
        latency = self.world.latency
        length = exp(latency.sigma * _normal.inv_cdf(unit_float(second)))
        if form is not AnswerForm.RIGHT:
            length *= latency.wrong_factor
        length = min(length, latency.longest)
        drawn = form, round(ANSWER_WORDS * length), third, fourth
        text = self._text(self.answers[question], *drawn) if self._own is None else self._own.text(question, *drawn)
        return SimulatedAnswer(text, latency.median * length, noise, category)

    def noise(self, model: str, question: str, seed: int) -> tuple[int, ...]:
        """Five uniform 64-bit integers."""
        return hashed_integers(5, self._seed, "" if self.world.shares_noise else model, question, seed)

    def prompt_bits(self, prompt: str) -> float | None:
        """Bits per token of a prompt; None if undefined."""
        return None

    @staticmethod
    def _text(answer: int, form: AnswerForm, words: int, third: int, fourth: int) -> str:
        closing = "So the question stays open."
        if form is AnswerForm.WRONG:
            answer = other_answer(answer, third)
        if form in (AnswerForm.RIGHT, AnswerForm.WRONG):
            closing = f"So the answer is \\boxed{{{answer}}}."
        elif form is AnswerForm.UNBOXED:
            closing = f"So the answer is {answer}."
        # the number makes the answers of different seeds differ
        return f"Take {fourth % 10**9} as seed. {filler(fourth, words)}{closing}"


def other_answer(answer: int, noise: int) -> int:
    """An answer other than this one."""
    return ANSWER_LOW + (answer - ANSWER_LOW + 1 + noise % (ANSWER_COUNT - 1)) % ANSWER_COUNT


def filler(noise: int, words: int) -> str:
    """Filler text with this many words, each followed by a space."""
    start = noise % len(_WORDS)
    return _FILLER[_STARTS[start] : _STARTS[start + max(1, min(words, _LONGEST))]]


def split_tokens(text: str) -> list[str]:
    """The tokens of a text."""
    return _WORD.findall(text)


def draw_logprobs(noise: int, length: int, bits: float | None = None) -> list[float]:
    """Log-probabilities -u/2 with u uniform, which depend on the answer only; eight per hash.

    With `bits` they are scaled to this many bits per token.
    """
    values: list[float] = []
    for block in range((length + 7) // 8):
        values += [-0.5 * unit_float(number) for number in hashed_integers(8, "logprob", noise, block)]
    values = values[:length]
    if bits is None or not values:
        return values
    stretch = -bits * log(2.0) * length / sum(values)
    return [stretch * value for value in values]


def draw_prompt_logprobs(prompt: str, bits: float | None) -> list[float | None]:
    """Log-probabilities of a prompt's tokens; the first has none."""
    words = len(split_tokens(prompt))
    if not words:
        return []
    noise = hashed_integers(1, "prompt", prompt)[0]
    return [None, *draw_logprobs(noise, words)[1:]] if bits is None else [None, *draw_logprobs(noise, words - 1, bits)]
