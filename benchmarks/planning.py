"""How long `plan` takes, and what it says meanwhile, at its defaults.

    python benchmarks/planning.py [--quick] [--json PATH] [--markdown PATH]

The program itself, on designs of several sizes, without a pilot and with `sampling.max_tokens` for a guess of times.
CPU time is that of all its processes, the starting of Python among it; wall time means little on a shared machine.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import yaml
from tables import Check, arguments, check_table, machine, markdown, publish

SIZES = ((5, 30), (20, 30), (100, 30), (20, 500))
QUICK = SIZES[:2]
SECONDS, CORES = 10.0, 2
HEADER = (
    "models",
    "questions",
    "CPU s",
    "wall s",
    "first figures, s",
    "worlds",
    "worlds of the table",
    "times fixed N",
)


class Planned(NamedTuple):
    """One call of the program."""

    models: int
    questions: int
    cpu: float
    wall: float
    first: float | None
    """Seconds until it showed figures; None where nothing came before the end."""
    worlds: int
    table_worlds: int
    times_as_long: float

    def cells(self) -> tuple[object, ...]:
        first = "" if self.first is None else f"{self.first:.1f}"
        return (self.models, self.questions, f"{self.cpu:.1f}", f"{self.wall:.1f}", first, self.worlds,
                self.table_worlds, f"{self.times_as_long:.2f}")  # fmt: skip


def design(folder: Path, models: int, questions: int) -> Path:
    """A configuration of so many models and questions."""
    rows = [{"id": f"q{number}", "prompt": f"What is {number}?", "answer": "1"} for number in range(questions)]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = {
        "name": "planned",
        "questions": "questions.jsonl",
        "models": [{"name": f"model-{number}", "base_url": "http://127.0.0.1:9/v1"} for number in range(models)],
        "sampling": {"temperature": 0.6, "max_tokens": 2000},
        "grader": "numeric",
    }
    path = folder / "planned.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def plan(models: int, questions: int) -> Planned:
    """One call, timed."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        config, out = design(folder, models, questions), folder / "forecast.json"
        command = [sys.executable, "-m", "adaptive_eval", "plan", str(config), "--json", str(out)]
        before, start, first = _cpu(), time.perf_counter(), None
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if first is None and "trials" in line:
                    first = time.perf_counter() - start
        wall = time.perf_counter() - start
        if process.returncode != 0:
            raise RuntimeError(f"plan ended with status {process.returncode}")
        found = json.loads(out.read_text())
        shown = found["worlds"], found["table_worlds"], found["times_as_long"]
        return Planned(models, questions, _cpu() - before, wall, first, *shown)


def _cpu() -> float:
    """CPU seconds of all processes that were started here and have ended, and of those that they had started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check(one: Planned) -> Check:
    what = f"CPU seconds of plan, {one.models} models x {one.questions} questions"
    most = SECONDS * CORES
    return Check(what, round(one.cpu, 1), f"<= {most:g} ({SECONDS:g} s on {CORES} cores)", one.cpu <= most)


def main() -> None:
    options = arguments("How long a forecast takes.").parse_args()
    found = [plan(*size) for size in (QUICK if options.quick else SIZES)]
    checks = [check(one) for one in found]
    rows = [one.cells() for one in found]
    text = "\n\n".join([
        "# How long a forecast takes",
        f"`plan` at its defaults: at most 100 worlds, fewer where their figures settle. Machine: {machine()}, load "
        f"{os.getloadavg()[0]:.1f}. *first figures*: when the first of its lines with trials was there. *times "
        "fixed N*: the forecast time of the run in that of the maximum of trials for everyone, at 64 requests a model.",
        check_table(checks),
        markdown(HEADER, rows),
    ])  # fmt: skip
    publish(options, text, checks)


if __name__ == "__main__":
    main()
