"""What sites on a Ray cluster cost: the head's CPU of a trial, and that of all.

    python benchmarks/ray_sites.py [--quick] [--runs 3] [--trials N] [--json PATH]

It needs `pip install 'adaptive-eval[ray]'`, and starts a cluster of one node, where a model has up to eight sites, with
as many requests in flight in all as one site, or at each. A run asks servers that answer at once, first of its own and
then at sites. CPU of a trial is what is used from the moment in which all of them are up, and begin to answer, until
the last trial but one in a hundred is stored: of the head's process alone, since on a cluster the rest is done on other
nodes, and of all processes together, servers, sites and raylets included. All share the cores of this machine here, so
that trials a second of wall time would say nothing: trials a second of CPU, beside those of the run without Ray, say
what a core that is used does.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tables import arguments, at_least, at_most, markdown, publish
from throughput import COMMAND, MODELS, QUESTIONS, WORKER, configuration

from adaptive_eval.base.errors import AdaptiveEvalError
from adaptive_eval.notes import ServerLaunched, events_of_kind
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import Spending
from adaptive_eval.store.locate import has_database

MOST_TIMES = 1.0
"""Goal: the head's CPU of a trial, beside a run that asks and grades by itself."""
LEAST_SHARE = 0.9
"""Goal: trials a second of CPU of all processes, beside the same."""
LAST = 0.99
"""Of the trials of a run come while it is at full work."""
EVERY_SECONDS, SETTLED_SECONDS = 0.2, 1.0
HEADER = ("served", "the head's CPU, ms a trial", "CPU of all, ms a trial", "of a direct run")


class Setting(NamedTuple):
    """How a run is served."""

    sites: int
    """Of each model; 0: servers on this machine, without Ray."""
    in_flight: int = 128
    """Requests in flight at each server."""

    @property
    def words(self) -> str:
        """As a row of the table."""
        served = f"{self.sites} site{'s' * (self.sites > 1)} a model" if self.sites else "without Ray"
        return f"{served}, {self.in_flight} in flight at each"


SETTINGS = (Setting(0), Setting(1), Setting(4, 32), Setting(8, 16), Setting(4), Setting(8))
"""Every run of a turn; the one without Ray is the first."""


