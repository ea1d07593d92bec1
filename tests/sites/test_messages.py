"""Messages between a head and its sites, with ends that are no actors; a site ends with its parent process."""

import asyncio
import os
import pickle
import select
import subprocess
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from patient_time import HANGS, until

from adaptive_eval import __version__
from adaptive_eval.endpoints.types import Answer, EndpointStats, ReplicaStats, RetryGate
from adaptive_eval.launch.endpoint import ServedEndpoint, ServedPlace
from adaptive_eval.machine.trial import Request
from adaptive_eval.sites.cluster import RayCluster, RaySite
from adaptive_eval.sites.link import SiteLink
from adaptive_eval.sites.messages import (
    CONNECTION_ERRORS,
    SiteAddress,
    SiteBegun,
    SiteConnections,
    SiteData,
    SiteFacts,
    SiteGone,
    SiteOrder,
    SiteReply,
    SiteReport,
    SiteRequest,
    SiteSetup,
    listen,
)
from adaptive_eval.sites.worker import SiteWorker


class Capitals:
    """Replies in capitals; to "later" when it is asked "now"."""

    def __init__(self) -> None:
        self.now = asyncio.Event()

    async def respond(self, message: bytes) -> bytes:
        if message == b"later":
            await self.now.wait()
        if message == b"now":
            self.now.set()
        return message.upper()


async def opened(address: SiteAddress) -> SiteConnections:
    connections = SiteConnections(address)
    await connections.add()
    return connections


@pytest.fixture
async def address() -> AsyncIterator[SiteAddress]:
    server, address = await listen("127.0.0.1", Capitals().respond)
    async with server:
        yield address


async def test_each_message_gets_its_reply_whatever_their_order(address: SiteAddress) -> None:
    connections = await opened(address)
    long = b"x" * 2**20
    async with asyncio.timeout(HANGS):
        replies = await asyncio.gather(*map(connections.exchange, (b"later", long, b"now")))
    assert replies == [b"LATER", long.upper(), b"NOW"]
    connections.close()


async def test_clients_without_the_secret_get_no_reply(address: SiteAddress) -> None:
    host, port, secret = address
    connections = await opened((host, port, secret[::-1]))
    for _ in range(2):
        with pytest.raises(CONNECTION_ERRORS):
            await asyncio.wait_for(connections.exchange(b"now"), HANGS)


