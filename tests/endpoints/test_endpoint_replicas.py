"""Which replica gets a request, how many each may have, and what events do to one: its window, pauses and health."""

import asyncio
from math import inf
from pathlib import Path

import pytest

from adaptive_eval.endpoints.client import Caller
from adaptive_eval.endpoints.context import EndpointContext
from adaptive_eval.endpoints.failures import HANDLING, FailureKind
from adaptive_eval.endpoints.load import ServerLoad
from adaptive_eval.endpoints.replica import ProbeTrouble, Replica
from adaptive_eval.endpoints.replicas import ReplicaSet
from adaptive_eval.endpoints.settings import DEFAULT
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
    replicas, acquired = replica_set(2, 2), []
    for _ in range(4):
        acquired.append(await replicas.acquire())
        replicas.release(acquired[-1])
    assert acquired == [*replicas.replicas] * 2, "those that have as many take turns"
    replicas = replica_set(3, 2)
    got = [await replicas.acquire() for _ in range(6)]
    assert [replica.in_flight for replica in replicas.replicas] == [2, 2, 2]
    assert len(set(got[:3])) == 3
    waiting = asyncio.create_task(replicas.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    replicas.release(got[4])
    assert await waiting is got[4]


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


DEAD, SILENT = ProbeTrouble("no connection"), ProbeTrouble("no answer", is_silent=True)


def new() -> Replica:
    """A replica with 64 places, whose server shows no load."""
    replica = Replica("http://one/v1", 64)
    replica.on_load(None, 0, 0.0)
    return replica


# -- the window --------------------------------------------------------------------------------------------------


NO_ROOM = [kind for kind in FailureKind if HANDLING[kind].halves_window]


@pytest.mark.parametrize("kind", NO_ROOM)
def test_a_window_is_halved_once_for_all_on_its_way_and_not_again_without_answers(kind: FailureKind) -> None:
    replica = new()
    replica.on_failure(kind, sent_at=1.0, now=2.0)
    replica.on_answer(sent_at=1.0, now=2.1)
    replica.on_failure(kind, sent_at=1.5, now=2.2)
    assert replica.window == 32
    replica.on_failure(kind, sent_at=2.0, now=3.0)
    assert replica.window == 16
    for moment in range(4, 24):
        replica.on_answer(moment, moment)
        replica.on_failure(kind, moment, moment + 0.5)
    assert replica.window == 1
    replica = new()
    replica.on_answer(0.0, 0.5)
    for moment in range(1, 60):
        replica.on_failure(kind, moment, moment + 0.5)
    assert replica.window == 32


def test_a_service_tier_without_capacity_is_no_trouble_of_its_server() -> None:
    replica = new()
    before = replica.window
    for moment in range(1, 9):
        replica.on_failure(FailureKind.TIER_FULL, float(moment), moment + 0.5)
    assert replica.window == before and replica.can_take(9.0) and not replica.needs_probe(9.0)
    replica.on_failure(FailureKind.TIER_FULL, 9.0, 9.5, wait=30.0)
    assert not replica.can_take(39.0) and replica.can_take(39.5), "but its Retry-After holds"


def test_a_window_grows_by_steps_up_to_its_ceiling_and_is_not_widened_by_another() -> None:
    replica = new()
    replica.on_failure(FailureKind.RATE_LIMITED, sent_at=1.0, now=2.0)
    for _ in range(32):
        replica.on_answer(2.0, 3.0)
    assert replica.window == 32 + 64 // DEFAULT.window_steps
    for _ in range(64 * DEFAULT.window_steps):
        replica.on_answer(2.0, 3.0)
    assert replica.window == 64
    replica = Replica("http://one/v1", 64)
    replica.on_failure(FailureKind.RATE_LIMITED, 1.0, 2.0)
    assert replica.window == DEFAULT.first_window // 2
    replica.on_load(None, 0, 3.0)
    assert (replica.window, replica.steering.ceiling) == (DEFAULT.first_window // 2, 64)


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if kind not in NO_ROOM])
def test_what_the_size_of_a_window_does_not_cause_leaves_it(kind: FailureKind) -> None:
    replica = new()
    for moment in range(40):
        replica.on_answer(moment, moment)
        replica.on_failure(kind, moment, moment + 0.5)
    assert replica.window == 64


