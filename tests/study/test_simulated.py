"""Simulated runs, their summaries, and the fixed design beside them, compared with results worked out by hand."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from scipy.stats import binom
from thoroughness import sizes

from adaptive_eval.config.decisions import Decisions, ObjectiveConfig, StoppingConfig
from adaptive_eval.config.planning import RunFacts
from adaptive_eval.config.run import ServingGroup
from adaptive_eval.core import Best, Controller, Judging, Plan, PrecisionOf, Prior, StageBefore, Uniform, ZScore
from adaptive_eval.core.policies import Policy, UnresolvedPairs, Weighted
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Bench, Budget, Pace, Trials
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Cost, Outcome, Verdict
from adaptive_eval.simulate import worlds as simulated_worlds
from adaptive_eval.simulate.worlds import BINARY, binary
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.fixed import fixed_calls, fixed_seconds, fixed_with_as_many, smallest_fixed
from adaptive_eval.study.judged import judge_replay
from adaptive_eval.study.pilot import AnswerUsage
from adaptive_eval.study.scenario import Scenario, ServiceCosts, uncapped
from adaptive_eval.study.simulated import (
    SimulatedRun,
    chance_error,
    is_precise,
    simulate_all,
    simulate_run,
    tape_of_world,
)
from adaptive_eval.study.summary import affordable_trials, smallest_certified_delta, smallest_differences, smallest_gap
from adaptive_eval.study.timed import ServedSpans
from adaptive_eval.study.types import median_range
from scorio.moments import FloatArray

QUESTIONS = 30


def level(*means: float) -> np.ndarray:
    """Chances of models that answer every question right with the same probability."""
    return binary(np.repeat(np.array(means)[:, None], QUESTIONS, axis=1))


def served(models: int, seconds: float = 10.0, slots: int = 3, recorded: np.ndarray | None = None) -> ServiceCosts:
    """Answers that take exactly this long, and cost more when wrong."""
    means = np.full((models, 2), seconds)
    usage = AnswerUsage(means, means, means, np.zeros(models))
    costs = [[Cost(20, 0.02, 5.0), Cost(10, 0.01, 3.0)]] * models
    return ServiceCosts(usage, costs, [slots] * models, recorded)


def plan(models: int = 2, **choices: object) -> Plan:
    return replace(Plan(Bench(models, QUESTIONS, BINARY)), **choices)  # type: ignore[arg-type]


def test_distant_models_take_only_the_first_round() -> None:
    run = simulate_run(plan(), level(0.95, 0.05), served(2), (0,))
    assert run.reached and run.trials == 2 * QUESTIONS * 4
    assert run.seconds == pytest.approx(QUESTIONS * 4 / 3 * 10.0), "3 slots a model, both at once"
    (pair,) = run.comparisons
    assert (pair.first, pair.second, pair.verdict) == (0, 1, Verdict.RESOLVED)
    assert run.gaps == pytest.approx((0.9,))
    sure, half = simulate_run(plan(), level(1.0, 0.0), served(2), (0,)), QUESTIONS * 4
    assert (sure.tokens, sure.usd, sure.gpu_seconds) == pytest.approx((30 * half, 0.03 * half, 8.0 * half))


@pytest.mark.parametrize("half_width", [0.05, 0.04])
def test_precision_takes_the_trials_that_its_interval_needs(half_width: float) -> None:
    """1.96 sqrt(p (1 - p) / n) is the half-width after n trials."""
    single_model = plan(1, objective=PrecisionOf(half_width), judging=Judging(futility=None))
    trials = [simulate_run(single_model, level(0.5), served(1), (seed,)).trials for seed in range(4)]
    assert np.mean(trials) == pytest.approx(0.25 * (1.959964 / half_width) ** 2, rel=0.12)


def test_the_same_seed_gives_the_same_answers_under_any_plan() -> None:
    chances = level(0.7, 0.6, 0.5)
    run = simulate_run(plan(3), chances, served(3), (1, 2))
    assert run == simulate_run(plan(3), chances, served(3), (1, 2))
    assert run != simulate_run(plan(3), chances, served(3), (1, 3))
    assert simulate_run(plan(3, budget=Budget(trials=10**9)), chances, served(3), (1, 2)) == run


def test_what_is_recorded_is_not_drawn_and_takes_no_time() -> None:
    recorded = np.full((2, QUESTIONS, 6), -1, dtype=np.int8)
    recorded[0, :, :4], recorded[1, :, :4] = 1, 0
    recorded[0, 0, 5] = 1
    run = simulate_run(plan(), level(0.5, 0.5), served(2, recorded=recorded), (0,))
    assert run.reached and run.seconds == 0.0
    assert run.trials == 2 * QUESTIONS * 4 + 1, "what is there is paid for, needed or not"
    assert run.tokens == QUESTIONS * 4 * 30 + 10


def test_models_that_take_turns_wait_for_each_other_and_for_the_swap() -> None:
    apart = level(0.95, 0.05)
    turned = served(2)._replace(in_turn=[ServingGroup((0, 1), ("gpu0",))], swap_seconds=60.0)
    alone, in_turn = simulate_run(plan(), apart, served(2), (0,)), simulate_run(plan(), apart, turned, (0,))
    assert in_turn.seconds == pytest.approx(2 * alone.seconds + 2 * 60.0)
    assert in_turn.comparisons == alone.comparisons


def test_servers_of_the_run_are_paid_for_while_they_are_held_and_start() -> None:
    """400 s of answers each. At one place, model 0 stays until model 1 is loaded, so that both are held as long."""
    apart, launched = level(0.95, 0.05), served(2)._replace(launched={0: 2.0, 1: 1.0}, swap_seconds=60.0)
    run = simulate_run(plan(), apart, launched, (0,))
    assert run.seconds == pytest.approx(460.0) and run.gpu_seconds == pytest.approx((2.0 + 1.0) * 460.0)
    turned = launched._replace(in_turn=[ServingGroup((0, 1), ("gpu0",))])
    assert simulate_run(plan(), apart, turned, (0,)).gpu_seconds == pytest.approx((2.0 + 1.0) * 460.0)
    one_place = simulate_run(plan(), apart, launched._replace(launched={0: 2.0}), (0,))
    of_requests = QUESTIONS * 4 * served(2).costs[1][0].gpu_seconds
    assert one_place.gpu_seconds == pytest.approx(2.0 * 460.0 + of_requests, rel=0.03), "the other's are right at times"
    assert np.isnan(simulate_run(plan(), apart, launched, (0,), timed=False).gpu_seconds)


def test_a_server_of_a_parked_model_is_stopped_and_started_again() -> None:
    """It is held for its start, 25 s, another start and 10 s; without parking, for its start and 350 s."""
    spans = ServedSpans(np.array([400.0, 60.0, 75.0, 0.0]), np.array([410.0, 70.0, 85.0, 0.0]))
    assert spans.held_seconds(60.0, np.inf, parks=True) == 60.0 + 25.0 + 60.0 + 10.0
    assert spans.held_seconds(60.0, np.inf, parks=False) == 60.0 + 350.0
    assert spans.held_seconds(60.0, 80.0, parks=True) == 60.0 + 20.0
    assert spans.held_seconds(60.0, 10.0, parks=True) == 0.0


@pytest.mark.slow
def test_a_cap_on_the_time_of_servers_ends_a_run_when_they_were_held_for_so_long() -> None:
    launched = served(2)._replace(launched={0: 2.0, 1: 1.0}, swap_seconds=60.0)
    for budget in (Budget(held_gpu_seconds=3.0 * 605.0), Budget(held_gpu_seconds=3.0 * 605.0, wall_seconds=10_000.0)):
        capped = plan(budget=budget, rule=ZScore(50.0), judging=Judging(futility=None))
        run = simulate_run(capped, level(0.5, 0.5), launched, (0,))
        assert run.reason == "gpu_time" and run.gpu_seconds == 3.0 * 605.0
        assert run.seconds == pytest.approx(605.0, rel=0.02)
    soon = plan(budget=Budget(held_gpu_seconds=3.0 * 605.0, wall_seconds=100.0))
    assert simulate_run(soon, level(0.5, 0.5), launched, (0,)).reason == "wall_time"
    enough = plan(budget=Budget(held_gpu_seconds=3.0 * 605.0))
    assert simulate_run(enough, level(0.95, 0.05), launched, (0,)).reached


@pytest.mark.parametrize("pace", [Pace(), Pace(lookahead=3, dedicated_servers=True)])
def test_the_time_of_a_run_is_capped(pace: Pace) -> None:
    capped = plan(budget=Budget(wall_seconds=605.0), rule=ZScore(50.0), judging=Judging(futility=None), pace=pace)
    run = simulate_run(capped, level(0.5, 0.5), served(2), (0,))
    assert run.seconds == 605.0 and run.reason == "wall_time"
    assert run.trials == 2 * 3 * 61, "each slot has begun an answer every ten seconds, and all of these are paid for"


# -- all runs together ------------------------------------------------------------------------------------------------


def scenario(**changes: object) -> Scenario:
    decisions = Decisions.model_validate({"trials": {"max": 12}})
    return replace(Scenario(Bench(2, QUESTIONS, BINARY), decisions, ("a", "b"), served(2), seed=3), **changes)  # type: ignore[arg-type]


def test_the_plan_has_the_time_that_is_left() -> None:
    base = scenario(elapsed=50.0)
    made = base.plan(Budget(wall_seconds=80.0))
    assert made.budget.wall_seconds == 30.0 and made.trials.max == 12
    late = base.plan(Budget(wall_seconds=40.0))
    assert 0.0 < (late.budget.wall_seconds or 0.0) < 1e-300


def test_a_run_whose_settings_were_changed_is_simulated_from_where_it_stood() -> None:
    before, rng = Controller(scenario().plan(Budget())), np.random.default_rng(2)
    came: list[Outcome] = []
    while before.finished is None:
        came += (now := [Outcome(*ask[:3], int(rng.random() < 0.5)) for ask in before.ask(1 << 20)])
        before.tell(now)
    recorded = np.full((2, QUESTIONS, 12), -1, dtype=np.int8)
    for outcome in came:
        recorded[outcome.model, outcome.question, outcome.trial] = outcome.category
    before.forget_arrivals()
    raised = Decisions.model_validate({"trials": {"min": 4, "max": 24}})
    goes_on = scenario(decisions=raised, facts=RunFacts(before=StageBefore(before, (0, 1)), capped_opening=True))
    made = goes_on.plan(Budget())
    assert made.before is not None and made.trials.max == 24 and made.capped_opening
    for timed in (False, True):
        run = simulate_run(made, level(0.5, 0.5), served(2)._replace(recorded=recorded), (0,), timed=timed)
        assert run.trials >= len(came)


@pytest.mark.parametrize(("trials", "size"), [(24, 12), (23, 2), (6, 2)])
def test_calls_begin_with_the_first_round_that_the_cap_allows(trials: int, size: int) -> None:
    base = scenario(decisions=Decisions.model_validate({"trials": {"min": 2, "max": 80, "optimize": "time"}}))
    cap = Budget(trials=2 * QUESTIONS * trials)
    for budget, opening in ((cap, size), (uncapped(cap), 12)):
        made = base.plan(budget)
        assert made.opening[0, 0] == opening
        assert made.rule.start == opening / 80  # type: ignore[attr-defined]


# -- what is said of them ---------------------------------------------------------------------------------------------


def test_eight_of_ten_further_values_lie_in_the_interval() -> None:
    rng = np.random.default_rng(9)
    held = 0
    for _ in range(2000):
        *forecast, came = rng.exponential(size=20)
        interval = median_range(forecast)
        held += interval.low <= came <= interval.high
    assert held / 2000 == pytest.approx(0.8, abs=0.03)


def test_the_smallest_gap_is_where_the_chance_of_a_call_reaches_four_in_five() -> None:
    rng = np.random.default_rng(10)
    gaps = rng.uniform(0.0, 0.1, 4000)
    called = (rng.random(4000) < np.clip(gaps / 0.05, 0.0, 1.0)).astype(float)
    assert smallest_gap(gaps, called) == pytest.approx(0.04, abs=0.004)
    assert smallest_gap(gaps, np.zeros(4000)) is None
    broke = plan(budget=Budget(trials=9))
    run = simulate_run(broke, level(0.5, 0.5), served(2), (0,))
    assert smallest_differences([run], broke, [level(0.5, 0.5)]).gap is None, "without a look there is none"


def test_the_smallest_delta_certifies_equals_in_four_of_five_runs() -> None:
    """delta = (b + 1.28) s with s^2 = 2 p (1 - p)/(M N): of its d, N(0, s^2), four in five lie within delta - b s."""
    base = plan(trials=Trials(min=4, max=20))
    sigma = np.sqrt(2 * 0.25 / (QUESTIONS * 20))
    delta = smallest_certified_delta(base, level(0.5, 0.5), 20)
    bound = delta / sigma - 1.2815516
    assert bound == pytest.approx(2.11, abs=0.03), "c of the boundary that certifies ties, at the horizon"
    assert np.mean(np.abs(np.random.default_rng(0).normal(0.0, sigma, 100_000)) + bound * sigma <= delta) == (
        pytest.approx(0.8, abs=0.005)
    )
    assert smallest_certified_delta(base, level(0.5, 0.5), 5) > 1.9 * delta
    assert smallest_certified_delta(replace(base, judging=Judging(familywise=True)), level(0.5, 0.5), 20) > delta


@pytest.mark.parametrize(
    ("budget", "pays_for"),
    [
        (Budget(), 20.0),
        (Budget(trials=2 * QUESTIONS * 5), 5.0),
        (Budget(tokens=2 * QUESTIONS * 6 * 15), 6.0),
        (Budget(usd=2 * QUESTIONS * 7 * 0.015), 7.0),
        (Budget(gpu_seconds=2 * QUESTIONS * 8 * 4.0), 8.0),
        (Budget(wall_seconds=QUESTIONS * 9 * 10.0 / 3), 9.0),
    ],
)
def test_ties_are_forecast_for_the_trials_that_caps_pay_for(budget: Budget, pays_for: float) -> None:
    """Two models that are right half the time: 15 tokens, 0.015 USD and 4 GPU seconds per trial, 3 slots each."""
    capped = plan(trials=Trials(min=4, max=20), budget=budget)
    runs = [simulate_run(capped, level(0.5, 0.5), served(2), (0, world)) for world in range(10)]
    assert affordable_trials(capped, runs, 0) == pytest.approx(pays_for, rel=0.05)
    limits = smallest_differences(runs, capped, [level(0.5, 0.5)])
    assert limits.delta == smallest_certified_delta(capped, level(0.5, 0.5), affordable_trials(capped, runs, 0))


def test_time_that_a_run_has_left_pays_for_new_trials() -> None:
    recorded = np.full((2, QUESTIONS, 20), -1)
    recorded[:, :, :6] = np.arange(6) % 2
    recorded[1, :6, :6] = 0  # models that are equal so far would get no more trials
    wall = Budget(wall_seconds=QUESTIONS * 3 * 10.0 / 3)
    capped = plan(trials=Trials(min=4, max=20), budget=wall)
    begun = served(2, recorded=recorded)
    runs = [simulate_run(capped, level(0.5, 0.5), begun, (0, world)) for world in range(10)]
    assert affordable_trials(capped, runs, 2 * QUESTIONS * 6) == pytest.approx(6 + 3, rel=0.05)


@pytest.mark.slow
def test_equals_are_tied_with_that_delta() -> None:
    base = plan(trials=Trials(min=4, max=20), judging=Judging(futility=None))
    sure = replace(base, judging=Judging(delta=smallest_certified_delta(base, level(0.5, 0.5), 20), futility=None))
    runs = [simulate_run(sure, level(0.5, 0.5), served(2), (0, world), timed=False) for world in range(200)]
    tied = np.mean([run.comparisons[0].verdict == Verdict.TIED for run in runs])
    assert tied > 0.8 - 2 * np.sqrt(0.16 / 200)


@pytest.mark.parametrize("runs", sizes(100, 500))
@pytest.mark.parametrize("policy", [UnresolvedPairs(), Weighted()], ids=["alike", "weighted"])
def test_exact_ties_are_called_no_more_often_than_promised(policy: Policy, runs: int) -> None:
    """Two copies on questions of all kinds, all the way to the horizon: called in at most 10% of runs."""
    copy = np.random.default_rng(8).beta(0.6, 0.4, QUESTIONS)
    asked = Plan(Bench(2, QUESTIONS, BINARY), policy=policy, judging=Judging(futility=None))
    chances = binary(np.stack([copy, copy]))
    ended = [simulate_run(asked, chances, served(2), (1, world), timed=False) for world in range(runs)]
    called = np.mean([run.comparisons[0].verdict is Verdict.RESOLVED for run in ended])
    assert called <= binom.ppf(0.999, runs, 0.10) / runs


MODELS, MOST, SEED = 3, 24, 7
WORLDS = [level(0.8, 0.65, 0.5), level(0.7, 0.62, 0.6), level(0.9, 0.5, 0.45)]


def ranking() -> Plan:
    return plan(MODELS, trials=Trials(min=4, max=MOST))


def runs_of(run_plan: Plan, worlds: list[FloatArray]) -> list[SimulatedRun]:
    return [simulate_run(run_plan, world, served(MODELS), (SEED, number)) for number, world in enumerate(worlds)]


def called_after(tape: Tape, trials: int) -> int:
    """Neighbours separated by 1.645, from single counts and Beta(k + 1, N - k + 1) variances."""
    scores = []
    for model in range(MODELS):
        mean = variance = 0.0
        for question in range(QUESTIONS):
            right = sum(tape.at(model, question, trial) for trial in range(trials))
            a, b = right + 1, trials - right + 1
            mean += right / trials / QUESTIONS
            variance += ((trials + 2) / trials / QUESTIONS) ** 2 * a * b / ((a + b) ** 2 * (a + b + 1))
        scores.append((mean, variance))
    scores.sort(key=lambda score: -score[0])
    return sum(
        (first[0] - second[0]) / sqrt(first[1] + second[1]) >= 1.6448536
        for first, second in zip(scores, scores[1:], strict=False)
    )


def test_the_equivalent_fixed_design_matches_counting_answer_by_answer() -> None:
    run_plan = replace(ranking(), prior="uniform")
    runs = runs_of(run_plan, WORLDS)
    fixed = fixed_with_as_many(run_plan, WORLDS, runs, served(MODELS), SEED, 0.95)
    assert fixed is not None and fixed.number is not None and fixed.worlds == 3
    called = np.mean([sum(pair.verdict == "resolved" for pair in run.comparisons) for run in runs])
    curve = [
        np.mean([
            called_after(
                Tape.from_chances(world, run_plan.bench.weights, np.random.default_rng([SEED, number, 0])), trials
            )
            for number, world in enumerate(WORLDS)
        ])
        for trials in range(1, MOST + 1)
    ]  # fmt: skip
    needed = next(number for number, mean in enumerate(curve, start=1) if mean >= called)
    assert needed - 1 < fixed.number <= needed
    assert fixed.called == called > 0
    spent = np.mean([run.trials for run in runs])
    assert fixed.cost == pytest.approx(spent / (MODELS * QUESTIONS * fixed.number))


def test_the_fixed_design_is_judged_with_the_prior_of_the_plan() -> None:
    """The prior of the plan sets the width of both intervals; those of the uniform prior are wider."""
    numbers = []
    for prior in ("self", "uniform"):
        judged = replace(ranking(), prior=prior)
        fixed = fixed_with_as_many(judged, WORLDS, runs_of(ranking(), WORLDS), served(MODELS), SEED, 0.95)
        assert fixed is not None and fixed.number is not None
        numbers.append(fixed.number)
    assert numbers[0] < numbers[1]


def test_a_run_that_calls_more_than_the_fixed_design_is_compared_with_all_of_it() -> None:
    """One look calls few equal models; here the run is made to have called all pairs."""
    run_plan, equal = ranking(), [level(0.5, 0.5, 0.5)]
    (run,) = runs_of(run_plan, equal)
    all_called = run._replace(comparisons=tuple(pair._replace(verdict="resolved") for pair in run.comparisons))
    fixed = fixed_with_as_many(run_plan, equal, [all_called], served(MODELS), SEED, 0.95)
    assert fixed is not None and fixed.number is None
    assert fixed.cost == run.trials / (MODELS * QUESTIONS * MOST)
    best, large = replace(ranking(), objective=Best()), replace(ranking(), trials=Trials(min=4, max=10**6))
    for other in (best, large):  # only neighbours are compared, and not for ever
        assert fixed_with_as_many(other, equal, [all_called], served(MODELS), SEED, 0.95) is None


@pytest.mark.parametrize("prior", ["self", "uniform"])
@pytest.mark.parametrize("name", ["coins", "exact_ties", "rubric"])
def test_the_fixed_design_calls_what_a_run_with_one_look_calls(name: str, prior: Prior) -> None:
    world = simulated_worlds.WORLDS[name]()
    models, questions, _ = world.p.shape
    plan = Plan(Bench(models, questions, world.w), rule=ZScore(), policy=Uniform(), prior=prior)
    plan = replace(plan, judging=Judging(futility=None))
    for seed in range(2):
        tape = Tape.from_chances(world.p, world.w, np.random.default_rng(seed))
        called, wrong = fixed_calls(tape, world.truth, questions, 30, prior=prior)
        for n in (4, 30):
            tape = Tape.from_chances(world.p, world.w, np.random.default_rng(seed))
            run = judge_replay(
                0, drive_rounds(Controller(replace(plan, trials=Trials(min=n, max=n))), tape), world.truth
            )
            assert (run.cost, run.looks) == (1.0, 1)
            assert (called[n - 1].sum(), wrong[n - 1].sum()) == (run.called, run.wrong)


def test_the_smallest_fixed_design_lies_where_the_curve_first_comes_up_to_it() -> None:
    curve = np.array([1.0, 2.0, 2.0, 4.0, 3.0])
    assert smallest_fixed(curve, 0.5) == 1.0
    assert smallest_fixed(curve, 1.25) == pytest.approx(1.25)
    assert smallest_fixed(curve, 2.0) == pytest.approx(2.0)
    assert smallest_fixed(curve, 3.5) == pytest.approx(3.75)
    assert smallest_fixed(curve, 4.5) is None


def simulated_run(trials: float, reached: bool = False) -> SimulatedRun:
    return SimulatedRun("settled" if reached else "out_of_reach", round(trials), 0.0, 0.0, 0.0, 100.0, (), ())


def test_worlds_are_enough_when_the_ends_of_intervals_and_the_chance_are_known() -> None:
    """The end's error is 1.71 sd / sqrt(n): with sd a third of the median, at about 32 runs."""
    rng = np.random.default_rng(0)
    runs = [simulated_run(trials) for trials in rng.normal(9000.0, 3000.0, 60)]
    assert not is_precise(runs[:20]) and is_precise(runs)
    quantiles = np.quantile(rng.normal(0.0, 1.0, (4000, 50)), 0.1, axis=1)
    assert quantiles.std() == pytest.approx(1.71 / np.sqrt(50), rel=0.06)
    even = [simulated_run(1000.0, reached=bool(number % 2)) for number in range(60)]
    never = [simulated_run(1000.0)] * 60
    assert is_precise(never[:20]) and not is_precise(even[:40])
    assert chance_error(even[:20]) > chance_error(never[:20]) > 0.0


