"""Kinds of answers that are not plain text: what each means, and what follows from it.

An incomplete answer has a grade, but the complete answer might have had another one. Unless the rubric has a category
for its kind, its grade is unsure (`UnsureGrades`), and nothing is called that it could undo (`tally`). If too many
answers of a model are incomplete, most say nothing, or a kind becomes more frequent during a run, an alarm ends it
(`answer_alarms`).
"""

from collections.abc import Mapping
from enum import IntFlag
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class AnswerKind(IntFlag):
    """Kinds of answers, under the names of their signals; an answer may be of several, the most specific first."""

    CONTEXT_LENGTH = 1
    CONTENT_FILTER = 2
    REFUSAL = 4
    REASONING_ONLY = 8
    TRUNCATED = 16
    TIMED_OUT = 32
    UNANSWERED = 64
    EMPTY = 128

    @property
    def signal(self) -> str:
        """The name of its signal; of several kinds those of all, separated by spaces."""
        return " ".join(str(kind.name).lower() for kind in self)

    @property
    def phrase(self) -> str:
        """Words that follow "12 of its 40 answers", which are of these kinds; cut ones that are right do not count."""
        phrases = [PHRASES[kind] for kind in self & ~AnswerKind.TRUNCATED]
        phrases += [f"{PHRASES[kind]} before they were right" for kind in self & AnswerKind.TRUNCATED]
        return " or ".join(phrases)


INCOMPLETE = AnswerKind.CONTEXT_LENGTH | AnswerKind.TRUNCATED | AnswerKind.TIMED_OUT
"""Kinds of answers that a limit has ended, or prevented: with a larger one they could be in any category."""
SAY_NOTHING = AnswerKind.CONTEXT_LENGTH | AnswerKind.REASONING_ONLY | AnswerKind.EMPTY
"""Kinds of answers that hold no answer. A few may come from a model; most of a model's answers do not."""

PHRASES: Mapping[AnswerKind, str] = {
    AnswerKind.CONTEXT_LENGTH: "were not generated because prompt and max_tokens exceed the context",
    AnswerKind.CONTENT_FILTER: "were withheld by a content filter",
    AnswerKind.REFUSAL: "are refusals",
    AnswerKind.REASONING_ONLY: "have reasoning and no other text",
    AnswerKind.TRUNCATED: "were cut off at a limit",
    AnswerKind.TIMED_OUT: "timed out at every attempt",
    AnswerKind.UNANSWERED: "never came, since every attempt at them failed",
    AnswerKind.EMPTY: "are empty",
}
"""For each kind, the phrase that follows "12 of its 40 answers"."""


class UnsureGrades(NamedTuple):
    """Rule for graded answers that could be in another category."""

    kinds: int
    """Bits of `AnswerKind`."""
    sure: int | None = None
    """The category whose grades stand nevertheless: the best one, unless wrong answers are in it."""

    def mask(self, kinds: NDArray[np.uint8], categories: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mask of the unsure ones among trials, by the kinds of their answers and their categories."""
        unsure = (kinds & self.kinds) > 0
        return unsure if self.sure is None else unsure & (categories != self.sure)


NOTHING_UNSURE = UnsureGrades(0)


@lru_cache(maxsize=1024)
def answer_kinds(flags: str) -> int:
    """The kinds of an answer whose signals are given by name, separated by spaces; other names are ignored."""
    return sum(kind for kind in AnswerKind if kind.signal in flags.split())
