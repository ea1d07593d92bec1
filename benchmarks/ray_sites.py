"""What sites on a Ray cluster cost: the head's CPU of a trial, and that of all.

    python benchmarks/ray_sites.py [--quick] [--one-node] [--turns N] [--trials N] [--json PATH] [--markdown PATH]

It needs `pip install 'adaptive-eval[ray]'`, and starts a cluster of its own: three nodes for sites, or one with
`--one-node`, where a model has up to eight sites, with as many requests in flight in all as one site, or at each. A run
asks servers that answer at once, first of its own and then at sites. CPU of a trial is what is used from the moment in
which all of them are up, and begin to answer, until the last trial but one in a hundred is stored: of the head's
process alone, since on a cluster the rest is done on other nodes, and of all processes together, servers, sites and
raylets included. What they use before, to start, is told by itself. All share the cores of this machine here, so that
trials a second of wall time would say nothing: trials a second of CPU, beside those of the run without Ray, say what a
core that is used does.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from process_cpu import FamilyCpu
from tables import Check, arguments, check_table, machine, markdown, publish
from throughput import COMMAND, MODELS, QUESTIONS, WORKER, configuration

from adaptive_eval.base.errors import AdaptiveEvalError
from adaptive_eval.notes import ServerLaunched, events_of_kind
from adaptive_eval.report.reader import RunReader
from adaptive_eval.store.locate import has_database

MOST_TIMES = 1.0
"""Goal: the head's CPU of a trial, beside a run that asks and grades by itself."""
LEAST_SHARE = 0.9
"""Goal: trials a second of CPU of all processes, beside the same."""
LAST = 0.99
"""Of the trials of a run come while it is at full work."""
SETTLED_SECONDS = 1.0
HEADER = (
    "served",
    "the head's CPU, ms a trial",
    "CPU of all, ms a trial",
    "trials a second of CPU",
    "CPU of the start, s",
)


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


@contextmanager
def cluster(nodes: int) -> Iterator[str]:
    """The address of a cluster with so many nodes for sites; 0: the head node has them."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 0 if nodes else 99, **node})
    try:
        for _ in range(nodes):
            started.add_node(num_cpus=MODELS, **node)
        yield started.address
    finally:
        started.shutdown()


class Used(NamedTuple):
    """CPU of one run."""

    head: float
    all: float
    """Milliseconds a trial while all of its servers are up."""
    start: float
    """Seconds of all processes until then."""


def whole_run(setting: Setting, address: str, trials: int, family: FamilyCpu) -> Used:
    """What a run uses."""
    with tempfile.TemporaryDirectory() as folder:
        go, sites = Path(folder) / "go", max(setting.sites, 1)
        command = [sys.executable, str(WORKER), "serve", "{port}", "0", str(go)]
        # the server knows one answer, to whatever it is sent; it is ready when it gives that
        launch = {"command": command, "health": "/", "sites": sites, "resources": {"CPU": 1}}
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
        family.forget()
        process = subprocess.Popen(words + (["--ray", address] if setting.sites else []), stdout=subprocess.DEVNULL)
        while launched(directory) < MODELS * sites:
            if process.poll() is not None:
                sys.exit(f"{' '.join(words)} ended with exit code {process.returncode} before its servers were up")
            time.sleep(0.2)
        time.sleep(SETTLED_SECONDS)
        begin = time.time()
        go.touch()
        if (code := process.wait()) not in (0, 3):
            sys.exit(f"{' '.join(words)} ended with exit code {code}")
        family.look()
        with closing(RunReader.open(directory)) as reader:
            end = next(spent for spent in reader.spending(1000) if spent.trials >= LAST * trials)
    of_head, of_all = (
        1e3 * (family.seconds_at(end.at, pid) - family.seconds_at(begin, pid)) / end.trials
        for pid in (process.pid, None)
    )
    return Used(of_head, of_all, family.seconds_at(begin) - family.seconds_at(0.0))


def launched(directory: Path) -> int:
    """How many servers have come up."""
    if not has_database(directory):
        return 0
    try:
        with closing(RunReader.open(directory)) as reader:
            return len(events_of_kind(reader.events(), ServerLaunched))
    except AdaptiveEvalError:  # it is being created at this moment
        return 0


def settings_of(options: argparse.Namespace) -> list[Setting]:
    """Every run of a turn; one without Ray is the first."""
    if options.quick:
        return [Setting(0), Setting(1)]
    if not options.one_node:
        return [Setting(sites) for sites in (0, 1, 2, 3)]
    equal = {places: Setting(places, options.in_flight // places) for places in options.places}
    many = [Setting(places, options.in_flight) for places in options.places if places > 1]
    return [Setting(0, options.in_flight), *equal.values(), *many]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3, help="so often each way is measured, forth and back")
    parser.add_argument("--trials", type=int, default=24_000, help="of each run")
    parser.add_argument("--one-node", action="store_true", help="all sites on one node, more of them")
    parser.add_argument("--places", type=int, nargs="+", default=[1, 2, 4, 8], help="sites of a model on one node")
    parser.add_argument("--in-flight", type=int, default=128, help="with --one-node: of a model, and at each site")
    options = parser.parse_args()
    turns, trials = (1, 3600) if options.quick else (options.turns, options.trials)
    settings = settings_of(options)
    measured: dict[Setting, list[Used]] = {setting: [] for setting in settings}
    family = FamilyCpu()
    with family.watched(), cluster(0 if options.one_node else 3) as address:
        for turn in range(turns):
            for setting in settings[:: 1 if turn % 2 == 0 else -1]:
                measured[setting].append(whole_run(setting, address, trials, family))
                print(setting.words, measured[setting][-1], flush=True)

    def beside(setting: Setting, part: str) -> float:
        pairs = zip(measured[settings[0]], measured[setting], strict=True)
        return float(statistics.median(getattr(sites, part) / getattr(alone, part) for alone, sites in pairs))

    times = beside(settings[1], "head")
    name = "the head's CPU of a trial, times a run without Ray"
    checks = [Check(name, round(times, 2), f"<= {MOST_TIMES}", times <= MOST_TIMES)]
    for setting in settings[1:]:
        share = 1.0 / beside(setting, "all")
        name = f"trials a second of CPU of all processes, over a run without Ray: {setting.words}"
        checks.append(Check(name, round(share, 2), f">= {LEAST_SHARE}", share >= LEAST_SHARE))
    middle = {
        part: {setup: statistics.median(getattr(used, part) for used in measured[setup]) for setup in settings}
        for part in Used._fields
    }
    rows = [
        (
            setup.words,
            f"{middle['head'][setup]:.3f}",
            f"{middle['all'][setup]:.3f}",
            f"{1e3 / middle['all'][setup]:,.0f}",
            f"{middle['start'][setup]:.1f}",
        )
        for setup in settings
    ]
    document = [
        "# Sites on a Ray cluster",
        f"What `benchmarks/ray_sites.py{' --quick' * options.quick}{' --one-node' * options.one_node}` prints: "
        f"turns: {turns}, {trials:,} trials a run; servers answer at once.",
        check_table(checks),
        markdown(HEADER, rows),
        "CPU of all is that of the head, its workers, servers, sites and the processes of Ray. All had the same cores. "
        "Servers answer from when all of them are up, and what was used before is the start.",
        f"{machine()}.",
    ]
    publish(options, "\n\n".join(document), checks)


if __name__ == "__main__":
    main()
