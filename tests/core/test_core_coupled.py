"""Models compared trial by trial where seeds are shared, recorded ones too, and by question with one trial of each: the
savings, the error guarantee, and the cost to other pairs."""

from dataclasses import replace

import numpy as np
import pytest
from core_runs import BINARY, look_of, paired_z, play, result_of, standing_of
from numpy.typing import NDArray

from adaptive_eval.core import Controller, Judging, Optimal, Outcome, Plan, Reason, SetAside, Verdict
from adaptive_eval.core.objectives import Baseline, Gate, Pairs, PrecisionOf, Threshold
from adaptive_eval.core.rounds import MISSING, UNGRADED
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Bench, Margin, Pace, RecordedTrials, Trials
from adaptive_eval.core.tape import Tape
from adaptive_eval.study.drive import drive
from scorio.sinf import difference_values, paired_counts, paired_moments
from scorio.sinf.prior import EVENTS

QUESTIONS = 20
BENCH = Bench(2, QUESTIONS, weights=np.array([0.0, 1.0]))
Outcomes = NDArray[np.uint8]
GATE = Plan(BENCH, objective=Gate(Margin(0, 0.03)), trials=Trials(min=4, max=60), coupled=True)


def draw_outcomes(seed: int, same: float = 1.0, models: int = 2, lost: float = 0.0) -> Outcomes:
    """Outcomes (L, M, N): in a share of the trials all models use the same random number; each model is worse than the
    one before."""
    rng = np.random.default_rng(seed)
    chance = 0.1 + 0.8 * np.random.default_rng(8).beta(0.7, 0.7, (QUESTIONS, 1))
    own = rng.random((models, QUESTIONS, 400))
    numbers = np.where(rng.random((QUESTIONS, 400)) < same, own[:1], own)
    return (numbers < np.stack([chance - lost * number for number in range(models)])).astype(np.uint8)


def carry_out(plan: Plan, outcomes: NDArray[np.integer], mix: int | None = None) -> Controller:
    """A whole run, with answers in the order asked or, three at a time, in mixed order."""
    if mix is None:
        return play(Controller(plan), outcomes)
    controller, rng = Controller(plan), np.random.default_rng(mix)
    waiting: list[Outcome] = []
    while controller.finished is None:
        waiting += [Outcome(*ask[:3], int(outcomes[ask[:3]])) for ask in controller.ask(7 * mix)]
        rng.shuffle(waiting)
        controller.tell(waiting[:3])
        del waiting[:3]
    return controller


@pytest.mark.slow
def test_a_gate_of_near_copies_takes_a_fraction_of_the_trials() -> None:
    without = replace(GATE, coupled=False)
    both = [[carry_out(plan, draw_outcomes(seed, 1.0)).trials.sum() for seed in range(3)] for plan in (GATE, without)]
    assert np.sum(both[0]) < 0.35 * np.sum(both[1])


def test_a_result_compares_on_the_trials_that_both_models_have() -> None:
    outcomes = draw_outcomes(3, lost=0.3).astype(int)
    outcomes[1, :3, 5:8] = -1  # without a grade
    plan = Plan(BENCH, objective=Pairs(((0, 1),)), trials=Trials(min=200, max=200), coupled=True)
    (comparison,) = result_of(carry_out(plan, outcomes)).comparisons
    assert comparison.by_trial and comparison.verdict.first == 0
    first, second = outcomes[:, :, :200]
    d = np.array([(a - b)[b >= 0].mean() for a, b in zip(first, second, strict=True)])
    assert comparison.difference == pytest.approx(d.mean())
    spread = d.std(ddof=1) / np.sqrt(QUESTIONS)
    assert spread > comparison.sigma and comparison.sampled_z == pytest.approx(d.mean() / spread)


def test_questions_with_weights_are_asked_and_compared_by_them() -> None:
    weights = np.where(np.arange(QUESTIONS) < 5, 6.0, 1.0)
    labels = np.where(np.arange(QUESTIONS) < 5, 0, 1)
    bench = replace(BENCH, question_weights=weights, benchmark_of=labels)
    outcomes = draw_outcomes(3, 1.0, lost=0.02)
    run = carry_out(replace(GATE, bench=bench, objective=Pairs(((0, 1),))), outcomes)
    trials = run.counts.sum(axis=-1)
    assert np.array_equal(trials[0], trials[1]), "only what both have counts"
    assert trials[0, :5].mean() > 2.0 * trials[0, 5:].mean()
    (comparison,) = result_of(run).comparisons
    assert comparison.by_trial
    apart = [(outcomes[0, q, :n] - outcomes[1, q, :n]).mean() for q, n in enumerate(trials[0].tolist())]
    assert comparison.difference == pytest.approx(
        (1 if comparison.verdict.first == 0 else -1) * np.average(apart, weights=weights)
    )


