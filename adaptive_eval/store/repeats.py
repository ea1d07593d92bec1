"""Whether answers repeat each other more often than independent samples of a model do.

A server that ignores the seed, or serves a cache, gives one answer many times. Trials 2k and 2k + 1 of a question are a
pair. Pairs are disjoint, so that those of independent samples agree or differ each by itself; where the first answer of
pair i has the chance p_i to come again, the number of pairs that agree word for word is Poisson-binomial:

    A = sum_i Bernoulli(p_i),        an alarm where P(A >= a) <= 0.001.

p_i is what can be known of it, and never less than it may be:

    log-probabilities are stored, and are those that it is drawn from     2^(-bits)
    they are stored, a long answer, at temperature t (1 at most)          2^(-t^2 bits / 2)
    none are stored, a long answer                                        2^(-t^2 bytes / 100)
    a short answer                            how often the most certain other model repeats itself

A short answer says something only where it is not right (a good model may well be sure of what is right), the other
model is asked as coldly or colder, and no pair of the model differs: one that is sampled mostly shows it somewhere.
Where nothing is known of p_i, nobody can tell.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np

from adaptive_eval.endpoints.types import Sampling
from adaptive_eval.store.records import StoredOutcome

SHORTEST_REPEAT = 200
"""Bytes from which the length of an answer alone says that it hardly comes twice."""
BYTES_PER_BIT = 100.0
"""More than a sampled text has, code of a few lines too: a token, of some 4 bytes, has 0.1 bits and more."""
COLDER = 0.5
"""Of the bits of a long answer this much is left, and t^2 of it, where it is drawn more coldly than they say."""
UNKNOWN_TEMPERATURE = 0.5
"""Colder than what servers take where none is named."""
ALARMING = 0.001
LIMIT = 0.99
"""How sure the share of the other model is."""
LEAST_PAIRS = 10
"""Fewer say nothing of a model."""
MOST_EXACT = 20_000
"""Pairs up to which the distribution is worked out; above, its Chernoff bound decides as well."""
STEEPEST, HALVINGS = 50.0, 40
"""Slope up to which the bound is sought, and how often that is halved."""
STEPS, FINE, MOST_BITS, SIZE_STEP = 16, 8.0, 64.0, 40
"""Bits are kept to a sixteenth up to eight, and whole up to 64, bytes in steps of 40: always downwards."""


class SamplingFreedom(NamedTuple):
    """How freely a model's answers are drawn."""

    temperature: float
    as_it_is: bool
    """From the very distribution that log-probabilities are of, or a flatter one."""

    @classmethod
    def of(cls, sampling: Sampling) -> Self | None:
        """Of a configuration; None where the likeliest answer is asked for, which may come each time."""
        if sampling.temperature == 0.0:
            return None
        known = sampling.temperature is not None
        temperature = sampling.temperature if sampling.temperature is not None else UNKNOWN_TEMPERATURE
        cut = sampling.top_p != 1.0 or (sampling.top_k or 0) > 0 or bool(sampling.min_p)
        return cls(temperature, known and temperature >= 1.0 and not cut and not sampling.extra_body)


class _Waiting(NamedTuple):
    """The answer of a pair that has come before the other."""

    trial: int
    digest: int
    kind: "_Kind"


class _Kind(NamedTuple):
    """What bears on how likely an answer comes again."""

    bits: float | None
    size: int
    right: bool


@dataclass(slots=True)
class AnswerPairs:
    """The pairs of one model's answers so far."""

    there: Counter[_Kind] = field(default_factory=Counter)
    agreed: Counter[_Kind] = field(default_factory=Counter)
    _waiting: dict[tuple[str, int], _Waiting] = field(default_factory=dict)

    def add(self, outcome: StoredOutcome) -> None:
        """One more answer; an empty one, or none in time, is no part of a pair."""
        if outcome.digest is None or outcome.timed_out:
            return
        place = outcome.question, outcome.trial // 2
        other = self._waiting.pop(place, None)
        if other is None:
            self._waiting[place] = _Waiting(outcome.trial, outcome.digest, _kind_of(outcome))
            return
        is_first = outcome.trial < other.trial  # whichever has come first
        kind = _kind_of(outcome) if is_first else other.kind
        self.there[kind] += 1
        if outcome.digest == other.digest:
            self.agreed[kind] += 1

    def copy(self) -> "AnswerPairs":
        """These pairs, to which no others are added."""
        return AnswerPairs(self.there.copy(), self.agreed.copy())

    @property
    def number(self) -> int:
        """How many there are."""
        return self.there.total()

    @property
    def vary(self) -> bool:
        """Some pair differs."""
        return self.agreed.total() < self.there.total()