async def test_a_reply_that_nobody_waits_for_any_more_is_not_taken_for_another(address: SiteAddress) -> None:
    connections = await opened(address)
    waiting = asyncio.create_task(connections.exchange(b"later"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(HANGS):
        assert await connections.exchange(b"now") == b"NOW"
    connections.close()


def begun() -> Any:
    """A site that serves a model."""
    worker: Any = SiteWorker()
    worker._setup = SimpleNamespace()
    return worker


async def test_the_traffic_of_an_earlier_turn_is_not_told_again() -> None:
    async def nothing(*_: object) -> None:
        return None

    worker: Any = SiteWorker()
    place = ServedPlace()
    place.begin(SimpleNamespace(stats=EndpointStats(requests=7, lost=3)))  # type: ignore[arg-type]
    place.unregister(comes_back=False)
    worker._numbers, worker._servers = {"m": 0}, {0: SimpleNamespace(served=place)}
    worker._host, worker._grade_with = SimpleNamespace(load=nothing), nothing
    setup = SimpleNamespace(model=SimpleNamespace(name="m"), has_answered=True)
    await worker.begin(setup, SimpleNamespace())
    worker._reply(SiteReply(0, ()))
    assert (await worker.sync(SiteOrder())).stats == EndpointStats()


async def test_a_call_that_waits_gives_way_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each message to a site would leave a call that waits for a heartbeat."""
    monkeypatch.setattr("adaptive_eval.sites.worker.HEARTBEAT_SECONDS", HANGS)
    worker = begun()
    waits = asyncio.create_task(worker.sync(SiteOrder()))
    await asyncio.sleep(0)
    last = asyncio.create_task(worker.sync(SiteOrder()))
    assert (await waits).replies == () and not last.done()
    worker._reply(SiteReply(7, ()))
    assert (await last).replies == (SiteReply(7, ()),)


async def test_a_request_that_is_dropped_with_the_same_message_is_not_asked() -> None:
    asked: list[int] = []

    async def ask(request: SiteRequest, again: object) -> list[object]:
        asked.append(request.first)
        return []

    worker = begun()
    worker._site_data = SimpleNamespace(questions=[None])
    worker._endpoint = SimpleNamespace(ask=ask, stats=EndpointStats())
    requests = tuple(SiteRequest(number, 0, number, 1, False) for number in range(2))
    assert (await worker.sync(SiteOrder(requests, dropped=(1,)))).replies == (SiteReply(0, ()),)
    assert asked == [0]


def fake_cluster() -> RayCluster:
    return RayCluster(SimpleNamespace(exceptions=SimpleNamespace(RayError=RuntimeError)))


class FakeSite:
    """Has news in reply to each message, which say how it came; its facts tell the address, until it is dead."""

    def __init__(self) -> None:
        self.address: SiteAddress | None = None
        self.dead = False
        self.facts, self.exchange = SimpleNamespace(remote=self._facts), SimpleNamespace(remote=self._called)

    async def _facts(self) -> SiteFacts:
        if self.dead:
            raise RuntimeError("The actor died because its node has died.")
        return SiteFacts("node", 1, __version__, address=self.address)

    async def _called(self, message: bytes) -> bytes:
        return pickle.dumps(SiteReport(retry_requests=(1,)))

    async def reached(self, message: bytes) -> bytes:
        """Reply to a message on a connection; its sender hears nothing where the site is dead."""
        if self.dead:
            raise ConnectionResetError
        return pickle.dumps(SiteReport(retry_requests=(2,)))


async def test_calls_carry_messages_to_a_site_that_cannot_be_reached_otherwise() -> None:
    actor = FakeSite()
    site = RaySite(fake_cluster(), actor, None)
    await site.facts()
    assert (await site.sync(SiteOrder())).retry_requests == (1,), "it has no address"
    server, actor.address = await listen("127.0.0.1", actor.reached)
    server.close()
    await site.facts()
    assert (await site.sync(SiteOrder())).retry_requests == (1,), "nobody listens there"


async def test_ray_says_why_a_connection_to_a_site_broke() -> None:
    actor = FakeSite()
    server, actor.address = await listen("127.0.0.1", actor.reached)
    async with server:
        site = RaySite(fake_cluster(), actor, None)
        await site.facts()
        assert (await site.sync(SiteOrder())).retry_requests == (2,)
        actor.dead = True
        with pytest.raises(SiteGone, match="its node has died"):
            await site.sync(SiteOrder())


class PatientSite:
    """Records what it is asked, and gives the replies of the test."""

    def __init__(self) -> None:
        self.orders = 0
        self.requests: list[SiteRequest] = []
        self.reports: asyncio.Queue[SiteReport] = asyncio.Queue()

    async def begin(self, setup: SiteSetup, material: SiteData) -> SiteBegun:
        return SiteBegun()

    async def sync(self, order: SiteOrder) -> SiteReport:
        self.orders += bool(order.requests)
        self.requests += order.requests
        return await self.reports.get()

    async def end(self, at_once: bool) -> None:
        return None

    def kill(self) -> None:
        return None


async def test_what_comes_from_a_site_is_named_by_its_place() -> None:
    async def ask(link: SiteLink, request: Request, again: RetryGate | None) -> list[Answer]:
        return await link.ask(request, request.first, again)

    endpoint = ServedEndpoint(ask)
    asked = [asyncio.create_task(endpoint.ask(Request(trial, 0, 7, trial, 1, 0), None)) for trial in range(3)]
    site = PatientSite()
    place = ServedPlace()
    endpoint.add(place)
    callbacks = lambda event: None, lambda link, reason: None
    link = SiteLink(site, "site 1 on gpu-07", HANGS, *callbacks)
    place.begin(link)
    await until(lambda: len(site.requests) == 3)
    assert site.orders == 1, "they travel together"
    assert [(request.question, request.first) for request in site.requests] == [
        (7, 0), (7, 1), (7, 2)
    ]  # fmt: skip
    assert endpoint.stats.in_flight == 3

    inside = EndpointStats(replicas=(ReplicaStats("http://127.0.0.1:8000/v1", True, 2, 16),))
    site.reports.put_nowait(SiteReport(stats=inside))
    await until(lambda: link.stats.replicas)
    (replica,) = endpoint.stats.replicas
    assert replica == ReplicaStats("site 1 on gpu-07", True, 2, 16), "servers of several nodes have one address"

    answer = Answer("42", "stop", 0, "http://127.0.0.1:8000/v1", 0.1)
    site.reports.put_nowait(SiteReport((SiteReply(site.requests[0].number, (answer,)),), stats=inside))
    (first,) = await asked[0]
    assert (first.text, first.replica) == ("42", "site 1 on gpu-07")
    await until(lambda: link.in_flight == 2)
    assert endpoint.stats.in_flight == 2

    place.unregister(comes_back=False)
    assert endpoint.stats.in_flight == 0
    await link.close()
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


CHILD = """
import sys, time
from adaptive_eval.sites.cluster import end_with_parent

end_with_parent()
print("watching", flush=True)
time.sleep(86_400.0)
"""
PARENT = """
import subprocess, sys

held = (int(sys.argv[2]),)
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True, pass_fds=held)
print(child.stdout.readline(), flush=True)
child.wait()
"""


def test_a_process_ends_when_the_one_that_started_it_was_killed() -> None:
    """As Ray's workers are by the agent of their node: a pipe that both have is closed when both have ended."""
    until_end, held = os.pipe()
    command = [sys.executable, "-c", PARENT, CHILD, str(held)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=(held,)) as parent:
        os.close(held)
        assert parent.stdout is not None and parent.stdout.readline() == "watching\n"
        parent.kill()
        parent.wait(HANGS)
        assert select.select([until_end], [], [], HANGS)[0], "it lives on"
        assert os.read(until_end, 1) == b""
        os.close(until_end)
