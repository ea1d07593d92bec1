"""results.json is kept up to date while a run goes on."""

import asyncio
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from patient_time import HANGS

from adaptive_eval.record.snapshot import Snapshot
from adaptive_eval.running.publishing import Publisher


async def test_trials_are_published_though_no_look_is_taken(tmp_path: Path) -> None:
    taken = asyncio.Event()

    def take() -> Snapshot | None:
        taken.set()
        return None

    publisher = Publisher(tmp_path, take)
    with patch("adaptive_eval.running.publishing.BETWEEN_LOOKS_SECONDS", 0.001):
        publishing = asyncio.create_task(publisher.run())
        await asyncio.wait_for(taken.wait(), HANGS)
    publishing.cancel()
    with suppress(asyncio.CancelledError):
        await publishing
    publisher.close()


@pytest.mark.parametrize("turns", range(6))
async def test_it_ends_though_a_look_comes_at_the_moment_it_is_cancelled(tmp_path: Path, turns: int) -> None:
    publisher = Publisher(tmp_path, lambda: None)
    publishing = asyncio.create_task(publisher.run())
    await asyncio.sleep(0)
    publisher.looked()
    for _ in range(turns):
        await asyncio.sleep(0)
    publishing.cancel()
    done, _ = await asyncio.wait([publishing], timeout=HANGS)
    publishing.cancel()
    publisher.close()
    assert done
