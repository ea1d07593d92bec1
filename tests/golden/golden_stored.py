"""Stored runs of the format of the day on which they were made: they open, report and go on for ever.

Each is the directory of a run in an archive. They are never made anew: what cannot open them any more is broken. One
that a new format needs is added, under a name of its own.
"""

import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import golden_cases as cases
from golden_record import masked
from golden_stage import Stage

from adaptive_eval.record.results_file import read_results

STORED = Path(__file__).with_name("stored")
REPORTS = {"summary": "txt", "md": "md"}
"""Reports that are compared word for word, and how their files end."""


@dataclass(frozen=True)
class StoredRun:
    """How a run was begun, and how it goes on."""

    begin: Callable[[Stage], None]
    go_on: Callable[[Stage], None] | None
    expected: str
    """The golden run whose looks and trials it comes to."""
    finished: bool = False
    """It was over when it was stored, and has results."""


RUNS = {
    "finished": StoredRun(cases.plain, cases.plain, "plain", finished=True),
    "killed": StoredRun(cases.plain_begun, cases.plain, "plain"),
    "short": StoredRun(cases.extended_begun, cases.extended_on, "extended", finished=True),
    "judged": StoredRun(cases.judge_begun, cases.judge, "judge"),
    "thresholds": StoredRun(cases.thresholds_begun, cases.thresholds, "thresholds"),
    "greedy": StoredRun(cases.r0_greedy_begun, cases.r0_greedy, "r0_greedy"),
    "set_aside": StoredRun(cases.request_set_aside, None, "request_set_aside", finished=True),
}


def store(name: str, stage: Stage) -> None:
    """Make a stored run."""
    RUNS[name].begin(stage)
    STORED.mkdir(exist_ok=True)
    with tarfile.open(archive_of(name), "w:xz") as archive:
        archive.add(stage.directory(), "run", filter=_anonymous)


def archive_of(name: str) -> Path:
    return STORED / f"{name}.tar.xz"


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """A file as nobody's; no lock, and nothing that was half written."""
    if member.name.endswith("/lock"):
        return None
    member.uname = member.gname = ""
    member.uid = member.gid = 0
    return member


def unpack(name: str, stage: Stage) -> None:
    """Put a stored run where runs of this stage lie."""
    stage.directory().parent.mkdir()
    with tarfile.open(archive_of(name)) as archive:
        archive.extractall(stage.directory().parent, filter="data")


def reports(name: str, stage: Stage) -> dict[str, str]:
    """The reports of a stored run, by the names of the files that they are compared with."""
    return {f"{name}.{suffix}": report(stage, kind) for kind, suffix in REPORTS.items() if RUNS[name].finished}


def report(stage: Stage, kind: str) -> str:
    """One report, without what differs from run to run."""
    return str(masked(stage.command("report", stage.directory(), "--format", kind, "-o", "-"), stage.folder))


def recompute_results(stage: Stage) -> dict[str, Any]:
    """What the results of a stored run are, worked out from its trials."""
    told = stage.command("report", stage.directory(), "--format", "json", "-o", "-")
    return masked(json.loads(told)["run"]["results"], stage.folder)


def without_warnings_texts(results: dict[str, Any]) -> dict[str, Any]:
    """Results in which warnings are told by kind and model: later versions may word them better, as reports show."""
    return results | {"warnings": [one | {"text": ""} for one in results["warnings"]]}


def results_then(stage: Stage) -> dict[str, Any]:
    """What they were; version 1 of the format counted looks from 0."""
    told = json.loads((stage.directory() / "results.json").read_text())
    if told["format"] == "adaptive-eval.results/1":
        read = read_results(stage.directory())
        assert read is not None
        assert [one.look for one in read.looks] == [one["look"] + 1 for one in told["looks"]]
        told |= {"format": read.format, "looks": [one | {"look": one["look"] + 1} for one in told["looks"]]}
    return masked(told, stage.folder)
