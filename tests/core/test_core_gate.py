"""A gate tests whether a model is less than delta worse than a baseline or a value, on all questions and on single
benchmarks: its error rates and its cost."""

import math
from dataclasses import replace

import numpy as np
import pytest
from core_runs import BINARY, allowed, look_of, play, play_chances, result_of, tell_right
from numpy.typing import NDArray
from scipy.stats import binom
from thoroughness import first_of, sizes

from adaptive_eval.core import Anytime, Ask, Controller, Judging, Optimal, Plan, Rule, StageBefore, Verdict, conclusions
from adaptive_eval.core.answer_kinds import AnswerKind, UnsureGrades
from adaptive_eval.core.evidence import Estimates, counted_difference, estimate, skew_about, weigh_evidence
from adaptive_eval.core.objectives import Gate, Threshold
from adaptive_eval.core.policies import Uniform, UnresolvedPairs
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Bench, Margin, Pace, Trials
from adaptive_eval.study.judged import compared_scores
from scorio.sinf.prior import EVENTS

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
    (pair,) = look_of(controller).comparisons
    if pair.verdict is not Verdict.RESOLVED or pair.reversed:
        return UNDECIDED
    return PASS if pair.first == 1 else FAIL


def shares(plan: Plan, true: NDArray[np.float64], runs: int) -> dict[str, float]:
    """The share of runs with each outcome, on these chances."""
    endings = [outcome(carry_out(plan, true, seed)) for seed in range(runs)]
    return {name: endings.count(name) / runs for name in (PASS, FAIL, UNDECIDED)}


def outcomes(plan: Plan, baseline: float, build: float, runs: int) -> dict[str, float]:
    return shares(plan, np.stack([questions(baseline), questions(build)]), runs)


def gate(delta: float = DELTA, **changes: object) -> Plan:
    trials = changes.get("trials", Trials(min=4, max=40))
    assert isinstance(trials, Trials)
    usual = {"rule": Sequential(start=trials.min / trials.max), "trials": trials}
    return Plan(Bench(2, QUESTIONS, BINARY), objective=Gate(Margin(0, delta)), **(usual | changes))  # type: ignore[arg-type]


LONG = Trials(min=4, max=80)


@pytest.mark.parametrize(
    ("plan", "baseline", "build", "runs", "passes", "fails"),
    [
        # certifying that 0.86 and 0.85 are tied takes thousands of trials, and passing does not
        *(
            pytest.param(gate(trials=LONG), 0.86, 0.85, *case.values, 0.7, 0.0, marks=case.marks)
            for case in sizes(15, 40)
        ),
        # a gate does not rest while it is likely to be settled: nothing would resume it
        pytest.param(gate(rule=Optimal(start=0.05), trials=LONG), 0.8, 0.8, 20, 0.95, 0.05, marks=pytest.mark.slow),
        (gate(), 0.85, 0.65, 20, 0.0, 1.0),
        (gate(0.0), 0.6, 0.8, 10, 1.0, 0.0),
        (gate(0.0), 0.8, 0.6, 10, 0.0, 1.0),
    ],
)
def test_a_build_passes_if_it_is_less_than_delta_worse_and_fails_if_it_is_more(
    plan: Plan, baseline: float, build: float, runs: int, passes: float, fails: float
) -> None:
    """In so many runs at least, or at most."""
    measured = outcomes(plan, baseline, build, runs)
    assert measured[PASS] >= passes and (measured[FAIL] == fails if fails in (0.0, 1.0) else measured[FAIL] <= fails)


@pytest.mark.parametrize(("delta", "baseline", "build"), [(DELTA, 0.80, 0.75), (0.0, 0.7, 0.7)])
@pytest.mark.parametrize("runs", sizes(60, 200))
def test_at_the_edge_hardly_any_run_passes_or_fails(delta: float, baseline: float, build: float, runs: int) -> None:
    measured = outcomes(gate(delta), baseline, build, runs)
    assert max(measured[PASS], measured[FAIL]) <= allowed(0.05, runs)
    assert measured[PASS] + measured[FAIL] <= allowed(0.10, runs)


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
        measured = outcomes(gate(**changes), baseline, baseline - DELTA, runs)  # type: ignore[arg-type]
        assert max(measured[PASS], measured[FAIL]) <= allowed(0.05, runs)


