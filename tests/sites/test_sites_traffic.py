"""What a site is asked and what comes from it, as the head of the run knows it."""

import asyncio
from collections.abc import Callable

from patient_time import HANGS

from adaptive_eval.endpoints.types import Answer, EndpointStats, ReplicaStats, RetryGate
from adaptive_eval.launch.endpoint import ServedEndpoint, ServedPlace
from adaptive_eval.machine.trial import Request
from adaptive_eval.sites.link import SiteLink
from adaptive_eval.sites.messages import (
    SiteBegun,
    SiteData,
    SiteOrder,
    SiteReply,
    SiteReport,
    SiteRequest,
    SiteSecrets,
    SiteSetup,
    pack_answer,
)
from adaptive_eval.supplies.served import ServedClient


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


async def until(true: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds."""
    async with asyncio.timeout(HANGS):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0)


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
    assert [(request.question, request.trial, request.first) for request in site.requests] == [
        (7, 0, 0), (7, 1, 1), (7, 2, 2)
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
