"""Rounds ahead of looks are issued only for comparisons that are likely to stay open."""

import numpy as np
import pytest
from scipy.stats import norm

from adaptive_eval.core import Bench, Controller, Outcome, Pace, Plan
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.look import likely_open
from adaptive_eval.core.policies import UnresolvedPairs
from adaptive_eval.core.rules import ZScore
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.tape import Tape
from adaptive_eval.study.drive import drive

QUESTIONS = 20
WEIGHTS = np.array([0.0, 1.0])
START = 0.2


def plan(lookahead: int, **choices: object) -> Plan:
    """No call before a fifth of the horizon of 80 trials, that is before 16 trials a question."""
    settings: dict[str, object] = {
        "rule": Sequential(start=START),
        "policy": UnresolvedPairs(),
        "prior": "uniform",
        "judging": Judging(futility=None),
        "pace": Pace(lookahead),
    }
    return Plan(Bench(3, QUESTIONS, WEIGHTS), **(settings | choices))  # type: ignore[arg-type]


def tape(*means: float) -> Tape:
    p = np.repeat(np.array(means)[:, None], QUESTIONS, axis=1)
    return Tape.from_chances(np.stack([1.0 - p, p], axis=-1), WEIGHTS, np.random.default_rng(11))


@pytest.mark.parametrize("lookahead", [4, 12])
def test_nothing_runs_ahead_for_a_difference_that_the_next_allowed_look_will_call(lookahead: int) -> None:
    """The first model leads clearly from the start: 16 trials, or those before the first look if more."""
    controller = drive(Controller(plan(lookahead)), tape(0.9, 0.2, 0.2))
    per_question = controller.trials / QUESTIONS
    assert max(16, 4 + lookahead) <= per_question[0] <= max(17, 4 + lookahead)
    assert per_question[1] >= 40, "the two equals stay open, and rounds run ahead for them"


@pytest.mark.parametrize(("times", "stay"), [(1.0, [True, True]), (1.5, [True, True]), (2.5, [True, False])])
def test_likely_is_more_likely_than_not_by_the_normal_forecast(times: float, stay: list[bool]) -> None:
    """With q times the information, z is normal around z sqrt(q) with variance q - 1."""
    bound, outcomes = 2.5, tape(0.5, 0.45, 0.3)
    controller = Controller(plan(0, rule=ZScore(bound)))
    controller.tell([Outcome(*ask[:3], outcomes.category(*ask[:3])) for ask in controller.ask(1000)])
    standing, held = controller.last_look, controller.trials
    assert standing is not None
    z = np.abs(standing.evidence.z[standing.evidence.positions(standing.open_pairs())])
    centre, spread = z * np.sqrt(times), np.sqrt(times - 1.0) + 1e-12
    called = norm.sf((bound - centre) / spread) + norm.cdf((-bound - centre) / spread)
    assert (called <= 0.5).tolist() == stay
    assert likely_open(standing, held, np.rint(held * times).astype(np.int64), 0.0).tolist() == stay
