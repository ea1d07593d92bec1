"""Simulated servers and time: the timeline matches slots and places, and changes no decision."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from answer_times import AnswerTimes
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_engine import SharedEngine
from thoroughness import examples, first_of

from adaptive_eval.core import Ask, Bench, Budget, Controller, Outcome, Pace, Plan, Reason, StageBefore, Trials
from adaptive_eval.core.tape import Tape
from adaptive_eval.simulate.worlds import Latency, World, binary
from adaptive_eval.study.drive import drive
from adaptive_eval.study.servers import Engine, SimulatedHost, TrialLoad
from adaptive_eval.study.timed import drive_in_time

SLOTS = 4


def load(seconds: list[float], model: int = 0) -> TrialLoad:
    return TrialLoad(model, np.array(seconds))


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.floats(0.1, 9.0), min_size=1, max_size=9), st.floats(0.0, 5.0)), min_size=1, max_size=5
    ),
    st.sampled_from([0.0, 0.5, 3.0]),
)
def test_trials_begin_in_order_and_slots_do_all_work(given_loads: list[tuple[list[float], float]], gain: float) -> None:
    """For each sequence the speed integrates to its stated work, whatever else arrives and when."""
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
    """The models brought onto the places, with their times, once everything is served."""
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
def test_an_unwanted_place_serves_requests_waiting_elsewhere(engine: Callable[[int, float], Engine]) -> None:
    """Of three waves, the second begins there after a swap, at 11, and the third at 15, when the first has ended."""
    host = SimulatedHost(range(2), SLOTS, 5.0, places=2, engine=engine)
    long, short = load([10.0] * 3 * SLOTS, 0), load([1.0] * SLOTS, 1)
    host.issue(long, 0.0)
    host.issue(short, 0.0)
    assert brought_up(host) == [(0, 0.0), (1, 0.0), (0, pytest.approx(6.0))]
    assert sorted(set(long.begins.round(6).tolist())) == [5.0, 11.0, 15.0]
    assert long.end == pytest.approx(25.0)


def test_less_than_one_wave_of_requests_gets_no_further_place() -> None:
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
def test_trials_are_served_once_in_existing_slots(given_loads: list[tuple[int, list[int], float]], places: int) -> None:
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


LATENCY = Latency(20.0, 0.6, 3.0)
WORLD = World("w", binary(np.random.default_rng(0).beta(1.0, 1.0, (4, 6)) ** np.array([[1.0], [1.2], [1.5], [3.0]])))


def controller(pace: Pace = Pace(), budget: Budget = Budget()) -> Controller:  # noqa: B008 - frozen values
    return Controller(Plan(Bench(4, 6, WORLD.w), trials=Trials(min=4, max=24), pace=pace, budget=budget))


def tape(seed: int = 1) -> Tape:
    return Tape.from_chances(WORLD.p, WORLD.w, np.random.default_rng(seed))


def times(seed: int = 2) -> AnswerTimes:
    return AnswerTimes(LATENCY, (4, 6), WORLD.w, np.random.default_rng(seed))


def by_events(
    controller: Controller, tape: Tape, times: AnswerTimes, slots: int, came: list[Outcome] | None = None
) -> tuple[float, list[float]]:
    """The same run with an event for each answer, told one by one in the order of `came`."""
    came = [] if came is None else came
    free = [slots] * 4
    pending: list[tuple[float, Ask, int]] = []
    now, looks = 0.0, []
    while controller.finished is None:
        for model in range(4):
            for ask in controller.ask(free[model], model):
                category = tape.at(ask.model, ask.question, ask.trial)
                heapq.heappush(pending, (now + times.of(ask, category), ask, category))
                free[model] -= 1
        now, ask, category = heapq.heappop(pending)
        free[ask.model] += 1
        took = times.of(ask, category)
        outcome = Outcome(ask.model, ask.question, ask.trial, category, seconds=took)
        came.append(outcome)
        looks += [now] * len(controller.tell([outcome]))
    return now, looks


def continued(before: Controller) -> Controller:
    """A run with a horizon of 12 trials a question that continues to 24."""
    stage = StageBefore(before, (0, 1, 2, 3))
    return Controller(replace(before.plan, trials=Trials(min=4, max=24), before=stage))


@pytest.mark.parametrize("pace", [Pace(), Pace(lookahead=2, opening=4, dedicated_servers=True)])
@pytest.mark.parametrize("seed", first_of(range(3), 1))
def test_a_timed_resume_matches_an_event_loop(pace: Pace, seed: int) -> None:
    """Recorded outcomes are available at once, their seconds still set the clocks, and they are not asked again."""
    short = Plan(Bench(4, 6, WORLD.w), trials=Trials(min=4, max=12), pace=pace)
    first, came = Controller(short), list[Outcome]()
    by_events(first, tape(seed), times(seed), 5, came)
    recorded = np.full((4, 6, 24), -1, dtype=np.int8)
    for outcome in came:
        recorded[outcome.model, outcome.question, outcome.trial] = outcome.category
    resumed = continued(first)
    first.forget_arrivals()
    played = continued(first)
    resumed.take(came)
    resumed.tell(())
    further = list[Outcome]()
    by_events(resumed, tape(seed), times(seed), 5, further)
    timeline = drive_in_time(played, tape(seed), times(seed), 5, recorded=recorded)
    assert len(first.looks) < len(resumed.looks), "the horizon is another"
    assert played.looks == resumed.looks and played.finished is resumed.finished
    assert 0 <= timeline.asked.sum() - len(further) <= (4 * 5 if pace.dedicated_servers else 0), "some run to the end"


@pytest.mark.slow
@pytest.mark.parametrize("dedicated", [False, True])
@given(slots=st.integers(1, 40), lookahead=st.integers(0, 4), opening=st.integers(4, 12), seed=st.integers(0, 99))
@settings(max_examples=examples(80), deadline=None)
def test_the_timeline_is_an_event_loops(dedicated: bool, slots: int, lookahead: int, opening: int, seed: int) -> None:
    """An opening that sets clocks is told in stretches in which no look can be taken. Trials asked ahead are sent only
    while they may be needed; those that were sent may end after the last look, and the others cost nothing."""
    pace = Pace(lookahead, opening=opening, dedicated_servers=True) if dedicated else Pace(lookahead)
    fast, event_driven = controller(pace), controller(pace)
    timeline = drive_in_time(fast, tape(seed), times(seed), slots)
    seconds, looks = by_events(event_driven, tape(seed), times(seed), slots)
    assert timeline.looks == pytest.approx(looks) and fast.looks == event_driven.looks
    assert np.array_equal(fast.counts, event_driven.counts) and fast.finished is event_driven.finished
    begun = [len(served.start) for served in timeline.served]
    assert begun == timeline.asked.sum(axis=1).tolist() and sum(begun) >= fast.trials.sum()
    if dedicated:
        assert timeline.seconds == max(served.end.max() for served in timeline.served) >= looks[-1]
    else:
        assert timeline.seconds == pytest.approx(seconds)
        assert fast.looks == drive(controller(pace), tape(seed)).looks


@pytest.mark.slow
@pytest.mark.parametrize("slots", [3, 20])
def test_some_trials_end_after_the_last_look_and_not_all_are_sent(slots: int) -> None:
    runs = [controller(Pace(lookahead=3, opening=4, dedicated_servers=True)) for _ in range(4)]
    asked = [drive_in_time(run, tape(seed), times(seed), slots).asked.sum() for seed, run in enumerate(runs)]
    assert sum(run.trials.sum() for run in runs) < sum(asked) and max(asked) < 4 * 6 * 24


@pytest.mark.slow
@given(st.integers(1, 300))
@settings(max_examples=examples(12), deadline=None)
def test_a_cap_on_wall_time_ends_the_run_at_the_cap(cap: int) -> None:
    run, uncapped_run = controller(Pace(2), Budget(wall_seconds=float(cap))), controller(Pace(2))
    timeline = drive_in_time(run, tape(), times(), 8)
    uncapped = drive_in_time(uncapped_run, tape(), times(), 8)
    assert timeline.seconds == min(float(cap), uncapped.seconds)
    assert run.looks == uncapped_run.looks[: int(np.count_nonzero(uncapped.looks < cap))]
    if cap <= uncapped.seconds:
        assert run.finished is Reason.WALL_TIME
        arrived = sum(np.count_nonzero(served.end < cap) for served in timeline.served)
        assert run.arrived.sum() == arrived >= run.trials.sum()


# -- models that share slots -------------------------------------------------------------------------------------


class Place:
    """Slots for one model at a time, simulated second by second: an independent version of a host."""

    def __init__(self, models: list[int], slots: int, swap: float) -> None:
        self.models, self.slots, self.swap = models, slots, swap
        self.loaded = models[0] if len(models) == 1 else None
        self.ready = 0.0
        self.in_flight = 0
        self.loads: list[int] = []


def by_events_in_turn(
    controller: Controller, tape: Tape, times: AnswerTimes, places: list[Place]
) -> tuple[float, list[float]]:
    """The same run with an event for each answer and each ready model, as in a real run."""
    of = {model: place for place in places for model in place.models}
    lines: dict[int, list[Ask]] = {model: [] for model in of}
    pending: list[tuple[float, int, object]] = []
    now, looks, number = 0.0, [], itertools.count()

    def send() -> None:
        for ask in controller.ask(1 << 30):
            lines[ask.model].append(ask)
        for place in places:
            if place.ready > now:
                continue
            if place.loaded is None or (not lines[place.loaded] and not place.in_flight):
                start = 0 if place.loaded is None else place.models.index(place.loaded) + 1
                circle = [*place.models[start:], *place.models[:start]]
                if (model := next((candidate for candidate in circle if lines[candidate]), None)) is not None:
                    place.loaded, place.ready = model, now + place.swap
                    place.loads.append(model)
                    heapq.heappush(pending, (place.ready, next(number), None))
                continue
            line = lines[place.loaded]
            while line and place.in_flight < place.slots:
                ask, place.in_flight = line.pop(0), place.in_flight + 1
                category = tape.at(ask.model, ask.question, ask.trial)
                heapq.heappush(pending, (now + times.of(ask, category), next(number), (ask, category)))

    send()
    while controller.finished is None:
        now, _, what = heapq.heappop(pending)
        if what is not None:
            ask, category = what  # type: ignore[misc]
            of[ask.model].in_flight -= 1
            looks += [now] * len(controller.tell([Outcome(ask.model, ask.question, ask.trial, category)]))
        send()
    return now, looks


GROUPS = ([[0, 1, 2, 3]], [[0, 2], [1], [3]], [[3, 1], [0, 2]])


@pytest.mark.slow
@given(st.sampled_from(GROUPS), st.integers(1, 30), st.integers(0, 5), st.floats(1.0, 500.0), st.integers(0, 99))
@settings(max_examples=examples(30), deadline=None)
def test_the_timeline_of_models_in_turn_matches_an_event_loop(
    groups: list[list[int]], slots: int, lookahead: int, swap: float, seed: int
) -> None:
    fast, event_driven = controller(Pace(lookahead)), controller(Pace(lookahead))
    hosts = [SimulatedHost(models, slots, swap) for models in groups]
    timeline = drive_in_time(
        fast, tape(seed), times(seed), slots, shared=[host for host in hosts if len(host.models) > 1]
    )
    places = [Place(models, slots, swap) for models in groups]
    seconds, looks = by_events_in_turn(event_driven, tape(seed), times(seed), places)
    assert timeline.seconds == pytest.approx(seconds)
    assert timeline.looks == pytest.approx(looks)
    assert [[swap.model for swap in host.swaps] for host in hosts] == [place.loads for place in places]
    assert fast.looks == event_driven.looks == drive(controller(Pace(lookahead)), tape(seed)).looks


def test_no_swap_happens_beyond_the_cap_on_wall_time() -> None:
    capped = controller(Pace(2), Budget(wall_seconds=1000.0))
    timeline = drive_in_time(capped, tape(), times(), 5, shared=[SimulatedHost(range(4), 5, 300.0)])
    assert capped.finished is Reason.WALL_TIME
    assert timeline.swaps and all(swap.at < 1000.0 for swap in timeline.swaps)
