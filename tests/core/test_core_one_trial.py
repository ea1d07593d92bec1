"""Runs with one trial of each question: models are compared question by question."""

from dataclasses import replace

import numpy as np
import pytest

from adaptive_eval.core import Bench, Controller, Optimal, Plan, Threshold, Trials
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Verdict
from adaptive_eval.study.drive import drive
from scorio.sinf.prior import EVENTS

BINARY = np.array([0.0, 1.0])


def plan_for(questions: int, trials: int = 1, **bench: object) -> Plan:
    rule = Optimal(start=1.0 / trials)
    return Plan(Bench(2, questions, BINARY, **bench), rule=rule, trials=Trials(min=1, max=trials))  # type: ignore[arg-type]


def finished(plan: Plan, chances: np.ndarray, seed: int) -> Controller:
    """A run on models with these chances (L, M) to be right."""
    p = np.stack([1.0 - chances, chances], axis=-1)
    return drive(Controller(plan), Tape.from_chances(p, BINARY, np.random.default_rng(seed)))


def test_z_is_that_of_the_differences_on_the_same_questions() -> None:
    chances = np.tile(np.random.default_rng(5).beta(0.6, 0.4, 150), (2, 1))
    controller = finished(plan_for(150), chances, seed=1)
    assert controller.last_look is not None
    evidence = controller.last_look.evidence
    first, second = (controller.counts[model[0]] for model in (evidence.first, evidence.second))
    differences = (first @ BINARY - second @ BINARY).astype(float)
    sigma = np.sqrt((differences.var(ddof=1) + EVENTS / 150) / 150)
    assert evidence.difference[0] == pytest.approx(differences.mean())
    assert evidence.sigma[0] == pytest.approx(sigma)


@pytest.mark.slow
@pytest.mark.parametrize(("trials", "profile"), [(1, 0.9), (2, 0.5)])
def test_exact_ties_are_called_as_rarely_as_promised(trials: int, profile: float) -> None:
    """With half of the variance, as if half of it were known to lie between questions, 21% are."""
    runs, chances = 200, np.full((2, 200), profile)
    looks = (finished(plan_for(200, trials), chances, seed).looks[-1] for seed in range(runs))
    called = sum(look.comparisons[0].verdict == Verdict.RESOLVED for look in looks) / runs
    assert called <= 0.1 + 3.0 * np.sqrt(0.1 * 0.9 / runs)


def test_what_is_compared_otherwise_is_not_compared_by_question() -> None:
    plan = plan_for(60)
    assert plan.source.by_question
    assert not plan_for(60, trials=2).source.by_question
    assert not replace(plan, objective=Threshold(0.5)).source.by_question
    assert not replace(plan, estimator="bayes").source.by_question
    assert not plan_for(60, question_weights=np.r_[np.full(30, 0.5), np.full(30, 1.5)]).source.by_question
    assert not plan_for(60, prior_counts=np.ones((2, 60, 2))).source.by_question
