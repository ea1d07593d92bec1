"""Which replica gets a request, and how many each may have."""

import asyncio
from pathlib import Path

import pytest

from adaptive_eval.base.errors import Unavailable
from adaptive_eval.endpoints.client import Caller
from adaptive_eval.endpoints.context import EndpointContext
from adaptive_eval.endpoints.failures import FailureKind
from adaptive_eval.endpoints.replica import ProbeTrouble
from adaptive_eval.endpoints.replicas import ReplicaSet
from adaptive_eval.endpoints.types import EndpointConfig, Limits, Sampling


class Well(Caller):
    """A client of servers that are well, and report no load."""

    async def probe(self, base_url: str) -> ProbeTrouble | None:
        return None

    async def fetch_outside_api(self, base_url: str, path: str) -> bytes:
        return b""


def replica_set(count: int = 2, ceiling: int = 2) -> ReplicaSet:
    urls = tuple(f"http://{i}/v1" for i in range(count))
    config, sampling = EndpointConfig(base_url=urls, model="m"), Sampling()
    well = Well(config, sampling, {}, Path())
    return ReplicaSet(EndpointContext(config, sampling, Limits(in_flight=ceiling), well))


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
    acquired = []
    for _ in range(4):
        acquired.append(await replicas.acquire())
        replicas.release(acquired[-1])
    assert acquired == [*replicas.replicas] * 2


async def test_a_retry_goes_elsewhere_if_it_can() -> None:
    replicas = replica_set(2, 5)
    first, second = replicas.replicas
    assert await replicas.acquire(avoid=first) is second
    assert await replicas.acquire(avoid=first) is second
    second.on_failure(FailureKind.UNREACHABLE, 0.0, 0.0)
    assert await replicas.acquire(avoid=first) is first


async def test_waiting_requests_are_served_in_line_and_may_leave_it() -> None:
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


async def test_a_smaller_window_lets_nobody_in_until_enough_have_left() -> None:
    replicas = replica_set(1, 4)
    (replica,) = replicas.replicas
    for _ in range(4):
        await replicas.acquire()
    replica.on_failure(FailureKind.RATE_LIMITED, 1.0, 2.0)
    waiting = asyncio.create_task(replicas.acquire())
    for in_flight in (3, 2):
        replicas.release(replica)
        await asyncio.sleep(0)
        assert (waiting.done(), replica.in_flight) == (False, in_flight)
    replicas.release(replica)
    await asyncio.wait_for(waiting, 1.0)


async def test_a_model_that_is_given_up_tells_everyone() -> None:
    replicas = replica_set(1, 1)
    replicas.replicas[0].on_failure(FailureKind.UNREACHABLE, 0.0, 0.0)
    waiting = asyncio.create_task(replicas.acquire())
    await asyncio.sleep(0)
    replicas.give_up("no replica is left (it burnt down)")
    with pytest.raises(Unavailable, match="burnt down"):
        await waiting
    with pytest.raises(Unavailable, match="burnt down"):
        await replicas.acquire()