@pytest.mark.release
def test_several_builds_at_the_edge_keep_the_promise_together() -> None:
    runs = 300
    plan = replace(gate(judging=Judging(familywise=True)), bench=Bench(5, QUESTIONS, BINARY))
    chances = np.stack([questions(0.8), *[questions(0.75)] * 4])
    wrong = 0
    for seed in range(runs):
        look = look_of(carry_out(plan, chances, seed))
        wrong += any(pair.verdict is Verdict.RESOLVED for pair in look.comparisons)
    assert wrong / runs <= allowed(0.05, runs)


def test_a_gate_reports_the_difference_with_its_margin() -> None:
    """Tiers, letters and the matrix ignore the margin."""
    plan = gate(0.2, trials=Trials(min=10, max=10))
    # the baseline is right in 7 of 10, the build on every other question in 6
    controller = play(Controller(plan), lambda ask: int(ask.trial < 7 - ask.model * (ask.question % 2)))
    result = result_of(controller)
    (comparison,) = result.comparisons
    baseline, build = (next(row for row in result.models if row.model == at) for at in (0, 1))
    sigma = math.hypot(baseline.sigma, build.sigma)
    assert (comparison.verdict.first, comparison.verdict.second, comparison.verdict.verdict) == (1, 0, Verdict.RESOLVED)
    assert comparison.difference == pytest.approx(-0.05)
    assert comparison.verdict.z == pytest.approx((0.2 - 0.05) / sigma)
    assert (baseline.rank, baseline.tier, build.tier) == (1, 1, 1)
    assert baseline.letters == build.letters == "a"
    objective = Gate(Margin(1, 0.1))
    assert objective.comparisons(np.array([2, 1, 0])).tolist() == [[1, 0], [1, 2]], "the baseline with each"


# -- a gate on a value -------------------------------------------------------------------------------------------------

VALUE = 0.62


def gate_on_value(models: int, delta: float = DELTA, **changes: object) -> Plan:
    """Models that are judged each by itself."""
    objective = Gate(Margin(models, delta), VALUE)
    return replace(
        gate(policy=UnresolvedPairs(), **changes), bench=Bench(models, QUESTIONS, BINARY), objective=objective
    )


def shares_on_value(plan: Plan, score: float) -> dict[str, float]:
    """The share of the models with each outcome, if all have this true score."""
    look = look_of(carry_out(plan, np.tile(questions(score), (plan.bench.models, 1)), 1))
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
    measured = shares_on_value(gate_on_value(runs, delta), VALUE - delta)
    assert max(measured[PASS], measured[FAIL]) <= allowed(0.05, runs)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.95, 0.98, 0.99])
@pytest.mark.parametrize("ends", [(0.0, 1.0), (-1.0, 3.0)])
def test_scores_at_a_value_near_an_end_of_the_scale_pass_no_more_often(share: float, ends: tuple[float, float]) -> None:
    """In one look at 2,400 trials; all results are weighed by their chance."""
    right, span = np.arange(2401), ends[1] - ends[0]
    found = right / 2400
    sigma = span * np.sqrt(found * (1.0 - found) / 2400 + EVENTS / 2400**2)
    difference = span * (found - share)
    counted = counted_difference(difference, skew_about(np.array(ends[0] + share * span), ends))
    towards_the_end = 1.0 if share > 0.5 else -1.0
    beyond, before = (
        float(binom.pmf(right, 2400, share) @ (towards_the_end * each / sigma >= 1.645))
        for each in (counted, difference)
    )
    assert beyond <= 0.05
    assert before == beyond if share == 0.5 else before > 0.055
    assert np.array_equal(counted[difference * towards_the_end < 0.0], difference[difference * towards_the_end < 0.0])