@contextmanager
def cluster() -> Iterator[str]:
    """The address of a cluster of one node."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 99, **node})
    try:
        yield started.address
    finally:
        started.shutdown()


class FamilyCpu:
    """CPU seconds of all descendants of this process, those that were left behind by theirs included, over time."""

    def __init__(self) -> None:
        self._used: dict[int, float] = {}
        """What each process had used when it was seen last."""
        self._history: list[tuple[float, dict[int, float]]] = []

    def look(self) -> None:
        """See what all of them have used now."""
        processes = dict[int, tuple[int, float]]()
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has just ended
                fields = path.read_text().rpartition(")")[2].split()
                seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                processes[int(path.parent.name)] = int(fields[1]), seconds
        family, more = self._used.keys() & processes.keys(), {os.getpid()}
        while more:  # a process whose parent has ended has another one, but it is known by then
            family |= more
            more = {pid for pid, (parent, _) in processes.items() if parent in family} - family
        self._used |= {pid: processes[pid][1] for pid in family - {os.getpid()}}
        self._history.append((time.time(), dict(self._used)))

    def seconds_at(self, moment: float, process: int | None = None) -> float:
        """What all of them, or one, had used by a moment since 1970, between two looks as if it went on evenly."""
        used = [seen.get(process, 0.0) if process else sum(seen.values()) for _, seen in self._history]
        return float(np.interp(moment, [at for at, _ in self._history], used))


class Used(NamedTuple):
    """CPU of one run, in milliseconds a trial while all of its servers are up."""

    head: float
    all: float


def whole_run(setting: Setting, address: str, trials: int) -> Used:
    """What a run uses."""
    family = FamilyCpu()
    with tempfile.TemporaryDirectory() as folder:
        go, sites = Path(folder) / "go", max(setting.sites, 1)
        command = [sys.executable, str(WORKER), "serve", "{port}", "0", str(go)]
        launch = {"command": command, "sites": sites, "resources": {"CPU": 1}}
        path = configuration("http://127.0.0.1:1/v1", MODELS, trials // (QUESTIONS * MODELS), Path(folder))
        config = json.loads(path.read_text())
        for model in config["models"]:
            del model["base_url"]
            model["launch"] = launch
            model["concurrency"] = setting.in_flight
        more = {"sampling": {"max_tokens": 512}, "stopping": {"on_alarm": "never"}}
        path.write_text(json.dumps(config | more))
        directory = Path(folder) / "run"
        words = [str(COMMAND), "run", str(path), "--run-dir", str(directory), "--display", "none"]
        process = subprocess.Popen(words + (["--ray", address] if setting.sites else []), stdout=subprocess.DEVNULL)
        while launched(directory) < MODELS * sites:
            if process.poll() is not None:
                sys.exit(f"{' '.join(words)} ended with exit code {process.returncode} before its servers were up")
            time.sleep(EVERY_SECONDS)
            family.look()
        time.sleep(SETTLED_SECONDS)
        family.look()
        begin = time.time()
        go.touch()
        while process.poll() is None:
            time.sleep(EVERY_SECONDS)
            family.look()
        if process.returncode not in (0, 3):
            sys.exit(f"{' '.join(words)} ended with exit code {process.returncode}")
        with closing(RunReader.open(directory)) as reader:
            newest = reader.newest_trial_id
            sums = (reader.sums(0, newest * step // 1000) for step in range(1, 1001))
            end = next(rows for rows in sums if Spending.total(rows).trials >= LAST * trials)
    at, done = max(row.at for row in end), Spending.total(end).trials
    used = (family.seconds_at(at, pid) - family.seconds_at(begin, pid) for pid in (process.pid, None))
    return Used(*(1e3 * seconds / done for seconds in used))


def launched(directory: Path) -> int:
    """How many servers have come up."""
    if not has_database(directory):
        return 0
    try:
        with closing(RunReader.open(directory)) as reader:
            return len(events_of_kind(reader.events(), ServerLaunched))
    except AdaptiveEvalError:  # it is being created at this moment
        return 0


def main() -> None:
    parser = arguments(__doc__, runs=3, quick_runs=1)
    parser.add_argument("--trials", type=int, default=12_000, help="of each run")
    options = parser.parse_args()
    settings, trials = (SETTINGS[:2], 3600) if options.quick else (SETTINGS, options.trials)
    measured: dict[Setting, list[Used]] = {setting: [] for setting in settings}
    with cluster() as address:
        for turn in range(options.runs):
            for setting in settings[:: 1 if turn % 2 == 0 else -1]:
                measured[setting].append(whole_run(setting, address, trials))
                print(setting.words, measured[setting][-1], file=sys.stderr)
    alone, rows, checks = measured[settings[0]], [], []
    for setting, used in measured.items():
        heads = [run.head / direct.head for run, direct in zip(used, alone, strict=True)]
        share = statistics.median(direct.all / run.all for run, direct in zip(used, alone, strict=True))
        means = [statistics.mean(values) for values in zip(*used, strict=True)]
        rows.append((setting.words, *means, f"{share:.2f}" if setting.sites else ""))
        if setting == settings[1]:
            name = "the head's CPU of a trial, times a run without Ray"
            checks.append(at_most(name, statistics.median(heads), MOST_TIMES, 2))
        if setting.sites:
            name = f"trials a second of CPU of all processes, over a run without Ray: {setting.words}"
            checks.append(at_least(name, share, LEAST_SHARE, 2))
    about = f"{trials:,} trials a run, {options.runs} runs each way; servers answer at once."
    publish(options, "Sites on a Ray cluster", __doc__, about, markdown(HEADER, rows), checks=checks)


if __name__ == "__main__":
    main()
