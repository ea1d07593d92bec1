"""A server is waited for, told of when it fails, and started again when it dies."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx2
import pytest
from launched_bed import Asked, Bed, Inner, ask_server
from patient_time import HANGS, let_pass, until
from processes import SERVER, running
from thoroughness import first_of

from adaptive_eval.base.errors import LaunchFailed, RetryNotAllowed, Unavailable
from adaptive_eval.launch import command as command_module
from adaptive_eval.launch import server as readiness
from adaptive_eval.launch.command import free_ports
from adaptive_eval.launch.endpoint import ServedEndpoint, ServedPlace
from adaptive_eval.launch.host import ExclusivePlaces, Host
from adaptive_eval.launch.server import MAX_RESTARTS
from adaptive_eval.notes import Event, ServerDied, ServerLaunched, ServerLaunching, ServerReleased


def host_of(beds: Sequence[Bed]) -> Host:
    """They take turns at one place."""
    return Host("gpu0", dict(enumerate(bed.server for bed in beds)), ExclusivePlaces(["gpu0"], "a run"))


async def test_it_is_waited_for(tmp_path: Path, port: int) -> None:
    bed = Bed(tmp_path, port, "late=0.5")
    began = time.monotonic()
    await bed.start()
    assert time.monotonic() - began >= 0.4
    assert bed.server.version == "1.2.3"
    assert bed.log.read_text().startswith("--- 20")
    await bed.server.stop()
    assert not running(str(port))


async def test_answers_without_end_are_done_without(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "VERSION_SECONDS", 0.2)
    bed = Bed(tmp_path, port, "endless")
    async with asyncio.timeout(HANGS):
        await bed.start()
    assert bed.server.version is None
    await bed.server.stop()


async def test_a_server_that_ends_before_it_is_ready_says_how_and_what_it_said_last(tmp_path: Path, port: int) -> None:
    with pytest.raises(LaunchFailed, match=r"exited with status 0 \(a command must run as long as its server does\) "):
        await Bed(tmp_path, port, "exit=0").start()
    bed = Bed(tmp_path, port, "exit=3")
    with pytest.raises(LaunchFailed) as failed:
        await bed.start()
    first, *lines = str(failed.value).split("\n")
    assert first == f"its server exited with status 3 before it was ready (log: {bed.log})"
    assert lines[-2:] == ["  loading layer 39", "  CUDA out of memory key ***"], "no colours, no secrets"
    assert len(lines) == 12


async def test_a_server_that_is_never_ready_is_stopped(tmp_path: Path, port: int) -> None:
    bed = Bed(tmp_path, port, "busy")
    start = asyncio.create_task(bed.start())
    await until(lambda: bed.log.exists() and bed.log.read_text().count("asked") > 1)  # so that one has been answered
    let_pass(HANGS)
    why = "not ready within 300 s: its /health returned HTTP 503; raise launch.timeout"
    with pytest.raises(LaunchFailed, match=why):
        await start
    assert not running(str(port))


async def test_a_wrong_health_check_is_reported_at_once(tmp_path: Path, port: int) -> None:
    bed = Bed(tmp_path, port, "nohealth", timeout=60.0)
    with pytest.raises(LaunchFailed, match=r"its /v1/models returned HTTP 404; /health or /v1/models must"):
        await bed.start()
    assert not running(str(port))


async def test_cancelled_while_it_is_waited_for_it_is_gone(tmp_path: Path, port: int) -> None:
    bed = Bed(tmp_path, port, "busy")
    start = asyncio.create_task(bed.start())
    await until(lambda: bed.log.exists() and "asked" in bed.log.read_text())
    start.cancel()
    await asyncio.wait([start])
    assert start.cancelled()
    assert not running(str(port))


async def test_a_folder_for_logs_that_cannot_be_made_is_reported(tmp_path: Path, port: int) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(LaunchFailed, match="logs"):
        await Bed(tmp_path, port).start()


@pytest.mark.parametrize("hangs", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_it_is_started_again_when_it_dies_or_hangs_and_asked_again_with_the_same_seeds(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    monkeypatch.setattr(readiness, "GRACE_SECONDS", 0.3 if hangs else readiness.GRACE_SECONDS)
    bed = Bed(tmp_path, port)
    await bed.start()
    first = bed.pid
    if hangs:
        os.kill(first, signal.SIGSTOP)
    asked = [asyncio.create_task(bed.endpoint.ask(Asked(range(n, n + 2)), None)) for n in (10, 20)]
    await until(lambda: len(bed.inners[0].asked) == 2)
    if hangs:
        bed.inners[0].error = Unavailable("no replica is left (no answer within 10 s)")
        bed.inners[0].answers.set()
    else:
        os.kill(first, signal.SIGKILL)
    await until(lambda: len(bed.inners) == 2 and len(bed.inners[1].asked) == 2)
    assert bed.pid != first and len(running(f"{SERVER} {port}")) == 2, "a server and its keeper"
    assert bed.inners[0].closed and set(bed.inners[1].asked) == {range(10, 12), range(20, 22)}
    bed.inners[1].answers.set()
    assert [[answer.seed for answer in await answers] for answers in asked] == [[10, 11], [20, 21]]
    died, launched = bed.events
    assert isinstance(died, ServerDied) and launched.kind == ServerLaunched.KIND
    assert (died.restart, died.of) == (1, MAX_RESTARTS)
    why = "no longer answers: no replica is left (no answer within 10 s)" if hangs else "was killed by SIGKILL"
    assert died.reason.startswith(f"its server {why} (log: ")
    assert bed.endpoint.stats.requests == 4 and bed.endpoint.stats.errors == {"reset": 2}
    await bed.server.stop()


@pytest.mark.slow
async def test_one_that_dies_again_and_again_is_given_up(tmp_path: Path, port: int) -> None:
    bed = Bed(tmp_path, port)
    await bed.start()
    asked = asyncio.create_task(bed.endpoint.ask(Asked(range(1)), None))
    for start in range(MAX_RESTARTS + 1):
        await until(lambda start=start: len(bed.inners) > start and bed.inners[start].asked)
        os.kill(bed.pid, signal.SIGKILL)
    with pytest.raises(
        LaunchFailed, match=rf"was killed by SIGKILL [^\n]*, after it was started again {MAX_RESTARTS} "
    ):
        await asked
    assert [event.kind for event in bed.events] == [ServerDied.KIND, ServerLaunched.KIND] * MAX_RESTARTS
    assert not running(str(port))
    await bed.server.stop()


async def test_what_the_endpoint_of_a_dead_server_says_last_is_no_word_on_the_next(tmp_path: Path) -> None:
    inners, place = [Inner(), Inner()], ServedPlace()
    asked = asyncio.create_task(ServedEndpoint(ask_server, [place]).ask(Asked(range(1)), None))
    await asyncio.sleep(0)
    place.begin(inners[0])
    await until(lambda: inners[0].asked)
    inners[0].error = Unavailable("no replica is left")
    ended = asyncio.create_task(place.end())
    inners[0].answers.set()
    await ended
    place.begin(inners[1])
    await until(lambda: inners[1].asked)
    assert not asked.done() and not place.silence.done()
    inners[1].answers.set()
    assert len(await asked) == 1


@pytest.mark.parametrize("leave", [True, False])
async def test_what_was_in_flight_when_a_server_ended_is_lost_and_asked_again_with_leave_only(leave: bool) -> None:
    inners, place = [Inner(), Inner()], ServedPlace()

    async def again() -> bool:
        assert endpoint.stats.lost == 3
        return leave

    endpoint = ServedEndpoint(ask_server, [place])
    place.begin(inners[0])
    asked = asyncio.create_task(endpoint.ask(Asked(range(3)), again))
    await until(lambda: inners[0].asked)
    await place.end()
    place.begin(inners[1])
    inners[1].answers.set()
    if leave:
        assert len(await asked) == 3
    else:
        with pytest.raises(RetryNotAllowed):
            await asked
    assert bool(inners[1].asked) is leave


async def test_a_server_that_can_sleep_makes_room_and_is_woken(tmp_path: Path, two_ports: tuple[int, int]) -> None:
    beds = [
        Bed(tmp_path, port, "sleeps", f"says={name}", place="gpu0", sleep_level=1)
        for port, name in zip(two_ports, ("one", "two"), strict=True)
    ]
    host = host_of(beds)
    events: list[Event] = []
    for model in (0, 1, 0, 1):
        await host.load(model, events.append)
    assert len(beds[0].inners) == len(beds[1].inners) == 2, "each was up twice"
    assert not beds[0].server.served.expected and beds[1].server.served.up
    log = beds[0].log.read_text().splitlines()
    assert log.count("one") == log.count("two") == 1, "and started once"
    assert log.count("/sleep?level=1") == 3 and log.count("/wake_up") == 2
    up = [ServerLaunching.KIND, ServerLaunched.KIND]
    assert [event.kind for event in events] == [*up, *([ServerReleased.KIND, *up] * 3)]
    assert [event.wakes for event in events if isinstance(event, ServerLaunching)] == [None, None, True, True]
    await host.suspend(1, events.append)
    assert beds[0].log.read_text().splitlines().count("/sleep?level=1") == 4 and running(str(two_ports[1]))
    assert events[-1].kind == ServerReleased.KIND and not beds[1].server.served.expected
    await host.load(1, events.append)
    assert beds[1].server.served.up, "it was let rest, and is asked again"
    await host.release(1, events.append)
    assert not running(str(two_ports[1])) and running(str(two_ports[0]))
    await host.unload()
    assert not running(str(two_ports[0])), "what sleeps is stopped in the end"


@pytest.mark.parametrize("what", first_of(["forgets", "forgets=ever"], 1))
async def test_discarded_weights_are_read_before_asking(tmp_path: Path, two_ports: tuple[int, int], what: str) -> None:
    beds = [Bed(tmp_path, port, what, place="gpu0", sleep_level=2) for port in two_ports]
    host = host_of(beds)
    pids, said = [], []
    try:
        for model in (0, 1, 0):
            await host.load(model, lambda event: None)
            pids.append(beds[model].pid)
            async with httpx2.AsyncClient(trust_env=False) as client:
                said.append((await client.get(f"{beds[model].server.spec.root}/answer")).text)
    finally:
        await host.unload()
    assert said == ["42"] * 3 and (pids[0] == pids[2]) is (what == "forgets"), "it slept, or was started anew"


@pytest.mark.slow
@pytest.mark.parametrize("flaw", ["dazed", "says=awake", "killed"])
async def test_servers_that_cannot_sleep_or_wake_restart(tmp_path: Path, two_ports: tuple[int, int], flaw: str) -> None:
    what = "sleeps" if flaw == "killed" else flaw
    beds = [Bed(tmp_path, port, what, place="gpu0", sleep_level=1) for port in two_ports]
    host = host_of(beds)
    await host.load(0, lambda event: None)
    first = beds[0].pid
    await host.load(1, lambda event: None)
    if flaw == "killed":
        os.kill(first, signal.SIGKILL)
    await host.load(0, lambda event: None)
    assert beds[0].pid != first and beds[0].server.served.up
    await host.unload()
    assert not any(running(str(port)) for port in two_ports)


@pytest.mark.slow
@pytest.mark.parametrize("was_up", [False, True])
async def test_a_server_that_does_not_start_beside_sleeping_ones_is_started_without_them(
    tmp_path: Path, two_ports: tuple[int, int], was_up: bool
) -> None:
    trouble = tmp_path / "memory"
    beds = [Bed(tmp_path, port, "sleeps", f"fails={trouble}", place="gpu0", sleep_level=1) for port in two_ports]
    host = host_of(beds)
    events: list[Event] = []
    try:
        if was_up:
            await host.load(1, events.append)
        await host.load(0, events.append)
        if was_up:
            os.kill(beds[1].pid, signal.SIGKILL)
        trouble.touch()
        await host.load(1, events.append)
        assert not trouble.exists() and beds[1].server.served.up
        assert not running(str(two_ports[0])), "the other one slept, and was stopped"
        assert ServerDied.KIND not in [event.kind for event in events], "no restart is used up"
        await host.load(0, events.append)
        assert beds[0].server.served.up
    finally:
        await host.unload()


@pytest.mark.slow
async def test_a_host_serves_one_at_a_time(tmp_path: Path, port: int) -> None:
    beds = [Bed(tmp_path, port, f"says={name}", place="gpu0") for name in ("one", "two")]
    host = host_of(beds)
    events: list[Event] = []
    for model in (0, 1, 0):
        await host.load(model, events.append)
        assert len(running(f"-S {SERVER} {port} says=")) == 2, "the server and its keeper"
        assert running(f"{port} says={('one', 'two')[model]}")
    up = [ServerLaunching.KIND, ServerLaunched.KIND]
    assert [event.kind for event in events] == [*up, *([ServerReleased.KIND, *up] * 2)]
    assert {event.on for event in events} == {"gpu0"}
    waiting = asyncio.create_task(beds[0].endpoint.ask(Asked(range(1)), None))
    await until(lambda: beds[0].inners[-1].asked)
    await host.load(1, events.append)
    with pytest.raises(LaunchFailed, match="its server was stopped"):
        await waiting
    await host.unload(at_once=False)
    assert not running(str(port))


@pytest.mark.slow
async def test_one_that_was_up_and_is_not_in_its_next_turn_is_started_again(tmp_path: Path, port: int) -> None:
    trouble = tmp_path / "trouble"
    bed = Bed(tmp_path, port, f"fails={trouble}")
    trouble.touch()
    with pytest.raises(LaunchFailed, match="its server exited with status 1 before it was ready"):
        await bed.start()
    await bed.start()
    await bed.server.stop()
    assert bed.events == []
    trouble.touch()
    await bed.start()
    (failed,) = bed.events
    assert (failed.kind, failed.restart) == (ServerDied.KIND, 1)
    assert failed.reason.endswith("no memory is left")
    await bed.server.stop()


@pytest.fixture
def busy_port(port: int) -> Iterator[int]:
    """A port that another program has."""
    with HTTPServer(("127.0.0.1", port), BaseHTTPRequestHandler):
        yield port


@pytest.mark.slow
async def test_where_others_have_its_port_it_has_another(tmp_path: Path, busy_port: int, unused_tcp_port: int) -> None:
    other = unused_tcp_port
    bed = Bed(tmp_path, busy_port, others=[other])
    await bed.start()
    launched = bed.server.launched(0.0)
    assert bed.opened == [f"http://127.0.0.1:{other}"] and str(other) in launched.command
    await bed.server.stop()
    assert not running(str(other))


async def test_where_others_take_every_port_it_says_so(
    tmp_path: Path, busy_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_module, "is_free", lambda port: False)
    message = r"no free port was found among 1000 between 20000 and 29999"
    with pytest.raises(LaunchFailed, match=message):
        await Bed(tmp_path, busy_port, others=free_ports()).start()
