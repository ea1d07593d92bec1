"""A gate tests whether a model is less than delta worse than a baseline or a value: its error rates and its cost."""

import math
from dataclasses import replace

import numpy as np
import pytest
from core_runs import play, play_chances
from numpy.typing import NDArray
from scipy.stats import binom
from thoroughness import sizes

from adaptive_eval.core import Bench, Controller, Pace, Plan, Trials, Verdict
from adaptive_eval.core.anytime import Anytime
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.objectives import Gate, Threshold
from adaptive_eval.core.optimal import Optimal
from adaptive_eval.core.policies import Policy, Uniform, UnresolvedPairs, Weighted
from adaptive_eval.core.rules import Rule
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Margin
from adaptive_eval.core.stages import StageBefore
from adaptive_eval.study.judged import compared_scores

BINARY = np.array([0.0, 1.0])
QUESTIONS = 30
DELTA = 0.05
PASS, FAIL, UNDECIDED = "PASS", "FAIL", "UNDECIDED"


def questions(mean: float, seed: int = 4) -> NDArray[np.float64]:
    """Chances of being right, spread over the questions around a mean."""
    spread = np.random.default_rng(seed).uniform(-0.1, 0.1, QUESTIONS)
    return mean + spread - spread.mean()


def carry_out(plan: Plan, chances: NDArray[np.float64], seed: int, *, keep_looks: bool = False) -> Controller:
    """A whole run on chances (L, M); another may follow it."""
    return play_chances(Controller(plan, keep_looks=keep_looks), chances, np.random.default_rng(seed))


def outcome(controller: Controller) -> str:
    look = controller.latest_look()
    assert look is not None
    (pair,) = look.comparisons
    if pair.verdict is not Verdict.RESOLVED or pair.reversed:
        return UNDECIDED
    return PASS if pair.first == 1 else FAIL


def outcomes(plan: Plan, baseline: float, build: float, runs: int) -> dict[str, float]:
    """The share of runs with each outcome."""
    chances = np.stack([questions(baseline), questions(build)])
    endings = [outcome(carry_out(plan, chances, seed)) for seed in range(runs)]
    return {name: endings.count(name) / runs for name in (PASS, FAIL, UNDECIDED)}


def gate(
    delta: float = DELTA,
    *,
    rule: Rule | None = None,
    policy: Policy | None = None,
    pace: Pace | None = None,
    trials: Trials | None = None,
    judging: Judging | None = None,
) -> Plan:
    trials = trials or Trials(min=4, max=40)
    return Plan(
        Bench(2, QUESTIONS, BINARY),
        objective=Gate(Margin(0, delta)),
        rule=rule or Sequential(start=trials.min / trials.max),
        policy=policy or Weighted(),
        pace=pace or Pace(),
        trials=trials,
        judging=judging or Judging(),
    )


def allowed(promise: float, runs: int) -> float:
    """The share of runs below which a rate at the promise lies with probability 0.999."""
    return float(binom.ppf(0.999, runs, promise) / runs)


@pytest.mark.parametrize("runs", sizes(15, 40))
def test_a_build_that_is_a_point_worse_passes_a_delta_of_five_points_within_the_horizon(runs: int) -> None:
    """The baseline at 0.86 and a build at 0.85: certifying a tie takes thousands of trials, and passing does not."""
    shares = outcomes(gate(trials=Trials(min=4, max=80)), 0.86, 0.85, runs)
    assert shares[PASS] >= 0.7 and shares[FAIL] == 0.0


@pytest.mark.parametrize("runs", sizes(60, 200))
def test_at_the_edge_hardly_any_run_passes_and_hardly_any_fails(runs: int) -> None:
    shares = outcomes(gate(), 0.80, 0.75, runs)
    assert shares[PASS] <= allowed(0.05, runs)
    assert shares[FAIL] <= allowed(0.05, runs)


@pytest.mark.slow
def test_an_equal_build_passes_by_the_default_rule() -> None:
    """A gate does not rest while it is likely to be settled: nothing would resume it."""
    plan = gate(rule=Optimal(start=0.05), trials=Trials(min=4, max=80))
    assert outcomes(plan, 0.8, 0.8, 20)[PASS] >= 0.95


def test_a_build_that_is_much_worse_fails() -> None:
    assert outcomes(gate(), 0.85, 0.65, 20)[FAIL] == 1.0


