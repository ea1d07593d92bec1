"""A site by itself: for how long it was without a head, and what one message holds."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from patient_time import HANGS

from adaptive_eval.endpoints.types import EndpointStats
from adaptive_eval.notes import ServerLaunched
from adaptive_eval.sites.messages import SiteOrder, SiteReply, SiteRequest
from adaptive_eval.sites.worker import SiteWorker


async def test_time_without_a_head_counts_from_the_last_call_of_the_one_before() -> None:
    worker: Any = SiteWorker()
    worker._server = SimpleNamespace(launched=lambda seconds: ServerLaunched("ada", seconds=seconds))
    worker._setup = SimpleNamespace(digest="what it serves", head="killed")
    began = time.monotonic()
    worker._require_current_head("killed")
    worker._last_call_at -= 300.0
    (event,) = (await worker.begin(SimpleNamespace(digest="what it serves", head="next"), None, None)).events
    assert 300.0 <= event.without_head <= 300.0 + time.monotonic() - began
    (again,) = (await worker.begin(SimpleNamespace(digest="what it serves", head="next"), None, None)).events
    assert again.without_head is None, "its head has counted it"


async def test_answers_that_were_lost_before_it_began_are_not_told_again() -> None:
    worker: Any = SiteWorker()
    worker._server = SimpleNamespace(launched=lambda seconds: ServerLaunched("ada", seconds=seconds))
    worker._setup = SimpleNamespace(digest="what it serves", head="killed")
    worker._endpoint = SimpleNamespace(stats=EndpointStats(lost=3))
    await worker.begin(SimpleNamespace(digest="what it serves", head="next"), None, None)
    worker._endpoint.stats = EndpointStats(lost=5)
    worker._reply(SiteReply(0, ()))
    assert (await worker.sync("next", SiteOrder())).stats.lost == 2


async def test_a_call_that_waits_gives_way_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each message to a site would leave a call that waits for a heartbeat."""
    monkeypatch.setattr("adaptive_eval.sites.worker.HEARTBEAT_SECONDS", HANGS)
    worker: Any = SiteWorker()
    worker._server = SimpleNamespace()
    worker._setup = SimpleNamespace(head="head")
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

    worker: Any = SiteWorker()
    worker._server = SimpleNamespace()
    worker._setup = SimpleNamespace(head="head")
    worker._site_data = SimpleNamespace(prompts=[None], questions=[None])
    worker._endpoint = SimpleNamespace(sample=sample, stats=EndpointStats())
    requests = tuple(SiteRequest(number, 0, number, number, 1, False) for number in range(2))
    assert (await worker.sync("head", SiteOrder(requests, dropped=(1,)))).replies == (SiteReply(0, ()),)
    assert asked == [range(1)]
