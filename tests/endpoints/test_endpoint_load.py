"""What a server says of its load, and windows that follow it: full, and hardly anything in line."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import count

import numpy as np
import pytest
from endpoint_opener import Opener, hang
from hypothesis import given
from hypothesis import strategies as st
from raw_servers import CHAT, Exchange, raw_server, replying

from adaptive_eval.endpoints import client
from adaptive_eval.endpoints.endpoint import ModelEndpoint
from adaptive_eval.endpoints.load import ServerLoad, Steering, parse_load
from adaptive_eval.endpoints.settings import DEFAULT, EndpointSettings
from adaptive_eval.endpoints.sharing import SharedTime
from adaptive_eval.endpoints.types import Message, Prompt
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import Latency, World, binary

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a } b"} 12.0
vllm:num_requests_running{engine="1",model_name="a"} 3
vllm:num_requests_waiting{engine="0",model_name="a"} 4.0 1700000000000
vllm:num_requests_waiting{engine="1",model_name="a"} 1e1
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 4.0
vllm:num_requests_waiting_total 99
"""


def test_servers_say_how_many_run_and_wait() -> None:
    assert parse_load(VLLM) == ServerLoad(15.0, 14.0)
    slots = (
        b"# TYPE x gauge\nllamacpp:requests_processing 4\nllamacpp:requests_deferred 20\nllamacpp:n_decode_total 7\n"
    )
    assert parse_load(slots) == ServerLoad(4.0, 20.0)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>welcome</html>",
        b"vllm:num_requests_waiting 3\n",
        b"vllm:num_requests_running 3\n",
        b"my_vllm:num_requests_running 3\nmy_vllm:num_requests_waiting 3\n",
        b"vllm:num_requests_running 3\nvllm:num_requests_waiting many\n",
        b"vllm:num_requests_running 3\nvllm:num_requests_waiting NaN\n",
        b"vllm:num_requests_running +Inf\nvllm:num_requests_waiting 3\n",
        b"vllm:num_requests_running 3\nvllm:num_requests_waiting -1\n",
    ],
)
def test_what_is_no_count_is_no_load(text: bytes) -> None:
    assert parse_load(text) is None


@given(st.binary(max_size=200))
def test_any_bytes_may_come(junk: bytes) -> None:
    load = parse_load(VLLM + junk)
    assert load is None or (load.running >= 15.0 and load.waiting >= 14.0)


class Server:
    """A server of `places` whose answers all take `seconds` polls, and one client that keeps its window full."""

    def __init__(self, places: int, configured: int, start: int, polls: int = 3, others: int = 0) -> None:
        self.places, self.polls, self.others = places, polls, others
        self.steering = Steering(configured, DEFAULT)
        self.steering.limit(start)
        self.ages: deque[int] = deque()
        self.now = 0.0
        self.idle = 0

    def poll(self) -> ServerLoad:
        """One second: answers come back, the window is filled up, the load is read."""
        running = max(0, min(len(self.ages), self.places - self.others))
        for at in range(running):
            self.ages[at] += 1
        while self.ages and self.ages[0] >= self.polls:
            self.ages.popleft()
        self.ages += [0] * (self.steering.ceiling - len(self.ages))
        inside = len(self.ages) + self.others
        load = ServerLoad(float(min(inside, self.places)), float(max(0, inside - self.places)))
        self.idle += max(0, self.places - inside)
        self.now += 1.0
        self.steering.on_load(load, len(self.ages), len(self.ages), self.now, is_warm=True)
        return load


