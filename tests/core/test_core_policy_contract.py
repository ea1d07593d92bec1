"""The contract of policies. To check a policy of your own: ADAPTIVE_EVAL_POLICY=package.module:attribute pytest ..."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from core_runs import Answers, Shell, exact, plans, straight
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.base.imports import load_attribute
from adaptive_eval.core import Plan, Reason, Verdict
from adaptive_eval.core.policies import Policy, View
from adaptive_eval.core.registry import POLICIES as REGISTERED
from adaptive_eval.testing.policies import check_allocation

PLUG_INS = ["core_plugins:OneByOne", *filter(None, [os.environ.get("ADAPTIVE_EVAL_POLICY")])]
ALL: list[Policy] = [
    *(entry.make() for entry in REGISTERED.values()),
    *(load_attribute(name, Path(__file__).parent)() for name in PLUG_INS),
]  # type: ignore[operator]

every_policy = pytest.mark.parametrize("policy", ALL, ids=lambda policy: type(policy).__name__)
seeds = st.integers(0, 2**20)


@st.composite
def views(draw: st.DrawFn) -> View:
    """Views of a policy: models set aside or at their horizon, with or without a fixed value to compare with."""
    models, questions = draw(st.integers(2, 6)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(seeds))
    in_play = rng.random(models) < 0.8
    order = rng.permutation(models)
    candidates = [(a, b) for i, a in enumerate(order) for b in order[i + 1 :]]
    if draw(st.booleans()):
        candidates = [(a, models) for a in order]
    able = np.append(in_play, True)
    open_pairs = [pair for pair in candidates if able[list(pair)].all() and rng.random() < 0.4]
    sizes = np.where(in_play & (rng.random(models) < 0.9), rng.integers(1, 40, models), 0)
    return View(
        open_pairs=np.array(open_pairs, dtype=np.intp).reshape(-1, 2),
        power=rng.random(len(open_pairs)),
        order=order,
        in_play=in_play,
        issued=rng.integers(1, 90, (models, questions)).astype(np.int32),
        trial_var=rng.exponential(1.0, (models, questions)) ** 3 + 1e-12,
        sizes=sizes,
    )


@every_policy
@settings(max_examples=examples(50), deadline=None)
@given(view=views())
def test_every_policy_passes_the_published_checks_on_any_view(policy: Policy, view: View) -> None:
    check_allocation(policy, view)


@every_policy
@settings(max_examples=examples(15), deadline=None)
@given(plan=plans(most_models=4), seed=seeds)
def test_it_carries_a_run_to_its_end(policy: Policy, plan: Plan, seed: int) -> None:
    plan = replace(plan, policy=policy)
    answers = Answers(plan, seed)
    expected = straight(plan, answers)
    assert expected.finished in Reason
    assert exact(Shell(plan, answers, np.random.default_rng(seed), 0.05).run().looks) == exact(expected.looks)
    if expected.finished is Reason.SETTLED:
        assert expected.looks[-1].count(Verdict.OPEN) == 0
