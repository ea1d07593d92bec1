"""The time of judge verdicts in a forecast, compared with a request-by-request simulation."""

import heapq
from collections.abc import Sequence

import numpy as np
import pytest

from adaptive_eval.core import Bench, Plan, Trials
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.types import Cost
from adaptive_eval.simulate.worlds import BINARY, binary
from adaptive_eval.study.fixed import fixed_seconds
from adaptive_eval.study.pilot import AnswerUsage
from adaptive_eval.study.scenario import Scenario, ServiceCosts
from adaptive_eval.study.simulated import simulate_run
from adaptive_eval.study.timed import VerdictTimes

QUESTIONS, TRIALS = 30, 4
CHANCES = binary(np.repeat(np.array([0.7, 0.4])[:, None], QUESTIONS, axis=1))


def served(verdicts: VerdictTimes, slots: int = 6, seconds: float = 10.0, spread: float = 0.0) -> ServiceCosts:
    means = np.full((2, 2), seconds)
    usage = AnswerUsage(means, means, means, np.full(2, spread))
    return ServiceCosts(usage, [[Cost(), Cost()]] * 2, [slots] * 2, verdicts=verdicts)


def one_round() -> Plan:
    """All trials at once, and a single look."""
    return Plan(Bench(2, QUESTIONS, BINARY), rule=Sequential(0.95, 1.0), trials=Trials(min=TRIALS, max=TRIALS))


def in_line(arrivals: Sequence[float], seconds: float, slots: int) -> list[float]:
    """End times of requests with these durations, first come first served."""
    free, ends = [0.0] * slots, []
    for arrival in sorted(arrivals):
        ends.append(max(arrival, free[0]) + seconds)
        heapq.heapreplace(free, ends[-1])
    return ends


@pytest.mark.parametrize("slots", [1, 6, 1000])
@pytest.mark.parametrize(("reply", "judges"), [(1.0, 64), (1.0, 1), (9.0, 4), (30.0, 8)])
def test_a_round_ends_with_its_last_verdict(slots: int, reply: float, judges: int) -> None:
    answers = QUESTIONS * TRIALS
    come = [end for _ in range(2) for end in in_line([0.0] * answers, 10.0, slots)]
    expected = max(in_line(come, reply, judges))
    scenario = served(VerdictTimes(reply, reply / judges), slots)
    run = simulate_run(one_round(), CHANCES, scenario, (0,))
    assert run.seconds == pytest.approx(expected, rel=0.02, abs=reply)
    assert run.seconds >= max(come) + reply


def test_the_fixed_design_is_judged_too() -> None:
    for verdicts in (VerdictTimes(3.0, 0.01), VerdictTimes(3.0, 5.0)):
        judged = served(verdicts)
        scenario = Scenario(one_round().bench, None, ("ada", "bob"), judged, seed=0)  # type: ignore[arg-type]
        run = simulate_run(one_round(), CHANCES, judged, (0,))
        seconds = fixed_seconds(scenario, TRIALS * CHANCES.sum(axis=1))
        assert seconds == pytest.approx(run.seconds, rel=0.01)


@pytest.mark.slow
def test_a_run_with_many_rounds_takes_no_less_with_a_judge_than_without() -> None:
    plan = Plan(Bench(2, QUESTIONS, BINARY))
    close = binary(np.repeat(np.array([0.55, 0.45])[:, None], QUESTIONS, axis=1))
    without, quick, slow = (
        simulate_run(plan, close, served(verdicts, spread=0.5), (1,))
        for verdicts in (VerdictTimes(), VerdictTimes(1.0, 0.001), VerdictTimes(1.0, 20.0))
    )
    assert without.trials == quick.trials == slow.trials
    assert without.seconds < quick.seconds < slow.seconds
    assert slow.seconds >= 20.0 * slow.trials