def _kind_of(outcome: StoredOutcome) -> _Kind:
    """What is kept of it, in steps: always so that it may come again more likely than it does."""
    bits = None if outcome.bits is None else min(outcome.bits, MOST_BITS)
    if bits is not None:
        bits = math.floor(bits * STEPS) / STEPS if bits < FINE else float(math.floor(bits))
    right = (outcome.category or 0) > 0 if outcome.correct is None else outcome.correct
    return _Kind(bits, outcome.size // SIZE_STEP * SIZE_STEP, right)


class Repeated(NamedTuple):
    """What the pairs of a model show."""

    pairs: int
    agreed: int
    chance: float | None
    """That so many of independent samples agree; None: nobody can tell."""
    beside: int | None = None
    """The model whose share of repeats it was judged by, if any."""


def repeated(pairs: Sequence[AnswerPairs], drawn: Sequence[SamplingFreedom | None]) -> list[Repeated | None]:
    """For each model what is to be said; None: nothing is amiss, or it is not sampled."""
    return [_found(model, pairs, drawn) for model in range(len(pairs))]


def _found(model: int, pairs: Sequence[AnswerPairs], drawn: Sequence[SamplingFreedom | None]) -> Repeated | None:
    mine, how = pairs[model], drawn[model]
    if how is None or not mine.agreed.total():
        return None
    groups = [(mine.there[kind], p) for kind in mine.there if (p := _chance_of(kind, how)) is not None]
    agreed = sum(mine.agreed[kind] for kind in mine.there if _chance_of(kind, how) is not None)
    beside = None
    if not mine.vary and (other := _most_certain_other(model, pairs, drawn)) is not None:
        short = sum(number for kind, number in mine.there.items() if _is_telling(kind, how))
        groups.append((short, other[0]))
        agreed, beside = agreed + short, other[1] if short else None
    chance = chance_of_agreement(groups, agreed)
    if chance <= ALARMING:
        return Repeated(sum(number for number, _ in groups), agreed, chance, beside)
    unknown = any(_chance_of(kind, how) is None for kind in mine.there)
    unclear = unknown and not mine.vary and mine.number >= LEAST_PAIRS
    return Repeated(mine.number, mine.number, None) if unclear else None


def _chance_of(kind: _Kind, how: SamplingFreedom) -> float | None:
    """That an answer comes again, by itself; None where that cannot be known."""
    if how.as_it_is and kind.bits is not None:
        return float(2.0**-kind.bits)
    if kind.size < SHORTEST_REPEAT:
        return None
    bits = kind.size / BYTES_PER_BIT if kind.bits is None else COLDER * kind.bits
    return float(2.0 ** (-(min(how.temperature, 1.0) ** 2) * bits))


def _is_telling(kind: _Kind, how: SamplingFreedom) -> bool:
    """A short answer that another model's say something about."""
    return not kind.right and _chance_of(kind, how) is None


def _most_certain_other(
    model: int, pairs: Sequence[AnswerPairs], drawn: Sequence[SamplingFreedom | None]
) -> tuple[float, int] | None:
    """The largest share of such pairs that agree of models as cold or colder, at its upper limit, and whose it is."""
    how = drawn[model]
    shares = []
    for other, (theirs, drawn_so) in enumerate(zip(pairs, drawn, strict=True)):
        if other == model or how is None or drawn_so is None or drawn_so.temperature > how.temperature:
            continue
        told = [kind for kind in theirs.there if not kind.right and kind.size < SHORTEST_REPEAT]
        there, agreed = (sum(counter[kind] for kind in told) for counter in (theirs.there, theirs.agreed))
        if there >= LEAST_PAIRS:
            shares.append((_upper_limit(agreed, there), other))
    return max(shares, default=None)


def _upper_limit(agreed: int, there: int) -> float:
    """The largest share of pairs of which so few would agree with the chance 1 - LIMIT (Clopper and Pearson 1934)."""
    from scipy.special import betaincinv  # here, since it takes a while to load, and commands without a run need none

    return 1.0 if agreed == there else float(betaincinv(agreed + 1, there - agreed, LIMIT))


def chance_of_agreement(groups: Sequence[tuple[int, float]], agreed: int) -> float:
    """P(A >= agreed) for A = sum_g Binomial(n_g, p_g).

    Worked out from its characteristic function (Hong 2013), or bounded by Chernoff's
    min_t exp(-t agreed) prod_g (1 + p_g (e^t - 1))^n_g for many pairs.
    """
    known = [(number, p) for number, p in groups if number]
    numbers, chances = np.array([one[0] for one in known]), np.array([one[1] for one in known])
    pairs = int(numbers.sum()) if known else 0
    if agreed <= float(numbers @ chances if known else 0.0):
        return 1.0
    if pairs > MOST_EXACT:
        return _bounded(numbers, chances, agreed)
    turns = np.exp(2j * np.pi * np.arange(pairs + 1) / (pairs + 1)) - 1.0
    transform = np.ones(pairs + 1, dtype=complex)
    for number, p in known:
        transform *= (1.0 + p * turns) ** number
    mass = np.fft.fft(transform).real / (pairs + 1)
    return float(np.clip(mass[agreed:].sum(), 0.0, 1.0))


def _bounded(numbers: np.ndarray, chances: np.ndarray, agreed: int) -> float:
    low, high = 0.0, STEEPEST
    for _ in range(HALVINGS):  # the logarithm is convex in the slope: where its derivative is 0
        slope = (low + high) / 2.0
        grown = chances * math.exp(slope)
        low, high = (slope, high) if numbers @ (grown / (1.0 - chances + grown)) < agreed else (low, slope)
    return math.exp(min(0.0, float(numbers @ np.log1p(chances * math.expm1(low)) - low * agreed)))


def said_of_repeats(found: Repeated, names: Sequence[str]) -> str:
    """A sentence about it."""
    if found.chance is None:
        return (
            f"the answers of all {found.pairs} pairs of trials agree word for word; they are short, and independent "
            "samples may agree as well, so that nobody can tell whether its server ignores the seed or serves a cache "
            "(log-probabilities at temperature 1 and top_p 1 would)"
        )
    by = "" if found.beside is None else f", were it as sure of itself as {names[found.beside]}"
    chance = f"independent samples would with a chance of {max(found.chance, 1e-12):.1g}{by}"
    return (
        f"the answers of {found.agreed} of {found.pairs} pairs of trials agree word for word ({chance}): its server "
        "ignores the seed or serves a cache, so its trials are fewer than they seem"
    )
