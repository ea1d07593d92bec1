"""Texts and times on one line, for a terminal, a page or a document.

Model names, server messages and answers come from outside: `safe_line` removes everything that a terminal would obey.
"""

import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime

LONGEST = 200


def safe_line(text: str, longest: int = LONGEST) -> str:
    """Make a text one line, without control characters, escape sequences or changes of writing direction."""
    clean = "".join(" " if ch in "\n\r\t" else ch if unicodedata.category(ch)[0] != "C" else "�" for ch in text)
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def safe_name(name: str, longest: int) -> str:
    """Make a name one safe line; a long one loses its middle, since checkpoints of a model differ at the end."""
    clean = safe_line(name, len(name))
    if len(clean) <= longest:
        return clean
    tail = (longest - 1) // 2
    return f"{clean[: longest - 1 - tail]}…{clean[len(clean) - tail :]}"


def several(number: int, of: str) -> str:
    """Number and noun: 1 answer, 1,759 answers."""
    return f"{number:,} {of}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """75 -> 1m15s; 9000 -> 2h30m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def minute(at: float) -> str:
    """Seconds since 1970 as date, hour and minute in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def first_few(names: Sequence[str], most: int) -> str:
    """Names in a line; those beyond `most` are only counted."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
