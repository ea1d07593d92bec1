"""Whether answers repeat each other more often than independent samples of a model do.

A server that ignores the seed, or serves a cache, gives the same answer many times. Trials 2k and 2k + 1 of a question
form a pair. Pairs are disjoint, so with independent samples each agrees or differs independently of the others. If the
first answer of pair i has probability p_i of being drawn again, the number of pairs that agree word for word is
Poisson-binomial:

    A = sum_i Bernoulli(p_i),        an alarm is raised if P(A >= a) <= 0.001.

p_i is an upper bound from what is known of the answer:

    log-probabilities of the distribution it is drawn from are stored     2^(-bits)
    others are stored; a long answer at temperature t (at most 1)         2^(-t^2 bits / 2)
    none are stored; a long answer                                        2^(-t^2 bytes / 100)
    a short answer                                        one bound for each question, as follows

Short answers count only if they are not right (a good model may well be sure of a right answer) and if all pairs of the
model agree: sampled answers mostly differ somewhere. Pairs of one question are not independent, since a model is sure
of some questions and not of others. So a question counts once, with a bound on the probability that one of its pairs
agrees. However sure of itself a model may be that is sampled at temperature t without a cut (top_p, top_k, min_p):

    (x^2 + 1) / (x + 1)^2, x = odds^(1 / t), where odds : 1 is the choice that agrees with probability
    0.9 * 2^(-bytes / 400)

It is a choice between two answers of which pairs agree nine times out of ten at temperature 1: of all distributions
that agree so often, it agrees most often at a lower temperature. If few different texts answer many questions, as the
letters of a choice do, the length counts for nothing. Where answers are cut no conclusion is possible.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np

from adaptive_eval.endpoints.types import Sampling
from adaptive_eval.store.compact import Column, NumberSet, question_number
from adaptive_eval.store.records import StoredOutcome

SHORTEST_REPEAT = 200
"""Bytes above which an answer is unlikely to come twice by its length alone."""
BYTES_PER_BIT = 100.0
"""More than any sampled text has, short code included: a token of some 4 bytes has at least 0.1 bits."""
COLDER = 0.5
"""Share of the bits of a long answer that remains, times t^2, if it is drawn more coldly than the stored ones say."""
UNKNOWN_TEMPERATURE = 0.5
"""Assumed if none is set; colder than the defaults of servers."""
SUREST = 0.9
"""Share of the pairs of wrong answers that agree at temperature 1 for a model that is very sure of itself."""
BYTES_PER_SHORT_BIT = 400.0
"""The same for short answers, much of which may be words around the answer itself."""
FREE = 0.5
"""Different texts per question from which answers are taken for more than the letters of a choice."""
ALARMING = 0.001
LEAST_PAIRS = 10
"""With fewer pairs nothing is concluded about a model."""
MOST_EXACT = 20_000
"""Pairs up to which the distribution is computed exactly; above, the Chernoff bound is close enough."""
STEEPEST, HALVINGS = 50.0, 40
"""Largest slope in the search for that bound, and the number of bisection steps."""
STEPS, FINE, MOST_BITS, SIZE_STEP = 16, 8.0, 64.0, 40
"""Bits are rounded down to sixteenths up to 8 and to whole bits up to 64; bytes to multiples of 40."""


class SamplingFreedom(NamedTuple):
    """How freely a model's answers are drawn."""

    temperature: float
    undistorted: bool
    """Whether answers are drawn from the distribution that log-probabilities describe, or a flatter one."""
    cut: bool = False
    """Whether some tokens may be excluded."""

    @classmethod
    def from_sampling(cls, sampling: Sampling) -> Self | None:
        """Derive it from sampling settings; None for greedy sampling, whose answers may all be equal."""
        if sampling.temperature == 0.0:
            return None
        known = sampling.temperature is not None
        temperature = sampling.temperature if sampling.temperature is not None else UNKNOWN_TEMPERATURE
        cuts = (sampling.top_p, max(sampling.top_k or 0, 0), sampling.min_p or 0.0)
        whole = known and cuts == (1.0, 0, 0.0) and not sampling.extra_body
        return cls(temperature, whole and temperature >= 1.0, not whole)


class _Kind(NamedTuple):
    """Properties of an answer on which the chance of a repeat depends."""

    bits: float | None
    size: int
    right: bool


class _Short(NamedTuple):
    """The pairs of short answers to one question."""

    size: int
    """Size of the shortest answer."""
    right: bool
    """Whether any of them is right."""


class _PairedAnswer(NamedTuple):
    """One answer of a pair."""

    second: bool
    digest: int
    kind: _Kind


