"""Pairs judged trial by trial use a flatter boundary with the same error guarantee; other pairs do not."""

from dataclasses import replace

import numpy as np
import pytest

from adaptive_eval.core import Bench, Controller, Outcome, Pairs, Plan, Trials
from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.objectives import Gate
from adaptive_eval.core.optimal import Optimal
from adaptive_eval.core.sequential import KAPPA_BY_TRIAL, Coupled, Sequential
from adaptive_eval.core.settings import Margin
from adaptive_eval.core.stages import StageBefore
from adaptive_eval.core.types import Verdict

RULE = Coupled.from_rule(Sequential(start=0.05))
QUESTIONS = 20


def evidence(z: float, information: float, paired: tuple[bool, bool] | None) -> Evidence:
    """Two pairs that differ in nothing but how they are judged."""
    both = np.full(2, 1.0)
    return Evidence(
        models=3,
        against_reference=False,
        first=np.array([0, 0]),
        second=np.array([1, 2]),
        difference=0.01 * both,
        sigma=0.01 * both,
        z=z * both,
        information=information * both,
        paired=None if paired is None else np.array(paired),
    )


@pytest.mark.parametrize("information", [0.05, 0.2, 1.0])
def test_each_pair_has_the_boundary_of_its_kind(information: float) -> None:
    flat, steep = Sequential(start=0.05, kappa=KAPPA_BY_TRIAL), Sequential(start=0.05)
    seen = evidence(2.5, information, (True, False))
    expected = [flat.boundary(seen)[0], steep.boundary(seen)[1]]
    assert RULE.boundary(seen) == pytest.approx(expected)
    assert RULE.p_value(seen, 1) == pytest.approx([flat.p_value(seen, 1)[0], steep.p_value(seen, 1)[1]])
    assert RULE.at_level(0.01).boundary(seen)[1] == pytest.approx(replace(steep, confidence=0.99).boundary(seen)[1])
    alone = seen.at_positions(np.array([0]))
    assert RULE.boundary(alone) == pytest.approx(expected[:1])
    nobody = evidence(2.5, information, None)
    assert RULE.boundary(nobody) == pytest.approx(steep.boundary(nobody))


def test_the_boundary_is_lower_where_near_copies_settle_and_higher_at_the_horizon() -> None:
    """Both boundaries spend the same error, so that neither can be lower everywhere."""
    early, late = (RULE.boundary(evidence(0.0, t, (True, False))) for t in (0.05, 1.0))
    assert early[0] < 0.7 * early[1]
    assert late[1] < late[0] < 1.2 * late[1]


def test_a_changed_horizon_leaves_each_pair_what_its_own_boundary_left() -> None:
    looks = [evidence(1.0, t, (True, False)) for t in (0.1, 0.5, 0.9)]
    now = evidence(1.0, 0.45, (True, False))
    after = RULE.extended(looks, now, 0.02)
    apart = [Sequential(start=0.05, kappa=kappa).extended(looks, now, 0.02) for kappa in (KAPPA_BY_TRIAL, 0.25)]
    at_end = evidence(1.0, 1.0, (True, False))
    for of_each, ask in (
        (after.boundary(at_end), lambda rule: rule.boundary(at_end)),
        (after.p_value(at_end, 1), lambda rule: rule.p_value(at_end, 1)),
        (after.remaining_error(now), lambda rule: rule.remaining_error(now)),
        (after.exhausted(now), lambda rule: rule.exhausted(now)),
        (after.tied(at_end, 0.02), lambda rule: rule.tied(at_end, 0.02)),
    ):
        assert of_each.tolist() == [ask(rule)[number] for number, rule in enumerate(apart)]
    again = after.extended(looks, now, 0.02).at_level(0.01)
    assert isinstance(again, Coupled) and not again.by_pair and again.confidence == 0.99


def test_a_run_has_it_where_seeds_are_shared_and_the_rule_is_its_own() -> None:
    bench = Bench(2, QUESTIONS, weights=np.array([0.0, 1.0]))
    plan = Plan(bench, objective=Pairs(((0, 1),)), coupled=True)
    assert plan.deciding_rule == Coupled.from_rule(Sequential())
    alone = replace(plan, coupled=False)
    assert alone.deciding_rule == Optimal(spacing=alone.spacing, rests=True)


def gated(plan: Plan, seed: int, earlier: bool) -> int:
    """Whether a copy worse by exactly delta passes (1) or fails (-1); it only loses trials and never gains any."""
    rng, delta = np.random.default_rng(seed), plan.objective.margin.delta if plan.objective.margin else 0.0
    u = rng.random((QUESTIONS, plan.trials.max))
    base = np.random.default_rng(8).beta(0.7, 0.7, (QUESTIONS, 1)).clip(0.1)
    outcomes = np.stack([u < base, (u < base) & (u >= delta)]).astype(int)
    controller = Controller(plan)
    if earlier:
        shorter = replace(plan, trials=Trials(min=4, max=15))
        controller = Controller(shorter)
    while controller.finished is None:
        if earlier and controller.taker.taken == 8:
            before = StageBefore(controller, (0, 1))
            controller, earlier = Controller(replace(plan, before=before), keep_looks=False), False
        requested = controller.ask(10**6)
        controller.tell(
            Outcome(a.model, a.question, a.trial, int(outcomes[a.model, a.question, a.trial])) for a in requested
        )
    look = controller.latest_look()
    assert look is not None
    (pair,) = look.comparisons
    return 0 if pair.verdict is not Verdict.RESOLVED else 1 if pair.first == 1 else -1


@pytest.mark.release
@pytest.mark.parametrize("runs", [600])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_copy_at_the_edge_passes_in_a_twentieth_of_runs_at_most(earlier: bool, runs: int) -> None:
    """Pure losses are the hardest case: few losses look like none."""
    bench = Bench(2, QUESTIONS, weights=np.array([0.0, 1.0]))
    plan = Plan(
        bench,
        objective=Gate(Margin(0, 0.03)),
        rule=Sequential(start=4 / 15 if earlier else 4 / 60),
        judging=Judging(),
        trials=Trials(min=4, max=60),
        coupled=True,
    )
    decisions = [gated(plan, seed, earlier) for seed in range(runs)]
    for side in (1, -1):
        assert decisions.count(side) / runs <= 0.05 + 2.0 * np.sqrt(0.0475 / runs)