@given(before=st.integers(1, 400), after=st.integers(10, 400), start=st.integers(1, 64), polls=st.integers(1, 8))
def test_a_server_is_full_and_few_wait_whatever_it_can_do(before: int, after: int, start: int, polls: int) -> None:
    server = Server(before, 1024, start, polls)
    # what was asked for too much must run, too
    for places, needed in ((before, 60 + polls * (4 + start // before)), (after, 120 + polls * (4 + before // after))):
        server.places = places
        for _ in range(needed):
            server.poll()
        server.idle = 0
        assert all(server.poll().waiting <= max(1.0, places / 4) for _ in range(20))
        assert server.idle == 0


def ceilings(readings: Iterable[ServerLoad], start: int = 64, in_flight: int | None = None) -> list[int]:
    """The ceilings of a window that is full, after each of these readings."""
    steering, seen = Steering(1024, DEFAULT), list[int]()
    steering.limit(start)
    for now, load in enumerate(readings):
        asked = steering.ceiling if in_flight is None else in_flight
        steering.on_load(load, asked, asked, now, is_warm=True)
        seen.append(steering.ceiling)
    return seen


CALM = ServerLoad(4.0, 0.0)


def test_a_window_moves_with_care_and_only_where_it_limits() -> None:
    busy = ServerLoad(4.0, 20.0)
    assert ceilings([busy, CALM, busy, CALM]) == [64] * 4, "one reading alone moves nothing"
    assert ceilings([CALM, CALM]) == [64, 128]
    assert set(ceilings([CALM, ServerLoad(4.0, 50.0)] * 5, in_flight=3)) == {64}
    after_a_queue = ceilings([ServerLoad(8.0, 1.0), *[CALM] * 10])
    assert after_a_queue == [64, 64, 72, 72, 90, 90, 135, 135, 270, 270, 540]
    steering = Steering(64, DEFAULT)
    for now in range(9):
        steering.on_load(ServerLoad(1.0, 60.0), 64, 64, now, is_warm=False)
    assert steering.ceiling == 64


def test_readings_become_rare_where_they_fail_and_end_where_none_was_ever_made() -> None:
    steering = Steering(64, DEFAULT)
    steering.limit(8)
    assert steering.needs_reading(0.0, is_asked=False), "the first one"
    steering.on_failure(0.0, is_warm=True)
    assert steering.ceiling == 64, "it is as configured where no load is known"
    assert not steering.needs_reading(1.9, is_asked=True) and steering.needs_reading(2.0, is_asked=True)
    for now in (2.0, 6.0):
        steering.on_failure(now, is_warm=True)
    assert not steering.needs_reading(1e9, is_asked=True)
    steering = Steering(64, DEFAULT)
    steering.limit(8)
    steering.on_load(CALM, 8, 8, 0.0, is_warm=True)
    for now in range(1, 10):
        assert steering.ceiling == (8 if now <= DEFAULT.probe_misses else 64)
        steering.on_failure(now, is_warm=True)
    assert steering.needs_reading(now + DEFAULT.read_rarely, is_asked=True)
    assert not steering.needs_reading(1e9, is_asked=False)


def test_others_who_fill_the_server_are_made_room_for_in_proportion() -> None:
    """Two clients of a server with 40 places, of which one keeps 24 in flight."""
    server = Server(40, 1024, 64, others=24)
    for _ in range(40):
        server.poll()
    assert 16 <= server.steering.ceiling <= 16 + 40 / 4


def test_a_reading_that_does_not_follow_is_not_believed() -> None:
    """A gauge that stands still, while there is nothing that it could mean."""
    steering, still, sizes = Steering(64, DEFAULT), ServerLoad(4.0, 5.0), list[int]()
    for now in range(20):
        steering.on_load(still, steering.ceiling, steering.ceiling, now, is_warm=True)
        sizes.append(steering.ceiling)
    assert sizes[:4] == [64, 32, 32, 64] and set(sizes[4:]) == {64}
    late = 20.0 + DEFAULT.doubt
    for number in range(2):
        steering.on_load(still, 64, 64, late + number, is_warm=True)
    assert steering.ceiling == 32


def test_among_many_others_nothing_is_gained_by_staying_away() -> None:
    """A thousand requests of others wait: who leaves the line leaves it to them."""
    server = Server(100, 64, 64, others=1000)
    sizes = []
    for _ in range(30):
        server.ages.clear()  # answers come back in their turn, whoever else is there
        server.poll()
        sizes.append(server.steering.ceiling)
    assert sizes[-1] == 64 and min(sizes) == 32


WORLD = World("six", binary(np.full((6, 4), 0.5)), latency=Latency(0.05, 0.3, 1.0), models=("m", *"abcde"))
QUESTION = Prompt(messages=(Message("user", "[q1] Which number?"),))
Page = Callable[[Exchange], Awaitable[None]]


QUICK = EndpointSettings(tick=0.01, backoff=0.01, probe_every=0.1, probe_again=0.02, read_every=0.03)


@asynccontextmanager
async def busy(*models: ModelEndpoint, workers: int = 128, n: int = 1) -> AsyncIterator[None]:
    """While every model is asked by so many at once, without a pause."""
    firsts = count(0, n)

    async def work(model: ModelEndpoint) -> None:
        while True:
            first = next(firsts)
            await model.sample(QUESTION, range(first, first + n))

    tasks = [asyncio.create_task(work(model)) for model in models for _ in range(workers)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def settles(server: SimulatedServer, sequences: int, most_waiting: float) -> None:
    """Wait until so many run and few wait, and stay so for a while; on a machine that is busy that may take longer."""
    assert server.places is not None
    seen: deque[bool] = deque(maxlen=25)
    for _ in range(1500):
        await asyncio.sleep(0.01)
        seen.append(server.places.running >= 0.8 * sequences and server.places.waiting <= most_waiting)
        if sum(seen) >= 23:  # an answer that is on its way back leaves its place empty for a moment
            return
    raise AssertionError(f"{server.places.running} run and {server.places.waiting} wait at {sequences} places")


def sizes(model: ModelEndpoint) -> list[int]:
    return [replica.limit for replica in model.stats.replicas]


@pytest.mark.parametrize("places", [2, 50])
async def test_a_server_is_full_and_few_wait(endpoint: Opener, places: int) -> None:
    async with SimulatedServer(WORLD, max_num_seqs=places) as server:
        model = endpoint(server.base_url, in_flight=128, settings=QUICK)
        async with busy(model):
            await settles(server, places, max(2.0, places / 3))


@pytest.mark.slow
async def test_models_of_one_server_fill_it_together(endpoint: Opener) -> None:
    shared = SharedTime()
    async with SimulatedServer(WORLD, max_num_seqs=12) as server:
        models = [
            endpoint(server.base_url, model=name, in_flight=64, shared_time=shared, settings=QUICK)
            for name in WORLD.models
        ]
        async with busy(*models, workers=64):
            await settles(server, 12, 8.0)


# -- what /metrics may be ------------------------------------------------------------------------------------------


async def answering(asked: Exchange) -> None:
    await asyncio.sleep(0.1)
    await asked.answer("42")


async def window_under(
    endpoint: Opener, page: Page, seconds: float = 0.5, settings: EndpointSettings = QUICK
) -> tuple[list[int], int]:
    """The sizes of a window under such a /metrics, and how often it was read."""
    reads = 0

    async def counted(asked: Exchange) -> None:
        nonlocal reads
        reads += 1
        await page(asked)

    seen: list[int] = []
    async with raw_server(answering, pages={"/metrics": counted}) as server:
        model = endpoint(server.base_url, in_flight=100, settings=settings)

        async def work() -> None:
            for i in count():
                await model.sample(CHAT, range(i, i + 1))

        workers = [asyncio.create_task(work()) for _ in range(100)]
        for _ in range(round(seconds / 0.02)):
            await asyncio.sleep(0.02)
            seen += sizes(model)
        for worker in workers:
            worker.cancel()
        assert not any(worker.done() for worker in workers)
        await asyncio.gather(*workers, return_exceptions=True)
        await model.close()
    return seen, reads


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statuses", "text", "seconds"),
    [
        pytest.param((401, 404, 501), b"no", 0.3, id="no metrics"),
        pytest.param((200, 302, 500), b"<html>Hello</html>", 0.5, id="no load on the page", marks=pytest.mark.slow),
    ],
)
async def test_a_server_that_does_not_tell_its_load_is_asked_a_few_times(
    endpoint: Opener, statuses: tuple[int, ...], text: bytes, seconds: float
) -> None:
    for status in statuses:
        seen, reads = await window_under(endpoint, replying(text, status=status), seconds)
        assert 3 <= reads <= 6 and seen[-1] == 100


async def test_metrics_that_hang_hold_nothing_up(endpoint: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PROBE_SECONDS", 0.1)

    seen, reads = await window_under(endpoint, hang)
    assert seen[0] == DEFAULT.first_window and seen[-1] == 100 and reads <= 6


async def test_the_sdk_asks_for_no_metrics(endpoint: Opener) -> None:
    async with SimulatedServer(WORLD, max_num_seqs=4) as server:
        model = endpoint(server.base_url, client="openai", in_flight=64, settings=QUICK)
        await model.sample(QUESTION, range(1))
        await asyncio.sleep(0.1)
        assert sizes(model) == [64]
