"""What sites on a Ray cluster cost the head of a run: its CPU for each trial, by how many answers travel together.

    python benchmarks/ray_sites.py [--quick] [--json PATH] [--markdown PATH]

It needs `pip install 'adaptive-eval[ray]'`, and starts a cluster of its own with a node for each of three sites. A run
asks servers that answer at once, first of its own and then at sites. CPU is that of the head's process alone, for what
many trials take beyond few; on a cluster the rest is done on other nodes. Servers, sites and raylets share the cores of
this machine with the head here, so that trials a second would say nothing, and are not measured.
"""

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tables import Check, arguments, check_table, machine, markdown, publish
from throughput import COMMAND, MODELS, QUESTIONS, WORKER, configuration, finished

IN_FLIGHT = 256
BATCHES = (1, 32, 256)
MOST_TIMES = 1.0
"""Goal: the head's CPU of a trial at batches of 32, beside a run that asks and grades by itself."""


class Setting(NamedTuple):
    """How a run is served."""

    sites: int
    """Of each model; 0: servers on this machine, without Ray."""
    batch: int = 256

    @property
    def words(self) -> str:
        """As a row of the table."""
        where = "without Ray" if not self.sites else f"{self.sites} site{'s' * (self.sites > 1)} a model"
        return where if not self.sites else f"{where}, batches of {self.batch}"


@contextmanager
def cluster(nodes: int) -> Iterator[str]:
    """The address of a cluster with so many nodes for sites."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    each: dict[str, Any] = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **each})
    try:
        for _ in range(nodes):
            started.add_node(num_cpus=MODELS, **each)
        yield started.address
    finally:
        started.shutdown()


def whole_run(setting: Setting, address: str, trials: int) -> float:
    """CPU seconds of the head."""
    command = [sys.executable, str(WORKER), "serve", "{port}", "0"]
    # the server knows one answer, to whatever it is sent; it is ready when it gives that
    launch = {"command": command, "health": "/", "sites": max(setting.sites, 1), "resources": {"CPU": 1}}
    with tempfile.TemporaryDirectory() as folder:
        path = configuration("http://127.0.0.1:1/v1", IN_FLIGHT, trials // (QUESTIONS * MODELS), Path(folder))
        config = json.loads(path.read_text())
        for model in config["models"]:
            del model["base_url"]
            model["launch"] = launch
            model["concurrency"] = IN_FLIGHT // MODELS // max(setting.sites, 1)
        more = {"sampling": {"max_tokens": 512}, "stop_on_alarm": "never", "sites": {"batch": setting.batch}}
        path.write_text(json.dumps(config | more))
        directory = Path(folder) / "run"
        words = [str(COMMAND), "run", str(path), "--run-dir", str(directory), "--display", "none"]
        return finished(words + (["--ray", address] if setting.sites else []), (0, 3)).cpu


def a_trial(setting: Setting, address: str, few: int, many: int) -> float:
    """Milliseconds of the head's CPU for each trial that many have beyond few."""
    less, more = (whole_run(setting, address, trials) for trials in (few, many))
    return (more - less) / (many - few) * 1e3


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    turns, few, many = (1, 600, 3600) if options.quick else (3, 1200, 12_000)
    settings = [Setting(0), *(Setting(1, batch) for batch in BATCHES)]
    settings += [] if options.quick else [Setting(2), Setting(3)]
    found: dict[Setting, list[float]] = {setting: [] for setting in settings}
    with cluster(3) as address:
        for turn in range(turns):
            for setting in settings[:: 1 if turn % 2 == 0 else -1]:
                found[setting].append(a_trial(setting, address, few, many))
    pairs = zip(found[Setting(0)], found[Setting(1, 32)], strict=True)
    times = statistics.median(sites / alone for alone, sites in pairs)
    name = "the head's CPU of a trial at batches of 32, times a run without Ray"
    checks = [Check(name, round(times, 2), f"<= {MOST_TIMES}", times <= MOST_TIMES)]
    rows = [(setting.words, f"{statistics.median(ours):.3f}") for setting, ours in found.items()]
    document = [
        "# Sites on a Ray cluster",
        f"What `benchmarks/ray_sites.py{' --quick' * options.quick}` prints: turns: {turns}, "
        f"{many - few:,} trials beyond {few:,}, {IN_FLIGHT} in flight, servers that answer at once.",
        check_table(checks),
        markdown(("served", "the head's CPU, ms a trial"), rows),
        "CPU is that of the head's process. Servers, sites and raylets had the same cores.",
        f"{machine()}.",
    ]
    publish(options, "\n\n".join(document), checks)


if __name__ == "__main__":
    main()
