"""Limits per minute, the time of a server that models share, and blocks that are ended from outside."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.sender import RateLimit, RateLimits
from adaptive_eval.endpoints.sharing import SharedTime
from adaptive_eval.endpoints.time_limit import CancelScope
from adaptive_eval.endpoints.types import EndpointConfig, Limits, Message, Prompt, Sampling, gpu_share
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import WORLDS


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@given(
    rate=st.floats(1.0, 6000.0),
    steps=st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 50.0)), min_size=1, max_size=40),
)
def test_no_window_holds_more_than_its_share(rate: float, steps: list[tuple[float, float]]) -> None:
    clock = Clock()
    pace = RateLimit(rate, clock)
    passed: list[tuple[float, float]] = []
    for pause, amount in steps:
        clock.now += pause
        passed.append((clock.now + pace.reserve(amount), amount))
    largest = max(amount for _, amount in passed)
    for i, (start, _) in enumerate(passed):
        for j in range(i, len(passed)):
            used = sum(amount for _, amount in passed[i : j + 1])
            allowed = rate / 60.0 * (passed[j][0] - start) + largest
            assert used <= allowed * (1 + 1e-9) + 1e-6


class Waits(list[float]):
    """The waits that were asked for; none of them takes time."""

    async def sleep(self, seconds: float) -> None:
        self.append(seconds)

    def after(self, pacer: RateLimits, tokens: float) -> float:
        """Seconds that a request of so many tokens waits."""
        self.clear()
        assert asyncio.run(pacer.wait(tokens)) == tokens
        return sum(self)


def test_what_was_expected_is_corrected_by_what_was_used() -> None:
    waits = Waits()
    pacer = RateLimits(Limits(tokens_per_minute=60.0), Clock(), waits.sleep)
    assert waits.after(pacer, 10.0) == 0.0
    pacer.correct(expected=10.0, used=40.0)
    assert waits.after(pacer, 1.0) == pytest.approx(40.0)
    pacer.correct(expected=1.0, used=0.0)
    assert waits.after(pacer, 1.0) == pytest.approx(40.0)


def test_the_later_of_both_limits_holds() -> None:
    clock, waits = Clock(), Waits()
    pacer = RateLimits(Limits(requests_per_minute=60.0, tokens_per_minute=600.0), clock, waits.sleep)
    waits.after(pacer, 50.0)
    assert waits.after(pacer, 1.0) == pytest.approx(5.0)
    clock.now += 100.0
    waits.after(pacer, 1.0)
    assert waits.after(pacer, 1.0) == pytest.approx(1.0)


def test_models_in_flight_together_share_the_time() -> None:
    shared = SharedTime()
    first = shared.enter("a", 1, 0.0)
    second = shared.enter("a", 2, 6.0)
    assert second.mean_share(6.0) == 0.5
    assert first.mean_share(12.0) == pytest.approx((6.0 + 3.0) / 12.0)
    first.leave(12.0)
    assert second.mean_share(18.0) == pytest.approx((3.0 + 6.0) / 12.0)
    assert shared.enter("b", 1, 18.0).mean_share(18.0) == shared.enter("a", 2, 18.0).mean_share(18.0) == 1.0, "alone"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=12))
def test_the_parts_of_models_with_one_request_at_a_time_are_the_busy_time(spans: list[tuple[int, int, int]]) -> None:
    until: dict[int, int] = {}
    alone = []
    for model, begin, length in sorted(spans, key=lambda span: span[1]):
        if begin >= until.get(model, 0):
            until[model] = begin + length
            alone.append((model, begin, begin + length))
    shared, marks, total = SharedTime(), {}, 0.0
    ends = [(end, 0, at) for at, (_, _, end) in enumerate(alone)]
    events = sorted([*ends, *((begin, 1, at) for at, (_, begin, _) in enumerate(alone))])
    for now, begins, at in events:
        model, begin, end = alone[at]
        if begins:
            marks[at] = shared.enter("a", model, float(now))
        else:
            total += marks[at].mean_share(float(now)) * (end - begin)
            marks[at].leave(float(now))
    busy = len({moment for _, begin, end in alone for moment in range(begin, end)})
    assert total == pytest.approx(busy)


async def test_answers_of_models_at_one_server_cost_its_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six adapters of one server, asked at the same time; all that takes time is timed by one clock."""
    clock = asyncio.get_running_loop().time
    monkeypatch.setattr("adaptive_eval.endpoints.client.perf_counter", clock)
    world = WORLDS["coins"]()
    prompt = Prompt(messages=(Message("user", f"[{world.questions[0]}] Which integer?"),))
    async with SimulatedServer(world) as server:
        config = [EndpointConfig(base_url=server.base_url, model=world.models[0]) for _ in range(6)]
        loads, limits, sampling = SharedTime(), Limits(in_flight=4), Sampling(max_tokens=500)
        endpoints = [open_endpoint(model, sampling, limits, keys={}, shared_time=loads) for model in config]
        begun = clock()
        answers = await asyncio.gather(
            *(endpoint.sample(prompt, range(seed, seed + 1)) for endpoint in endpoints for seed in range(4))
        )
        took = clock() - begun
        await asyncio.gather(*(endpoint.close() for endpoint in endpoints))
    counted = sum(
        answer.latency * gpu_share(1.0, config[0], answer.concurrent_answers or 1)
        for batch in answers
        for answer in batch
    )
    assert 0.5 * took < counted <= took


@pytest.mark.patient(settle=0.0)
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
