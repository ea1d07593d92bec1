"""Facts about an answer, without its texts: enough for sums, and to find repeated answers."""

from collections.abc import Collection
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.endpoints.types import Answer
from adaptive_eval.machine.trial import AnswerFacts, Trial

MAX_SIZE = 1024
"""Sizes are counted up to this many bytes: longer texts are stored compressed."""


def facts_of(trial: Trial) -> AnswerFacts | None:
    """The facts of a trial's answer; None if it has none."""
    answer = trial.answer
    if trial.facts is not None or answer is None:
        return trial.facts
    signals = {} if trial.grade is None else trial.grade.signals
    is_right, has_answer = signals.get("is_correct"), signals.get("has_answer")
    return AnswerFacts(
        answer_digest(answer),
        text_size(answer.text) + text_size(answer.reasoning),
        is_right if isinstance(is_right, bool) else None,
        has_answer if isinstance(has_answer, bool) else None,
        answer.completion_tokens,
    )


def lowest_categories(weights: NDArray[np.float64]) -> frozenset[int]:
    """The categories of the lowest weight, whatever their place in the rubric."""
    return frozenset(np.flatnonzero(weights == weights.min()).tolist())


def is_right(trial: Trial, facts: AnswerFacts, lowest: Collection[int]) -> bool:
    """Whether an answer is right: its grader says so, or else its category is none of the `lowest`."""
    if facts.is_right is None:
        return trial.category is not None and trial.category not in lowest
    return facts.is_right


def answer_digest(answer: Answer) -> int | None:
    """A 64-bit digest of text and reasoning as a signed integer, by which identical answers are found.

    None for an empty answer, which does not count as a repeat.
    """
    if not answer.text.strip() and not (answer.reasoning or "").strip():
        return None
    digest = blake2b(answer.text.encode("utf-8", "surrogatepass"), digest_size=8)
    if answer.reasoning:
        digest.update(b"\0" + answer.reasoning.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "big", signed=True)


def text_size(text: str | None) -> int:
    """Bytes of a text, counted up to `MAX_SIZE`."""
    if not text:
        return 0
    return min(len(text[:MAX_SIZE].encode("utf-8", "surrogatepass")), MAX_SIZE)
