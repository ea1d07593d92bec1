"""Slots that would be idle are asked ahead, in simulated time."""

import numpy as np
import pytest

from adaptive_eval.core import Bench, Budget, Controller, Pace, Plan, Trials
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Reason
from adaptive_eval.simulate.worlds import Latency, binary
from adaptive_eval.study.drive import drive
from adaptive_eval.study.timed import AnswerTimes, Timeline, drive_in_time

WEIGHTS, QUESTIONS = np.array([0.0, 1.0]), 10
CHANCES = binary(np.repeat([[0.8], [0.6], [0.45]], QUESTIONS, axis=1))
AHEAD = Pace(ahead=1.0, ahead_opening=12)


def controller(pace: Pace, budget: Budget | None = None) -> Controller:
    return Controller(Plan(Bench(3, QUESTIONS, WEIGHTS), trials=Trials(4, 40), pace=pace, budget=budget or Budget()))


def tape(seed: int) -> Tape:
    return Tape.of_chances(CHANCES, WEIGHTS, np.random.default_rng(seed))


def timed(one: Controller, slots: int, seed: int) -> Timeline:
    times = AnswerTimes(Latency(1.0, sigma=1.0), (3, QUESTIONS), WEIGHTS, np.random.default_rng([seed, 1]))
    return drive_in_time(one, tape(seed), times, slots)


@pytest.mark.parametrize("slots", [3, 10, 200])
def test_the_looks_are_those_of_any_other_replay(slots: int) -> None:
    for seed in range(3):
        one, plain = controller(AHEAD), drive(controller(Pace()), tape(seed))
        timeline = timed(one, slots, seed)
        assert one.looks == plain.looks and np.array_equal(one.counts, plain.counts)
        assert len(timeline.looks) == len(one.looks) and timeline.looks[-1] == timeline.seconds
        assert timeline.unwanted is not None
        asked = np.array([len(own.end) for own in timeline.served])
        assert asked.tolist() == (plain.trials + timeline.unwanted.sum(axis=1)).tolist()


def test_it_takes_less_time_the_more_slots_there_are_for_more_trials() -> None:
    waits = {
        slots: (timed(controller(Pace()), slots, 0).seconds, timed(controller(AHEAD), slots, 0)) for slots in (12, 300)
    }
    for plain, ahead in waits.values():
        assert ahead.seconds < 0.7 * plain
    few, many = (ahead for _, ahead in waits.values())
    assert few.unwanted is not None and many.unwanted is not None
    assert many.seconds < few.seconds and many.unwanted.sum() >= few.unwanted.sum()


def test_a_cap_on_time_ends_it_there() -> None:
    one = controller(AHEAD, Budget(wall_seconds=3.0))
    timeline = timed(one, 8, 0)
    assert timeline.seconds == 3.0 and one.finished is Reason.WALL_TIME
    assert max(own.end.max() for own in timeline.served) <= 3.0