@pytest.mark.parametrize("runs", sizes(30, 100))
def test_without_a_delta_a_build_passes_by_being_better(runs: int) -> None:
    plan = gate(0.0)
    assert outcomes(plan, 0.6, 0.8, 10)[PASS] == 1.0
    assert outcomes(plan, 0.8, 0.6, 10)[FAIL] == 1.0
    equal = outcomes(plan, 0.7, 0.7, runs)
    assert equal[PASS] + equal[FAIL] <= allowed(0.10, runs)


@pytest.mark.release
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"policy": Uniform()},
        {"pace": Pace(3)},
        {"trials": Trials(min=1, max=40)},
        {"trials": Trials(min=10, max=30)},
        {"judging": Judging(futility=None)},
        {"rule": Anytime(start=0.1)},
        {"judging": Judging(familywise=True)},
    ],
    ids=["default", "uniform", "ahead", "from the first", "three looks", "no futility", "anytime", "holm"],
)
def test_the_edge_holds_at_every_schedule_of_looks(changes: dict[str, object]) -> None:
    """The true difference is exactly -delta: PASS and FAIL each in at most 5%, at whatever looks."""
    runs = 600
    for baseline in (0.80, 0.55):
        shares = outcomes(gate(**changes), baseline, baseline - DELTA, runs)  # type: ignore[arg-type]
        assert shares[PASS] <= allowed(0.05, runs)
        assert shares[FAIL] <= allowed(0.05, runs)


@pytest.mark.release
def test_several_builds_at_the_edge_keep_the_promise_together() -> None:
    runs = 300
    plan = Plan(
        Bench(5, QUESTIONS, BINARY),
        objective=Gate(Margin(0, DELTA)),
        rule=Sequential(start=0.1),
        trials=Trials(min=4, max=40),
        judging=Judging(familywise=True),
    )
    chances = np.stack([questions(0.8), *[questions(0.75)] * 4])
    wrong = 0
    for seed in range(runs):
        look = carry_out(plan, chances, seed).latest_look()
        assert look is not None
        wrong += any(pair.verdict is Verdict.RESOLVED for pair in look.comparisons)
    assert wrong / runs <= allowed(0.05, runs)


def test_a_gate_reports_the_difference_with_its_margin() -> None:
    """Tiers, letters and the matrix ignore the margin."""
    plan = gate(0.2, trials=Trials(min=10, max=10))
    # the baseline is right in 7 of 10, the build on every other question in 6
    controller = play(Controller(plan), lambda ask: int(ask.trial < 7 - ask.model * (ask.question % 2)))
    result = controller.result()
    assert result is not None
    (comparison,) = result.comparisons
    baseline, build = (next(row for row in result.models if row.model == at) for at in (0, 1))
    sigma = math.hypot(baseline.sigma, build.sigma)
    assert (comparison.verdict.first, comparison.verdict.second, comparison.verdict.verdict) == (1, 0, Verdict.RESOLVED)
    assert comparison.difference == pytest.approx(-0.05)
    assert comparison.verdict.z == pytest.approx((0.2 - 0.05) / sigma)
    assert (baseline.rank, baseline.tier, build.tier) == (1, 1, 1)
    assert baseline.letters == build.letters == "a"


def test_only_the_baseline_is_compared() -> None:
    objective = Gate(Margin(1, 0.1))
    assert objective.comparisons(np.array([2, 1, 0])).tolist() == [[1, 0], [1, 2]]
    with pytest.raises(ValueError, match="must not be negative"):
        Gate(Margin(0, -0.1))


# -- a gate on a value -------------------------------------------------------------------------------------------------

VALUE = 0.62


def gate_on_value(models: int, delta: float = DELTA, *, trials: Trials | None = None, rule: Rule | None = None) -> Plan:
    """Models that are judged each by itself."""
    trials = trials or Trials(min=4, max=40)
    return Plan(
        Bench(models, QUESTIONS, BINARY),
        objective=Gate(Margin(models, delta), VALUE),
        rule=rule or Sequential(start=trials.min / trials.max),
        policy=UnresolvedPairs(),
        trials=trials,
    )


def shares_on_value(plan: Plan, score: float) -> dict[str, float]:
    """The share of the models with each outcome, if all have this true score."""
    look = carry_out(plan, np.tile(questions(score), (plan.bench.models, 1)), 1).latest_look()
    assert look is not None
    assert all(pair.second is None for pair in look.comparisons)
    endings = [
        UNDECIDED if pair.verdict is not Verdict.RESOLVED or pair.reversed else PASS if pair.z > 0.0 else FAIL
        for pair in look.comparisons
    ]
    assert len(endings) == plan.bench.models
    return {name: endings.count(name) / len(endings) for name in (PASS, FAIL, UNDECIDED)}


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("runs", sizes(60, 400))
def test_a_model_exactly_delta_below_the_value_hardly_ever_passes_or_fails(runs: int, delta: float) -> None:
    shares = shares_on_value(gate_on_value(runs, delta), VALUE - delta)
    assert shares[PASS] <= allowed(0.05, runs)
    assert shares[FAIL] <= allowed(0.05, runs)