@pytest.mark.parametrize("baseline", [0.97, 0.99, 1.0])
def test_a_build_passes_a_well_known_baseline_near_an_end_of_the_scale_no_more_often(baseline: float) -> None:
    """In one look at 2,400 trials of a build that is exactly delta below; all results are weighed by their chance."""
    right, trials, margin = np.arange(2200, 2401), 2400, Margin(0, 0.02)
    score = np.append(baseline, right / trials)
    var = (score * (1.0 - score) + EVENTS / trials) / trials
    var[0] = baseline * (1.0 - baseline) / (50 * trials)
    estimates = replace(Estimates.nothing(Bench(len(score), 1, BINARY)), score=score, var=var)
    chances = binom.pmf(right, trials, baseline - margin.delta)
    counted, before = (
        float(chances @ (weigh_evidence(estimates, margin=margin, ends=ends).z[-len(right) :] >= 1.645))
        for ends in ((0.0, 1.0), None)
    )
    assert counted <= 0.05 < 0.055 < before


@pytest.mark.parametrize("rule", [Sequential(start=0.1), Optimal(start=0.1)])
def test_a_model_at_the_value_passes_and_one_far_below_it_fails(rule: Rule) -> None:
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
            look = look_of(carry_out(plan, chances, seed))
            pairs = [pair._replace(rho=0.0) for pair in look.comparisons]
            comparisons.append([tuple(round(x, 9) if isinstance(x, float) else x for x in pair) for pair in pairs])
        assert comparisons[0] == comparisons[1]


@pytest.mark.parametrize("models", [1, 2])
def test_a_gate_on_a_value_reports_the_difference_without_its_margin(models: int) -> None:
    """Every model has its margin, also the first; tiers are those against the value itself."""
    controller = Controller(gate_on_value(models, 0.15, trials=Trials(min=10, max=10)))
    play(controller, lambda ask: int(ask.trial < 5 + 4 * ask.model))  # right in 5 of 10, and the second in 9
    result, look = result_of(controller), look_of(controller)
    assert len(look.tiers) == models
    by_model = {comparison.verdict.first: comparison for comparison in result.comparisons}
    sigmas = {row.model: row.sigma for row in result.models}
    for model, score in enumerate((0.5, 0.9)[:models]):
        assert by_model[model].difference == pytest.approx(score - VALUE)
        assert by_model[model].verdict.z == pytest.approx((score - VALUE + 0.15) / sigmas[model])
    assert {row.model: row.tier for row in result.models} == ({0: 1} if models == 1 else {1: 1, 0: 2})


def test_replays_judge_a_gate_on_a_value_by_scores_with_delta_added() -> None:
    truth = np.array([VALUE - 2 * DELTA, VALUE - DELTA / 2])
    assert compared_scores(gate_on_value(2), truth) == pytest.approx(truth + DELTA)


SIZES = (10, 30)
BENCHMARK = np.repeat([0, 1], SIZES)
WEIGHT = np.array([1.0, 2.0])
BUILD_DELTA, DELTAS = 0.05, (0.10, 0.08)


def bench(models: int = 2, deltas: tuple[float, ...] = DELTAS) -> Bench:
    shares = (WEIGHT / np.array(SIZES))[BENCHMARK]
    return Bench(
        models, len(BENCHMARK), BINARY, question_weights=shares, benchmark_of=BENCHMARK, gates=tuple(enumerate(deltas))
    )


def gate_of_benchmarks(*, deltas: tuple[float, ...] = DELTAS, models: int = 2, **changes: object) -> Plan:
    given = {"rule": Optimal(start=0.05), "trials": Trials(min=4, max=40)} | changes
    return Plan(bench(models, deltas), objective=Gate(Margin(0, BUILD_DELTA, deltas)), **given)  # type: ignore[arg-type]


def chances(*means: tuple[float, float]) -> NDArray[np.float64]:
    """The chances of each model (L, M), from its mean on each benchmark."""
    spread = np.concatenate([np.linspace(-0.1, 0.1, size) for size in SIZES])
    return np.array([np.array(mean)[BENCHMARK] + spread for mean in means])


PRODUCTION = (0.8, 0.7)
EDGES = {
    "one benchmark": (0.7, 0.72),
    "the other": (0.9, 0.62),
    "all questions": (0.75, 0.65),
    "everything": (0.75, 0.65),
}
"""A build that is at the edge of one gate, or of all, and within the others."""


