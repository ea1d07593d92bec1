"""What a run shows: its documented outputs, each read by the command that writes it.

The names of commands, fields, columns and the few words that are read stand here and nowhere else in this folder.
"""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from commands import Commands, Done

REACHED, CONFIGURATION, UNDECIDED, STOPPED, BLOCKED, GATE_FAILED = 0, 2, 3, 4, 5, 6
"""Exit codes, as docs/guide/commands.md has them."""
DECIDED = ("resolved", "tied")
JUDGED = "adaptive-eval.results/"
"""How the `format` of results.json begins once there was a look."""


class Pair(NamedTuple):
    """A comparison; with a fixed value there is no second model."""

    first: str
    second: str | None
    verdict: str
    difference: float
    """Positive where the first is ahead; zero too where one of them has no score."""


class ModelResult(NamedTuple):
    """A model in results.json."""

    name: str
    tier: int | None
    score: float | None
    trials: int
    """In the score."""
    stored: int
    ungraded: int
    aside: bool
    recorded: bool


@dataclass(frozen=True)
class Results:
    """results.json."""

    raw: dict[str, Any]

    @property
    def reason(self) -> str | None:
        """Why the run ended."""
        reason: str | None = self.raw["run"]["reason"]
        return reason

    @property
    def pairs(self) -> list[Pair]:
        return [
            Pair(pair["first"], pair["second"], pair["verdict"], pair["difference"] or 0.0)
            for pair in self.raw["pairs"] or ()
        ]

    @property
    def models(self) -> list[ModelResult]:
        return [
            ModelResult(
                model["name"],
                model["tier"],
                model["score"],
                model["trials"],
                model["stored_trials"],
                model["ungraded"],
                model["set_aside"] is not None,
                model["recorded"] is not None,
            )
            for model in self.raw["models"]
        ]

    @property
    def gate(self) -> dict[str, str]:
        """PASS, FAIL or UNDECIDED by model."""
        return {row["model"]: row["outcome"] for row in self.raw["gate"] or ()}

    @property
    def gate_against(self) -> str | None:
        """The model that the others must not be worse than; None for a value."""
        return next((row["baseline"] for row in self.raw["gate"] or ()), None)

    @property
    def warnings(self) -> list[str]:
        return [str(warning) for warning in self.raw["warnings"]]

    @property
    def cost(self) -> dict[str, Any]:
        return dict(self.raw["cost"])

    @property
    def active_seconds(self) -> float:
        return float(self.raw["run"]["active_seconds"])


@dataclass(frozen=True)
class Text:
    """A text that begins with a headline and the table of the ranking."""

    headline: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    """By the names of the columns."""
    promise: str
    cost: str
    warnings: tuple[str, ...]
    screen: str

    @property
    def next_steps(self) -> str:
        """What it proposes to do."""
        match = re.search(r"^(?:Next:|to do  )(.*)", self.screen, re.MULTILINE | re.DOTALL)
        return match[1] if match else ""


@dataclass(frozen=True)
class Outputs:
    """What can be read of a run at one moment."""

    results: Results | None
    """None before a look."""
    printed: dict[str, Done]
    """The commands that read it."""
    texts: dict[str, Text]
    """Those of them that begin with a headline."""
    trials: list[dict[str, Any]] | None
    """Every stored trial; None where they were not read."""

    @property
    def table(self) -> list[dict[str, str]]:
        """`report --format csv`."""
        return list(csv.DictReader(StringIO(self.printed["csv"].out))) if "csv" in self.printed else []

    @property
    def junit(self) -> dict[str, str] | None:
        """PASS, FAIL or UNDECIDED by model in `report --format junit`; None where it was not read."""
        if "junit" not in self.printed or self.printed["junit"].code:
            return None
        cases = ElementTree.fromstring(self.printed["junit"].out.encode()).iter("testcase")
        return {str(case.get("name")).partition(" against ")[0]: _junit_outcome(case) for case in cases}


