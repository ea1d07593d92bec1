"""What a monitor costs the run that it watches, and how soon its page is there.

    python benchmarks/monitoring.py [--quick] [--json PATH] [--markdown PATH]

One run of 20 models, 120 questions and up to 4,000 trials goes at full speed against a server that answers at once. A
monitor with one listener is stopped (SIGSTOP) and let on in turn, so that each window with it has one without beside
it: first a program that takes every message and fetches every view, as a page does, then a page in chromium. The run
has one core, its server the other; monitor and browser are where the system puts them. CPU time is the figure to
believe on a machine that others use too. Linux alone: times are read from /proc.
"""

import json
import os
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from tables import Check, arguments, check_table, machine, markdown, publish
from throughput import one_reply, pinned

from adaptive_eval.store import is_held

MODELS, QUESTIONS, TRIALS = 20, 120, 4000
TICK = os.sysconf("SC_CLK_TCK")
ADAPTIVE_EVAL = [sys.executable, "-m", "adaptive_eval"]
WORKER = Path(__file__).with_name("monitoring_worker.py")
WHO = {"listen": "a program that listens", "browse": "a page in chromium"}


def configuration(url: str, folder: Path) -> Path:
    """Models that are all right on every other question: nothing is ever decided, and every look has all to judge."""
    keys = ["42" if number % 2 else "43" for number in range(QUESTIONS)]
    questions = [
        {"id": f"q{number}", "prompt": f"[q{number}] Which integer is meant?", "answer": key}
        for number, key in enumerate(keys)
    ]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    config = {
        "name": "monitored",
        "questions": "questions.jsonl",
        "models": [{"name": f"model-{i:02d}", "base_url": url, "model": "m", "concurrency": 16} for i in range(MODELS)],
        "prompt": "{prompt}\nPlease put your final answer within \\boxed{}.",
        "sampling": {"temperature": 0.6, "max_tokens": 1000},
        "grader": "numeric",
        "stopping": {"confidence": 0.999999},
        "trials": {"min": 4, "max": TRIALS, "favour": "answers", "lookahead": 3},  # `time` would look first at 600
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    return path


# -- what is measured --------------------------------------------------------------------------------------------------


def cpu_of(root: int) -> float:
    """CPU seconds of a process and of all below it."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for path in Path("/proc").iterdir():
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split() if path.name.isdigit() else None
        except OSError:  # it has just ended
            continue
        if fields:
            parents[int(path.name)] = int(fields[1])
            used[int(path.name)] = (int(fields[11]) + int(fields[12])) / TICK
    return sum(cpu for pid, cpu in used.items() if _is_below(pid, root, parents))


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid not in (0, root):
        pid = parents.get(pid, 0)
    return pid == root


def trials_in(directory: Path) -> int:
    """How many trials are committed."""
    with closing(sqlite3.connect(f"file:{directory / 'run.sqlite'}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT max(id) FROM trials").fetchone()[0] or 0)


class Window(NamedTuple):
    """Some seconds of the run."""

    rate: float
    """Trials a second."""
    cpu: float
    """CPU milliseconds of the run for a trial."""
    monitor: float
    """Cores that the monitor took, and
    its listener."""
    listener: float


def window(run: int, directory: Path, monitor: int, listener: int, seconds: float) -> Window:
    """Measure this long from now on."""

    def now() -> tuple[float, int, float, float, float]:
        return time.monotonic(), trials_in(directory), cpu_of(run), cpu_of(monitor), cpu_of(listener)

    before = now()
    time.sleep(seconds)
    took, trials, *cpu = (after - earlier for after, earlier in zip(now(), before, strict=True))
    return Window(trials / took, 1e3 * cpu[0] / max(trials, 1), cpu[1] / took, cpu[2] / took)


class Compared(NamedTuple):
    """Windows with the monitor at work, each beside one in which it is stopped."""

    on: list[Window]
    off: list[Window]

    def ratio(self, name: str) -> float:
        """The median of what a figure is with the monitor, over what it is without."""
        pairs = zip(self.on, self.off, strict=True)
        return float(statistics.median(getattr(on, name) / getattr(off, name) for on, off in pairs))

    def median(self, name: str) -> float:
        """The median with the monitor."""
        return float(statistics.median(getattr(one, name) for one in self.on))


def compare(run: int, directory: Path, monitor: int, listener: int, pairs: int, seconds: float) -> Compared:
    """In turn, the order of each pair the other way round than that of the one before."""
    found = Compared([], [])
    for number in range(pairs):
        for at_work in (True, False) if number % 2 else (False, True):
            os.kill(monitor, signal.SIGCONT if at_work else signal.SIGSTOP)
            time.sleep(0.5)
            (found.on if at_work else found.off).append(window(run, directory, monitor, listener, seconds))
        if not is_held(directory):
            raise SystemExit("the run was over before all windows were: raise TRIALS")
    os.kill(monitor, signal.SIGCONT)
    return found


# -- who takes part ----------------------------------------------------------------------------------------------------


@contextmanager
def ended(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """A process that does not outlive the block, and neither do those that it has started."""
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{process.args!r} has said nothing")
    return line


@contextmanager
def monitoring(directory: Path) -> Iterator[tuple[int, str]]:
    """A monitor of the run: its process and its address."""
    with ended([*ADAPTIVE_EVAL, "monitor", str(directory), "--web"]) as process:
        yield process.pid, re.findall(r"http://\S+", first_line(process))[0]


@contextmanager
def listening(role: str, url: str) -> Iterator[tuple[int, dict[str, float]]]:
    """Somebody who looks: the process, and how soon the page was there."""
    with ended([sys.executable, str(WORKER), role, url]) as process:
        yield process.pid, json.loads(first_line(process))


@contextmanager
def running(url: str, folder: Path) -> Iterator[tuple[int, Path]]:
    """The run, past its first trials: its process and its directory."""
    directory = folder / "monitored"
    command = [*ADAPTIVE_EVAL, "run", str(configuration(url, folder)), "--run-dir", str(directory), "--display", "none"]
    with ended([*pinned(0), *command]) as process:
        while not (directory / "results.json").exists():
            time.sleep(0.1)
            if process.poll() is not None:
                raise SystemExit("the run has ended before it was looked at")
        yield process.pid, directory


# -- the checks --------------------------------------------------------------------------------------------------------


def watched(role: str, run: int, directory: Path, quick: bool) -> tuple[list[Check], list[object], dict[str, float]]:
    """Windows with one kind of listener."""
    with monitoring(directory) as (monitor, url), listening(role, url) as (listener, soon):
        found = compare(run, directory, monitor, listener, *((2, 2.5) if quick else (8, 4.0)))
    cpu, rate = found.ratio("cpu"), found.ratio("rate")
    who = WHO[role]
    checks = [
        Check(f"{who}: CPU of the run a trial, over without", round(cpu, 3), "<= 1.02", cpu <= 1.02),
        Check(f"{who}: trials/s of the run, over without", round(rate, 3), ">= 0.98", rate >= 0.98),
    ]
    row = [who, round(found.median("rate")), found.median("cpu"), cpu, rate, found.median("monitor")]
    return checks, [*row, found.median("listener")], soon


def first_paint(name: str, soon: dict[str, float]) -> list[Check]:
    return [
        Check(f"{name}: first paint, ms", round(soon["painted"]), "< 1000", soon["painted"] < 1000),
        Check(f"{name}: ranking drawn, ms", round(soon["drawn"]), "", None),
    ]


def paint_of_a_stopped_run(run: int, directory: Path) -> list[Check]:
    """The page of the run when it has stopped, from a monitor that has just been started."""
    os.kill(run, signal.SIGTERM)
    while is_held(directory):
        time.sleep(0.2)
    trials = trials_in(directory)
    with monitoring(directory) as (_, url), listening("browse", url) as (_, soon):
        return first_paint(f"a page of {trials:,} trials, run stopped", soon)


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    checks: list[Check] = []
    rows: list[list[object]] = []
    for role in WHO:
        with (
            tempfile.TemporaryDirectory() as folder,
            one_reply() as url,
            running(url, Path(folder)) as (run, directory),
        ):
            found, row, soon = watched(role, run, directory, options.quick)
            checks += found
            rows.append(row)
            if soon:
                checks += first_paint("a page of the live run", soon)
                checks += paint_of_a_stopped_run(run, directory)
    header = ["with the monitor at work", "trials/s", "CPU ms a trial", "over without", "trials/s over without"]
    table = markdown([*header, "cores of the monitor", "cores of the listener"], rows)
    scale = f"{MODELS} models, {QUESTIONS} questions, up to {TRIALS} trials"
    title = "# Monitoring\n\n`python benchmarks/monitoring.py`"
    publish(options, "\n\n".join([title, f"On {machine()}; {scale}.", table, check_table(checks)]), checks)


if __name__ == "__main__":
    main()