@pytest.mark.slow
def test_a_weighted_gate_calls_equal_models_apart_no_more_often_than_promised() -> None:
    """Copies that share part of their noise; one loses on the heavy questions what it gains on the others."""
    rng, runs, called = np.random.default_rng(12), 120, 0
    weights, labels = np.repeat([3.0, 1.0], [5, 15]), np.repeat([0, 1], [5, 15])
    bench = replace(BENCH, question_weights=weights, benchmark_of=labels)
    plan = replace(GATE, bench=bench, objective=Pairs(((0, 1),)), trials=Trials(min=4, max=30))
    for _ in range(runs):
        chance, shift = rng.uniform(0.2, 0.8, (QUESTIONS, 1)), np.where(labels == 0, -0.1, 0.1)[:, None]
        noise = rng.random((QUESTIONS, 400))
        outcomes = np.stack([noise < chance, noise < chance + shift]).astype(int)
        look = look_of(carry_out(plan, outcomes))
        called += look.comparisons[0].verdict is Verdict.RESOLVED
    assert called / runs <= 0.1 + 2.0 * np.sqrt(0.09 / runs)


def test_the_model_with_fewer_trials_is_asked_first() -> None:
    """A third model starts late: until it has as many trials, the model it is compared with waits."""
    outcomes = draw_outcomes(2, 1.0, models=3)
    bench = replace(BENCH, models=3, worst_cost=())
    first = np.array([[30], [30], [4]]) * np.ones((3, QUESTIONS), dtype=int)
    plan = replace(GATE, bench=bench, objective=Pairs(((0, 2),)), first=first, judging=Judging(futility=None))
    controller = carry_out(plan, outcomes)
    trials = [look.trials for look in controller.looks]
    caught_up = [now for now in trials if now[2] <= 30 * QUESTIONS]
    assert len(caught_up) > 20 and {now[0] for now in caught_up} == {30 * QUESTIONS}
    assert trials[-1][0] == trials[-1][2] == 60 * QUESTIONS


def test_a_model_set_aside_delays_no_other_model() -> None:
    bench = replace(BENCH, models=3, worst_cost=())
    outcomes = draw_outcomes(6, 1.0, models=3)
    controller = Controller(replace(GATE, bench=bench))
    requested = controller.ask(10**6)
    controller.tell([SetAside(2, "gone")])
    controller.tell(Outcome(*a[:3], int(outcomes[a[:3]])) for a in requested if a.model < 2)
    play(controller, outcomes)
    verdicts = {frozenset(pair[:2]): pair.verdict for pair in controller.looks[-1].comparisons}
    assert verdicts[frozenset((0, 2))] is Verdict.BLOCKED and verdicts[frozenset((0, 1))] is Verdict.RESOLVED


@pytest.mark.release
@pytest.mark.parametrize("runs", [500])
@pytest.mark.parametrize("kind", [1.0, 0.0])
def test_exact_ties_are_called_in_a_tenth_of_runs_at_most(kind: str, runs: int) -> None:
    """Each trial's two outcomes are assigned at random to two models that differ now and then."""
    plan, called = replace(GATE, objective=Pairs(((0, 1),))), 0
    for seed in range(runs):
        outcomes = draw_outcomes(seed, kind, lost=0.05)
        swap = np.random.default_rng((seed, 1)).random(outcomes.shape[1:]) < 0.5
        tie = np.where(swap, outcomes, outcomes[::-1])
        called += carry_out(plan, tie).looks[-1].count(Verdict.RESOLVED)
    assert called / runs <= 0.1 + 2.0 * np.sqrt(0.09 / runs)


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


MAX_TRIALS = 60
DIFFERENCES = difference_values(BINARY)


