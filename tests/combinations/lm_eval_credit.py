"""What grades the answers in tasks of lm-evaluation-harness: right, worth a part, or how wrong."""

import re
from typing import Any

BRIEF_BYTES = 140
"""Texts of brief answers are shorter."""


def _is_right(document: dict[str, Any], text: str) -> bool:
    match = re.search(r"The answer is (\d+)", text)
    return match is not None and match[1] == document["answer"]


def binary(document: dict[str, Any], results: list[str]) -> dict[str, float]:
    return {"right": float(_is_right(document, results[0]))}


def partial(document: dict[str, Any], results: list[str]) -> dict[str, float]:
    return {"credit": (1.0 if len(results[0]) < BRIEF_BYTES else 0.6) * _is_right(document, results[0])}


def reversed(document: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Fewer errors are better."""
    return {"errors": 1.0 - _is_right(document, results[0])}
