"""The result of a run as plain values, and its verdicts on scores corrected for the grader's errors."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import core_oracle as oracle
import numpy as np
import pytest
from core_runs import Answers, never_called, play, result_of, standing_of, straight, tell_right
from numpy.typing import NDArray

from adaptive_eval.core import Controller, Evidence, NearBest, Optimal, Plan, Rule, StageBefore, UnresolvedPairs, ZScore
from adaptive_eval.core.answer_kinds import AnswerKind, UnsureGrades
from adaptive_eval.core.controller import FindVoid
from adaptive_eval.core.corrected import ScoreCorrection, judge_corrected
from adaptive_eval.core.judge import Criteria, DecidingLooks, Judging, LatchedVerdicts, judge
from adaptive_eval.core.objectives import Best, Gate, Objective, Pairs, PrecisionOf, Ranking, Threshold, TopK
from adaptive_eval.core.result import Result
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Bench, Margin, Pace, Trials
from adaptive_eval.core.types import Ask, Cost, PairVerdict, Reason, Verdict
from scorio.sinf.compare import sampled_variance

W = [0.0, 1.0]
RIGHT = [[9, 8, 7, 9], [5, 6, 4, 5], [4, 6, 5, 4]]


def plan(rule: Rule | None = None, **bench: object) -> Plan:
    """Three models, ten trials of each of four questions, and one look."""
    made = Bench(3, 4, np.array(W), **bench)  # type: ignore[arg-type]
    return never_called(
        made, rule=rule or Sequential(start=1.0), policy=UnresolvedPairs(), trials=Trials(min=10, max=10)
    )


def run_to_end(chosen: Plan, right: list[list[int]] = RIGHT) -> Controller:
    return play(
        Controller(chosen),
        lambda ask: int(ask.trial < right[ask.model][ask.question]),
        cost=lambda ask: Cost(7, 0.01, 0.5),
    )


TALLIES = [[[10 - right, right] for right in row] for row in RIGHT]


@pytest.mark.parametrize("earlier", [None, np.arange(24).reshape(3, 4, 2)], ids=["alone", "with prior outcomes"])
def test_models_from_best_to_worst_on_both_scales(earlier: NDArray[np.int64] | None) -> None:
    """Outcomes known beforehand are in every score."""
    result = result_of(run_to_end(plan(prior_counts=earlier)))
    tallies = (np.array(TALLIES) + (0 if earlier is None else earlier)).tolist()
    scores = [oracle.average(tally, W) for tally in tallies]
    assert [row.rank for row in result.models] == [1, 2, 3]
    assert [row.model for row in result.models] == sorted(range(3), key=lambda model: -scores[model])
    for row in result.models:
        score, sigma = scores[row.model], oracle.sigma(tallies[row.model], W)
        assert row.score == pytest.approx(score, rel=1e-12) and row.trials == 40
        assert row.sigma == pytest.approx(sigma, rel=1e-12)
        assert (row.lo, row.hi) == pytest.approx((score - 1.959964 * sigma, score + 1.959964 * sigma), rel=1e-6)
        assert (row.bayes, row.bayes_sigma) == pytest.approx(oracle.bayes(tallies[row.model], W), rel=1e-12)
    for first, second, difference in ((*row.verdict[:2], row.difference) for row in result.comparisons):
        assert difference == pytest.approx(scores[first] - scores[second or 0])
    assert result.reason is Reason.OUT_OF_REACH and result.reversals == ()
    assert (result.trials, result.fixed_trials) == (120, 120)
    assert result.spent == pytest.approx(Cost(840, 1.2, 60.0))
    assert earlier is not None or [row.tier for row in result.models] == [1, 2, 2]


def test_agreeing_questions_do_not_make_similar_questions_more_certain() -> None:
    """All wrong, all right and all alike: the question means agree, but the posterior allows that they may differ."""
    result = result_of(run_to_end(plan(), [[0] * 4, [10] * 4, [5] * 4]))
    for row in result.models:
        assert row.sampled_sigma == row.sigma > 0.0
    for comparison in result.comparisons:
        assert comparison.sampled_z == pytest.approx(comparison.verdict.z)


def test_questions_of_a_cluster_count_together() -> None:
    """Two clusters of two questions: residuals are first summed within each cluster."""
    first = result_of(run_to_end(plan(clusters=np.array([0, 1, 1, 0])))).models[0]
    residuals = [right / 10 - 0.825 for right in RIGHT[0]]
    sums = (residuals[0] + residuals[3], residuals[1] + residuals[2])
    assert first.sampled_sigma == pytest.approx(math.sqrt(sum(s * s for s in sums) * 2 / (1 * 16)))


@pytest.mark.parametrize(
    ("objective", "right"),
    [(Ranking(), [[9], [1]]), (TopK(2), [[9], [7], [5], [3], [1]])],
    ids=["a pair", "many pairs"],
)
def test_one_question_says_nothing_of_others_like_it(objective: Objective, right: list[list[int]]) -> None:
    bench = Bench(len(right), 1, np.array(W))
    result = result_of(run_to_end(replace(plan(ZScore()), bench=bench, objective=objective, judging=Judging()), right))
    assert {row.sampled_sigma for row in result.models} == {math.inf}
    assert {comparison.sampled_z for comparison in result.comparisons} == {0.0}
    assert all(comparison.difference > 0.1 for comparison in result.comparisons), "of these it says something"


def reversing(objective: Pairs | Threshold) -> Controller:
    """Model 1 is right up to its fourth trial and wrong from then on, 2 the opposite; 0 and 3 are right by turns."""
    chosen = never_called(Bench(4, 4, np.array(W)), objective=objective, rule=ZScore(), trials=Trials(min=4, max=12))
    return play(
        Controller(chosen), lambda ask: int((ask.trial % 2, ask.trial < 4, ask.trial >= 4, ask.trial % 2)[ask.model])
    )


def test_reversals_are_all_that_were_called_and_turned() -> None:
    result = result_of(reversing(Pairs(((0, 3),))))
    assert [pair[:2] for pair in result.reversals] == [(0, 1), (2, 0), (2, 1), (3, 1), (2, 3)]
    assert all(pair.reversed and pair.z > 0.0 and pair.verdict is Verdict.RESOLVED for pair in result.reversals)
    assert {row.tier for row in result.models} == {1}
    result = result_of(reversing(Threshold(0.5)))
    assert {row.tier for row in result.models} == {1}
    assert [pair[:2] for pair in result.reversals] == [(1, None), (2, None)]
    assert [pair.z > 0.0 for pair in result.reversals] == [False, True]


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "in clusters"])
@pytest.mark.parametrize(
    "objective",
    [TopK(4), Ranking(), Threshold(0.5), PrecisionOf(0.02), Gate(Margin(baseline=2, delta=0.03))],
    ids=lambda value: type(value).__name__,
)
def test_batches_compare_as_single_ones(objective: Objective, grouped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve models in batches of pairs: differences, sampled z and trials to go, computed here pair by pair."""
    monkeypatch.setattr("adaptive_eval.core.evidence_source.CHUNK_CELLS", 50)
    rng, models, questions = np.random.default_rng(3), 12, 9
    clusters = np.arange(questions) % 4 if grouped else None
    bench = Bench(models, questions, np.array(W), clusters=clusters)
    controller = Controller(Plan(bench, objective=objective, trials=Trials(min=4, max=40)))
    right = rng.binomial(4, np.linspace(0.2, 0.8, models)[:, None], (models, questions))
    for batch in controller.ask_batches():
        tell_right(controller, batch, right[batch.model])
    result, means = result_of(controller), (right / 4).tolist()
    target = [0.0] * models
    for comparison in result.comparisons:
        verdict = comparison.verdict
        value = 0.5 if isinstance(objective, Threshold) else -1e6
        other = [value] * questions if verdict.second is None else means[verdict.second]
        d = np.array(means[verdict.first]) - np.array(other)
        given = 0.0
        if isinstance(objective, Gate):
            given = 0.03 if verdict.second == 2 else -0.03
        spread = math.sqrt(max(comparison.sigma**2, float(sampled_variance(d, clusters))))
        if objective.compares:
            assert comparison.difference == pytest.approx(math.fsum(d) / questions, abs=1e-12)
            assert comparison.sampled_z == pytest.approx((math.fsum(d) / questions + given) / spread, abs=1e-9)
        else:
            assert math.isnan(comparison.difference) and math.isnan(comparison.sampled_z)
        if verdict.verdict is Verdict.OPEN:
            for model in {verdict.first, verdict.second} - {None}:
                assert model is not None
                target[model] = max(target[model], questions * min(verdict.trials_needed, 40))
    assert len(result.comparisons) == len(objective.comparisons(np.arange(models)))
    assert result.trials_to_go == pytest.approx(sum(max(0.0, goal - 4 * questions) for goal in target))


