"""Blocks that are ended from outside."""

import asyncio

import pytest

from adaptive_eval.endpoints.time_limit import CancelScope

pytestmark = pytest.mark.patient(settle=0.0)


async def test_a_block_that_is_ended_twice_or_too_late_ends_once_or_not_at_all() -> None:
    begun = asyncio.Event()

    async def one(seconds: float) -> str:
        try:
            async with CancelScope() as block:
                begun.set()
                await asyncio.sleep(seconds)
                block.end(TimeoutError("first"))
                block.end(ValueError("second"))
                if seconds == 0.0:
                    await asyncio.sleep(60.0)
        except TimeoutError as error:
            return str(error)
        await asyncio.sleep(1.0)  # who was not ended in time is not cancelled afterwards
        return "done"

    assert await one(0.0) == "first"
    assert await one(1.0) == "done"
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
