"""Simulated servers: few sequences are faster, places serve one model at a time, and trials are the same work."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.study.servers import Engine, SimulatedHost, TrialLoad

SLOTS = 4


def load(seconds: list[float], model: int = 0) -> TrialLoad:
    return TrialLoad(model, np.array(seconds))


def test_a_lone_sequence_is_faster_by_the_gain() -> None:
    engine, alone = Engine(SLOTS, gain=1.0), load([10.0])
    engine.serve(alone, 0.0)
    assert alone.end == pytest.approx(10.0 * (1.0 + 1.0 / SLOTS) / 2.0)


def test_a_full_server_takes_what_is_stated_and_its_last_sequence_speeds_up() -> None:
    engine, whole = Engine(SLOTS, gain=1.0), load([10.0, 10.0, 10.0, 18.0])
    engine.serve(whole, 0.0)
    assert whole.ends[:3] == pytest.approx(10.0)
    assert whole.end == pytest.approx(10.0 + 8.0 * (1.0 + 1.0 / SLOTS) / 2.0)


def test_what_comes_later_slows_what_is_there() -> None:
    engine, first = Engine(SLOTS, gain=1.0), load([10.0])
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
    engine, now, loads = Engine(SLOTS, gain), 0.0, []
    for seconds, later in given_loads:
        now += later
        loads.append(load(seconds))
        engine.serve(loads[-1], now)
    begins, ends = (np.concatenate([getattr(one, name) for one in loads]) for name in ("begins", "ends"))
    assert np.all(np.diff(begins) >= -1e-9)
    points = np.unique(np.concatenate([begins, ends]))
    middles = (points[1:] + points[:-1]) / 2.0
    running = ((begins[:, None] < middles) & (ends[:, None] > middles)).sum(axis=0)
    assert running.max(initial=0) <= SLOTS
    speed = (1.0 + gain) / (1.0 + gain * running / SLOTS)
    done = np.cumsum(np.append(0.0, np.diff(points) * speed))
    work = np.interp(ends, points, done) - np.interp(begins, points, done)
    assert work == pytest.approx(np.concatenate([one.seconds for one in loads]), rel=1e-6, abs=1e-6)


def brought_up(host: SimulatedHost) -> list[tuple[int, float]]:
    """Who was brought onto the places, and when, once everything is served."""
    while host.due() < np.inf:
        host.swap()
    return [(swap.model, swap.at) for swap in host.swaps]


def test_places_take_the_models_in_turn_as_they_become_free() -> None:
    host = SimulatedHost(range(4), SLOTS, 5.0, places=2)
    loads = [load([10.0 + 10.0 * model], model) for model in range(4)]
    for one in loads:
        host.issue(one, 0.0)
    assert brought_up(host) == [(0, 0.0), (1, 0.0), (2, 15.0), (3, 25.0)]
    assert [one.end for one in loads] == [15.0, 25.0, 50.0, 70.0]


@pytest.mark.parametrize(("overlap", "second"), [(False, 33.0), (True, 3.0)])
def test_a_place_with_memory_for_two_is_swapped_while_it_drains(overlap: bool, second: float) -> None:
    """Its last answer begins at 3, after the swap, and ends at 33."""
    host = SimulatedHost(range(2), SLOTS, 3.0, overlap=overlap)
    host.issue(load([30.0], 0), 0.0)
    host.issue(load([1.0], 1), 0.0)
    assert brought_up(host)[1] == (1, second)
