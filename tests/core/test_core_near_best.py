"""`near_best`: how often a pick trails the best by the margin or more, and when no pick may be made."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from core_runs import play, play_chances, result_of
from thoroughness import first_of

from adaptive_eval.core import Ask, Bench, Controller, NearBest, Pace, Plan, Reason, StageBefore, Trials, Verdict
from adaptive_eval.core.answer_kinds import AnswerKind, UnsureGrades
from adaptive_eval.core.corrected import ScoreCorrection
from adaptive_eval.core.look import tiers
from adaptive_eval.core.objectives import Best, Objective, TopK
from adaptive_eval.core.tape import Tape
from adaptive_eval.simulate.worlds import binary
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.judged import judge_replay
from scorio.moments import FloatArray

W = np.array([0.0, 1.0])
QUESTIONS, MARGIN, RUNS = 20, 0.04, 400


def chances(scores: list[float]) -> FloatArray:
    """Probabilities (L, M, 2) of models with these scores, on questions of different difficulty."""
    spread = 0.6 * (np.arange(QUESTIONS) / (QUESTIONS - 1) - 0.5)
    return binary(np.array(scores)[:, None] + spread)


def plan(models: int, max_trials: int = 60, **more: object) -> Plan:
    usual = {"objective": Best(), "rule": NearBest(MARGIN, start=4 / max_trials), "pace": Pace(lookahead=0)}
    return Plan(Bench(models, QUESTIONS, W), trials=Trials(min=4, max=max_trials), **(usual | more))  # type: ignore[arg-type]


def played(asked: Plan, tapes: Sequence[Tape]) -> list[Controller]:
    """A finished run on each tape."""
    return [drive_rounds(Controller(asked, keep_looks=False), tape) for tape in tapes]


Wrong = dict[tuple[int, int], float]


def wrong_picks(scores: list[float], objective: Objective, picks: int, confidence: float) -> tuple[Wrong, float]:
    """The shares of finished runs in which a model was picked that another, left out, is better than by the margin: for
    each two such models, and of any."""
    models, truth = len(scores), np.array(scores)
    asked = plan(models, objective=objective, rule=NearBest(MARGIN, confidence, 4 / 60))
    tapes = [Tape.from_chances(chances(scores), W, np.random.default_rng(seed)) for seed in range(RUNS)]
    pairs, wrong_runs = dict[tuple[int, int], float](), 0
    for end in played(asked, tapes):
        measured = (end.counts[..., 1] / end.counts.sum(axis=-1)).mean(axis=1)
        order = np.argsort(-measured, kind="stable").tolist()
        lost = [(a, b) for a in order[:picks] for b in order[picks:] if truth[b] - truth[a] >= MARGIN - 1e-9]
        for pair in lost if end.finished is Reason.SETTLED else ():
            pairs[pair] = pairs.get(pair, 0.0) + 1 / RUNS
        wrong_runs += bool(lost) and end.finished is Reason.SETTLED
    return pairs, wrong_runs / RUNS


ALLOWED = 0.05 + 2.0 * np.sqrt(0.05 * 0.95 / RUNS)
WORST = [
    ([0.54, 0.50], Best(), 1),
    ([0.54, *[0.50] * 4], Best(), 1),
    ([0.54, *[0.50] * 11], Best(), 1),
    ([0.58, 0.56, 0.54, 0.50, 0.50, 0.46], Best(), 1),
    ([0.54, 0.54, 0.50, 0.50, 0.50], TopK(2), 2),
]
"""Worlds where others are behind by exactly the margin, so that a wrong pick is likeliest."""


def some(*long: int) -> list[Any]:
    """The worlds with these numbers among the long tests, and the others before a release."""
    marks = (pytest.mark.slow if at in long else pytest.mark.release for at in range(len(WORST)))
    return [pytest.param(*world, marks=mark) for world, mark in zip(WORST, marks, strict=True)]


@pytest.mark.parametrize(
    ("scores", "objective", "picks", "is_shared"),
    [
        pytest.param(*case.values, is_shared, marks=case.marks)
        for is_shared, cases in ((False, some(0)), (True, some(4)))
        for case in cases
    ],
)
def test_picks_are_seldom_far_behind(scores: list[float], objective: Objective, picks: int, is_shared: bool) -> None:
    """Behind each other one; behind any, if rivals share the error."""
    family = objective.family(len(scores))
    assert isinstance(family, int)
    pairs, of_any = wrong_picks(scores, objective, picks, 1.0 - 0.05 / (family if is_shared else 1))
    assert (of_any if is_shared else max(pairs.values(), default=0.0)) <= ALLOWED


def test_one_of_equal_models_is_picked_without_separating_tiers() -> None:
    """Any of equal models is a good pick, so that the run ends before its horizon with one tier."""
    models = 3
    tapes = [Tape.from_chances(chances([0.5] * models), W, np.random.default_rng(seed)) for seed in range(20)]
    ends = played(plan(models, max_trials=400), tapes)
    assert all(end.finished is Reason.SETTLED for end in ends)
    assert np.mean([end.counts.sum() for end in ends]) < 0.5 * models * QUESTIONS * 400


def finished_run(asked: Plan, scores: list[float], seed: int, cut: float = 0.0, ungraded: float = 0.0) -> Controller:
    """A run to its end. Of the second model, shares of the answers are cut off and wrong, or right and
    without a grade."""
    rng, right = np.random.default_rng(seed), chances(scores)[..., 1]

    def grade(ask: Ask) -> tuple[int | None, int]:
        drawn, fate = rng.random(2)
        is_affected = ask.model == 1
        if is_affected and fate < ungraded and drawn < right[ask.model, ask.question]:
            return None, 0
        is_cut = is_affected and fate < cut
        return int(drawn < right[ask.model, ask.question] and not is_cut), int(AnswerKind.TRUNCATED) * is_cut

    return play(Controller(asked), grade)


def verdict(run: Controller) -> Verdict:
    (comparison,) = result_of(run).comparisons
    return comparison.verdict.verdict


@pytest.mark.parametrize("seed", first_of(range(3), 1))
def test_cut_answers_make_no_pick_that_the_whole_answers_could_reverse(seed: int) -> None:
    """The second model is better, and trails only because a fifth of its answers were cut off."""
    scores, unsure = [0.56, 0.64], {"unsure": UnsureGrades(int(AnswerKind.TRUNCATED), 1), "stops_on_alarm": False}
    cut = finished_run(plan(2, **unsure), scores, seed, cut=0.2)
    assert result_of(cut).models[0].model == 0, "by the grades the first is ahead"
    assert verdict(cut) is Verdict.BLOCKED
    complete = finished_run(plan(2, **unsure), scores, seed)
    assert result_of(complete).models[0].model == 1 and verdict(complete) is Verdict.RESOLVED


@pytest.mark.parametrize("seed", first_of(range(4), 1))
def test_a_pick_holds_if_all_ungraded_answers_were_right(seed: int) -> None:
    """The grader fails on right answers of the second model only, which is as good as the first."""
    run = finished_run(plan(2, stops_on_alarm=False), [0.52, 0.52], seed, ungraded=0.08)
    assert run.ungraded.sum() > 0
    result, graded, missing = result_of(run), run.trials[1], run.ungraded[1].sum()
    first, second = (next(row.score for row in result.models if row.model == model) for model in (0, 1))
    if verdict(run) is Verdict.RESOLVED and result.models[0].model == 0:
        assert (second * graded + missing) / (graded + missing) - first < MARGIN


def test_labels_that_say_little_leave_no_pick() -> None:
    """A call had a low boundary because its standard error was small; it does not hold for less precise scores."""
    run = finished_run(plan(2), [0.6, 0.5], 0)
    assert verdict(run) is Verdict.RESOLVED
    plain = result_of(run)
    lead = plain.models[0].score - plain.models[1].score
    for shift in (0.0, -lead - 0.001, -lead - 0.2):
        result = result_of(run, ScoreCorrection(np.array([[shift], [0.0]]), np.full((2, 1), 0.25)))
        assert result.comparisons[0].verdict.verdict is Verdict.UNDECIDED_BY_LABELS


@pytest.mark.slow
def test_labelled_picks_keep_the_promise() -> None:
    """The grader favours the first model so much that the second is better by the margin; labels measure how much
    with an error. A pick of the first is wrong, and 5% are allowed."""
    bias, sigma, runs, wrong = 0.08, 0.02, 60, 0
    for seed in range(runs):
        run = finished_run(plan(2, max_trials=16), [0.50 + bias - MARGIN, 0.50], seed)
        measured = -bias + sigma * np.random.default_rng(10_000 + seed).standard_normal()
        result = result_of(run, ScoreCorrection(np.array([[measured], [0.0]]), np.array([[sigma**2], [0.0]])))
        wrong += result.comparisons[0].verdict.verdict is Verdict.RESOLVED and result.models[0].model == 0
    assert wrong / runs <= 0.05 + 2.0 * np.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize(
    ("horizons", "margin", "runs"),
    [
        pytest.param((8, 16, 32), 0.055, 40, marks=pytest.mark.slow),
        pytest.param((15, 30, 60), MARGIN, 80, marks=pytest.mark.release),
    ],
)
def test_a_raised_horizon_keeps_the_promise(horizons: tuple[int, ...], margin: float, runs: int) -> None:
    wrong, scores = 0, [0.50 + margin, 0.50]
    for seed in range(runs):
        rng, before = np.random.default_rng(seed), None
        for max_trials in horizons:
            stage = None if before is None else StageBefore(before, (0, 1))
            rule = NearBest(margin, start=4 / horizons[0])
            controller = Controller(plan(2, max_trials=max_trials, rule=rule, before=stage))
            before = play_chances(controller, chances(scores)[..., 1], rng)
        assert before is not None
        result = result_of(before)
        wrong += verdict(before) is Verdict.RESOLVED and result.models[0].model == 1
    assert wrong / runs <= 0.05 + 2.0 * np.sqrt(0.05 * 0.95 / runs)


def test_a_pick_is_no_proof_that_models_differ() -> None:
    """Two models a point apart: the pick is settled and they share a tier; models far apart do not."""
    close, far = (finished_run(plan(2, max_trials=200), scores, 1) for scores in ([0.505, 0.5], [0.75, 0.35]))
    for run, expected in ((close, (1, 1)), (far, (1, 2))):
        assert run.last_look is not None and verdict(run) is Verdict.RESOLVED
        assert tiers(run.last_look) == expected


@pytest.mark.parametrize(("lead", "wrong"), [(0.01, 0), (-0.02, 0), (-0.05, 1)])
def test_a_replay_counts_a_pick_as_wrong_only_if_it_is_behind_by_the_margin(lead: float, wrong: int) -> None:
    run = finished_run(plan(2), [0.6, 0.5], 0)
    assert judge_replay(0, run, np.array([0.5 + lead, 0.5])).wrong == wrong