@pytest.mark.parametrize("rule", [None, Optimal(start=0.1)], ids=["sequential", "optimal"])
def test_a_model_at_the_value_passes_and_one_far_below_it_fails(rule: Rule | None) -> None:
    assert shares_on_value(gate_on_value(20, 0.1, rule=rule), VALUE) == {PASS: 1.0, FAIL: 0.0, UNDECIDED: 0.0}
    assert shares_on_value(gate_on_value(20, 0.1, rule=rule), VALUE - 0.2)[FAIL] == 1.0


@pytest.mark.parametrize("models", [1, 3])
def test_a_gate_on_a_value_calls_as_a_threshold_at_the_value_less_delta(models: int) -> None:
    gate_plan = gate_on_value(models)
    threshold = replace(gate_plan, objective=Threshold(VALUE - DELTA))
    chances = np.stack([questions(score) for score in (0.5, 0.6, 0.66)[:models]])
    for seed in range(2):
        comparisons = []
        for plan in (gate_plan, threshold):
            look = carry_out(plan, chances, seed).latest_look()
            assert look is not None
            pairs = [pair._replace(rho=0.0) for pair in look.comparisons]
            comparisons.append([tuple(round(x, 9) if isinstance(x, float) else x for x in pair) for pair in pairs])
        assert comparisons[0] == comparisons[1]


@pytest.mark.parametrize("models", [1, 2])
def test_a_gate_on_a_value_reports_the_difference_without_its_margin(models: int) -> None:
    """Every model has its margin, also the first; tiers are those against the value itself."""
    controller = Controller(gate_on_value(models, 0.15, trials=Trials(min=10, max=10)))
    play(controller, lambda ask: int(ask.trial < 5 + 4 * ask.model))  # right in 5 of 10, and the second in 9
    result, look = controller.result(), controller.latest_look()
    assert result is not None and look is not None
    assert len(look.tiers) == models
    by_model = {comparison.verdict.first: comparison for comparison in result.comparisons}
    sigmas = {row.model: row.sigma for row in result.models}
    for model, score in enumerate((0.5, 0.9)[:models]):
        assert by_model[model].difference == pytest.approx(score - VALUE)
        assert by_model[model].verdict.z == pytest.approx((score - VALUE + 0.15) / sigmas[model])
    assert {row.model: row.tier for row in result.models} == ({0: 1} if models == 1 else {1: 1, 0: 2})


@pytest.mark.parametrize(
    ("objective", "bench", "match"),
    [
        (Gate(Margin(0, 0.1), VALUE), Bench(2, 4, BINARY), "a gate on a value"),
        (Gate(Margin(2, 0.1)), Bench(2, 4, BINARY), "a gate on a value"),
        (
            Gate(Margin(2, 0.1, (0.2,)), VALUE),
            Bench(2, 4, BINARY, benchmark_of=np.array([0, 0, 1, 1]), gates=((0, 0.2),)),
            "gates of benchmarks compare with a baseline",
        ),
    ],
)
def test_a_plan_refuses_a_gate_with_both_a_baseline_and_a_value(objective: Gate, bench: Bench, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Plan(bench, objective=objective)


def test_replays_judge_a_gate_on_a_value_by_scores_with_delta_added() -> None:
    truth = np.array([VALUE - 2 * DELTA, VALUE - DELTA / 2])
    compared = compared_scores(gate_on_value(2), truth)
    assert compared == pytest.approx(truth + DELTA)


@pytest.mark.parametrize("on_value", [False, True], ids=["baseline", "value"])
def test_a_raised_horizon_counts_only_the_comparisons_of_the_gate(on_value: bool) -> None:
    plan = gate_on_value(1, 0.0, trials=Trials(min=4, max=6)) if on_value else gate(0.0, trials=Trials(min=4, max=6))
    chances = np.tile(questions(VALUE), (plan.bench.models, 1))
    short = carry_out(plan, chances, 1, keep_looks=True)
    before = StageBefore(short, tuple(range(plan.bench.models)))
    longer = Controller(replace(plan, trials=Trials(min=4, max=20), before=before))
    assert [len(extension.boundary) for extension in longer.extensions] == [1]