def test_worlds_are_added_until_they_are_enough() -> None:
    """Identical worlds with distant models need only the first look of each, and the fewest worlds."""
    states: list[tuple[float, str]] = []
    worlds = [level(0.95, 0.05)] * 100
    simulated = simulate_all(scenario(), worlds, Budget(), lambda *state: states.append(state))
    assert simulated.worlds == 20
    assert states[-2:] == [(0.2, "20 simulated runs"), (1.0, "20 simulated runs")]


@pytest.mark.parametrize("begun", [False, True])
def test_only_a_new_gate_is_simulated_with_an_equal_build(begun: bool) -> None:
    """One that has answers has verdicts already, of the builds that gave them."""
    gate = ObjectiveConfig.model_validate({"kind": "baseline", "baseline": "a", "gate": True})
    recorded = np.zeros((2, QUESTIONS, 4), dtype=np.int8) if begun else None
    base = scenario(served=served(2, recorded=recorded))
    gated = replace(
        base, decisions=base.decisions.model_copy(update={"objective": gate, "stopping": StoppingConfig(delta=0.1)})
    )
    simulated = simulate_all(gated, [level(0.6, 0.5)] * 20, Budget(), lambda *_, **__: None)
    assert len(simulated.equal) == (0 if begun else 20)


@pytest.mark.slow
def test_every_run_of_a_forecast_counts_what_was_asked_ahead() -> None:
    """With known and unknown answer times, in every world, with and without a cap."""
    timed_usage = AnswerUsage(*(np.array([[30.0, 20.0], [60.0, 45.0]]) for _ in range(3)), np.full(2, 0.5))
    untimed_usage = replace(timed_usage, seconds=np.full((2, 2), np.nan))
    worlds = [level(0.6, 0.5 - 0.002 * number) for number in range(30)]
    for usage in (timed_usage, untimed_usage):
        base = scenario(served=served(2, slots=32)._replace(usage=usage))
        trials = base.decisions.trials.model_copy(update={"optimize": "time"})
        soon = replace(base, decisions=base.decisions.model_copy(update={"trials": trials}))
        cap = Budget(trials=500)
        simulated = simulate_all(soon, worlds, cap, lambda *_, **__: None)
        assert set(simulated.runs) == {simulated.need, cap}
        for budget, runs in simulated.runs.items():
            plan = soon.plan(budget)
            tapes = [tape_of_world(plan, worlds[n], soon.served, (soon.seed, n)) for n in range(3)]
            seen = [drive_rounds(Controller(plan), tape).trials.sum() for tape in tapes]
            asked = [run.trials for run in runs[:3]]
            assert budget == cap or sum(asked) > sum(seen), "no look has seen as many"
            assert max(asked) <= (500 if budget == cap else 2 * QUESTIONS * 12)


