"""Models that share a server: its time counts once, whoever is asked how much of the time."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.sharing import SharedTime
from adaptive_eval.endpoints.types import EndpointConfig, Limits, Message, Prompt, Sampling, gpu_share
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import WORLDS


def test_a_model_alone_has_all_of_the_time() -> None:
    shared = SharedTime()
    first, second = shared.enter("a", 1, 0.0), shared.enter("a", 1, 2.0)
    assert first.mean_share(4.0) == second.mean_share(4.0) == 1.0
    assert shared.enter("b", 2, 4.0).mean_share(4.0) == 1.0


def test_models_in_flight_together_share_the_time() -> None:
    shared = SharedTime()
    first = shared.enter("a", 1, 0.0)
    second = shared.enter("a", 2, 6.0)
    assert second.mean_share(6.0) == 0.5
    assert first.mean_share(12.0) == pytest.approx((6.0 + 3.0) / 12.0)
    first.leave(12.0)
    assert second.mean_share(18.0) == pytest.approx((3.0 + 6.0) / 12.0)


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
