"""Many blocks under one time limit."""

import asyncio

import pytest

from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.time_limit import EndableBlock, TimeLimit

pytestmark = pytest.mark.patient


async def took(limit: TimeLimit, seconds: float) -> float | None:
    """When a block that wants so many seconds was ended; None where it came to its end."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    try:
        with EndableBlock() as block:
            limit.begin(block)
            try:
                await asyncio.sleep(seconds)
            finally:
                limit.leave(block)
    except Failure as failure:
        assert failure.kind is FailureKind.TIMED_OUT and str(failure) == "no answer within 10 s"
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


async def test_a_block_that_is_ended_twice_or_too_late_ends_once_or_not_at_all() -> None:
    begun = asyncio.Event()

    async def one(seconds: float) -> str:
        try:
            with EndableBlock() as block:
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


async def test_a_task_that_is_cancelled_as_its_block_is_ended_stays_cancelled() -> None:
    blocks: list[EndableBlock] = []

    async def wait() -> None:
        with EndableBlock() as block:
            blocks.append(block)
            await asyncio.sleep(60.0)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0.0)
    blocks[0].end(TimeoutError())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    other = asyncio.create_task(wait())
    await asyncio.sleep(0.0)
    blocks[1].end(TimeoutError())
    with pytest.raises(TimeoutError):
        await other


async def test_an_error_within_a_block_that_is_ended_is_told_as_it_is() -> None:
    async def fail() -> None:
        with EndableBlock() as block:
            block.end(TimeoutError())
            try:
                await asyncio.sleep(60.0)
            finally:
                raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        await asyncio.create_task(fail())