@pytest.mark.slow
def test_each_call_names_the_look_that_crossed_the_boundary() -> None:
    bench, trials = Bench(5, 10, np.array(W)), Trials(min=4, max=30)
    chosen = Plan(bench, objective=Ranking(), rule=Sequential(0.8), policy=UnresolvedPairs(), trials=trials)
    unseen = 0
    for seed in range(6):
        answers = Answers(chosen, seed, lambda model, question: 0.5 + 0.04 * model)
        controller, crossed = Controller(chosen), dict[frozenset[int | None], tuple[int, float]]()
        while controller.finished is None:
            controller.tell(answers.of(controller.ask(10**6)))
            standing = standing_of(controller)
            evidence, call = standing.evidence, standing.memory.call
            for at in np.flatnonzero(call).tolist():
                members = frozenset((int(evidence.first[at]), int(evidence.second[at])))
                crossed.setdefault(members, (len(controller.looks), abs(float(evidence.z[at]))))
        for comparison in result_of(controller).comparisons:
            assert (comparison.called is None) == (comparison.verdict.verdict not in (Verdict.RESOLVED, Verdict.TIED))
            if comparison.called is not None:
                members = frozenset((comparison.verdict.first, comparison.verdict.second))
                assert comparison.called.z >= comparison.called.boundary
                assert comparison.called[:2] == crossed[members]
                then = controller.looks[comparison.called.look - 1].comparisons
                unseen += members not in [frozenset(pair[:2]) for pair in then]
    assert unseen