@pytest.mark.parametrize(
    ("edge", "runs"),
    [
        *(pytest.param(edge, 40, marks=pytest.mark.slow) for edge in ("one benchmark", "everything")),
        *(pytest.param(edge, 200, marks=pytest.mark.release) for edge in EDGES),
    ],
)
def test_at_the_edge_of_any_gate_hardly_any_run_passes_or_fails(edge: str, runs: int) -> None:
    deltas = (BUILD_DELTA, BUILD_DELTA) if edge == "everything" else DELTAS
    measured = shares(gate_of_benchmarks(deltas=deltas), chances(PRODUCTION, EDGES[edge]), runs)
    assert max(measured[PASS], measured[FAIL]) <= allowed(0.05, runs)


@pytest.mark.release
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rule": Anytime(start=0.1)},
        {"pace": Pace(2)},
        {"trials": Trials(min=1, max=40)},
        {"judging": Judging(futility=None)},
    ],
    ids=["default", "anytime", "ahead", "from the first", "no futility"],
)
@pytest.mark.parametrize("edge", EDGES)
def test_the_edge_of_any_gate_holds_at_every_schedule_of_looks(edge: str, changes: dict[str, object]) -> None:
    runs, deltas = 600, (BUILD_DELTA, BUILD_DELTA) if edge == "everything" else DELTAS
    measured = shares(gate_of_benchmarks(deltas=deltas, **changes), chances(PRODUCTION, EDGES[edge]), runs)
    assert max(measured[PASS], measured[FAIL]) <= allowed(0.05, runs)


@pytest.mark.parametrize("runs", sizes(6, 60))
def test_an_equal_build_passes_and_one_that_is_bad_on_a_benchmark_fails(runs: int) -> None:
    """Over all questions the bad build is even better."""
    plan = gate_of_benchmarks(deltas=(0.2, 0.15), trials=Trials(min=4, max=80))
    assert shares(plan, chances(PRODUCTION, PRODUCTION), runs)[PASS] >= 0.7
    bad = chances(PRODUCTION, (0.4, 0.89))
    assert shares(plan, bad, runs)[FAIL] == 1.0
    single = Plan(
        bench(deltas=()), objective=Gate(Margin(0, BUILD_DELTA)), rule=Optimal(start=0.05), trials=Trials(min=4, max=80)
    )
    assert shares(single, bad, runs)[FAIL] == 0.0


class ByHand:
    """The decision on one build, look by look, with each gate from the counts of its own questions."""

    def __init__(self, plan: Plan) -> None:
        assert plan.bench.question_weights is not None and isinstance(plan.rule, Sequential)
        self.most, self.g, alpha = plan.trials.max, plan.bench.question_weights, 1.0 - plan.rule.confidence
        self.passing = plan.rule.critical
        self.failing = Sequential(1.0 - alpha / 3, plan.rule.start).critical
        self.called = [0, 0, 0]

    def look(self, counts: NDArray[np.integer]) -> str:
        for at, (questions, delta) in enumerate(
            zip((BENCHMARK >= 0, BENCHMARK == 0, BENCHMARK == 1), (BUILD_DELTA, *DELTAS), strict=True)
        ):
            part_counts = counts[:, questions]
            if not part_counts.sum(axis=-1).all():
                continue
            weighting = {"g": self.g, "groups": BENCHMARK} if at == 0 else {}
            horizon = np.array(self.most) if at == 0 else self.most * self.g[questions]
            estimates = estimate(part_counts, BINARY, "self", horizon, **weighting)  # type: ignore[arg-type]
            z = (estimates.score[1] - estimates.score[0] + delta) / np.sqrt(estimates.var.sum())
            t = estimates.noise_at_horizon.sum() / estimates.noise.sum()
            height = abs(z) * min(t, 1.0) ** 0.25
            if not self.called[at] and t >= 0.05 * (1 - 1e-9) and height >= (self.passing if z > 0 else self.failing):
                self.called[at] = int(np.sign(z))
        return FAIL if min(self.called) < 0 else PASS if min(self.called) > 0 else UNDECIDED


