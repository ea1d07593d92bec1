"""Which replica gets a request, and how many each may have."""

import asyncio

import pytest

from adaptive_eval.base.errors import Unavailable
from adaptive_eval.endpoints.replicas import LONGEST_PAUSE, ONLY_FAILURES, STEPS, TOGETHER, ReplicaSet, RequestWindow


def replica_set(count: int = 2, ceiling: int = 2) -> ReplicaSet:
    return ReplicaSet(tuple(f"http://{i}/v1" for i in range(count)), ceiling, asyncio.get_running_loop().time)


def test_a_window_is_halved_once_for_all_that_was_on_its_way() -> None:
    window = RequestWindow(64)
    window.on_refusal(sent_at=1.0, now=2.0)
    window.on_refusal(sent_at=1.5, now=2.1)
    assert window.size == 32
    window.on_refusal(sent_at=2.0, now=3.0)
    assert window.size == 16
    for _ in range(20):
        window.on_refusal(sent_at=window._halved_at + 1, now=window._halved_at + 2)
    assert window.size == 1


def test_a_window_grows_by_steps_up_to_its_ceiling() -> None:
    window = RequestWindow(64)
    window.on_refusal(sent_at=1.0, now=2.0)
    for _ in range(32):
        window.on_answer()
    assert window.size == 32 + 64 // STEPS
    for _ in range(64 * STEPS):
        window.on_answer()
    assert window.size == 64


def test_failures_now_and_then_leave_a_window_as_it_is() -> None:
    window = RequestWindow(64)
    for moment in range(40):
        window.on_failure(moment, moment + 0.5)
        for _ in range(9):
            window.on_answer()
    assert window.size == 64


def test_failures_that_come_together_halve_it_and_answers_soon_bring_it_back() -> None:
    window = RequestWindow(64)
    for moment in range(TOGETHER - 1):
        window.on_failure(moment, moment + 0.5)
    assert window.size == 64
    for moment in range(TOGETHER, 2 * TOGETHER):
        window.on_failure(moment, moment + 0.5)
    assert window.size == 1
    for _ in range(63):
        window.on_answer()
    assert window.size == 64


def test_a_replica_of_failures_alone_is_asked_with_short_pauses() -> None:
    window, pauses = RequestWindow(64), []
    for moment in range(40):
        window.on_failure(moment, moment + 0.5)
        pauses.append(window.pause)
    assert set(pauses[: ONLY_FAILURES - 1]) == {0.0}
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE
    window.on_answer()
    assert window.pause == 0.0


async def test_the_least_loaded_replica_is_chosen_and_none_above_its_window() -> None:
    replicas = replica_set(3, 2)
    got = [await replicas.acquire() for _ in range(6)]
    assert [replica.in_flight for replica in replicas.replicas] == [2, 2, 2]
    assert len(set(got[:3])) == 3
    waiting = asyncio.create_task(replicas.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    replicas.release(got[4])
    assert await waiting is got[4]


async def test_replicas_that_have_as_many_take_turns() -> None:
    replicas = replica_set(2, 2)
    taken = []
    for _ in range(4):
        taken.append(await replicas.acquire())
        replicas.release(taken[-1])
    assert taken == [*replicas.replicas] * 2


async def test_a_retry_goes_elsewhere_if_it_can() -> None:
    replicas = replica_set(2, 5)
    first, second = replicas.replicas
    assert await replicas.acquire(avoid=first) is second
    assert await replicas.acquire(avoid=first) is second
    second.healthy = False
    assert await replicas.acquire(avoid=first) is first


async def test_who_waits_is_served_in_line_and_may_leave_it() -> None:
    replicas = replica_set(1, 1)
    held = await replicas.acquire()
    line = [asyncio.create_task(replicas.acquire()) for _ in range(4)]
    await asyncio.sleep(0)
    line[0].cancel()
    replicas.release(held)
    # served and cancelled in the same breath: the place goes on to the next
    line[1].cancel()
    assert await asyncio.wait_for(line[2], 1.0) is held
    assert held.in_flight == 1
    replicas.release(held)
    assert await asyncio.wait_for(line[3], 1.0) is held


async def test_a_paused_replica_gets_nothing_until_its_time() -> None:
    replicas = replica_set(1, 4)
    begun = asyncio.get_running_loop().time()
    replicas.pause(replicas.replicas[0], 0.05)
    replicas.pause(replicas.replicas[0], 0.01)
    await asyncio.wait_for(asyncio.gather(*(replicas.acquire() for _ in range(3))), 1.0)
    assert asyncio.get_running_loop().time() - begun >= 0.05


async def test_a_smaller_window_lets_nobody_in_until_enough_have_left() -> None:
    replicas = replica_set(1, 4)
    (replica,) = replicas.replicas
    for _ in range(4):
        await replicas.acquire()
    replica.window.on_refusal(1.0, 2.0)
    waiting = asyncio.create_task(replicas.acquire())
    for left in (3, 2):
        replicas.release(replica)
        await asyncio.sleep(0)
        assert (waiting.done(), replica.in_flight) == (False, left)
    replicas.release(replica)
    await asyncio.wait_for(waiting, 1.0)


async def test_a_model_that_is_given_up_tells_everyone() -> None:
    replicas = replica_set(1, 1)
    replicas.replicas[0].healthy = False
    waiting = asyncio.create_task(replicas.acquire())
    await asyncio.sleep(0)
    replicas.give_up("no replica is left (it burnt down)")
    with pytest.raises(Unavailable, match="burnt down"):
        await waiting
    with pytest.raises(Unavailable, match="burnt down"):
        await replicas.acquire()
