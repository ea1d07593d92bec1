"""Runs simulated side by side in arrays match their own controllers on the same outcomes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from test_simulated import QUESTIONS, level, served
from thoroughness import sizes

from adaptive_eval.core import Anytime, Cost, Judging, NearBest, Plan, Rule, Verdict, ZScore
from adaptive_eval.core.objectives import Baseline, Best, Gate, Objective, PrecisionOf, Ranking, Threshold, TopK
from adaptive_eval.core.optimal import Optimal, Spacing
from adaptive_eval.core.policies import Policy, Uniform, UnresolvedPairs, Weighted
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Bench, Budget, Margin, Pace, Trials
from adaptive_eval.core.stack import can_stand_side_by_side
from adaptive_eval.simulate.worlds import BINARY, binary
from adaptive_eval.study.pilot import AnswerUsage
from adaptive_eval.study.scenario import ServiceCosts
from adaptive_eval.study.simulated import SimulatedRun, simulate_run, simulate_side_by_side
from scorio.moments import FloatArray

MODELS, ASKED = 4, 6
RULES: list[Rule] = [
    Sequential(), Sequential(0.8, kappa=0.5), ZScore(), Anytime(), NearBest(0.05),
    Optimal(spacing=Spacing(1.0)),
]  # fmt: skip
OBJECTIVES: list[Objective] = [Ranking(), Best(), TopK(2), Threshold(0.5), PrecisionOf(0.1), Baseline(1)]
POLICIES: list[Policy] = [Weighted(), UnresolvedPairs()]
RUBRICS = ([0.0, 1.0], [0.0, 0.5, 1.0])


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of every kind that runs in step."""
    return Plan(
        Bench(MODELS, ASKED, np.array(draw(st.sampled_from(RUBRICS)))),
        objective=draw(st.sampled_from(OBJECTIVES)),
        rule=draw(st.sampled_from(RULES)),
        policy=draw(st.sampled_from(POLICIES)),
        judging=Judging(
            draw(st.sampled_from([0.0, 0.05])),
            draw(st.sampled_from([None, 0.3])),
            latch=draw(st.sampled_from([True, True, False])),
        ),
        prior=draw(st.sampled_from(["uniform", "self"])),
        trials=Trials(min=3, max=draw(st.integers(3, 25))),
        pace=Pace(opening=draw(st.sampled_from([0, 5]))),
        estimator=draw(st.sampled_from(["average", "bayes"])),
    )


def worlds(seed: int, categories: int) -> list[FloatArray]:
    """Probabilities (L, M, K) of similar and of distant models."""
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.dirichlet(np.full(categories, spread), (MODELS, ASKED))) for spread in (0.3, 1.0, 8.0)]


def costs(categories: int) -> ServiceCosts:
    """Costs of answers of very different lengths, on few slots."""
    seconds = np.linspace(5.0, 40.0, MODELS * categories).reshape(MODELS, categories)
    usage = AnswerUsage(seconds, seconds, seconds, np.full(MODELS, 0.5))
    by_category = [[Cost(20 + model, 0.1, 1.0) for _ in range(categories)] for model in range(MODELS)]
    return ServiceCosts(usage, by_category, [1, 3, 7, 64])


def comparable(run: SimulatedRun) -> list[object]:
    """The comparable part of a run, without what depends on the last bit of a prior's fit."""
    pairs = [(pair.first, pair.second, pair.verdict, pair.winner) for pair in run.comparisons]
    return [*run._replace(comparisons=()), *pairs]


def assert_same(together: SimulatedRun, alone: SimulatedRun) -> None:
    assert repr(comparable(together)) == repr(comparable(alone))
    needed = [[pair.trials_needed for pair in run.comparisons] for run in (together, alone)]
    assert needed[0] == pytest.approx(needed[1])


def hold_against_controllers(plan: Plan, seed: int) -> None:
    """Compare runs with their controllers."""
    categories = plan.bench.categories
    drawn, usage = dict(enumerate(worlds(seed, categories))), costs(categories)
    assert can_stand_side_by_side(plan)
    together = simulate_side_by_side(plan, drawn, usage, seed)
    for (world, chances), run in zip(drawn.items(), together, strict=True):
        assert_same(run, simulate_run(plan, chances, usage, (seed, world), timed=False))


@pytest.mark.parametrize("many", sizes(8, 150))
def test_runs_side_by_side_match_their_controllers(many: int) -> None:
    settings(max_examples=many, deadline=None)(given(plans(), st.integers(0, 999))(hold_against_controllers))()


@pytest.mark.parametrize("runs", sizes(150, 500))
@pytest.mark.parametrize(
    "policy", [pytest.param(UnresolvedPairs(), id="alike"), pytest.param(Weighted(), id="weighted")]
)
def test_exact_ties_are_called_no_more_often_than_promised(policy: Policy, runs: int) -> None:
    """Two copies on questions of all kinds, all the way to the horizon: called in at most 10% of runs."""
    copy = np.random.default_rng(8).beta(0.6, 0.4, QUESTIONS)
    plan = Plan(Bench(2, QUESTIONS, BINARY), policy=policy, judging=Judging(futility=None))
    ended = simulate_side_by_side(plan, dict.fromkeys(range(runs), binary(np.stack([copy, copy]))), served(2), 1)
    called = np.mean([run.comparisons[0].verdict is Verdict.RESOLVED for run in ended])
    assert called <= binom.ppf(0.999, runs, 0.10) / runs


def test_recorded_outcomes_are_used_side_by_side_too() -> None:
    recorded = np.full((2, QUESTIONS, 6), -1, dtype=np.int8)
    recorded[0, :, :4], recorded[1, :, :4], recorded[0, 0, 5] = 1, 0, 1
    with_recorded, chances = served(2, recorded=recorded), level(0.6, 0.55)
    plan = Plan(Bench(2, QUESTIONS, np.array([0.0, 1.0])), trials=Trials(min=4, max=20))
    together = simulate_side_by_side(plan, dict.fromkeys(range(3), chances), with_recorded, 5)
    for world, run in enumerate(together):
        assert_same(run, simulate_run(plan, chances, with_recorded, (5, world), timed=False))


class OfItsOwn:
    """A custom rule that does not declare that it judges each pair by itself."""

    def boundary(self, evidence: object) -> FloatArray:
        return np.full(6, 2.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"pace": Pace(1)},
        {"pace": Pace(share=0.5)},
        {"policy": Uniform()},
        {"budget": Budget(trials=900)},
        {"budget": Budget(usd=3.0)},
        {"budget": Budget(wall_seconds=3.0)},
        {"judging": Judging(familywise=True)},
        {"rule": OfItsOwn()},
        {"objective": Gate(Margin(0, 0.05))},
        {"first": np.full((MODELS, ASKED), 4)},
        {"bench": Bench(MODELS, ASKED, np.array([0.0, 1.0]), prior_counts=np.ones((MODELS, ASKED, 2)))},
    ],
)  # fmt: skip
def test_plans_unsupported_by_arrays_use_a_controller(changes: dict[str, object]) -> None:
    plan = Plan(Bench(MODELS, ASKED, np.array([0.0, 1.0])))
    assert can_stand_side_by_side(plan)
    assert not can_stand_side_by_side(replace(plan, **changes))  # type: ignore[arg-type]
