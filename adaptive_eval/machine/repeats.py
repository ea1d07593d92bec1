"""Detects that a model's answers repeat word for word, and since when.

A server that ignores the seed, or serves a cache, returns one answer many times, and each counts as a trial. There are
three tests, each with a false alarm in at most one of a thousand models:

- **Since when.** Answers to a question varied, and from some trial on are all equal. In random order, the last r of n
  answers are equal with probability sum_i C(c_i, r) / C(n, r), where the c_i count equal answers. Fisher's method
  combines the questions. This holds for short answers too, at any temperature.
- **Long answers.** Trials 2k and 2k + 1 of a question form a pair. A pair of long answers agrees with a probability of
  at most 0.9 * 2^(2 - t^2 bytes / 100), or 0.9, at temperature t (at most 1): a short form that is filled in at a low
  temperature may come out alike nearly always. The test fails if more pairs agree.
- **Answers to one request.** If a request asks for several, its server may copy one. Where answers to a question vary,
  those of a pair agree no more often than any two of them. The test fails if they do.

Short answers, such as letters, may agree on each question of which a model is sure: if no two differ, nobody can tell.

At most `MAX_QUESTIONS` questions are watched: those whose keys have the smallest checksums.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self
from zlib import crc32

import numpy as np

from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.machine.trial import AnswerFacts, Trial

MAX_QUESTIONS = 100
MIN_LONG_BYTES = 200
"""Bytes from which an answer is unlikely to repeat, by its length alone."""
BYTES_PER_BIT = 100.0
FREE_BITS = 2.0
"""What an answer's form may fix of its length in bits."""
MAX_AGREEMENT = 0.9
"""Share of pairs that agree where a model fills in a form."""
UNKNOWN_TEMPERATURE = 0.5
"""Assumed if none is set; colder than the defaults of servers."""
ALARM_CHANCE = 0.001
MIN_PAIRS = 10
"""Minimum number of pairs for a verdict on answers that all agree."""


class Sampled(NamedTuple):
    """How a model's answers are sampled."""

    temperature: float
    together: int = 1
    """The most of them that one request asks for."""

    @classmethod
    def how(cls, temperature: float | None, together: int) -> Self | None:
        """How at this temperature, None if it is unknown; None for greedy sampling, whose answers may all be equal."""
        temperature = UNKNOWN_TEMPERATURE if temperature is None else temperature
        return cls(temperature, together) if temperature else None


class _Answer(NamedTuple):
    digest: int
    size: int


def watched_questions(keys: Sequence[str]) -> frozenset[int]:
    """The questions whose answers are watched, by number."""
    order = sorted(range(len(keys)), key=lambda at: (crc32(keys[at].encode("utf-8", "surrogatepass")), keys[at]))
    return frozenset(order[:MAX_QUESTIONS])


class AnswerWatch:
    """The answers of one model to the watched questions, by trial."""

    def __init__(self, questions: Mapping[int, Mapping[int, _Answer]] | None = None) -> None:
        self._questions = {question: dict(answers) for question, answers in (questions or {}).items()}

    def add(self, trial: Trial, facts: AnswerFacts) -> None:
        """Add an answer to a watched question, unless it is empty or timed out."""
        if facts.digest is None or (trial.kinds and trial.kinds & AnswerKind.TIMED_OUT):
            return
        answers = self._questions.setdefault(trial.question, {})
        answers[trial.number] = _Answer(facts.digest, facts.size)

    def copy(self) -> "AnswerWatch":
        """A copy that later answers do not change."""
        return AnswerWatch(self._questions)

    def in_order(self, trials: Sequence[int] | None = None) -> Iterator[list[tuple[int, _Answer]]]:
        """The answers to each question with their trials, in order; of the first `trials` (M,) of each if given."""
        for question, answers in self._questions.items():
            numbers = sorted(answers)
            if trials is not None:
                numbers = numbers[: bisect_left(numbers, trials[question])]
            if numbers:
                yield [(number, answers[number]) for number in numbers]

    @property
    def repeated(self) -> int:
        """Number of long answers that equal another one to the same question."""
        digest_counts = (
            Counter(answer.digest for answer in answers.values() if answer.size >= MIN_LONG_BYTES)
            for answers in self._questions.values()
        )
        return sum(total - len(counts) for counts in digest_counts if (total := counts.total()))


class Repeats(NamedTuple):
    """Answers of a model that repeat too often."""

    pairs: int
    agreed: int
    is_certain: bool = True
    """False if all agree, but independent samples might, too."""
    since: int | None = None
    """The trial, from 1, from which on the answers to most questions are equal; None: from the first."""
    questions: int = 0
    """Number of questions with repeats since then."""


