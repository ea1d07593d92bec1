"""A place or a port that several want is had by one run at a time, on a machine with many runs."""

import asyncio
import gc
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from launched_bed import Bed
from patient_time import HANGS, until
from processes import SERVER, running, starter, wait_for

from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.launch import command, server
from adaptive_eval.launch import host as module
from adaptive_eval.launch.command import free_ports
from adaptive_eval.launch.host import ExclusivePlaces, Host
from adaptive_eval.notes import Event, PlaceAwaited, ServerLaunching

Holders = list[tuple[str, str]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)


def record_holder(holders: Holders) -> Callable[[str, str], None]:
    return lambda place, holder: holders.append((place, holder))


def nobody(place: str, holder: str) -> None:
    raise AssertionError(f"{place} should be free, and {holder} has it")


async def waits(task: "asyncio.Task[int]", holders: Holders) -> bool:
    await until(lambda: holders)
    return not task.done()


async def test_the_next_run_waits_and_reports_which_run_has_the_place_and_one_that_stops_waiting_has_none() -> None:
    first, second, third = (ExclusivePlaces(["gpu0"], name) for name in ("first", "second", "third"))
    await first.take("gpu0", nobody)
    await first.take("gpu0", nobody)
    taking = asyncio.create_task(second.take("gpu0", record_holder(holders := Holders())))
    assert await waits(taking, holders)
    ((place, holder),) = holders
    assert place == "gpu0" and holder.startswith(f"the run first (process {os.getpid()}, since 20")
    taking.cancel()
    await asyncio.wait([taking])
    taking = asyncio.create_task(third.take("gpu0", record_holder(holders := Holders())))
    assert await waits(taking, holders)
    first.release()
    assert await taking >= 0
    third.release()


async def test_runs_with_two_places_never_wait_for_each_other() -> None:
    """Each begins with another one: the first to have gpu0 gets both, and then the other does."""
    first, second = ExclusivePlaces(["gpu0", "gpu1"], "first"), ExclusivePlaces(["gpu1", "gpu0"], "second")
    tasks = {first: asyncio.create_task(first.take("gpu1", record_holder(Holders())))}
    tasks[second] = asyncio.create_task(second.take("gpu0", record_holder(Holders())))
    async with asyncio.timeout(HANGS):
        done, _ = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        (ahead,) = (run for run, task in tasks.items() if task in done)
        (behind,) = (run for run in tasks if run is not ahead)
        for word in ("gpu0", "gpu1"):
            await ahead.take(word, nobody)
        ahead.release()
        for word in ("gpu1", "gpu0"):
            await behind.take(word, record_holder(Holders()))
        behind.release()
        await tasks[behind]


async def test_a_run_serves_at_its_first_place_while_it_waits_for_the_second() -> None:
    other, run = ExclusivePlaces(["gpu1"], "other"), ExclusivePlaces(["gpu0", "gpu1"], "run")
    await other.take("gpu1", nobody)
    second = asyncio.create_task(run.take("gpu1", record_holder(holders := Holders())))
    assert await waits(second, holders)
    async with asyncio.timeout(HANGS):
        await run.take("gpu0", nobody)
        other.release()
        await second
    run.release()


async def test_a_run_that_does_not_wait_is_refused_at_once() -> None:
    first, second = ExclusivePlaces(["gpu0"], "first"), ExclusivePlaces(["gpu0"], "second", patient=False)
    await first.take("gpu0", nobody)
    with pytest.raises(LaunchFailed, match=r"the run first \(process \d+, since [^)]+\) has gpu0; wait until it has "):
        await second.take("gpu0", nobody)
    first.release()
    await second.take("gpu0", nobody)
    second.release()


@pytest.mark.parametrize("kind", ["of others", "a file", "a link"])
async def test_a_folder_that_others_could_write_is_refused(tmp_path: Path, kind: str) -> None:
    folder = Path(tempfile.gettempdir()) / f"adaptive-eval-{os.getuid()}"
    if kind == "a file":
        folder.write_text("")
    elif kind == "a link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(LaunchFailed, match=r"adaptive-eval-\d+.*; (remove it, or )?set TMPDIR"):
        await ExclusivePlaces(["gpu0"], "run").take("gpu0", nobody)
    assert kind == "a file" or not any(folder.iterdir())


@pytest.fixture
def killed(tmp_path: Path, port: int) -> int:
    """The process of a run that had gpu0 and was killed; its server has an hour to end, and does when it is let to."""
    with starter(tmp_path, port, f"until={tmp_path / 'over'}", grace=3600.0, place="gpu0") as run:
        wait_for(tmp_path / "log", "deaf")
        run.send_signal(signal.SIGKILL)
    return run.pid