@pytest.mark.parametrize(
    ("second", "verdict", "z", "is_reversed", "winner"),
    [
        (1, Verdict.RESOLVED, 3.0, False, 0),
        (1, Verdict.RESOLVED, 0.5, True, 1),
        (1, Verdict.OPEN, 3.0, False, None),
        (1, Verdict.TIED, 0.1, False, None),
        (None, Verdict.RESOLVED, 3.0, False, 0),
        (None, Verdict.RESOLVED, -3.0, False, None),
    ],
)
def test_only_a_call_has_a_winner_and_a_fixed_value_is_none(
    second: int | None, verdict: Verdict, z: float, is_reversed: bool, winner: int | None
) -> None:
    assert PairVerdict(0, second, verdict, z, 0.99, 2.0, 0.5, 0.9, 10.0, is_reversed).winner == winner


SKILLS = (0.7, 0.5, 0.2)
"""True shares of right answers: by the grades each model is better than the next."""
NONE = math.nan


def finished_run(
    skills: Sequence[float] = SKILLS, seed: int = 1, find_void: FindVoid | None = None, **changes: object
) -> Controller:
    """A finished run of these models."""
    usual = {"rule": Optimal(), "trials": Trials(min=4, max=40), "prior": "uniform"}
    plan = Plan(Bench(len(skills), 20, np.array([0.0, 1.0])), **(usual | changes))  # type: ignore[arg-type]
    return straight(plan, Answers(plan, seed, lambda model, question: skills[model]), find_void=find_void)


def correction(shift: Sequence[float], sigma: float | Sequence[float] = 0.01) -> ScoreCorrection:
    """Score corrections with their standard errors; nan where a model has none."""
    shifts = np.array(shift, dtype=float)
    variance = np.where(np.isfinite(shifts), np.square(np.broadcast_to(sigma, shifts.shape)), np.nan)
    return ScoreCorrection(shifts[:, None], variance[:, None])


def verdicts(result: Result) -> dict[tuple[int, int | None], Verdict]:
    """Verdicts by the better and the worse model of each comparison."""
    return {comparison.verdict[:2]: comparison.verdict.verdict for comparison in result.comparisons}


RESOLVED, UNDECIDED = Verdict.RESOLVED, Verdict.UNDECIDED_BY_LABELS


