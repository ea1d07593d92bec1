"""What all benchmarks share: rows for machines and for people, and the words for this machine."""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


class Check(NamedTuple):
    """A measured figure beside its goal; `holds` is None where there is no goal."""

    check: str
    value: float | str
    goal: str
    holds: bool | None


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a small version, under 50 s on two cores")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the checks as JSON rows")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="write the tables as Markdown")
    return parser


def add_data(parser: argparse.ArgumentParser) -> None:
    """The option of benchmarks that replay recorded outcomes, and do without where there are none."""
    default = Path(__file__).parents[2] / "shared" / "data"
    parser.add_argument(
        "--data", type=Path, default=default, help="the folder of recorded outcomes, where there is one"
    )


def machine() -> str:
    """This machine, by cores and memory only."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB memory"


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


def check_table(checks: Iterable[Check]) -> str:
    """The checks as a Markdown table."""
    words = {True: "yes", False: "**no**", None: ""}
    return markdown(("check", "value", "goal", "holds"), [(c.check, c.value, c.goal, words[c.holds]) for c in checks])


def publish(options: argparse.Namespace, text: str, checks: Iterable[Check]) -> None:
    """Print the document, and write what the options ask for; sections that people added to the file stay."""
    print(text)
    if options.json is not None:
        options.json.write_text(json.dumps([check._asdict() for check in checks], indent=1) + "\n")
    if options.markdown is not None:
        text = text.rstrip("\n") + "\n"
        options.markdown.write_text(text + added_by_hand(options.markdown, text))


def added_by_hand(path: Path, text: str) -> str:
    """What the document at `path` has from the first heading on that `text` lacks."""
    before = path.read_text() if path.exists() else ""
    at = next((at for at in _sections(before) if before[at:].splitlines()[0] not in text.splitlines()), None)
    return "" if at is None else f"\n{before[at:]}"


def _sections(text: str) -> list[int]:
    """Where headings of the second level begin."""
    return [match.start() for match in re.finditer(r"^## ", text, re.MULTILINE)]


def conclude(
    options: argparse.Namespace, title: str, about: str | None, measured: str, table: str, checks: Sequence[Check]
) -> None:
    """Publish a benchmark of one table, and exit with 1 where a goal is missed."""
    parts = [f"# {title}", (about or "").strip(), f"On {machine()}; {measured}.", table, check_table(checks)]
    publish(options, "\n\n".join(parts), checks)
    sys.exit(0 if all(check.holds is not False for check in checks) else 1)