@pytest.mark.parametrize("build", first_of([(0.8, 0.7), (0.62, 0.75), (0.9, 0.5), (0.7, 0.66)], 1))
@pytest.mark.parametrize("seed", first_of(range(3), 1))
def test_every_look_decides_as_by_hand(build: tuple[float, float], seed: int) -> None:
    plan = gate_of_benchmarks(rule=Sequential(start=0.05), judging=Judging(futility=None), trials=Trials(min=4, max=60))
    rng, controller, oracle = np.random.default_rng(seed), Controller(plan), ByHand(plan)
    true = chances(PRODUCTION, build)
    while controller.finished is None:
        for batch in controller.ask_batches():
            for _ in tell_right(controller, batch, rng.binomial(batch.slots.extra, true[batch.model])):
                by_hand = oracle.look(controller.counts)
                (pair,) = look_of(controller).comparisons
                decided = str(pair.verdict) == "resolved"
                assert (by_hand != UNDECIDED) == decided
                result = result_of(controller)
                assert [decision.call for decision in result.gates] == oracle.called
    assert len(controller.looks) > 3


def test_each_model_has_its_own_decisions() -> None:
    plan = gate_of_benchmarks(models=3, deltas=(0.2, 0.15), trials=Trials(min=4, max=80))
    true = chances(PRODUCTION, (0.4, 0.89), PRODUCTION)
    result = result_of(carry_out(plan, true, 1, keep_looks=True))
    decisions = {(decision.model, decision.part): decision for decision in result.gates}
    assert sorted(decisions) == [(model, part) for model in (1, 2) for part in (0, 1, 2)]
    assert decisions[1, 1].call == -1 and all(decisions[2, part].call == 1 for part in (0, 1, 2))
    assert {comparison.verdict.first: comparison.verdict.second for comparison in result.comparisons} == {0: 1, 2: 0}


@pytest.mark.slow
def test_a_longer_horizon_takes_up_a_gate_that_was_open() -> None:
    """Calls stand, and each part keeps the error guarantee of the rule."""
    first = Trials(min=4, max=10)
    true = chances(PRODUCTION, PRODUCTION)
    short = carry_out(gate_of_benchmarks(rule=Sequential(start=0.4), trials=first), true, 3, keep_looks=True)
    assert outcome(short) == UNDECIDED
    before = StageBefore(short, (0, 1))
    longer = carry_out(
        gate_of_benchmarks(rule=Sequential(start=0.4), trials=Trials(min=4, max=200), before=before), true, 3
    )
    assert outcome(longer) == PASS
    assert longer.extensions[0].leaves_error


def test_incomplete_answers_hinder_only_the_gates_of_their_benchmarks() -> None:
    cut = int(AnswerKind.TRUNCATED)
    plan = gate_of_benchmarks(unsure=UnsureGrades(cut, 1), stops_on_alarm=False)

    def grade(ask: Ask) -> tuple[int, int]:
        is_cut = ask.model == 1 and ask.question < 5 and ask.trial == 0
        return int(not is_cut and (ask.question + ask.trial) % 3 > 0), cut * is_cut

    controller = play(Controller(plan), grade)
    assert controller.last_look is not None
    evidence = controller.last_look.evidence
    assert evidence.gate is not None
    _, readings = controller.taker.read_evidence()
    moved, trials = conclusions._moved_by_unknown(readings), controller.counts[1].sum(axis=-1)
    shares = {part: moved[evidence.gate == part].tolist() for part in (0, 1, 2)}
    share = (1.0 / trials[:5]).sum() / SIZES[0]
    assert shares == {0: [pytest.approx(share / 3)], 1: [pytest.approx(share)], 2: [0.0]}


def test_a_recorded_baseline_is_known_from_the_start() -> None:
    counts = np.zeros((2, len(BENCHMARK), 2))
    counts[0] = [12, 28]
    plan = Plan(
        Bench(
            2, len(BENCHMARK), BINARY, prior_counts=counts, recorded=frozenset({0}), benchmark_of=BENCHMARK,
            question_weights=(WEIGHT / np.array(SIZES))[BENCHMARK], gates=((0, 0.3), (1, 0.25)),
        ),
        objective=Gate(Margin(0, 0.2, (0.3, 0.25))),
        trials=Trials(min=4, max=80),
    )  # fmt: skip
    controller = carry_out(plan, chances((0.7, 0.7), (0.7, 0.7)), 2)
    assert outcome(controller) == PASS
    assert controller.trials[0] == 0
    assert outcome(carry_out(plan, chances((0.7, 0.7), (0.2, 0.7)), 2)) == FAIL