def test_a_correction_without_shift_or_variance_changes_no_result() -> None:
    run = finished_run()
    plain, corrected = result_of(run), result_of(run, correction([0.0, 0.0, 0.0], 0.0))
    assert corrected.models == plain.models and verdicts(corrected) == verdicts(plain)
    assert [row.called for row in corrected.comparisons] == [row.called for row in plain.comparisons]


def test_scores_order_tiers_and_differences_are_those_of_corrected_scores() -> None:
    run = finished_run()
    plain, corrected = result_of(run), result_of(run, correction([-0.4, 0.0, 0.0]))
    assert [row.model for row in corrected.models] == [1, 0, 2]
    scores = {row.model: row for row in plain.models}
    for row in corrected.models:
        shift = -0.4 if row.model == 0 else 0.0
        assert row.score == pytest.approx(scores[row.model].score + shift)
        assert row.sigma == pytest.approx(math.hypot(scores[row.model].sigma, 0.01))
        assert row.bayes == pytest.approx(scores[row.model].bayes + shift)
        assert (row.lowest, row.highest) == (pytest.approx(row.score), pytest.approx(row.score))
    assert verdicts(corrected) == {(1, 0): RESOLVED, (0, 2): UNDECIDED}
    first = corrected.comparisons[0]
    assert first.difference == pytest.approx(corrected.models[0].score - corrected.models[1].score)
    assert first.sigma == pytest.approx(math.hypot(corrected.models[0].sigma, corrected.models[1].sigma))
    assert first.verdict.z == pytest.approx(first.difference / first.sigma)
    assert [row.tier for row in corrected.models] == [1, 2, 2]
    assert first.called is not None and first.called.look == len(run.looks)
    assert first.called.z == pytest.approx(first.verdict.z)
    assert not corrected.reversals
    assert corrected.trials == plain.trials and corrected.reason == plain.reason


def test_a_call_that_the_corrected_difference_does_not_support_is_undecided() -> None:
    run = finished_run()
    corrected = result_of(run, correction([-0.2, 0.0, 0.0]))
    assert list(verdicts(corrected).values())[0] is UNDECIDED
    assert [row.tier for row in corrected.models] == [1, 1, 2]
    assert corrected.comparisons[0].called is None
    wide = result_of(run, correction([0.0, 0.0, 0.0], 0.3))
    assert set(verdicts(wide).values()) == {UNDECIDED} and [row.tier for row in wide.models] == [1, 1, 1]


TIED, OUT_OF_REACH = Verdict.TIED, Verdict.OUT_OF_REACH
EQUAL = {"skills": (0.5, 0.5)}
ABOUT_TIED = EQUAL | {"judging": Judging(delta=0.15), "seed": 2}
VALUE, PRECISE = {"objective": Threshold(0.6)}, {"objective": PrecisionOf(0.05)}
GATED = {"objective": Gate(Margin(1, 0.1))}
OF_ALL = dict.fromkeys(((0, None), (1, None), (2, None)), RESOLVED)


@pytest.mark.parametrize(
    ("settings", "shift", "sigma", "expected"),
    [
        # labels never newly decide a comparison with an unlabelled model
        ({}, [-0.3, NONE, NONE], 0.01, {(1, 0): UNDECIDED, (0, 2): RESOLVED}),
        ({}, [0.0, NONE, NONE], 0.01, {(0, 1): RESOLVED, (1, 2): RESOLVED}),
        (EQUAL, None, 0.01, {(0, 1): OUT_OF_REACH}),
        (EQUAL, [0.4, NONE], 0.01, {(0, 1): OUT_OF_REACH}),
        (EQUAL, [0.4, 0.0], 0.01, {(0, 1): RESOLVED}),
        # a tie is judged by the corrected difference
        (ABOUT_TIED, None, 0.01, {(0, 1): TIED}),
        (ABOUT_TIED, [0.0, 0.0], 0.01, {(0, 1): TIED}),
        (ABOUT_TIED, [0.0, 0.0], 0.2, {(0, 1): UNDECIDED}),
        (ABOUT_TIED, [0.5, 0.0], 0.01, {(0, 1): RESOLVED}),
        (VALUE, None, 0.01, OF_ALL),
        (VALUE, [-0.1, NONE, 0.7], 0.01, OF_ALL | {(0, None): UNDECIDED}),
        (PRECISE, None, 0.01, OF_ALL),
        (PRECISE, [0.0, 0.0, 0.0], [0.1, 0.001, 0.001], OF_ALL | {(0, None): UNDECIDED}),
        (GATED, None, 0.01, {(0, 1): RESOLVED, (1, 2): RESOLVED}),
        (GATED, [-0.6, 0.0, 0.5], 0.01, {(1, 0): RESOLVED, (2, 1): RESOLVED}),
        (GATED, [-0.3, 0.0, 0.0], 0.05, {(0, 1): UNDECIDED, (1, 2): RESOLVED}),
    ],
)
def test_verdicts_follow_the_corrected_scores(
    settings: dict[str, Any], shift: list[float] | None, sigma: float | list[float], expected: dict[object, Verdict]
) -> None:
    result = result_of(finished_run(**settings), None if shift is None else correction(shift, sigma))
    assert verdicts(result) == expected
    if settings is VALUE and shift is not None:
        assert {comparison.verdict.first: comparison.verdict.z > 0.0 for comparison in result.comparisons}[2]
    if settings is PRECISE:
        assert {row.tier for row in result.models} == {1}, "a precise score is not a higher one"