def find_repeats(watch: AnswerWatch, sampled: Sampled | None, trials: Sequence[int] | None = None) -> Repeats | None:
    """Repeats of a model; None if there are not too many, or it is not `sampled`. With `trials` they are searched
    among the first ones (M,) of each question, at one of many looks."""
    if sampled is None:
        return None
    most = ALARM_CHANCE if trials is None else ALARM_CHANCE**2
    questions = list(watch.in_order(trials))
    all_pairs = [pair for answers in questions for pair in _pairs(answers)]
    pairs, agreed = len(all_pairs), _agreed(all_pairs)
    if (since := _frozen_since(questions)) is not None:
        return Repeats(pairs, agreed, True, *since)
    if sampled.together > 1 and (alike := _alike_in_pairs(questions, most)) is not None:
        return alike
    long = [pair for pair in all_pairs if pair[0].size >= MIN_LONG_BYTES]
    expected = sum(_long_agreement(answer.size, sampled.temperature) for answer, _ in long)
    long_agreed = _agreed(long)
    if _chance_of_agreement(len(long), long_agreed, expected) <= most:
        return Repeats(len(long), long_agreed)
    if any(len({answer.digest for _, answer in answers}) > 1 for answers in questions) or pairs < MIN_PAIRS:
        return None
    return Repeats(pairs, agreed, is_certain=False)


def _pairs(answers: list[tuple[int, _Answer]]) -> Iterator[tuple[_Answer, _Answer]]:
    by_trial = dict(answers)
    return ((answer, by_trial[trial + 1]) for trial, answer in answers if trial % 2 == 0 and trial + 1 in by_trial)


def _agreed(pairs: Sequence[tuple[_Answer, _Answer]]) -> int:
    """Number of pairs with equal answers."""
    return sum(first.digest == second.digest for first, second in pairs)


def _alike_in_pairs(questions: Sequence[list[tuple[int, _Answer]]], most: float) -> Repeats | None:
    """Repeats if the answers of pairs agree more often than others to the same question; each question counts once."""
    shares, expected, number, agreed = [], [], 0, 0
    for answers in questions:
        pairs, counts = [*_pairs(answers)], Counter(answer.digest for _, answer in answers)
        if pairs and len(counts) > 1:
            number, agreed = number + len(pairs), agreed + _agreed(pairs)
            shares.append(_agreed(pairs) / len(pairs))
            arrangements = math.comb(len(answers), 2)
            expected.append(sum(math.comb(count, 2) for count in counts.values()) / arrangements)
    if not any(expected) or _chance_of_agreement(len(shares), sum(shares), sum(expected)) > most:
        return None
    return Repeats(number, agreed)


def _long_agreement(size: int, temperature: float) -> float:
    bits = min(temperature, 1.0) ** 2 * size / BYTES_PER_BIT
    return float(MAX_AGREEMENT * 2.0 ** -max(bits - FREE_BITS, 0.0))


def _chance_of_agreement(pairs: int, agreed: float, expected: float) -> float:
    """Bound on the probability that this many independent pairs agree: exp(-n KL(a / n, E / n)), Hoeffding (1963)."""
    if agreed <= expected:
        return 1.0
    share, mean = agreed / pairs, expected / pairs
    differing = 0.0 if agreed == pairs else (1.0 - share) * math.log((1.0 - share) / (1.0 - mean))
    return math.exp(-pairs * (share * math.log(share / mean) + differing))


def _frozen_since(questions: list[list[tuple[int, _Answer]]]) -> tuple[int, int] | None:
    """The trial, from 1, from which on answers repeat that varied before, and the number of such questions; None if
    there are none."""
    varied, logs, starts = 0, [], []
    for answers in questions:
        last_digest, total = answers[-1][1].digest, len(answers)
        run = next((at for at, (_, answer) in enumerate(reversed(answers)) if answer.digest != last_digest), total)
        varied += run < total
        if 1 < run < total:
            counts = Counter(answer.digest for _, answer in answers)
            arrangements = sum(math.comb(count, run) for count in counts.values())
            logs.append(math.log(arrangements) - math.log(math.comb(total, run)))
            starts.append(answers[-run][0] + 1)
    from scipy.special import gammaincc  # loaded here: a configuration needs only `Sampled`

    if not starts or gammaincc(varied, -math.fsum(logs)) > ALARM_CHANCE**2:
        return None
    return int(np.median(starts)), len(starts)


def repeats_sentence(repeats: Repeats) -> str:
    """The sentence that warns of repeats."""
    cause = "its server ignores the seed or serves a cache, so its trials are fewer than they seem"
    if repeats.since is not None:
        return (
            f"answers to {repeats.questions} questions varied, and are the same word for word from about trial "
            f"{repeats.since} on: since then {cause}"
        )
    if repeats.is_certain:
        return (
            f"the answers of {repeats.agreed} of {repeats.pairs} pairs of trials agree word for word, which is hardly "
            f"possible for independent samples: {cause}"
        )
    return (
        f"the answers of all {repeats.pairs} pairs of trials agree word for word, as short independent samples may, "
        "too: it is unknown whether its server ignores the seed or serves a cache"
    )
