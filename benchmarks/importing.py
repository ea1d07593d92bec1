"""How long it takes to import log sets of 192,000 trials, and how much memory.

    python benchmarks/importing.py [--quick] [--json PATH] [--markdown PATH]

20 models, 120 questions, 80 trials, each answer of about 800 characters: Inspect logs with their transcripts, samples
of lm-eval graded anew, a table and a tensor; each becomes a run, with its look and its results. CPU time and peak
memory are those of the whole command, start of the program included; the writing of the logs is not counted.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from importing_logs import Size, inspect_logs, lm_eval_logs, table, tensor
from tables import Check, arguments, check_table, machine, markdown, publish

FULL, QUICK = Size(20, 120, 80), Size(10, 40, 12)
SETS: dict[str, tuple[Callable[[Path, Size], list[Path]], tuple[str, ...]]] = {
    "Inspect logs": (inspect_logs, ()),
    "lm-eval samples, graded anew": (lm_eval_logs, ("--grader", "contains")),
    "table": (table, ()),
    "tensor": (tensor, ()),
}
SECONDS, MIB = 30.0, 1024.0
PROBE = (
    "import re, resource, runpy, sys; sys.argv = ['adaptive-eval', *sys.argv[1:]]\n"
    "try: runpy.run_module('adaptive_eval', run_name='__main__')\n"
    "finally:\n"
    "    peak = re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1]\n"
    "    print('peak', peak, file=sys.stderr)\n"
)


class Measured(NamedTuple):
    """One import."""

    trials: int
    log: float
    """Bytes of the logs."""
    cpu: float
    wall: float
    memory: float
    """Peak, MiB."""


def measured(write: Callable[[Path, Size], list[Path]], options: tuple[str, ...], size: Size) -> Measured:
    """The import of a set of logs by a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        logs = folder / "logs"
        logs.mkdir()
        paths = write(logs, size)
        command = [sys.executable, "-c", PROBE, "import", *map(str, paths), "--to", str(folder / "run"), *options]
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        assert ended.stdout.startswith(f"{size.all:,} trials"), ended.stdout
        peak = float(ended.stderr.rsplit("peak ", 1)[1]) / 1024
        return Measured(size.all, sum(path.stat().st_size for path in paths), cpu, wall, peak)


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    size = QUICK if options.quick else FULL
    found = {name: measured(write, given, size) for name, (write, given) in SETS.items()}
    checks = [
        check
        for name, one in found.items()
        for check in (
            Check(f"CPU seconds, {name}", one.cpu, f"< {SECONDS:g}", one.cpu < SECONDS),
            Check(f"peak memory, {name}, MiB", one.memory, f"< {MIB:g}", one.memory < MIB),
        )
    ]
    header = ("logs", "trials", "MB of logs", "CPU s", "wall s", "CPU us / trial", "peak MiB")
    rows = [
        [name, one.trials, one.log / 1e6, one.cpu, one.wall, 1e6 * one.cpu / one.trials, f"{one.memory:.0f}"]
        for name, one in found.items()
    ]
    report = "\n\n".join(
        [
            f"# Importing logs\n\nOn {machine()}, from the start of the program to the results of the run.\n"
            "The goals are on CPU time: wall time has whatever else the machine did meanwhile.",
            markdown(header, rows),
            check_table(checks),
        ]
    )
    publish(options, report, checks)


if __name__ == "__main__":
    main()
