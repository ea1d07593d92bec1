"""What all benchmarks share: their options, tables as Markdown, and figures beside their goals."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SHARED = Path(__file__).parents[2] / "shared"
"""Where recorded outcomes and trained models are, if they are there."""


class Check(NamedTuple):
    """A measured figure beside its goal; `holds` is None where there is no goal."""

    check: str
    value: float | str
    goal: str = ""
    holds: bool | None = None


def at_most(check: str, value: float, limit: float, digits: int = 3) -> Check:
    """A figure that should not be above its limit."""
    return Check(check, round(float(value), digits or None), f"<= {limit:.4g}", bool(value <= limit))


def at_least(check: str, value: float, limit: float, digits: int = 3) -> Check:
    """A figure that should not be below its limit."""
    return Check(check, round(float(value), digits or None), f">= {limit:.4g}", bool(value >= limit))


def between(check: str, value: float, low: float, high: float) -> Check:
    """A figure that should lie between two limits."""
    return Check(check, round(float(value), 3), f"{low:.3g} to {high:.3g}", bool(low <= value <= high))


def with_errors(share: float, runs: int, errors: float = 2.0) -> float:
    """The largest share of runs that a true share explains: so many standard errors above it."""
    return share + errors * float((share * (1.0 - share) / runs) ** 0.5)


class _Quick(argparse.Action):
    def __call__(self, _: object, options: argparse.Namespace, *__: object) -> None:
        options.quick, options.runs = True, self.const


def arguments(about: str | None, *, runs: int = 0, quick_runs: int = 0, data: bool = False) -> argparse.ArgumentParser:
    """The options of a benchmark, with so many runs per row."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    quick: dict[str, Any] = {"action": _Quick, "nargs": 0, "const": quick_runs, "default": False}
    parser.add_argument("--quick", **quick, help="a small version, under 50 s on two cores")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the checks as JSON rows")
    if runs:
        parser.add_argument("--runs", type=int, default=runs, help="seeded runs per row")
    if data:
        parser.add_argument("--data", type=Path, default=SHARED / "data", help="the folder of recorded outcomes")
    return parser


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table with numbers to the right."""
    body = [
        [f"{cell:.3f}" if isinstance(cell, float) else str(cell).replace("|", "\\|") for cell in row] for row in rows
    ]
    widths = [max(len(line[i]) for line in [list(header), *body]) for i in range(len(header))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(header, widths, strict=True))]
    lines.append(" | ".join("-" * width for width in widths))
    lines += [
        " | ".join(cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in body
    ]
    return "\n".join(f"| {line} |" for line in lines)


def publish(options: argparse.Namespace, title: str, *parts: str | None, checks: Sequence[Check]) -> None:
    """Print a page of these parts, with the checks, and write what the options ask for; exit with 1 if a goal is
    missed."""
    words = {True: "yes", False: "**no**", None: ""}
    table = markdown(Check._fields, [(*check[:3], words[check.holds]) for check in checks])
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine = f"On {os.cpu_count()} cores, {memory:.0f} GiB memory."
    text = "\n\n".join([f"# {title}", *((part or "").strip() for part in parts), table, machine])
    print(text)
    if options.json is not None:
        options.json.write_text(json.dumps([check._asdict() for check in checks], indent=1) + "\n")
    sys.exit(int(any(check.holds is False for check in checks)))
