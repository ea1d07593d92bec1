"""Runs on a Ray cluster find what a run on one machine finds, whatever becomes of raylets, sites and the head."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from gated import GatedServer
from live_runs import MODELS, RunOutcome, Site, kill, small_world, stored, wait_for_trials, wait_until
from patient_time import HANGS
from raylets import Raylets, stop
from stored_runs import events_in
from warm_start import WarmProcess

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.notes import Event, SiteLost, SitePlaced
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import serving
from adaptive_eval.sites.nodes import join_cluster

pytestmark = pytest.mark.ray

SERVER = Path(__file__).parents[1] / "running" / "small_server.py"
TIMED = Path(__file__).with_name("timed_sites.py")
"""Script of runs whose sites have the timeouts of `set_timeouts`."""
SECRET = "sk-never-to-be-seen-4711"
Kind = TypeVar("Kind", bound=Event)


def models(site: Site, *flags: str, **more: object) -> list[dict[str, object]]:
    command = [sys.executable, "-S", str(SERVER), "{port}", *flags, str(site.folder)]
    section = {"command": command, "timeout": HANGS, "resources": {"CPU": 1}, **more}
    return [{"name": name, "launch": section} for name in MODELS]


def written(site: Site, **changes: object) -> Path:
    trials = {"min": 4, "max": 8, "optimize": "cost"}
    return site.write(**{"trials": trials, "concurrency": 4, **changes})


def events(site: Site, kind: type[Kind]) -> list[Kind]:
    return events_in(site.directory(), kind)


def begun(site: Site, config: Path, raylets: Raylets) -> WarmProcess:
    """A run in a process of its own, each of whose servers has answered ten requests and has further ones."""
    process = site.start(config, "--run-dir", str(site.directory()), "--ray", raylets.address, script=TIMED)
    assert wait_for_trials(site.directory(), 10 * len(MODELS), process), process.communicate()
    return process


def go_on(site: Site) -> None:
    """Let its servers answer all the others."""
    (site.folder / "go").touch()


def run_with(site: Site, config: Path, raylets: Raylets, deed: Callable[[], None]) -> str:
    """The output of a run in a process of its own, during which `deed` is done while every site has requests."""
    process = begun(site, config, raylets)
    deed()
    go_on(site)
    output = process.communicate()
    assert process.returncode == ExitCode.SPENT, output
    return "\n".join(output)


@pytest.fixture(scope="module")
def at_home(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    """What the run finds with servers that it starts on its own machine."""
    site = Site.make(tmp_path_factory.mktemp("home"), "")
    site.run(written(site, models=models(site)), code=ExitCode.SPENT)
    return RunOutcome.of(site.directory())


def test_a_run_finds_the_same_at_several_sites(
    site: Site, at_home: RunOutcome, raylets: Raylets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_KEY", SECRET)
    settings = models(site, "held", sites=2)
    settings[0]["api_key_env"] = "SITE_KEY"
    process = begun(site, written(site, models=settings, concurrency=2), raylets)
    wait_until(lambda: len({(event.model, event.on) for event in events(site, SitePlaced)}) > len(MODELS), process)
    go_on(site)
    output = process.communicate()
    assert process.returncode == ExitCode.SPENT, output
    assert RunOutcome.of(site.directory()) == at_home
    assert {event.model for event in events(site, SitePlaced)} == set(MODELS)
    assert not events(site, SiteLost)
    require_nothing_left(raylets)


def test_a_raylet_that_is_killed_costs_nothing_but_time(site: Site, at_home: RunOutcome, raylets: Raylets) -> None:
    settings = models(site, "held")
    settings[0]["launch"] = {**settings[0]["launch"], "resources": {"CPU": 1, "doomed": 1}}  # type: ignore[dict-item]
    nodes = [raylets.add(resources={"doomed": 1})]

    def deed() -> None:
        served = family(next(event.pid for event in events(site, SitePlaced) if event.model == "ada" and event.pid))
        assert len(served) > 1, "the site and its server"
        raylets.kill_agent(nodes[0])
        require_ended(served)
        raylets.kill(nodes.pop())
        nodes.append(raylets.add(resources={"doomed": 1}))

    try:
        output = run_with(site, written(site, models=settings, concurrency=16), raylets, deed)
    finally:
        raylets.kill(nodes.pop())
    assert RunOutcome.of(site.directory()) == at_home
    assert "ada: site 1" in output and "(raylet)" not in output and "rpc_code" not in output
    assert ("ada", "site 1") in [(event.model, event.on) for event in events(site, SiteLost)]
    nodes = {event.node_id for event in events(site, SitePlaced) if event.model == "ada"}
    assert len(nodes) >= 2 and None not in nodes, "another raylet of the same machine is another node"


def test_a_site_that_hangs_is_begun_anew(
    site: Site, at_home: RunOutcome, raylets: Raylets, set_timeouts: Callable[..., None]
) -> None:
    set_timeouts(heartbeat=10)
    hung: list[int] = []

    def deed() -> None:
        hung.append(next(event.pid for event in events(site, SitePlaced) if event.model == "bob" and event.pid))
        stop(hung[0])

    config = written(site, models=models(site, "held"), concurrency=16)
    try:
        run_with(site, config, raylets, deed)
    finally:
        for pid in hung:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
    assert RunOutcome.of(site.directory()) == at_home
    assert any(event.model == "bob" and event.reason.endswith("for 10 s") for event in events(site, SiteLost))


def test_with_the_head_all_ends_and_the_next_start_goes_on(site: Site, at_home: RunOutcome, raylets: Raylets) -> None:
    """Its sites with their servers, one that has been waiting for a place, and what they took."""
    settings = models(site, "held")
    settings[1]["launch"] = {**settings[1]["launch"], "resources": {"CPU": 1, "late": 1}}  # type: ignore[dict-item]
    config = written(site, models=settings, concurrency=16)
    process = site.start(config, "--run-dir", str(site.directory()), "--ray", raylets.address, script=TIMED)
    assert wait_for_trials(site.directory(), 20, process), process.communicate()
    before = events(site, SitePlaced)
    served = set[int]().union(*(family(event.pid) for event in before if event.pid))
    assert len(served) > len(before) == len(MODELS) - 1, "the sites and their servers"
    assert len(groups_left(raylets)) == len(MODELS)
    kill(process)
    require_ended(served)
    require_nothing_left(raylets)
    go_on(site)
    node = raylets.add(resources={"late": 1})
    try:
        ended = site.run(config, "--ray", raylets.address)
    finally:
        raylets.kill(node)
    assert ended.exit_code == ExitCode.SPENT, ended.output
    assert RunOutcome.of(site.directory()) == at_home
    assert {event.model for event in events(site, SitePlaced)[len(before) :]} == set(MODELS)
    assert not events(site, SiteLost)
    require_nothing_left(raylets)


def test_a_killed_head_that_starts_again_waits_for_no_name(site: Site, at_home: RunOutcome, raylets: Raylets) -> None:
    config = written(site, models=models(site, "held"), concurrency=16)
    kill(begun(site, config, raylets))
    go_on(site)
    site.run(config, "--ray", raylets.address, code=ExitCode.SPENT)
    assert RunOutcome.of(site.directory()) == at_home
    log = (site.directory() / "logs" / "ada.log").read_text()
    assert log.count("the small server starts") == 2, "its model is loaded anew"
    require_nothing_left(raylets)


def test_places_that_cannot_be_had_are_told(site: Site, raylets: Raylets, set_timeouts: Callable[..., None]) -> None:
    set_timeouts(resources=2)
    config = written(site, models=models(site, resources={"CPU": 2, "GPU": 8}))
    ended = site.run(config, "--ray", raylets.address, code=ExitCode.ENDPOINTS)
    output = " ".join(ended.output.split())
    assert "no place with CPU 2, GPU 8 was available within 2 s" in output
    assert "the most that one has is CPU 8, GPU 0" in output


def test_no_cluster_to_join_is_reported(site: Site, raylets: Raylets) -> None:
    for address, message in (("127.0.0.1:1", "there is no Ray cluster to join"), ("ray://x:1", "auto or the HOST")):
        ended = site.run(written(site, models=models(site)), "--ray", address)
        assert ended.exit_code == ExitCode.CONFIGURATION and message in " ".join(ended.output.split())


def test_a_cluster_on_loopback_is_refused_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would join it at the address that other machines have for this one, and try that for minutes."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        for address in (f"127.0.0.1:{port}", "auto"):
            ended = site.run(written(site, models=models(site)), "--ray", address, code=ExitCode.CONFIGURATION)
            assert f":{port}: [Errno" in " ".join(ended.output.split())


def joined(raylets: Raylets) -> AbstractContextManager[Any]:
    return join_cluster(raylets.address)


def sites_left(raylets: Raylets) -> list[str]:
    """Sites that are alive; nothing that the cluster knows of them contains a key."""
    return [name for name in actors_left(raylets) if "/" in name]


def actors_left(raylets: Raylets) -> list[str]:
    with joined(raylets) as ray:
        actors = ray._private.state.actors()
        assert SECRET not in repr(actors)
        return [actor["Name"] for actor in actors.values() if actor["State"] not in ("DEAD",)]


def processes() -> dict[int, int]:
    """The parent of every process that has not ended."""
    output = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in output.splitlines()]
    return {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}


def family(pid: int) -> set[int]:
    """A process and its descendants."""
    members, parents = {pid}, processes()
    while more := {child for child, parent in parents.items() if parent in members} - members:
        members |= more
    return members


def require_ended(pids: set[int]) -> None:
    """Wait until these processes have ended."""
    deadline = time.monotonic() + HANGS
    while pids & processes().keys():
        assert time.monotonic() < deadline, "they live on"
        time.sleep(0.1)


def groups_left(raylets: Raylets) -> list[str]:
    """Placement groups that hold resources, or wait for them."""
    with joined(raylets) as nodes:
        groups = nodes.ray.util.placement_group_table()
        return [group["name"] for group in groups.values() if group["state"] != "REMOVED"]


def require_nothing_left(raylets: Raylets) -> None:
    """Wait until the cluster has nothing of any run."""
    deadline = time.monotonic() + HANGS
    while remaining := [*actors_left(raylets), *groups_left(raylets)]:
        assert time.monotonic() < deadline, remaining
        time.sleep(0.2)


VERDICTS, WAITING = 12, 8
"""Given before the head is killed, and asked for at a time."""
IN_FLIGHT = 16
"""Of each model."""


def test_a_killed_head_buys_no_answer_and_no_verdict_twice_but_those_in_flight(site: Site, raylets: Raylets) -> None:
    judge = GatedServer(small_world(), VERDICTS, judge=SimulatedJudge((0.9, 0.2)))
    with serving(judge) as url:
        server = {"base_url": url, "model": "judge"}
        grader = {"kind": "judge", "server": server, "concurrency": {"in_flight": WAITING}}
        config = written(site, models=models(site, "held", "diary"), concurrency=IN_FLIGHT, grader=grader)
        process = begun(site, config, raylets)
        wait_until(lambda: judge.counts["answered"] == VERDICTS + WAITING, process)
        kill(process)
        judge.open()
        go_on(site)
        site.run(config, "--ray", raylets.address, code=ExitCode.SPENT)
        trials, verdicts = len(stored(site)), judge.counts["answered"]
        plain = written(site, models=models(site), grader=grader)
        assert site.run(plain, "--run-dir", str(site.directory("plain"))).exit_code == ExitCode.SPENT
    assert RunOutcome.of(site.directory()) == RunOutcome.of(site.directory("plain"))
    assert not events(site, SiteLost)
    assert verdicts == trials + WAITING
    answers = len((site.folder / "diary.jsonl").read_text().splitlines())
    assert trials <= answers <= trials + IN_FLIGHT * len(MODELS)
    require_nothing_left(raylets)
