"""What a head asks of its keeper and its sites, with a keeper and a site that are no actors."""

import asyncio
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from patient_time import until

from adaptive_eval import __version__
from adaptive_eval.sites.cluster import RayCluster, RaySite
from adaptive_eval.sites.host import PlaceWait
from adaptive_eval.sites.messages import SiteAddress, SiteFacts, SiteGone, SiteOrder, SiteReport, listen


class FakeKeeper:
    """Answers no call to place a site, and keeps in mind what it was asked."""

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
    """Else it would be held until the end of the run: the head knows of a site only when the keeper has answered."""
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