# -- trouble -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if HANDLING[kind].trouble])
def test_a_replica_of_failures_alone_is_asked_one_by_one_after_pauses_that_double(kind: FailureKind) -> None:
    replica, now, pauses = new(), 0.0, list[float]()
    replica.on_failure(kind, now, now)
    assert replica.free_at <= now, "one failure says nothing"
    together = new()
    for _ in range(64):
        together.on_failure(kind, 0.0, 1.0)
    assert together.free_at - 1.0 == DEFAULT.backoff, "those of requests that were in flight together are one round"
    for _ in range(8):
        sent_at = now
        now += 0.1
        replica.on_failure(kind, sent_at, now)
        pauses.append(round(replica.free_at - now, 6))
        now = replica.free_at
        assert replica.free_at <= now
        replica.send(now)
        assert replica.free_at > now, "the next one is not sent with it"
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (2.0 * DEFAULT.backoff, DEFAULT.longest_pause)
    replica.on_answer(0.0, now)
    assert replica.free_at <= now


@pytest.mark.parametrize(("has_answered", "rounds"), [(True, DEFAULT.refusals), (False, DEFAULT.refusals // 2)])
def test_a_replica_that_refuses_round_after_round_is_believed(has_answered: bool, rounds: int) -> None:
    replica = new()
    if has_answered:
        replica.on_answer(0.0, 0.5)
    for number in range(rounds):
        assert not replica.refuses and replica.is_usable
        for _ in range(3):
            replica.on_refusal("HTTP 403", number, number + 0.5)
    assert replica.refuses and not replica.is_usable and replica.trouble == "HTTP 403"
    replica.on_accepted(0.0)
    assert replica.refuses, "it was sent before the first refusal"
    replica.on_accepted(1.0)
    assert replica.is_usable and not replica.trouble


def test_a_wait_that_is_asked_for_outlasts_answers() -> None:
    replica = new()
    replica.on_failure(FailureKind.RATE_LIMITED, 0.0, 1.0, wait=30.0)
    replica.on_answer(0.0, 2.0)
    assert not replica.can_take(30.9) and replica.can_take(31.0)


# -- health ------------------------------------------------------------------------------------------------------


def probed(replica: Replica, trouble: ProbeTrouble | None, now: float) -> int:
    replica.start_probe()
    return replica.on_probe(trouble, now)


def test_a_replica_is_probed_after_a_failure_or_a_silence() -> None:
    replica = new()
    assert not replica.needs_probe(100.0), "it has nothing to do"
    replica.send(100.0)
    replica.on_answer(100.0, 101.0)
    replica.send(101.0)
    assert not replica.needs_probe(101.0 + DEFAULT.probe_every - 0.1)
    assert replica.needs_probe(101.0 + DEFAULT.probe_every)
    probed(replica, None, 106.0)
    assert not replica.needs_probe(106.0 + DEFAULT.probe_every - 0.1)
    replica.on_failure(FailureKind.RESET, 101.0, 107.0)
    assert replica.needs_probe(107.0)


@pytest.mark.parametrize("trouble", [DEAD, SILENT])
def test_probes_in_a_row_without_a_sign_of_life_set_it_aside(trouble: ProbeTrouble) -> None:
    replica = new()
    replica.on_answer(0.0, 0.5)
    for number in range(DEFAULT.probe_misses - 1):
        assert probed(replica, trouble, 10.0 + number) == 0 and replica.healthy
    assert probed(replica, trouble, 20.0) == DEFAULT.probe_misses
    assert not replica.can_take(20.0) and replica.trouble == trouble.reason
    assert replica.needs_probe(20.0 + DEFAULT.probe_again)
    assert probed(replica, None, 21.0) == 0
    assert replica.can_take(21.0) and not replica.trouble


def test_an_answer_between_probes_is_a_sign_of_life() -> None:
    replica = new()
    for number in range(10):
        replica.start_probe()
        replica.on_answer(0.0, number + 0.5)
        assert replica.on_probe(SILENT, number + 0.9) == 0
    assert replica.healthy


def test_a_connection_that_cannot_be_made_sets_it_aside_until_a_probe_succeeds() -> None:
    replica = new()
    for _ in range(9):
        replica.on_failure(FailureKind.UNREACHABLE, 0.0, 0.1)
    assert not replica.can_take(60.0) and replica.needs_probe(0.2)
    probed(replica, None, 0.3)
    assert replica.can_take(0.3), "its return ends its pauses"


@pytest.mark.parametrize(("inside", "counted_at"), [(8.0, 5.0), (7.0, -inf)])
def test_it_is_known_when_its_server_counted_all_requests(inside: float, counted_at: float) -> None:
    replica = new()
    replica.on_load(ServerLoad(inside, 0.0), 8, 5.0)
    assert replica.counted_at == counted_at


def test_a_server_that_starts_is_asked_for_its_load_again_when_it_answers() -> None:
    replica = Replica("http://one/v1", 64)
    replica.send(0.0)
    for moment in range(10):
        replica.on_load(None, 1, moment)
    replica.on_answer(0.0, 10.0)
    assert replica.needs_reading(10.0 + DEFAULT.read_every)
