"""Checks that stored trials and looks have the form in which they are written: a run directory may be a stranger's.

Checksums say that a row was not changed, but not who wrote it. JSON with fields of its own is checked where it is
parsed (`events`, the stored configuration); here are the columns of trials, and looks.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from adaptive_eval.core.types import Verdict

MOST_TRIALS = 2**31
"""Upper limit of a trial's number, round and seed."""
MOST = 2**53
"""Upper limit of token counts, seconds and USD."""
FIRST_SECOND, LAST_SECOND = -62_135_596_800.0, 253_402_300_800.0
"""The years 1 to 9999: a clock may be wrong, but no date lies outside them."""
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
"""Allowed SQLite types of the other columns; SQLite itself enforces none."""


_RANGES = {
    **{name: f"{name} BETWEEN -1 AND {most}" for name, most in _COUNTS.items()},
    **{name: f"{name} BETWEEN -1 AND {MOST}" for name in (*_TOKENS, *_MEASURES, *_KNOWN_MEASURES)},
    "at": f"at BETWEEN {FIRST_SECOND} AND {LAST_SECOND}",
    "category": f"category BETWEEN 0 AND {MOST_TRIALS}",
}
"""By column, the SQL condition that its numbers meet; NULL passes."""
OUT_OF_RANGE = f"SELECT id FROM trials WHERE NOT ({' AND '.join(f'({one})' for one in _RANGES.values())}) LIMIT 1"
"""Finds a trial with numbers that are never written, for databases that enforce column types."""


def _conditions() -> Iterator[str]:
    """SQL conditions that every trial meets, column by column."""
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
"""Finds a trial after a given id that is not in the form in which trials are written."""


def is_look(body: Mapping[str, Any]) -> bool:
    """Whether the values have the form of a stored look."""
    models = body.get("models")
    if not _is_list_of(models, str) or len(set(models)) < len(models):
        return False
    known, number = set(models), len(models)
    whole = all(_is_list_of(body.get(name), int) and len(body[name]) == number for name in ("trials", "tiers"))
    real = all(_is_list_of(body.get(name), int, float) and len(body[name]) == number for name in ("scores", "sigmas"))
    ordered = _is_list_of(body.get("order"), str) and set(body["order"]) <= known
    pairs = body.get("comparisons")
    return whole and real and ordered and _is_list_of(pairs, dict) and all(_is_verdict(one, known) for one in pairs)


def _is_verdict(plain: Mapping[str, Any], models: set[str]) -> bool:
    named = all(isinstance(plain.get(name), str | None) for name in ("better", "worse", "verdict"))
    measured = all(isinstance(plain.get(name), int | float) for name in ("z", "boundary", "information"))
    measured &= all(isinstance(plain.get(name, 0.0), int | float) for name in ("rho", "power", "trials_needed"))
    if not (named and measured and isinstance(plain.get("reversed", False), bool)):
        return False
    return plain.get("better") in models and plain.get("worse") in {*models, None} and plain["verdict"] in set(Verdict)


def _is_list_of(values: object, *kinds: type) -> TypeGuard[list[Any]]:
    return isinstance(values, list) and all(isinstance(value, kinds) for value in values)