# -- the fixed design -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 7, 64])
def test_the_fixed_design_takes_the_time_of_its_simulation(slots: int) -> None:
    """All trials at once with one look, on the same servers."""
    spread = AnswerUsage(*(np.array([[30.0, 20.0], [60.0, 45.0]]) for _ in range(3)), np.full(2, 0.5))
    base = scenario(served=served(2, slots=slots)._replace(usage=spread))
    chances = level(0.7, 0.4)
    fixed = plan(trials=Trials(min=40, max=40), rule=Sequential(0.95, 1.0))
    simulated = np.mean([simulate_run(fixed, chances, base.served, (seed,)).seconds for seed in range(4)])
    assert fixed_seconds(base, 40 * chances.sum(axis=1)) == pytest.approx(simulated, rel=0.1)


def test_models_in_turn_are_served_one_after_the_other_by_the_fixed_design_too() -> None:
    alone = scenario()
    turned = replace(alone, served=served(2)._replace(in_turn=[ServingGroup((0, 1), ("gpu0",))], swap_seconds=60.0))
    nothing = np.full((2, 2), np.nan)
    unknown = scenario(served=served(2)._replace(usage=AnswerUsage(nothing, nothing, nothing, np.zeros(2))))
    begun = scenario(served=served(2, recorded=np.zeros((2, QUESTIONS, 1), dtype=np.int8)))
    assert fixed_seconds(unknown, np.ones((2, 2))) is fixed_seconds(begun, np.ones((2, 2))) is None
    counts = 12 * level(0.5, 0.5).sum(axis=1)
    seconds = fixed_seconds(alone, counts)
    assert seconds == pytest.approx(12 * QUESTIONS * 10.0 / 3)
    assert fixed_seconds(turned, counts) == 2 * seconds + 2 * 60.0
