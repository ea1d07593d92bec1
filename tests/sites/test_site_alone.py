"""A site by itself: for how long it was without a head, and what one message holds."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from adaptive_eval.endpoints.types import EndpointStats
from adaptive_eval.sites.messages import SiteReply
from adaptive_eval.sites.worker import SiteWorker
from adaptive_eval.store import ServerLaunched


async def test_it_counts_from_the_last_word_of_the_head_before() -> None:
    worker: Any = SiteWorker()
    worker._server = SimpleNamespace(launched=lambda seconds: ServerLaunched("ada", seconds=seconds))
    worker._setup = SimpleNamespace(mark="what it serves", head="killed")
    began = time.monotonic()
    worker._require("killed")
    worker._heard_at -= 300.0
    (found,) = (await worker.begin(SimpleNamespace(mark="what it serves", head="next"), None, None)).events
    assert 300.0 <= found.without_head <= 300.0 + time.monotonic() - began
    (again,) = (await worker.begin(SimpleNamespace(mark="what it serves", head="next"), None, None)).events
    assert again.without_head is None, "its head has counted it"


async def test_answers_of_a_moment_travel_together() -> None:
    worker: Any = SiteWorker()
    worker._server = SimpleNamespace(endpoint=SimpleNamespace(stats=EndpointStats()))
    worker._setup, worker._something = SimpleNamespace(head="head", batch=8, moment=0.0), asyncio.Event()
    replies = [SiteReply(number, ()) for number in range(2)]
    for reply in replies:
        worker._tell(reply)
    assert (await worker.news("head")).replies == tuple(replies)
