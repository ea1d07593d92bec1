"""A site that is found again says for how long it has held its server without a head."""

import time
from types import SimpleNamespace
from typing import Any

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
