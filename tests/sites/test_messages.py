"""Messages between a head, its keeper and its sites, with ends that are no actors; who is alive."""

import asyncio
import os
import pickle
import select
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from patient_time import HANGS, until

from adaptive_eval import __version__
from adaptive_eval.endpoints.types import Answer, EndpointStats, ReplicaStats, RetryGate
from adaptive_eval.launch.endpoint import ServedEndpoint, ServedPlace
from adaptive_eval.machine.trial import Request
from adaptive_eval.notes import ServerLaunched
from adaptive_eval.sites import keeper
from adaptive_eval.sites.cluster import RayCluster, RaySite
from adaptive_eval.sites.host import PlaceWait
from adaptive_eval.sites.keeper import HeadWatch, end_with_head, send_heartbeats
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
    SiteSecrets,
    SiteSetup,
    listen,
    pack_answer,
)
from adaptive_eval.sites.worker import SiteWorker
from adaptive_eval.supplies.served import ServedClient


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


NEXT = SimpleNamespace(digest="what it serves", head="next")


def begun(head: str) -> Any:
    """A site that serves for that head."""
    worker: Any = SiteWorker()
    worker._server = SimpleNamespace(launched=lambda seconds: ServerLaunched("ada", seconds=seconds))
    worker._setup = SimpleNamespace(digest="what it serves", head=head)
    return worker


async def test_time_without_a_head_counts_from_the_last_call_of_the_one_before() -> None:
    worker = begun("killed")
    began = time.monotonic()
    worker._require_current_head("killed")
    worker._last_call_at -= 300.0
    (event,) = (await worker.begin(NEXT, None, None)).events
    assert 300.0 <= event.without_head <= 300.0 + time.monotonic() - began
    (again,) = (await worker.begin(NEXT, None, None)).events
    assert again.without_head is None, "its head has counted it"


async def test_answers_that_were_lost_before_it_began_are_not_told_again() -> None:
    worker = begun("killed")
    worker._endpoint = SimpleNamespace(stats=EndpointStats(lost=3))
    await worker.begin(NEXT, None, None)
    worker._endpoint.stats = EndpointStats(lost=5)
    worker._reply(SiteReply(0, ()))
    assert (await worker.sync("next", SiteOrder())).stats.lost == 2


async def test_a_call_that_waits_gives_way_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each message to a site would leave a call that waits for a heartbeat."""
    monkeypatch.setattr("adaptive_eval.sites.worker.HEARTBEAT_SECONDS", HANGS)
    worker = begun("head")
    waits = asyncio.create_task(worker.sync("head", SiteOrder()))
    await asyncio.sleep(0)
    last = asyncio.create_task(worker.sync("head", SiteOrder()))
    assert (await waits).replies == () and not last.done()
    worker._reply(SiteReply(7, ()))
    assert (await last).replies == (SiteReply(7, ()),)


async def test_a_request_that_is_dropped_with_the_same_message_is_not_asked() -> None:
    asked: list[range] = []

    async def sample(prompt: object, seeds: range, again: object) -> list[object]:
        asked.append(seeds)
        return []

    worker = begun("head")
    worker._site_data = SimpleNamespace(prompts=[None], questions=[None])
    worker._endpoint = SimpleNamespace(sample=sample, stats=EndpointStats())
    requests = tuple(SiteRequest(number, 0, number, 1, False) for number in range(2))
    assert (await worker.sync("head", SiteOrder(requests, dropped=(1,)))).replies == (SiteReply(0, ()),)
    assert asked == [range(1)]


class FakeKeeper:
    """Answers no call to place a site, and records what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def __getattr__(self, method: str) -> Any:
        def remote(*arguments: object) -> "asyncio.Future[object]":
            self.asked.append((method, *arguments))
            answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            if method == "version":
                answer.set_result(__version__)
            return answer

        return SimpleNamespace(remote=remote)


def fake_cluster(keeper: FakeKeeper) -> RayCluster:
    def get_actor(name: str, namespace: str) -> FakeKeeper:
        if name != "keeper":
            raise ValueError(name)
        return keeper

    ray = SimpleNamespace(get_actor=get_actor, exceptions=SimpleNamespace(RayError=RuntimeError))
    return RayCluster(ray, "keeper", orphan_timeout=600.0)


async def test_a_place_that_is_no_longer_wanted_when_it_arrives_is_given_back() -> None:
    """Otherwise it would be held until the end of the run: the head knows a site only once the keeper has answered."""
    keeper = FakeKeeper()
    never: Callable[..., Any] = lambda *_, **__: False  # noqa: E731
    placing = asyncio.create_task(fake_cluster(keeper).place("site", {"GPU": 8.0}, PlaceWait(900.0, never, never)))
    await until(lambda: ("place", "site", {"GPU": 8.0}) in keeper.asked)
    placing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await placing
    assert keeper.asked[-1] == ("release_site", "site")


