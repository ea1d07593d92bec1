"""Kinds of answers that are not plain text: what each means, and what follows from it.

An answer that was cut off has a grade, but the whole answer might have had another one. Unless the rubric has a
category for cut answers, their grades are unsure (`tally`). If most answers of a model say nothing, or a kind becomes
more frequent during a run, an alarm ends it (`answer_alarms`).
"""

from collections.abc import Mapping
from enum import IntFlag
from functools import lru_cache


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
        """The name of its signal."""
        return str(self.name).lower()


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


@lru_cache(maxsize=1024)
def answer_kinds(flags: str) -> int:
    """The kinds of an answer whose signals are given by name, separated by spaces; other names are ignored."""
    return sum(kind for kind in AnswerKind if kind.signal in flags.split())
