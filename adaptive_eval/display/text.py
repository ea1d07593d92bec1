"""Texts and numbers for a terminal.

Model names, server messages and everything a model wrote come from outside: `safe` leaves nothing in them that a
terminal obeys. Whoever renders with rich puts them into `Text` objects, never into markup.
"""

import math
import unicodedata

from rich.cells import cell_len, set_cell_size

from adaptive_eval.core.types import Look, Verdict

LONGEST = 200
COUNTED = (Verdict.RESOLVED, Verdict.TIED, Verdict.OPEN, Verdict.OUT_OF_REACH)
_SCALE = ("", "k", "M", "G", "T")


def safe(text: str, longest: int = LONGEST) -> str:
    """One line without control characters, escape sequences, or characters that change the direction of writing."""
    clean = "".join(" " if ch in "\n\r\t" else ch if unicodedata.category(ch)[0] != "C" else "�" for ch in text)
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def cells(text: str, width: int) -> str:
    """The text in exactly so many columns of a terminal, cut or filled up; some characters take two."""
    clean = safe(text)
    return set_cell_size(clean, width) if cell_len(clean) <= width else f"{set_cell_size(clean, width - 1)}…"


def count(value: float) -> str:
    """4321 -> 4,321; 1234567 -> 1.23M."""
    if not math.isfinite(value):
        return "-"
    if abs(value) < 100_000:
        return f"{value:,.0f}"
    power = min(int(math.log10(abs(value)) // 3), len(_SCALE) - 1)
    shown = float(f"{value / 1000**power:.3g}")
    if abs(shown) >= 1000 and power < len(_SCALE) - 1:
        shown, power = shown / 1000, power + 1
    return f"{shown:g}{_SCALE[power]}"


def duration(seconds: float) -> str:
    """75 -> 1m15s; 9000 -> 2h30m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def number(value: float | None, digits: int = 2) -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None or math.isnan(value) else "∞" if math.isinf(value) else f"{value:.{digits}f}"


def verdict_counts(look: Look) -> str:
    """How many comparisons of a look have which verdict."""
    return ", ".join(f"{look.count(verdict)} {str(verdict).replace('_', ' ')}" for verdict in COUNTED)
