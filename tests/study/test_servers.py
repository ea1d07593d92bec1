"""Simulated servers: few sequences are faster, places serve one model at a time, and trials are the same work."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_engine import SharedEngine
from thoroughness import examples

from adaptive_eval.study.servers import Engine, SimulatedHost, TrialLoad

SLOTS = 4


def load(seconds: list[float], model: int = 0) -> TrialLoad:
    return TrialLoad(model, np.array(seconds))


def test_a_lone_sequence_is_faster_by_the_gain() -> None:
    engine, alone = SharedEngine(1.0, SLOTS), load([10.0])
    engine.serve(alone, 0.0)
    assert alone.end == pytest.approx(10.0 * (1.0 + 1.0 / SLOTS) / 2.0)


def test_a_full_server_takes_what_is_stated_and_its_last_sequence_speeds_up() -> None:
    engine, full = SharedEngine(1.0, SLOTS), load([10.0, 10.0, 10.0, 18.0])
    engine.serve(full, 0.0)
    assert full.ends[:3] == pytest.approx(10.0)
    assert full.end == pytest.approx(10.0 + 8.0 * (1.0 + 1.0 / SLOTS) / 2.0)


def test_what_comes_later_slows_what_is_there() -> None:
    engine, first = SharedEngine(1.0, SLOTS), load([10.0])
    engine.serve(first, 0.0)
    before = first.end
    engine.serve(load([10.0] * 3), before / 2.0)
    assert before < first.end < 10.0


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.floats(0.1, 9.0), min_size=1, max_size=9), st.floats(0.0, 5.0)), min_size=1, max_size=5
    ),
    st.sampled_from([0.0, 0.5, 3.0]),
)
def test_trials_begin_in_order_and_slots_do_their_work(
    given_loads: list[tuple[list[float], float]], gain: float
) -> None:
    """Over each sequence the speed integrates to what it is stated to take, whatever else comes and when."""
    engine, now, loads = SharedEngine(gain, SLOTS) if gain else Engine(SLOTS), 0.0, []
    for seconds, later in given_loads:
        now += later
        loads.append(load(seconds))
        engine.serve(loads[-1], now)
    begins, ends = (np.concatenate([getattr(batch, name) for batch in loads]) for name in ("begins", "ends"))
    assert np.all(np.diff(begins) >= -1e-9)
    points = np.unique(np.concatenate([begins, ends]))
    middles = (points[1:] + points[:-1]) / 2.0
    running = ((begins[:, None] < middles) & (ends[:, None] > middles)).sum(axis=0)
    assert running.max(initial=0) <= SLOTS
    speed = (1.0 + gain) / (1.0 + gain * running / SLOTS)
    done = np.cumsum(np.append(0.0, np.diff(points) * speed))
    work = np.interp(ends, points, done) - np.interp(begins, points, done)
    assert work == pytest.approx(np.concatenate([batch.seconds for batch in loads]), rel=1e-6, abs=1e-6)


def brought_up(host: SimulatedHost) -> list[tuple[int, float]]:
    """Who was brought onto the places, and when, once everything is served."""
    while host.due() < np.inf:
        host.swap()
    return [(swap.model, swap.at) for swap in host.swaps]


def test_places_take_the_models_in_turn_as_they_become_free() -> None:
    host = SimulatedHost(range(4), SLOTS, 5.0, places=2)
    loads = [load([10.0 + 10.0 * model], model) for model in range(4)]
    for batch in loads:
        host.issue(batch, 0.0)
    assert brought_up(host) == [(0, 0.0), (1, 0.0), (2, 15.0), (3, 25.0)]
    assert [batch.end for batch in loads] == [15.0, 25.0, 50.0, 70.0]


def test_a_model_that_sleeps_at_a_place_is_woken_there() -> None:
    host = SimulatedHost(range(2), SLOTS, 180.0, wake_seconds=5.0)
    for model in (0, 1):
        host.issue(load([10.0], model), 0.0)
    brought_up(host)
    host.issue(load([10.0], 0), 400.0)
    assert brought_up(host)[-1] == (0, 400.0)
    assert [swap.seconds for swap in host.swaps] == [180.0, 180.0, 5.0]


@pytest.mark.parametrize("engine", [Engine, partial(SharedEngine, 1e-9)])
def test_a_place_that_nobody_else_wants_serves_what_waits_for_another(engine: Callable[[int, float], Engine]) -> None:
    """Of three wavefuls the second begins there after a swap, at 11, and the third at 15, when the first has ended."""
    host = SimulatedHost(range(2), SLOTS, 5.0, places=2, engine=engine)
    long, short = load([10.0] * 3 * SLOTS, 0), load([1.0] * SLOTS, 1)
    host.issue(long, 0.0)
    host.issue(short, 0.0)
    assert brought_up(host) == [(0, 0.0), (1, 0.0), (0, pytest.approx(6.0))]
    assert sorted(set(long.begins.round(6).tolist())) == [5.0, 11.0, 15.0]
    assert long.end == pytest.approx(25.0)


def test_less_than_a_waveful_gets_no_further_place() -> None:
    host = SimulatedHost(range(2), SLOTS, 5.0, places=2)
    host.issue(load([10.0] * (2 * SLOTS - 1), 0), 0.0)
    host.issue(load([1.0], 1), 0.0)
    assert brought_up(host) == [(0, 0.0), (1, 0.0)]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.integers(1, 40), min_size=1, max_size=20), st.floats(0.0, 30.0)),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 4),
)
def test_every_trial_is_served_once_and_in_no_more_slots_than_there_are(
    given_loads: list[tuple[int, list[int], float]], places: int
) -> None:
    host, now, loads = SimulatedHost(range(3), SLOTS, 4.0, places=places), 0.0, []
    for model, seconds, later in given_loads:
        now += later
        while host.due() < now:
            host.swap()
        loads.append((load([float(duration) for duration in seconds], model), now))
        host.issue(*loads[-1])
    brought_up(host)
    begins = np.concatenate([batch.begins for batch, _ in loads])
    ends = np.concatenate([batch.ends for batch, _ in loads])
    assert np.isfinite(ends).all()
    assert ends - begins == pytest.approx(np.concatenate([batch.seconds for batch, _ in loads]))
    for batch, issued in loads:
        assert batch.begins.min() >= issued and batch.end == batch.ends.max()
    running = ((begins[:, None] <= begins) & (ends[:, None] > begins)).sum(axis=0)
    assert running.max() <= SLOTS * places