class _WaitingAnswers:
    """Answers still waiting for the other one of their pair, by question.

    One per question is kept in columns, the few others in a dictionary.
    """

    def __init__(self) -> None:
        self._pair, self._digest, self._what = Column("i"), Column("q"), Column("i")
        self._kinds: dict[_Kind, int] = {}
        self._answer_kind: list[_Kind] = []
        self._others: dict[tuple[int, int], _PairedAnswer] = {}

    def pop(self, question: int, pair: int) -> _PairedAnswer | None:
        """Remove and return the waiting answer of a pair; None if there is none."""
        if self._pair[question] != pair:
            return self._others.pop((question, pair), None)
        self._pair[question] = -1
        kind, second = divmod(self._what[question], 2)
        return _PairedAnswer(bool(second), self._digest[question], self._answer_kind[kind])

    def keep(self, question: int, pair: int, half: _PairedAnswer) -> None:
        """Store an answer until the other one of its pair comes."""
        if self._pair[question] >= 0:
            self._others[question, pair] = half
            return
        kind = self._kinds.setdefault(half.kind, len(self._answer_kind))
        if kind == len(self._answer_kind):
            self._answer_kind.append(half.kind)
        self._pair[question], self._digest[question] = pair, half.digest
        self._what[question] = 2 * kind + half.second


class _ShortPairs:
    """Pairs of each question with short answers, and the digest of one of them."""

    def __init__(self) -> None:
        self._digest, self._what = Column("q"), Column("i")
        self._numbers: dict[_Short, int] = {}
        self._states: list[_Short] = []

    def get(self, question: int) -> tuple[_Short, int] | None:
        """The pairs of a question and the digest of one answer; None if there are none."""
        what = self._what[question]
        return None if what < 0 else (self._states[what], self._digest[question])

    def keep(self, question: int, short: _Short, digest: int) -> None:
        """Replace the pairs of a question."""
        what = self._numbers.setdefault(short, len(self._states))
        if what == len(self._states):
            self._states.append(short)
        self._what[question], self._digest[question] = what, digest


@dataclass(slots=True)
class AnswerPairs:
    """The pairs of one model's answers so far."""

    there: Counter[_Kind] = field(default_factory=Counter)
    agreed: Counter[_Kind] = field(default_factory=Counter)
    short: Counter[_Short] = field(default_factory=Counter)
    """Number of questions for each state of their pairs of short answers."""
    texts: int = 0
    """Number of different texts among the first short answers to each question."""
    vary: bool = False
    """Whether the answers of some pair differ, or two pairs of one question."""
    _waiting: _WaitingAnswers = field(default_factory=_WaitingAnswers)
    _questions: _ShortPairs = field(default_factory=_ShortPairs)
    _texts: NumberSet = field(default_factory=NumberSet)

    def add(self, outcome: StoredOutcome) -> None:
        """Add an answer; empty and timed-out ones are not paired."""
        if outcome.digest is None or (outcome.flags and outcome.timed_out):
            return
        question, (pair, second) = question_number(outcome.question), divmod(outcome.trial, 2)
        half, other = (
            _PairedAnswer(bool(second), outcome.digest, _answer_kind(outcome)),
            self._waiting.pop(question, pair),
        )
        if other is None:
            self._waiting.keep(question, pair, half)
            return
        first = half if half.second < other.second else other  # whichever has come first
        self.there[first.kind] += 1
        agree = half.digest == other.digest
        if agree:
            self.agreed[first.kind] += 1
        else:
            self.vary = True
        if first.kind.size < SHORTEST_REPEAT:
            self._add_short(question, first)

    def _add_short(self, question: int, first: _PairedAnswer) -> None:
        kept = self._questions.get(question)
        if kept is None:
            now, digest = _Short(first.kind.size, first.kind.right), first.digest
            self._texts.add(digest)
            self.texts = len(self._texts)
        else:
            known, digest = kept
            self.short[known] -= 1
            now = _Short(min(known.size, first.kind.size), known.right or first.kind.right)
        self.short[now] += 1
        self._questions.keep(question, now, digest)
        self.vary = self.vary or digest != first.digest

    def copy(self) -> "AnswerPairs":
        """A copy that later answers do not change."""
        return AnswerPairs(self.there.copy(), self.agreed.copy(), +self.short, self.texts, self.vary)

    @property
    def number(self) -> int:
        """How many pairs there are."""
        return self.there.total()