def test_a_comparison_needs_the_trials_that_its_corrected_difference_takes() -> None:
    """Half the difference takes four times the trials, more if labels leave some variance, and too much of that leaves
    no number that would do."""
    run, limit = finished_run(rule=ZScore(9.0), skills=(0.55, 0.6)), 9.0
    (graded,) = result_of(run).comparisons
    halved = [graded.difference / 4 * (1 if model == graded.verdict.second else -1) for model in range(2)]
    exact, some, most = (
        result_of(run, correction(halved, sigma)).comparisons[0].verdict.trials_needed for sigma in (1e-7, 1e-3, 0.1)
    )
    today = graded.verdict.trials_needed
    assert exact == pytest.approx(4 * today, rel=1e-3)
    # a variance of (d / z)^2 is what a call takes, and labels keep their part of it
    allowed = (graded.difference / 2 / limit) ** 2
    assert some == pytest.approx(4 * today * allowed / (allowed - 2 * 1e-3**2), rel=1e-3)
    assert most == math.inf
    lenient = finished_run(objective=Best(), rule=NearBest(0.001), skills=(0.5, 0.51), trials=Trials(min=4, max=8))
    assert result_of(lenient, correction([0.0, 0.0], 0.3)).comparisons[0].verdict.trials_needed == math.inf


@pytest.mark.parametrize(
    ("rule", "judging"),
    [
        (Optimal(), Judging(familywise=True)),
        (Sequential(), Judging(familywise=True)),
        (ZScore(), Judging(latch=False)),
        (NearBest(0.05), Judging()),
    ],
)
def test_every_rule_judges_corrected_scores(rule: Rule, judging: Judging) -> None:
    run = finished_run(objective=Best(), rule=rule, judging=judging)
    assert verdicts(result_of(run, correction([-0.6, 0.0, 0.0])))[1, 0] is RESOLVED
    assert RESOLVED not in verdicts(result_of(run, correction([0.0, 0.0, 0.0], 1.0))).values()


def test_a_call_from_before_a_longer_horizon_can_be_confirmed_by_labels() -> None:
    skills = (0.9, 0.4, 0.1)
    short = finished_run(skills=skills, trials=Trials(min=4, max=10))
    run = finished_run(skills=skills, before=StageBefore(short, (0, 1, 2)))
    plain, corrected = result_of(run), result_of(run, correction([0.0, 0.0, 0.0]))
    assert verdicts(plain)[0, 1] is verdicts(corrected)[0, 1] is RESOLVED
    assert verdicts(result_of(run, correction([-0.75, 0.0, 0.0])))[1, 0] is RESOLVED