def bench_of(outcomes: Outcomes, recorded: int | NDArray[np.int64], models: int = 1) -> Bench:
    """The first `models` are recorded, with so many trials of each question."""
    lengths = np.broadcast_to(recorded, QUESTIONS)
    trials = outcomes[:, :, : lengths.max()].copy()
    trials[:, np.arange(trials.shape[2]) >= lengths[:, None]] = MISSING
    trials[models:] = MISSING
    return of_trials(trials, frozenset(range(models)))


def of_trials(trials: Outcomes, recorded: frozenset[int], unsure: NDArray[np.bool_] | None = None) -> Bench:
    unsure = np.zeros(trials.shape, dtype=bool) if unsure is None else unsure
    counts = np.stack([(trials == category).sum(axis=-1) for category in (0, 1)], axis=-1)
    cut = np.stack([((trials == category) & unsure).sum(axis=-1) for category in (0, 1)], axis=-1)
    known = {"prior_counts": counts, "prior_unsure": cut, "recorded_trials": RecordedTrials(trials, unsure)}
    return Bench(len(trials), QUESTIONS, weights=BINARY, recorded=recorded, **known)  # type: ignore[arg-type]


def plan_of(bench: Bench, **changes: object) -> Plan:
    trials = Trials(min=4, max=MAX_TRIALS)
    plan = Plan(bench, objective=Gate(Margin(0, 0.03)), rule=Sequential(start=4 / MAX_TRIALS), trials=trials)
    return replace(plan, coupled=True, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("recorded", [0, 25, MAX_TRIALS])
def test_z_and_information_are_those_of_the_trials_that_both_have(recorded: int) -> None:
    """The first model is asked, too, or is recorded."""
    outcomes = draw_outcomes(3, lost=0.02)
    plan = replace(GATE, objective=Pairs(((0, 1),)))
    if recorded:
        plan = plan_of(bench_of(outcomes, recorded), objective=Pairs(((0, 1),)))
    controller = carry_out(plan, outcomes)
    for look in controller.looks[:8]:
        n = look.trials[1] // QUESTIONS
        (pair,), z = look.comparisons, paired_z(*outcomes[:, :, :n], MAX_TRIALS)
        assert pair.z == pytest.approx(z if pair.first == 0 else -z)
        assert pair.information == pytest.approx(n / min(recorded or MAX_TRIALS, MAX_TRIALS))
    result, n = result_of(controller), controller.trials[1] // QUESTIONS
    (comparison,), apart = result.comparisons, (outcomes[0, :, :n].astype(float) - outcomes[1, :, :n]).mean()
    assert comparison.by_trial
    assert comparison.difference == pytest.approx(apart if comparison.verdict.first == 0 else -apart)
    rows = {row.model: row.score for row in result.models}
    assert rows[0] == pytest.approx(outcomes[0, :, : recorded or n].mean())


@pytest.mark.parametrize("is_recorded", [False, True])
def test_models_that_share_no_noise_are_judged_as_usual(is_recorded: bool) -> None:
    """A recorded one by its whole recording."""
    for seed in range(2):
        outcomes = draw_outcomes(seed, same=0.0, lost=0.02)
        plan = plan_of(bench_of(outcomes, MAX_TRIALS)) if is_recorded else replace(GATE, rule=Sequential())
        assert carry_out(plan, outcomes).looks == carry_out(replace(plan, coupled=False), outcomes).looks


@pytest.mark.parametrize("kind", ["ungraded", "recorded, ungraded", "recorded, cut"])
def test_a_trial_without_a_sure_grade_takes_z_as_near_to_zero_as_either_grade(kind: str) -> None:
    outcomes = draw_outcomes(4, lost=0.03)
    recorded = bench_of(outcomes, MAX_TRIALS).recorded_trials
    assert recorded is not None
    answers, categories, unsure = outcomes.astype(int), recorded.categories.copy(), recorded.unsure.copy()
    if kind == "ungraded":
        answers[0, 1, 1] = -1
        plan = replace(GATE, objective=Pairs(((0, 1),)))
    else:
        categories[0, 1, 1] = categories[0, 1, 1] if kind == "recorded, cut" else UNGRADED
        unsure[0, 1, 1] = kind == "recorded, cut"
        plan = plan_of(of_trials(categories, frozenset({0}), unsure), objective=Pairs(((0, 1),)))
    controller = carry_out(plan, answers)
    standing, n = standing_of(controller), controller.trials[1] // QUESTIONS
    zs = []
    for grade in (0, 1):
        filled = outcomes[:, :, :n].copy()
        filled[0, 1, 1] = grade
        zs.append(paired_z(*filled, MAX_TRIALS))
    (at,) = standing.evidence.positions(np.array([[0, 1]]))
    assert abs(standing.cautious.z[at]) == pytest.approx(min(map(abs, zs)) if min(zs) * max(zs) > 0.0 else 0.0)


def test_arrival_order_and_batch_size_do_not_matter() -> None:
    outcomes = draw_outcomes(5, same=0.9, models=3, lost=0.02)
    plan = plan_of(bench_of(outcomes, 30), objective=Baseline(0), pace=Pace(lookahead=1))
    assert (
        carry_out(plan, outcomes).looks
        == carry_out(plan, outcomes, mix=1).looks
        == carry_out(plan, outcomes, mix=6).looks
    )


@pytest.mark.parametrize("pace", [Pace(), Pace(share=0.5), Pace(dedicated_servers=True), Pace(lookahead=1)])
def test_no_trial_is_asked_for_that_the_recording_lacks(pace: Pace) -> None:
    """The comparison ends with the recording, although `trials.max` would allow more."""
    outcomes = draw_outcomes(5, same=0.8)
    plan = plan_of(bench_of(outcomes, 12), objective=Gate(Margin(0, 0.001)), pace=pace)
    controller = carry_out(plan, outcomes)
    assert controller.finished is Reason.OUT_OF_REACH
    assert controller.trials[1] <= 12 * QUESTIONS


def test_questions_may_have_recordings_of_different_lengths() -> None:
    outcomes = draw_outcomes(6, lost=0.02)
    lengths = np.where(np.arange(QUESTIONS) < 5, 8, 40)
    controller = carry_out(plan_of(bench_of(outcomes, lengths), objective=Pairs(((0, 1),))), outcomes)
    (pair,), asked = look_of(controller).comparisons, controller.counts[1].sum(axis=-1)
    counts = np.array(
        [
            paired_counts(outcomes[:1, q, :n], outcomes[1:, q, :n], DIFFERENCES)[0]
            for q, n in enumerate(np.minimum(lengths, asked).tolist())
        ]
    )
    moments = paired_moments(counts, BINARY, DIFFERENCES.values, np.minimum(lengths, MAX_TRIALS).astype(float))
    assert abs(pair.z) == pytest.approx(abs(moments.mean) / np.sqrt(moments.var))
    assert pair.information == pytest.approx(min(float(moments.noise_at_horizon / moments.noise), 1.0))


def test_two_recorded_models_are_compared_once_by_all_their_trials() -> None:
    outcomes = draw_outcomes(2, models=3, lost=0.1)
    controller = carry_out(plan_of(bench_of(outcomes, 40, models=2), objective=Baseline(0)), outcomes)
    z = paired_z(*outcomes[:2, :, :40], 40)
    for look in controller.looks:
        (recorded,) = (pair for pair in look.comparisons if {pair.first, pair.second} == {0, 1})
        assert recorded.z == pytest.approx(abs(z)) and recorded.information == 1.0
    assert controller.trials[:2].tolist() == [0, 0]


def test_a_run_of_one_model_may_have_seeds_that_later_runs_share() -> None:
    """They change nothing in it."""
    outcomes = draw_outcomes(1)[:1]
    plan = Plan(Bench(1, QUESTIONS, weights=BINARY), objective=PrecisionOf(0.02), trials=Trials(min=4, max=40))
    shared = replace(plan, coupled=True)
    assert not shared.source.by_trial and shared.deciding_rule == plan.deciding_rule
    assert repr(carry_out(shared, outcomes).looks) == repr(carry_out(plan, outcomes).looks)


@pytest.mark.slow
@pytest.mark.parametrize(("same", "recorded"), [(0.0, 40), (0.5, 40), (0.9, 20)])
def test_equal_models_are_called_apart_no_more_often_than_promised(same: float, recorded: int) -> None:
    """`benchmarks/recorded_runs.py` has more of them, with gates."""
    runs, called = 120, 0
    for seed in range(runs):
        outcomes = draw_outcomes(seed, same=same)
        plan = plan_of(bench_of(outcomes, recorded), objective=Pairs(((0, 1),)), trials=Trials(min=4, max=40))
        called += carry_out(plan, outcomes).looks[-1].count(Verdict.RESOLVED)
    assert called / runs <= 0.1 + 2.0 * np.sqrt(0.09 / runs)