def _answer_kind(outcome: StoredOutcome) -> _Kind:
    """The properties of an answer, rounded so that a repeat never seems less likely than it is."""
    bits = None if outcome.bits is None else min(outcome.bits, MOST_BITS)
    if bits is not None:
        bits = math.floor(bits * STEPS) / STEPS if bits < FINE else float(math.floor(bits))
    right = (outcome.category or 0) > 0 if outcome.correct is None else outcome.correct
    return _Kind(bits, outcome.size // SIZE_STEP * SIZE_STEP, right)


class RepeatsFound(NamedTuple):
    """Repeats among the pairs of a model."""

    pairs: int
    agreed: int
    chance: float | None
    """Probability that so many pairs of independent samples agree; None if it cannot be told."""
    surest: bool = False
    """Whether it was judged as a model that is very sure of itself."""


def find_repeats(pairs: Sequence[AnswerPairs], drawn: Sequence[SamplingFreedom | None]) -> list[RepeatsFound | None]:
    """The repeats of each model; None if it shows none too many, or is sampled greedily."""
    return [None if how is None else _model_repeats(mine, how) for mine, how in zip(pairs, drawn, strict=True)]


def _model_repeats(mine: AnswerPairs, how: SamplingFreedom) -> RepeatsFound | None:
    if not mine.agreed.total():
        return None
    groups = [(mine.there[kind], p) for kind in mine.there if (p := _repeat_chance(kind, how)) is not None]
    known = sum(number for number, _ in groups)
    agreed = sum(mine.agreed[kind] for kind in mine.there if _repeat_chance(kind, how) is not None)
    chance = chance_of_agreement(groups, agreed)
    short = [] if mine.vary else _groups_of_short(mine, how)
    with_short = chance_of_agreement(groups + short, agreed + sum(number for number, _ in short))
    if min(chance, with_short) <= ALARMING:
        if with_short < chance:
            return RepeatsFound(mine.number, mine.agreed.total(), with_short, surest=True)
        return RepeatsFound(known, agreed, chance)
    unknown = known < mine.number
    unclear = unknown and not mine.vary and mine.number >= LEAST_PAIRS
    return RepeatsFound(mine.number, mine.number, None) if unclear else None


def _repeat_chance(kind: _Kind, how: SamplingFreedom) -> float | None:
    """Upper bound on the probability that an answer is drawn again; None if unknown."""
    if how.undistorted and kind.bits is not None:
        return float(2.0**-kind.bits)
    if kind.size < SHORTEST_REPEAT:
        return None
    bits = kind.size / BYTES_PER_BIT if kind.bits is None else COLDER * kind.bits
    return float(2.0 ** (-(min(how.temperature, 1.0) ** 2) * bits))


def _groups_of_short(mine: AnswerPairs, how: SamplingFreedom) -> list[tuple[int, float]]:
    """Questions with short answers of which none is right, with the chance that pairs agree; empty if nothing is known
    of it, or if log-probabilities, which are better evidence, are."""
    if how.cut or any(kind.bits is not None for kind in mine.there if how.undistorted):
        return []
    free = mine.texts >= FREE * mine.short.total()  # they differ too much to be the letters of a choice
    return [
        (number, sure_repeat_chance(kind.size if free else 0, how.temperature))
        for kind, number in mine.short.items()
        if number and not kind.right
    ]


def sure_repeat_chance(size: int, temperature: float) -> float:
    """The probability that a model that is very sure of itself repeats a wrong short answer."""
    at_one = SUREST * 2.0 ** (-size / BYTES_PER_SHORT_BIT)
    likelier = (1.0 + math.sqrt(2.0 * at_one - 1.0)) / 2.0
    lean = math.log(likelier / (1.0 - likelier)) / min(temperature, 1.0)
    odds = math.exp(min(lean, STEEPEST))
    return (odds**2 + 1.0) / (odds + 1.0) ** 2


def chance_of_agreement(groups: Sequence[tuple[int, float]], agreed: int) -> float:
    """P(A >= agreed) for A = sum_g Binomial(n_g, p_g).

    Computed from its characteristic function (Hong 2013); for many pairs the Chernoff bound
    min_t exp(-t agreed) prod_g (1 + p_g (e^t - 1))^n_g.
    """
    known = [(number, p) for number, p in groups if number]
    numbers, chances = np.array([one[0] for one in known]), np.array([one[1] for one in known])
    pairs = int(numbers.sum()) if known else 0
    if agreed <= float(numbers @ chances if known else 0.0):
        return 1.0
    if pairs > MOST_EXACT:
        return _chernoff_bound(numbers, chances, agreed)
    turns = np.exp(2j * np.pi * np.arange(pairs + 1) / (pairs + 1)) - 1.0
    transform = np.ones(pairs + 1, dtype=complex)
    for number, p in known:
        transform *= (1.0 + p * turns) ** number
    mass = np.fft.fft(transform).real / (pairs + 1)
    return float(np.clip(mass[agreed:].sum(), 0.0, 1.0))


def _chernoff_bound(numbers: np.ndarray, chances: np.ndarray, agreed: int) -> float:
    low, high = 0.0, STEEPEST
    for _ in range(HALVINGS):  # the logarithm is convex in the slope: bisect for the zero of its derivative
        slope = (low + high) / 2.0
        grown = chances * math.exp(slope)
        low, high = (slope, high) if numbers @ (grown / (1.0 - chances + grown)) < agreed else (low, slope)
    return math.exp(min(0.0, float(numbers @ np.log1p(chances * math.expm1(low)) - low * agreed)))


def repeats_sentence(found: RepeatsFound) -> str:
    """The sentence that warns of repeats."""
    if found.chance is None:
        return (
            f"the answers of all {found.pairs} pairs of trials agree word for word; they are short, and independent "
            "samples may agree as well, so that nobody can tell whether its server ignores the seed or serves a cache "
            "(log-probabilities at temperature 1 and top_p 1 would, or more questions at top_p 1)"
        )
    cause = "its server ignores the seed or serves a cache, so its trials are fewer than they seem"
    by = ""
    if found.surest:
        by = f" at most, were it so sure that {SUREST:.0%} of its pairs agree at temperature 1 where it is not right"
    chance = f"independent samples would with a chance of {max(found.chance, 1e-12):.1g}{by}"
    return f"the answers of {found.agreed} of {found.pairs} pairs of trials agree word for word ({chance}): {cause}"