@pytest.mark.parametrize(
    ("cut", "empty_from", "verdict"),
    [(0, 99, RESOLVED), (8, 99, Verdict.BLOCKED), (0, 12, Verdict.BLOCKED)],
    ids=["all complete", "some cut", "after an alarm"],
)
def test_labels_make_no_call_that_cut_answers_or_alarms_undo(cut: int, empty_from: int, verdict: Verdict) -> None:
    """Two models are right in half of their trials. Of the first, answers to some questions are cut off, or all are
    empty from some trial on."""
    bench, truncated = Bench(2, 20, np.array([0.0, 1.0])), int(AnswerKind.TRUNCATED)
    plan = Plan(bench, rule=ZScore(4.0), judging=Judging(futility=None), trials=Trials(min=8, max=24), pace=Pace(0))
    plan = replace(plan, unsure=UnsureGrades(truncated, 1), stops_on_alarm=empty_from < 99)

    def grade(ask: Ask) -> tuple[int, int]:
        kinds = truncated * (ask.model == 0 and ask.question < cut)
        if ask.model == 0 and ask.trial >= empty_from:
            kinds = int(AnswerKind.EMPTY)
        return int((ask.question + ask.trial) % 2 and not kinds), kinds

    run = play(Controller(plan), grade)
    assert (run.finished is Reason.ALARM) == (empty_from < 99)
    assert [*verdicts(result_of(run, correction([-0.3, 0.0]))).values()] == [verdict]


def paths(
    drift: float, information: NDArray[np.float64], rule: Rule, runs: int
) -> tuple[Evidence, LatchedVerdicts, DecidingLooks]:
    """Runs of two models with this drift of the graded difference: the evidence at the end, and the calls."""
    rng = np.random.default_rng(3)
    steps = np.sqrt(np.diff(information, prepend=0.0))
    difference = drift + (rng.standard_normal((runs, len(steps))) * steps).cumsum(axis=1) / information
    criteria, memory = Criteria(Ranking(), rule, Judging(), p_values=False), LatchedVerdicts.blank(runs)
    decided, ended, over = DecidingLooks.blank(runs), evidence_of(difference[:, -1], 1.0), np.zeros(runs, bool)
    for look, share in enumerate(information.tolist()):
        now = evidence_of(difference[:, look], share)
        judged, level = judge(memory, [now], criteria)
        call = np.where(over, memory.call, judged.call).astype(np.int8)
        ended = chosen(over, ended, now)
        memory = replace(judged, call=call)
        decided = decided.with_look(look + 1, memory, ended, level.boundary(ended))
        over = (call != 0) | judged.given_up
    return ended, memory, decided


def evidence_of(difference: NDArray[np.float64], information: float) -> Evidence:
    """Evidence on this many pairs whose difference has a standard error of 1 at the horizon."""
    pairs, none = len(difference), np.zeros(len(difference), np.intp)
    sigma = np.full(pairs, information**-0.5)
    share = np.full(pairs, information)
    return Evidence(2, False, none, none + 1, difference, sigma, difference / sigma, share)


def chosen(over: NDArray[np.bool_], before: Evidence, now: Evidence) -> Evidence:
    """The final evidence of finished runs, and the current evidence of the others."""
    names = ("difference", "sigma", "z", "information")
    return replace(now, **{name: np.where(over, getattr(before, name), getattr(now, name)) for name in names})


@pytest.mark.slow
@pytest.mark.parametrize("rule", [Optimal(start=0.15), Sequential(start=0.15)])
@pytest.mark.parametrize("looks", [6, 40])
def test_equal_models_are_called_no_more_often_than_the_module_says(rule: Rule, looks: int) -> None:
    """Models that labels would score alike, under a grader that is more or less lenient with one of them."""
    runs, rng, criteria = 20_000, np.random.default_rng(5), Criteria(Ranking(), rule, Judging(), p_values=False)
    slack = 2.0 * math.sqrt(0.1 * 0.9 / runs)
    for drift in (0.0, 1.0, 1.5, 2.5, 4.0):
        ended, memory, decided = paths(drift, np.linspace(0.15, 1.0, looks), rule, runs)
        for noise in (0.1, 0.3, 1.0, 2.0):
            difference = ended.difference - drift + noise * rng.standard_normal(runs)
            sigma = np.hypot(ended.sigma, noise)
            moved = replace(ended, difference=difference, sigma=sigma, z=difference / sigma)
            judged, _, _ = judge_corrected(memory, [moved], criteria, decided)
            assert max((judged.call > 0).mean(), (judged.call < 0).mean()) <= 0.046 + slack
            assert (judged.call != 0).mean() <= 0.08 + slack