class Reading(Enum):
    """How much of a run is read: reports take a while."""

    FILE = ()
    TRIALS = ("export",)
    SOME = ("export", "monitor", "pr")
    ALL = ("export", "monitor", "pr", "summary", "md", "csv")


def read_outputs(commands: Commands, folder: Path, run: str, reading: Reading = Reading.ALL) -> Outputs:
    """Read a run by the commands that are for that."""
    file, export = folder / run / "results.json", folder / "read.jsonl"
    raw = json.loads(file.read_text()) if file.exists() else {}
    kinds = {
        "export": ("export", run, "--format", "jsonl", "-o", str(export), "--force"),
        "monitor": ("monitor", run, "--once"),
        **{kind: ("report", run, "--format", kind, "-o", "-") for kind in ("pr", "summary", "md", "csv")},
    }
    if raw.get("gate") and reading is Reading.ALL:
        kinds["junit"] = ("report", run, "--format", "junit", "-o", "-")
    names = [*reading.value, *(["junit"] if "junit" in kinds else [])]
    asked = [kinds[name] for name in names]
    printed = dict(zip(names, commands.run_all(asked) if asked else (), strict=True))
    trials = None
    if export.exists():
        trials = [json.loads(line) for line in export.read_text().splitlines()]
        export.unlink()
    texts = {kind: read_text(printed[kind].out) for kind in ("monitor", "pr", "summary", "md") if kind in printed}
    results = Results(raw) if raw.get("format", "").startswith(JUDGED) else None
    return Outputs(results, printed, {kind: text for kind, text in texts.items() if text is not None}, trials)


def _junit_outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None:
        return "FAIL"
    return "PASS" if case.find("error") is None else "UNDECIDED"


def read_text(text: str) -> Text | None:
    """The last table of a ranking in a text, with what stands before and after it; None where there is none."""
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if _is_head(line)]
    if not heads:
        return None
    head = heads[0] if "|" in lines[heads[0]] else heads[-1]
    columns = _cells(lines[head])
    rows = []
    for line in lines[head + 1 :]:
        if set(line) <= set("|:- ") and line.strip():
            continue
        cells = _cells(line)
        if len(cells) < len(columns) - 1 or not line.strip():
            break
        rows.append(dict(zip(columns, cells, strict=False)))
    return Text(
        headline=tuple(_headline(lines[:head])),
        rows=tuple(rows),
        promise=_after(text, "promise"),
        cost=_after(text, "cost"),
        warnings=tuple(line.removeprefix("warning").strip() for line in lines if line.startswith("warning  ")),
        screen="\n".join(lines[max(head - 8, 0) :]),
    )


def _is_head(line: str) -> bool:
    cells = _cells(line)
    return {"model", "score", "verdict"} <= set(cells)


def _cells(line: str) -> list[str]:
    if line.startswith("|"):
        return [cell.strip() for cell in line.strip("|").split("|")]
    return re.split(r"\s{2,}", line.strip())


def _headline(before: list[str]) -> Iterator[str]:
    """The sentences of the last paragraph before the table, or of all bold ones; without how the run ended."""
    bold = [line.strip("*") for line in before if line.startswith("**")]
    if bold:
        yield from (re.sub(r"\\([^a-zA-Z0-9\s])", r"\1", line) for line in bold)  # without escapes of Markdown
        return
    while before and not before[-1].strip():
        before = before[:-1]
    start = max((number for number, line in enumerate(before) if not line.strip()), default=-1) + 1
    for line in before[start:]:
        if not re.match(r"(Finished|Stopped(?! by an alarm:)|Paused|Running|Imported)\b", line):
            yield line


def _after(text: str, name: str) -> str:
    match = re.search(rf"^{name}  +(.*)$|\b{name.capitalize()}: (.*)$", text, re.MULTILINE)
    return (match[1] or match[2]).rstrip(".") if match else ""


def bare(question: str) -> str:
    """A question's id without the name of its benchmark; lm-evaluation-harness has but a number."""
    name = question.rpartition("/")[2]
    return f"q{name}" if name.isdigit() else name
