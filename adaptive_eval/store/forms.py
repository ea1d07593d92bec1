"""SQL that finds trials which are not in the form in which trials are written: a run directory may be a stranger's.

SQLite enforces no types, and finds only damage to its structure. Stored JSON, such as looks and events, is checked
where it is parsed.
"""

from collections.abc import Iterator

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


MISFORMED = f"SELECT id FROM trials WHERE NOT ({' AND '.join(f'({one})' for one in _conditions())}) LIMIT 1"
"""Finds a trial that is not in the form in which trials are written."""
