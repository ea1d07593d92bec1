"""results.json is kept up to date while a run goes on."""

import asyncio
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

from adaptive_eval.record.build import Snapshot
from adaptive_eval.running.execute import Publisher


async def test_trials_are_published_though_no_look_is_taken(tmp_path: Path) -> None:
    taken = asyncio.Event()

    def take() -> Snapshot | None:
        taken.set()
        return None

    publisher = Publisher(tmp_path, take)
    with patch("adaptive_eval.running.execute.BETWEEN_LOOKS_SECONDS", 0.001):
        publishing = asyncio.create_task(publisher.run())
        await asyncio.wait_for(taken.wait(), 60)
    publishing.cancel()
    with suppress(asyncio.CancelledError):
        await publishing
    publisher.close()
