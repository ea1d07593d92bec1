"""Whether what is stored has the form in which it is written: a run directory of someone else may hold anything.

Checksums say that a row is what was written, and nothing of who has written it. What is JSON with fields of its own is
read where it belongs (`events`, the stored configuration); here are the columns of trials, and looks.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from adaptive_eval.core.types import Verdict

MOST_TRIALS = 2**31
"""A trial's number, its round and its seed lie below."""
MOST = 2**53
"""So do counts of tokens, and seconds and USD."""
FIRST_SECOND, LAST_SECOND = -62_135_596_800.0, 253_402_300_800.0
"""The years 1 to 9999: a clock may be wrong, and no date is outside them."""
_COUNTS = {"trial": MOST_TRIALS, "round": MOST_TRIALS, "seed": MOST_TRIALS, "attempts": MOST_TRIALS}
_TOKENS = ("prompt_tokens", "completion_tokens", "tokens")
_MEASURES = ("latency", "usd", "gpu_seconds", "at")
_KNOWN_MEASURES = ("ttft", "completion_bpt", "prompt_bpt")
_KINDS = {
    "digest": "'integer', 'null'",
    **dict.fromkeys(("finish_reason", "replica"), "'text'"),
    **dict.fromkeys(("signals", "extracted", "grader_error", "flags"), "'text', 'null'"),
    **dict.fromkeys(("text", "reasoning"), "'text', 'blob', 'null'"),
}
"""Types of the other columns in SQLite, which takes anything anywhere."""


_RANGES = {
    **{name: f"{name} BETWEEN -1 AND {most}" for name, most in _COUNTS.items()},
    **{name: f"{name} BETWEEN -1 AND {MOST}" for name in (*_TOKENS, *_MEASURES, *_KNOWN_MEASURES)},
    "at": f"at BETWEEN {FIRST_SECOND} AND {LAST_SECOND}",
    "category": f"category BETWEEN 0 AND {MOST_TRIALS}",
}
"""By column, the SQL condition that its numbers meet; an unknown one does not count."""
OUT_OF_RANGE = f"SELECT id FROM trials WHERE NOT ({' AND '.join(f'({one})' for one in _RANGES.values())}) LIMIT 1"
"""Finds a trial that was never written so, where columns have types."""


def _conditions() -> Iterator[str]:
    """Conditions on every trial, column by column, as SQL."""
    for name in (*_COUNTS, *_TOKENS):
        yield f"typeof({name}) = 'integer' AND {_RANGES[name]}"
    yield f"typeof(category) = 'null' OR typeof(category) = 'integer' AND {_RANGES['category']}"
    for name in _MEASURES:
        yield f"typeof({name}) IN ('real', 'integer') AND {_RANGES[name]}"
    for name in _KNOWN_MEASURES:
        yield f"typeof({name}) = 'null' OR typeof({name}) IN ('real', 'integer') AND {_RANGES[name]}"
    for name, kinds in _KINDS.items():
        yield f"typeof({name}) IN ({kinds})"


MISFORMED = f"SELECT id FROM trials WHERE id > ? AND NOT ({' AND '.join(f'({one})' for one in _conditions())}) LIMIT 1"
"""Finds a trial beyond a number that was never written so."""


def is_look(body: Mapping[str, Any]) -> bool:
    """Whether this is a look as it is stored."""
    models = body.get("models")
    if not _are(models, str) or len(set(models)) < len(models):
        return False
    known, number = set(models), len(models)
    whole = all(_are(body.get(name), int) and len(body[name]) == number for name in ("trials", "tiers"))
    real = all(_are(body.get(name), int, float) and len(body[name]) == number for name in ("scores", "sigmas"))
    ordered = _are(body.get("order"), str) and set(body["order"]) <= known
    pairs = body.get("comparisons")
    return whole and real and ordered and _are(pairs, dict) and all(_is_verdict(one, known) for one in pairs)


def _is_verdict(plain: Mapping[str, Any], models: set[str]) -> bool:
    named = all(isinstance(plain.get(name), str | None) for name in ("better", "worse", "verdict"))
    measured = all(isinstance(plain.get(name), int | float) for name in ("z", "boundary", "information"))
    measured &= all(isinstance(plain.get(name, 0.0), int | float) for name in ("rho", "power", "trials_needed"))
    if not (named and measured and isinstance(plain.get("reversed", False), bool)):
        return False
    return plain.get("better") in models and plain.get("worse") in {*models, None} and plain["verdict"] in set(Verdict)


def _are(values: object, *kinds: type) -> TypeGuard[list[Any]]:
    return isinstance(values, list) and all(isinstance(value, kinds) for value in values)
