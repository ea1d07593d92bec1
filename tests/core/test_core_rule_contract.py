"""The contract of rules. To check a rule of your own: ADAPTIVE_EVAL_RULE=package.module:attribute pytest ..."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from core_evidence import evidence
from core_runs import Answers, Shell, exact, plans, straight
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.base.imports import load_attribute
from adaptive_eval.core import Plan, Reason, Verdict
from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.registry import RULES, make
from adaptive_eval.core.rules import Correctable, Precision, Rule
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.testing.rules import check_boundary, check_p_values

PLUG_INS = ["core_plugins:Stern", *filter(None, [os.environ.get("ADAPTIVE_EVAL_RULE")])]
ALL: list[Rule] = [Sequential(0.8, 0.2, 0.5), Precision(0.05)]
ALL += dict.fromkeys(make(entry.make, {}, {"confidence": 0.9, "start": 0.1}) for entry in RULES.values())
ALL += [load_attribute(name, Path(__file__).parent)() for name in PLUG_INS]  # type: ignore[operator]

every_rule = pytest.mark.parametrize("rule", ALL, ids=lambda rule: type(rule).__name__)
correctable = pytest.mark.parametrize(
    "rule", [rule for rule in ALL if isinstance(rule, Correctable)], ids=lambda rule: type(rule).__name__
)
seeds = st.integers(0, 2**20)


@st.composite
def cases(draw: st.DrawFn) -> Evidence:
    """Pairs with no information up to more than complete information; some models have no trial."""
    models = draw(st.integers(1, 4))
    reference = draw(st.booleans())
    pairs = models if reference else models * (models - 1) // 2
    z = draw(st.lists(st.floats(-12.0, 12.0), min_size=pairs, max_size=pairs))
    information = draw(st.lists(st.floats(0.0, 1.5), min_size=pairs, max_size=pairs))
    sigma = st.one_of(st.floats(1e-4, 0.5), st.just(float("inf")))
    sigmas = draw(st.lists(sigma, min_size=models, max_size=models))
    case = evidence(models, z, information, sigmas, reference)
    return replace(case, information=np.where(np.isfinite(case.sigma), case.information, 0.0))


@every_rule
@settings(max_examples=examples(30), deadline=None)
@given(on=cases())
def test_every_rule_passes_the_published_checks_on_any_evidence(rule: Rule, on: Evidence) -> None:
    check_boundary(rule, on)
    if isinstance(rule, Correctable):
        check_p_values(rule, on)


@correctable
@settings(max_examples=examples(30), deadline=None)
@given(on=cases(), share=st.integers(2, 40_000))
def test_a_smaller_error_takes_a_higher_boundary(rule: Correctable, on: Evidence, share: int) -> None:
    alpha = 1.0 - rule.confidence
    same, stricter = rule.at_level(alpha), rule.at_level(alpha / share)
    np.testing.assert_allclose(same.boundary(on), rule.boundary(on), rtol=1e-9)
    assert stricter.confidence == pytest.approx(1.0 - alpha / share)
    finite = np.isfinite(rule.boundary(on))
    assert np.all(stricter.boundary(on)[finite] > rule.boundary(on)[finite])
    np.testing.assert_allclose(stricter.p_value(on, 1), rule.p_value(on, 1), rtol=1e-9)


@every_rule
@settings(max_examples=examples(12), deadline=None)
@given(plan=plans(most_models=4), seed=seeds)
def test_it_carries_a_run_to_its_end(rule: Rule, plan: Plan, seed: int) -> None:
    judging = Judging(plan.judging.delta, plan.judging.futility)
    plan = replace(plan, rule=rule, judging=judging)
    answers = Answers(plan, seed)
    expected = straight(plan, answers)
    assert exact(Shell(plan, answers, np.random.default_rng(seed), 0.05).run().looks) == exact(expected.looks)
    if expected.finished is Reason.SETTLED:
        settled = (Verdict.RESOLVED, Verdict.TIED)
        assert all(pair.verdict in settled for pair in expected.looks[-1].comparisons)
