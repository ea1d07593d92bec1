"""Detects that a model's answers repeat word for word, and since when.

A server that ignores the seed, or serves a cache, returns one answer many times, and each counts as a trial. From some
trial on, all answers to a question are then equal. An alarm is raised if that is nearly impossible by chance:

- Where answers varied before: in random order, the last r of n are equal with probability sum_i C(c_i, r) / C(n, r),
  where the c_i count equal answers. Fisher's method combines the questions. This holds for short answers, too.
- From the first trial on: at temperature t (at most 1), n answers of so many bytes are all equal with probability at
  most 2^(-t^2 bytes (n - 1) / 100), which is multiplied over the questions with long answers.

Short answers that never vary are reported as unclear: a model may be sure of all of them.

At most `MAX_QUESTIONS` questions are watched: those whose keys have the smallest checksums.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np

from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.endpoints.types import Sampling
from adaptive_eval.machine.trial import AnswerFacts, Trial

MAX_QUESTIONS = 100
MIN_LONG_BYTES = 200
"""Bytes from which an answer is unlikely to repeat, by its length alone."""
BYTES_PER_BIT = 100.0
UNKNOWN_TEMPERATURE = 0.5
"""Assumed if none is set; colder than the defaults of servers."""
ALARM_CHANCE = 1e-6
"""Chance of a false alarm at each search."""
MIN_PAIRS = 10
"""Minimum number of pairs for a caution about answers that all agree."""


def sampling_temperature(sampling: Sampling) -> float | None:
    """The temperature at which answers are sampled; None for greedy sampling, whose answers may all be equal."""
    return (UNKNOWN_TEMPERATURE if sampling.temperature is None else sampling.temperature) or None


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
        self._questions.setdefault(trial.question, {})[trial.number] = _Answer(facts.digest, facts.size)

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

    questions: int
    """Number of questions with repeats."""
    since: int
    """The trial, from 1, from which on the answers to most of these questions are equal."""
    is_certain: bool = True
    """False if all agree, but independent samples might, too."""


def find_repeats(watch: AnswerWatch, temperature: float | None, trials: Sequence[int] | None = None) -> Repeats | None:
    """Repeats of a model, among the first `trials` of each question if given; None if there are not too many, or it is
    sampled greedily."""
    from scipy.special import gammaincc  # loaded here: a configuration needs only `sampling_temperature`

    if temperature is None:
        return None
    varied, logs, bits, starts, pairs = 0, 0.0, 0.0, list[int](), 0
    for answers in watch.in_order(trials):
        last, total = answers[-1][1], len(answers)
        run = next((at for at, (_, answer) in enumerate(reversed(answers)) if answer.digest != last.digest), total)
        pairs += total // 2
        if run > 1:
            starts.append(answers[-run][0] + 1)
        if run < total:
            varied += 1
            logs -= _log_chance(Counter(answer.digest for _, answer in answers), run)
        if last.size >= MIN_LONG_BYTES:
            bits += min(temperature, 1.0) ** 2 * last.size * (run - 1) / BYTES_PER_BIT if run == total else -math.inf
    is_certain = 0.5**bits <= ALARM_CHANCE or (varied > 0 and bool(gammaincc(varied, logs) <= ALARM_CHANCE))
    if not is_certain and (varied or pairs < MIN_PAIRS):
        return None
    return Repeats(len(starts), int(np.median(starts)), is_certain)


def _log_chance(counts: Counter[int], run: int) -> float:
    """The logarithm of the chance that in random order the last `run` answers are equal; `counts` of equal answers."""
    arrangements = sum(math.comb(count, run) for count in counts.values())
    return math.log(arrangements) - math.log(math.comb(counts.total(), run))


def repeats_sentence(repeats: Repeats) -> str:
    """The sentence that warns of repeats."""
    cause = "its server ignores the seed or serves a cache, so its trials are fewer than they seem"
    if not repeats.is_certain:
        return (
            f"all answers to each of {repeats.questions} questions are the same word for word; they are short, and "
            "independent samples may be the same as well, so it is unknown whether its server ignores the seed or "
            "serves a cache (longer answers would show it)"
        )
    if repeats.since > 1:
        return (
            f"answers to {repeats.questions} questions are the same word for word from about trial {repeats.since} on: "
            f"since then {cause}"
        )
    return f"all answers to each of {repeats.questions} questions are the same word for word: {cause}"
