"""Convert the scores of a sample to the signals that a rubric uses."""

import math
from collections.abc import Mapping
from typing import Any

from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.types import INSPECT_LETTERS, Marks

MAX_ANSWER = 1000
"""Most characters that are kept of an extracted answer; Inspect's log has all of it."""


def marks_from_scores(scores: Mapping[str, Any], scorer: str | None, *, only_right_and_wrong: bool) -> Marks | None:
    """Signals of a sample; None if its scorer gave no score (nan).

    Raises `ConfigError` for a score that is no number, or with `only_right_and_wrong` for any other than 0 and 1.
    """
    name, value, answer = _score_that_counts(scores, scorer)
    number = _as_number(value, name)
    if math.isnan(number):
        return None
    if only_right_and_wrong and number not in (0.0, 1.0):
        raise ConfigError(
            f"scorer {name} gave {value!r}, but the rubric knows right and wrong alone; declare what it is worth: "
            "rubric: {categories: [{name: half, weight: 0.5, when: {score: {at_least: 0.5, below: 1}}}, ...]}"
        )
    signals = {"score": number, "is_correct": number == 1.0, "has_answer": value != "N"}
    return Marks(signals, answer if answer is None else str(answer)[:MAX_ANSWER])


def _score_that_counts(scores: Mapping[str, Any], scorer: str | None) -> tuple[str, Any, Any]:
    """Name, value and answer of the score that counts."""
    name = scorer if scorer is not None else next(iter(scores), "")
    if name in scores:
        return name, scores[name]["value"], scores[name]["answer"]
    name, _, key = name.partition(".")
    values = scores[name]["value"] if name in scores else None
    if not isinstance(values, Mapping) or key not in values:
        known = ", ".join(values) if isinstance(values, Mapping) else ", ".join(scores) or "no score"
        raise ConfigError(f"benchmark.scorer: a sample has no score {scorer or name}; it has {known}")
    return f"{name}.{key}", values[key], scores[name]["answer"]


def _as_number(value: object, scorer: str) -> float:
    if isinstance(value, str) and value in INSPECT_LETTERS:
        return INSPECT_LETTERS[value]
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, Mapping):
        raise ConfigError(
            f"scorer {scorer} gives several values ({', '.join(map(str, value))}); name the one that counts, as in "
            f"--set benchmark.scorer={scorer}.{next(iter(value), 'KEY')}"
        )
    raise ConfigError(
        f"scorer {scorer} gave {value!r:.80}, but a trial needs one number, true or false, or C, P, I or N; "
        "name a scorer that gives that as benchmark.scorer"
    )