async def test_a_killed_run_has_its_place_until_its_server_has_ended(tmp_path: Path, killed: int, port: int) -> None:
    holders, places = Holders(), ExclusivePlaces(["gpu0"], "next")
    taking = asyncio.create_task(places.take("gpu0", record_holder(holders)))
    await until(lambda: holders)
    assert running(f"{SERVER} {port}") and not taking.done()
    (tmp_path / "over").touch()
    await taking
    assert not running(f"{SERVER} {port}")
    assert holders[0][1].startswith(f"the run killed (process {killed}, since ")
    places.release()


def host_of(folder: Path, port: int, places: ExclusivePlaces, *what: str) -> Host:
    """A host of one model on gpu0, whose server nobody asks."""
    return Host("gpu0", {0: Bed(folder, port, *what, place="gpu0").server}, places)


async def test_stopping_servers_have_time_to_end(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command like `docker run` that is killed leaves the server behind."""
    monkeypatch.setattr(server, "GRACE_SECONDS", 3600.0)
    places, events = ExclusivePlaces(["gpu0"], "run"), list[Event]()
    host = host_of(tmp_path, port, places, f"until={tmp_path / 'over'}")
    async with asyncio.timeout(HANGS):
        await host.load(0, events.append)
        releasing = asyncio.create_task(host.release(0, events.append))
        for _ in range(3):
            await asyncio.sleep(0)
        releasing.cancel()
        await asyncio.wait([releasing])
        (tmp_path / "over").touch()
        await host.unload(at_once=False)
    places.release()
    assert not running(f"{SERVER} {port}")
    assert (tmp_path / "logs" / "m.log").read_text().endswith("over\n")


async def test_a_host_says_that_it_waits_and_how_long(tmp_path: Path, port: int) -> None:
    other, events = ExclusivePlaces(["gpu0"], "other"), list[Event]()
    places = ExclusivePlaces(["gpu0"], "run")
    host = host_of(tmp_path, port, places)
    await other.take("gpu0", nobody)
    began = time.monotonic()
    loading = asyncio.create_task(host.load(0, events.append))
    await until(lambda: events)
    await asyncio.sleep(0.5)
    assert not running(str(port))
    other.release()
    await loading
    took = time.monotonic() - began
    await host.unload(at_once=True)
    places.release()
    waiting, launching, launched = events
    assert isinstance(waiting, PlaceAwaited) and isinstance(launching, ServerLaunching)
    assert waiting.on == "gpu0" and waiting.by.startswith("the run other (process ")
    waited = launching.waited
    assert waited is not None and waited >= 0.5 and waited + launched.seconds <= took


@pytest.fixture
def three_free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PORT_RANGE", range(20_000, 20_003))
    monkeypatch.setattr(command, "MAX_TRIES", 3)
    monkeypatch.setattr(command, "is_free", lambda port: True)  # as long as no server listens there


@pytest.mark.usefixtures("three_free_ports")
def test_two_runs_are_never_given_the_same_port_before_their_servers_listen() -> None:
    first, second = free_ports(), free_ports()
    assert {next(first), next(second), next(first)} == {20_000, 20_001, 20_002}
    with pytest.raises(LaunchFailed, match="no free port"):
        next(second)
    first.close()  # type: ignore[attr-defined]
    assert {next(ports) for ports in [free_ports()] for _ in range(3)} == {20_000, 20_001, 20_002}, "let go by both"


@pytest.mark.usefixtures("three_free_ports")
def test_two_users_of_a_machine_are_never_given_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share no folder where one of them could say what it has."""
    first, second = free_ports(), free_ports()
    given = {next(first)}
    monkeypatch.setattr(os, "getuid", lambda: 4_711)
    given |= {next(second), next(second)}
    assert given == {20_000, 20_001, 20_002}


@pytest.mark.usefixtures("three_free_ports")
def test_ports_are_counted_up_where_none_can_be_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "HOST", "192.0.2.1")  # of no interface
    assert set(next(ports) for ports in [free_ports()] for _ in range(3)) == {20_000, 20_001, 20_002}


@pytest.mark.usefixtures("three_free_ports")
def test_ports_that_nobody_lets_go_of_are_free_when_they_are_collected() -> None:
    """A run that is ended in the middle closes nothing, and no warning of it may be raised wherever that is noticed."""

    class Holder:
        pass

    holder = Holder()
    holder.ports = ports = free_ports()  # type: ignore[attr-defined]
    holder.itself = holder  # type: ignore[attr-defined]
    assert {next(ports) for _ in range(3)} == {20_000, 20_001, 20_002}
    del holder, ports
    gc.collect()
    assert {next(ports) for ports in [free_ports()] for _ in range(3)} == {20_000, 20_001, 20_002}
