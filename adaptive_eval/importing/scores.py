"""A score of a log as a category of the rubric: only where the rubric has a category of that value."""

import math
from collections.abc import Callable, Mapping

from adaptive_eval.errors import GraderError
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.types import SignalValue

LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Inspect's marks: correct, incorrect, partly correct, no answer."""
WORDS = {"true": 1.0, "yes": 1.0, "correct": 1.0, "false": 0.0, "no": 0.0, "incorrect": 0.0}
CLOSE = 1e-9


def as_value(score: object) -> float | None:
    """The number that a score stands for; None where it stands for none."""
    if isinstance(score, str):
        text = score.strip()
        known = LETTERS.get(text, WORDS.get(text.lower()))
        return known if known is not None else _number(text)
    if isinstance(score, bool | int | float):
        return float(score) if math.isfinite(score) else None
    return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def category_of_value(value: float, facts: Callable[[], Mapping[str, SignalValue]], rubric: Rubric) -> int | None:
    """The only category that is worth this, or of several the one that the rubric finds; None where there is none."""
    weights = rubric.weights
    worth = [number for number, weight in enumerate(weights) if abs(weight - value) <= CLOSE]
    if len(worth) < 2:
        return worth[0] if worth else None
    try:
        found = rubric.category({**facts(), "score": value, "is_correct": value >= max(weights)})
    except GraderError:
        return None
    return found if found in worth else None
