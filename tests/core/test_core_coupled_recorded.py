"""Recorded models in a run with shared seeds: their trials are compared one by one with those of the same seeds."""

from dataclasses import replace

import numpy as np
import pytest
from core_runs import look_of, paired_z, play, result_of
from numpy.typing import NDArray

from adaptive_eval.core import Controller, Outcome, Plan, Reason, Verdict
from adaptive_eval.core.objectives import Baseline, Gate, Pairs, PrecisionOf
from adaptive_eval.core.rounds import MISSING, UNGRADED
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Bench, Margin, Pace, RecordedTrials, Trials
from scorio.sinf import difference_values, paired_counts, paired_moments

QUESTIONS, DEPTH, MAX_TRIALS = 20, 240, 60
WEIGHTS = np.array([0.0, 1.0])
DIFFERENCES = difference_values(WEIGHTS)
Outcomes = NDArray[np.uint8]


def draw_outcomes(seed: int, same: float = 1.0, models: int = 2, lost: float = 0.0) -> Outcomes:
    """Outcomes (L, M, N): in a share of the trials all models use the same random number; each model is worse than the
    one before."""
    rng = np.random.default_rng(seed)
    chance = 0.1 + 0.8 * np.random.default_rng(8).beta(0.7, 0.7, (QUESTIONS, 1))
    own = rng.random((models, QUESTIONS, DEPTH))
    numbers = np.where(rng.random((QUESTIONS, DEPTH)) < same, own[:1], own)
    return (numbers < np.stack([chance - lost * number for number in range(models)])).astype(np.uint8)


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
    return Bench(len(trials), QUESTIONS, weights=WEIGHTS, recorded=recorded, **known)  # type: ignore[arg-type]


def plan_of(bench: Bench, **changes: object) -> Plan:
    trials = Trials(min=4, max=MAX_TRIALS)
    plan = Plan(bench, objective=Gate(Margin(0, 0.03)), rule=Sequential(start=4 / MAX_TRIALS), trials=trials)
    return replace(plan, coupled=True, **changes)  # type: ignore[arg-type]


def carry_out(plan: Plan, outcomes: Outcomes, slots: int = 10**6, mix: int | None = None) -> Controller:
    """A whole run, with answers in the order asked or in mixed order."""
    if mix is None:
        return play(Controller(plan), outcomes)
    controller, rng = Controller(plan), np.random.default_rng(mix)
    waiting: list[Outcome] = []
    while controller.finished is None:
        waiting += [Outcome(*ask[:3], int(outcomes[ask[:3]])) for ask in controller.ask(slots)]
        rng.shuffle(waiting)
        controller.tell(waiting[:3])
        del waiting[:3]
    return controller


@pytest.mark.parametrize("recorded", [MAX_TRIALS, 25])
def test_z_and_information_are_those_of_the_trials_that_both_have(recorded: int) -> None:
    outcomes = draw_outcomes(3, lost=0.02)
    controller = carry_out(plan_of(bench_of(outcomes, recorded), objective=Pairs(((0, 1),))), outcomes)
    for look in controller.looks[:8]:
        n = look.trials[1] // QUESTIONS
        (pair,), z = look.comparisons, paired_z(*outcomes[:, :, :n], MAX_TRIALS)
        assert pair.z == pytest.approx(z if pair.first == 0 else -z)
        assert pair.information == pytest.approx(n / min(recorded, MAX_TRIALS))
    result = result_of(controller)
    (comparison,), n = result.comparisons, controller.trials[1] // QUESTIONS
    apart = (outcomes[0, :, :n].astype(float) - outcomes[1, :, :n]).mean()
    assert comparison.by_trial
    assert comparison.difference == pytest.approx(apart if comparison.verdict.first == 0 else -apart)
    assert {row.model: row.score for row in result.models}[0] == pytest.approx(outcomes[0, :, :recorded].mean())


def test_models_that_share_no_noise_are_judged_by_the_whole_recording() -> None:
    for seed in range(2):
        outcomes = draw_outcomes(seed, same=0.0, lost=0.02)
        plan = plan_of(bench_of(outcomes, MAX_TRIALS))
        assert carry_out(plan, outcomes).looks == carry_out(replace(plan, coupled=False), outcomes).looks


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
    look = look_of(controller)
    (pair,), asked = look.comparisons, controller.counts[1].sum(axis=-1)
    counts = np.array(
        [
            paired_counts(outcomes[:1, q, :n], outcomes[1:, q, :n], DIFFERENCES)[0]
            for q, n in enumerate(np.minimum(lengths, asked).tolist())
        ]
    )
    moments = paired_moments(counts, WEIGHTS, DIFFERENCES.values, np.minimum(lengths, MAX_TRIALS).astype(float))
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


@pytest.mark.parametrize("kind", ["ungraded", "cut"])
def test_a_recorded_trial_without_a_sure_grade_takes_z_as_near_to_zero_as_either_grade(kind: str) -> None:
    outcomes = draw_outcomes(4, lost=0.03)
    trials = bench_of(outcomes, MAX_TRIALS).recorded_trials
    assert trials is not None
    categories, unsure = trials.categories.copy(), trials.unsure.copy()
    if kind == "ungraded":
        categories[0, 1, 1] = UNGRADED
    else:
        unsure[0, 1, 1] = True
    plan = plan_of(of_trials(categories, frozenset({0}), unsure), objective=Pairs(((0, 1),)))
    controller = carry_out(plan, outcomes)
    judged, n = controller.last_look, controller.trials[1] // QUESTIONS
    assert judged is not None
    zs = []
    for grade in (0, 1):
        filled = outcomes[:, :, :n].copy()
        filled[0, 1, 1] = grade
        zs.append(paired_z(*filled, MAX_TRIALS))
    (at,) = judged.evidence.positions(np.array([[0, 1]]))
    assert abs(judged.cautious.z[at]) == pytest.approx(min(map(abs, zs)) if min(zs) * max(zs) > 0.0 else 0.0)


def test_arrival_order_and_batch_size_do_not_matter() -> None:
    outcomes = draw_outcomes(5, same=0.9, models=3, lost=0.02)
    plan = plan_of(bench_of(outcomes, 30), objective=Baseline(0), pace=Pace(lookahead=1))
    looks = carry_out(plan, outcomes).looks
    assert looks == carry_out(plan, outcomes, slots=7, mix=1).looks == carry_out(plan, outcomes, slots=40, mix=2).looks


def test_a_run_of_one_model_may_have_seeds_that_later_runs_share() -> None:
    """They change nothing in it."""
    outcomes = draw_outcomes(1)[:1]
    plan = Plan(Bench(1, QUESTIONS, weights=WEIGHTS), objective=PrecisionOf(0.02), trials=Trials(min=4, max=40))
    shared = replace(plan, coupled=True)
    assert not shared.source.by_trial and shared.deciding_rule == plan.deciding_rule
    assert repr(carry_out(shared, outcomes).looks) == repr(carry_out(plan, outcomes).looks)


def test_trials_that_contradict_the_counts_are_refused() -> None:
    bench = bench_of(draw_outcomes(1), 10)
    with pytest.raises(ValueError, match="recorded_trials must have the outcomes of prior_counts"):
        replace(bench, prior_counts=2 * bench.prior_counts)
    with pytest.raises(ValueError, match="coupled needs the recorded_trials of recorded models"):
        plan_of(replace(bench, recorded_trials=None))


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