def test_a_cluster_that_does_not_answer_for_a_moment_does_not_end_the_heartbeats() -> None:
    """Their thread would end, and every site with it when `keep` is over."""
    cluster = fake_cluster(FakeKeeper())

    def get_actor(name: str, namespace: str) -> FakeKeeper:
        raise RuntimeError("the head node does not answer")

    cluster.ray.get_actor = get_actor
    cluster.send_heartbeat()


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
    site = RaySite(fake_cluster(FakeKeeper()), "site", actor)
    await site.facts()
    assert (await site.sync("head", SiteOrder())).retry_requests == (1,), "it has no address"
    server, actor.address = await listen("127.0.0.1", actor.reached)
    server.close()
    await site.facts()
    assert (await site.sync("head", SiteOrder())).retry_requests == (1,), "nobody listens there"


async def test_ray_says_why_a_connection_to_a_site_broke() -> None:
    actor = FakeSite()
    server, actor.address = await listen("127.0.0.1", actor.reached)
    async with server:
        site = RaySite(fake_cluster(FakeKeeper()), "site", actor)
        await site.facts()
        assert (await site.sync("head", SiteOrder())).retry_requests == (2,)
        actor.dead = True
        with pytest.raises(SiteGone, match="its node has died"):
            await site.sync("head", SiteOrder())


class PatientSite:
    """Records what it is asked, and gives the replies of the test."""

    def __init__(self) -> None:
        self.orders = 0
        self.requests: list[SiteRequest] = []
        self.reports: asyncio.Queue[SiteReport] = asyncio.Queue()

    async def begin(self, setup: SiteSetup, site_secrets: SiteSecrets, material: SiteData) -> SiteBegun:
        return SiteBegun()

    async def sync(self, head: str, order: SiteOrder) -> SiteReport:
        self.orders += bool(order.requests)
        self.requests += order.requests
        return await self.reports.get()

    async def end(self, at_once: bool) -> None:
        return None

    def kill(self) -> None:
        return None


async def test_what_comes_from_a_site_is_named_by_its_place() -> None:
    endpoint = ServedEndpoint()

    async def ask(link: SiteLink, request: Request, again: RetryGate | None) -> list[Answer]:
        return await link.ask(request, request.first, again)

    client = ServedClient(endpoint, ask)
    asked = [asyncio.create_task(client.ask(Request(trial, 0, 7, trial, 1, 0), None)) for trial in range(3)]
    site = PatientSite()
    place = ServedPlace()
    endpoint.add(place)
    callbacks = lambda event: None, lambda link, reason: None
    link = SiteLink(site, "head", "site 1 on gpu-07", HANGS, *callbacks)
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

    answer = pack_answer(Answer("42", "stop", 0, "http://127.0.0.1:8000/v1", 0.1), None)
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


def test_a_head_is_gone_when_it_has_been_silent_for_as_long_as_it_said_last() -> None:
    now = [100.0]
    watch = HeadWatch(10.0, lambda: now[0])
    now[0] += 9.0
    assert not watch.is_over
    watch.heartbeat(30.0)
    now[0] += 29.0
    assert not watch.is_over, "it has spoken since, and asked for more patience"
    now[0] += 1.0
    assert watch.is_over
    watch.heartbeat(5.0)
    assert not watch.is_over


def test_a_head_says_that_it_lives_while_it_does_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "MAX_INTERVAL", 0.001)
    words, often = [0], threading.Event()

    def say() -> None:
        words[0] += 1
        if words[0] >= 5:
            often.set()

    with send_heartbeats(say, 600.0):
        assert words[0] >= 1, "at once"
        assert often.wait(HANGS)
    after = words[0]
    assert not [thread for thread in threading.enumerate() if thread.name == "adaptive-eval head"]
    assert words[0] == after


def test_a_process_ends_when_it_has_heard_of_no_head_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "WATCH_SECONDS", 0.02)
    ended, now = threading.Event(), [0.0]
    watch = HeadWatch(10.0, lambda: now[0])
    end_with_head(watch, ended.set)
    assert not ended.wait(2.5 * keeper.WATCH_SECONDS)
    now[0] = 10.0
    assert ended.wait(HANGS)


CHILD = """
import sys, time
from adaptive_eval.sites.keeper import HeadWatch, end_with_head

end_with_head(HeadWatch(86_400.0))
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
