"""How much of the processor commands take that ask no model, beside an earlier version of this package.

Both versions take turns in one call, so that a busy machine slows both. What counts is the time that the processor
spent on the process, not the time on the wall. Each version publishes and compares runs that it made itself.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tables import Check, arguments, check_table, machine, markdown, publish

HERE = Path(__file__).parents[1]
SIMULATED = """\
questions: {world: coins}
grader: math
trials: {min: 2, max: 6}
models: [{name: coin-11, simulate: true}, {name: coin-06, simulate: true}, {name: coin-01, simulate: true}]
"""
SERVED = """\
questions: questions.csv
grader: exact
sampling: {max_tokens: 9}
models: [{name: one, base_url: 'http://localhost/v1'}, {name: two, base_url: 'http://localhost/v1'}]
"""
COMMANDS = {
    "import adaptive_eval": "import adaptive_eval",
    "--help": "--help",
    "--version": "--version",
    "schema": "schema",
    "validate": "validate served.yaml",
    "report": "report one -o report.html",
    "report --format md": "report one --format md -o report.md",
    "compare": "compare one two",
}
GOAL = 1.0
NOISE = 0.02
"""What two measurements of one version differ by at most."""


def start(source: Path, folder: Path, command: str) -> float:
    """Seconds of the processor that a command of a version takes."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each start compiles all modules, which no user's does
    words = ["-c", command] if command.startswith("import ") else ["-m", "adaptive_eval", *command.split()]
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # it was waited for here, not by subprocess
    if process.returncode:
        sys.exit(f"{command} of {source} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def prepared(source: Path, folder: Path) -> Path:
    """A folder in which all commands can be called; this compiles the modules, too."""
    folder.mkdir()
    (folder / "run.yaml").write_text(SIMULATED)
    (folder / "served.yaml").write_text(SERVED)
    (folder / "questions.csv").write_text("prompt,answer\none,1\ntwo,2\n")
    for run in ("one", "two"):
        start(source, folder, f"run run.yaml --run-dir {run} --display plain")
    for command in COMMANDS.values():
        start(source, folder, command)
    return folder


def measured(versions: list[Path], command: str, pairs: int, folders: list[Path]) -> list[list[float]]:
    """Seconds of each version, in turns."""
    taken: list[list[float]] = [[] for _ in versions]
    for _ in range(pairs):
        for times, source, folder in zip(taken, versions, folders, strict=True):
            times.append(start(source, folder, command))
    return taken


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--against", type=Path, metavar="DIR", help="a checkout of the earlier version")
    parser.add_argument("--pairs", type=int, default=30, help="how often each command is started")
    parser.add_argument("--only", metavar="COMMAND", help="one of the commands alone")
    options = parser.parse_args()
    pairs = 3 if options.quick else options.pairs
    versions = [HERE] if options.against is None else [HERE, options.against.resolve()]
    rows: list[list[object]] = []
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as folder:
        folders = [prepared(source, Path(folder) / str(at)) for at, source in enumerate(versions)]
        for name, command in COMMANDS.items():
            if options.only in (None, name):
                taken = measured(versions, command, pairs, folders)
                milliseconds = [f"{1000 * statistics.median(times):.0f}" for times in taken]
                rows.append([name, *milliseconds])
                if len(taken) == 2:
                    ratio = round(statistics.median(now / then for now, then in zip(*taken, strict=True)), 2)
                    rows[-1].append(ratio)
                    checks.append(
                        Check(f"{name}: CPU beside the earlier version", ratio, f"<= {GOAL:g}", ratio <= GOAL + NOISE)
                    )
    header = ["command", "now, ms", "earlier, ms", "ratio"][: len(rows[0])]
    text = f"# Start-up\n\nMedian CPU of {pairs} starts each, in turns. {machine()}.\n\n{markdown(header, rows)}\n"
    publish(options, text + (f"\n{check_table(checks)}\n" if checks else ""), checks)


if __name__ == "__main__":
    main()
