"""Many blocks under one time limit."""

import asyncio

import pytest

from adaptive_eval.endpoints.time_limit import TimeLimit

pytestmark = pytest.mark.patient


async def took(limit: TimeLimit, seconds: float) -> float | None:
    """When a block that wants so many seconds was ended; None where it came to its end."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    try:
        async with asyncio.timeout(None) as block:
            limit.begin(block)
            try:
                await asyncio.sleep(seconds)
            finally:
                limit.end(block)
    except TimeoutError:
        return loop.time() - begun
    return None


async def test_each_block_has_the_whole_limit_and_no_more() -> None:
    limit = TimeLimit(10.0)

    async def later(start: float, seconds: float) -> float | None:
        await asyncio.sleep(start)
        return await took(limit, seconds)

    wanted = [(0.0, 3.0), (1.0, 60.0), (2.0, 9.9), (4.0, 10.1), (4.0, 60.0), (30.0, 60.0), (31.0, 1.0)]
    found = await asyncio.gather(*(later(*one) for one in wanted))
    for (_, seconds), ended in zip(wanted, found, strict=True):
        assert ended is None if seconds < 10.0 else ended == pytest.approx(10.0, abs=0.01)
    limit.close()


async def test_who_is_cancelled_is_not_ended_later() -> None:
    limit = TimeLimit(10.0)
    tasks = [asyncio.create_task(took(limit, 60.0)) for _ in range(3)]
    await asyncio.sleep(5.0)
    tasks[0].cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(ends[0], asyncio.CancelledError)
    assert ends[1:] == [pytest.approx(10.0, abs=0.01)] * 2
    limit.close()
