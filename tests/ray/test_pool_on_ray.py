"""A pool of a Ray cluster: its places come and go, heads die, and what a run finds is what it finds at home."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from live_runs import MODELS, RunOutcome, Site, kill, wait_for_trials
from patient_time import HANGS
from raylets import Raylets
from test_lives_on_ray import SERVER, TIMED, events, go_on, sites_left
from warm_start import WarmProcess

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.notes import ServerLaunched, SiteLost, SitePlaced

pytestmark = pytest.mark.ray


def written(site: Site, *flags: str, pool: object = 4, **changes: object) -> Path:
    """Three models on places that take a `slot` of their node; four at most, unless something else is said."""
    command = [sys.executable, "-S", str(SERVER), "{port}", *flags, str(site.folder)]
    section = {"command": command, "timeout": HANGS, "resources": {"CPU": 1, "slot": 1}}
    models = [{"name": name, "launch": section} for name in MODELS]
    settings: dict[str, object] = {"trials": {"min": 4, "max": 8, "optimize": "cost"}, "concurrency": 4}
    return site.write(**{**settings, "models": models, "pool": pool, **changes})


@pytest.fixture(scope="module")
def at_home(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    """What the run finds on four places of its own machine."""
    site = Site.make(tmp_path_factory.mktemp("home"), "")
    site.run(written(site, pool=[f"{os.getpid()}-{n}" for n in range(4)]), code=ExitCode.SPENT)
    return RunOutcome.of(site.directory())


class Slots:
    """Nodes with slots for the time of a test."""

    def __init__(self, raylets: Raylets) -> None:
        self._raylets = raylets
        self._nodes: list[Any] = []

    def add(self, number: int) -> None:
        """One more node."""
        self._nodes.append(self._raylets.add(resources={"slot": number}))

    def kill_all(self) -> None:
        """End the raylets of these nodes."""
        while self._nodes:
            self._raylets.kill(self._nodes.pop())


@pytest.fixture
def slots(raylets: Raylets) -> Iterator[Slots]:
    slots = Slots(raylets)
    yield slots
    slots.kill_all()


def begun(site: Site, config: Path, raylets: Raylets, trials: int) -> WarmProcess:
    process = site.start(config, "--run-dir", str(site.directory()), "--ray", raylets.address, script=TIMED)
    assert wait_for_trials(site.directory(), trials, process), process.communicate()
    return process


def ended_well(process: WarmProcess) -> None:
    output = process.communicate()
    assert process.returncode == ExitCode.SPENT, output


def until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANGS
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    """Whether a process runs, and is no zombie."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def test_models_are_swapped_on_fewer_places(site: Site, at_home: RunOutcome, raylets: Raylets, slots: Slots) -> None:
    slots.add(2)
    process = begun(site, written(site, "held=11"), raylets, 10)
    until(lambda: len(events(site, SitePlaced)) == 2)
    go_on(site)
    ended_well(process)
    assert RunOutcome.of(site.directory()) == at_home
    assert len(events(site, SitePlaced)) == 2, "so many there are"
    launched = events(site, ServerLaunched)
    assert {event.model for event in launched} == set(MODELS) and len(launched) > 2
    assert not events(site, SiteLost) and not sites_left(raylets)


def test_nodes_that_join_later_give_places(site: Site, at_home: RunOutcome, raylets: Raylets, slots: Slots) -> None:
    slots.add(1)
    process = begun(site, written(site, "held=11"), raylets, 10)
    slots.add(2)
    until(lambda: len(events(site, SitePlaced)) == 3)
    go_on(site)
    ended_well(process)
    assert RunOutcome.of(site.directory()) == at_home
    assert len({event.on for event in events(site, ServerLaunched)}) == 3


def test_models_of_killed_raylets_find_room(site: Site, at_home: RunOutcome, raylets: Raylets, slots: Slots) -> None:
    """All places are lost, and their processes end; then a single one comes back, and all models take turns there."""
    slots.add(2)
    slots.add(1)
    process = begun(site, written(site, "held=11"), raylets, 10 * len(MODELS))
    left_alone = {event.pid for event in events(site, SitePlaced)}
    slots.kill_all()
    until(lambda: not any(map(is_running, left_alone)))
    slots.add(1)
    go_on(site)
    ended_well(process)
    assert RunOutcome.of(site.directory()) == at_home
    assert len(events(site, SiteLost)) == 3
    assert sum(event.model in MODELS for event in events(site, ServerLaunched)) >= 2 * len(MODELS)


def test_after_a_head_was_killed_the_next_one_gets_its_places(
    site: Site, at_home: RunOutcome, raylets: Raylets, slots: Slots
) -> None:
    slots.add(2)
    config = written(site, "held=11")
    kill(begun(site, config, raylets, 20))
    go_on(site)
    site.run(config, "--ray", raylets.address, code=ExitCode.SPENT)
    assert RunOutcome.of(site.directory()) == at_home
    assert not events(site, SiteLost)
    until(lambda: not sites_left(raylets))
