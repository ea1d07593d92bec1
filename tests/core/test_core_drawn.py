"""Questions drawn at random: which are asked, how pairs and scores are computed, and the error guarantee."""

from dataclasses import replace

import numpy as np
import pytest
from core_runs import BINARY, Answers, Shell, exact, play, play_chances, result_of, straight
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from thoroughness import examples

from adaptive_eval.core import Ask, Controller, Judging, Plan, Uniform, Verdict
from adaptive_eval.core.objectives import Gate
from adaptive_eval.core.same_questions import estimates_of_drawn, pairs_by_question
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Bench, Margin, Trials
from adaptive_eval.core.tally import extreme_counts
from scorio.sinf.prior import EVENTS

BLOCK = 50


def plan_for(models: int, questions: int, **choices: object) -> Plan:
    rule = Sequential(start=BLOCK / questions)
    plan = Plan(Bench(models, questions, BINARY), rule=rule, trials=Trials(min=1, max=1), drawn=BLOCK)
    return replace(plan, **choices)  # type: ignore[arg-type]


@st.composite
def tallies(draw: st.DrawFn) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Counts (L, M, K) of one trial for each model's first questions, ungraded trials (L, M), and weights."""
    models, questions = draw(st.integers(2, 4)), draw(st.integers(4, 12))
    weights = np.array(draw(st.sampled_from([[0.0, 1.0], [1.0, -1.0], [0.0, 0.25, 2.0]])))
    asked = draw(st.lists(st.integers(3, questions), min_size=models, max_size=models))
    counts = np.zeros((models, questions, len(weights)), dtype=np.int64)
    ungraded = np.zeros((models, questions), dtype=np.int64)
    for model, many in enumerate(asked):
        for question in range(many):
            category = draw(st.integers(-1 if question > 2 else 0, len(weights) - 1))
            if category < 0:
                ungraded[model, question] = 1
            else:
                counts[model, question, category] = 1
    return counts, ungraded, weights


def values_by_question(
    counts: NDArray[np.int64], ungraded: NDArray[np.int64], weights: NDArray[np.float64], model: int, fill: float | None
) -> dict[int, float]:
    """The value of a model's answers by question; ungraded answers count as `fill`, or are left out."""
    value_of = {}
    for question in range(counts.shape[1]):
        if counts[model, question].any():
            value_of[question] = float(weights[int(np.argmax(counts[model, question]))])
        elif ungraded[model, question] and fill is not None:
            value_of[question] = fill
    return value_of


@given(tallies())
def test_pairs_are_judged_on_the_questions_that_both_answered(
    tally: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]],
) -> None:
    """Against a plain loop over the questions."""
    counts, ungraded, weights = tally
    models, questions, _ = counts.shape
    first, second = np.triu_indices(models, 1)
    low, high = float(weights.min()), float(weights.max())
    fills: list[tuple[float | None, float | None]] = [(None, None)]
    if ungraded.any():
        fills += [(high, low), (low, high)]
    extremes = extreme_counts(counts, ungraded, np.zeros_like(counts), weights) if ungraded.any() else None
    ways = pairs_by_question(counts, weights, first, second, extremes)
    assert len(ways) == len(fills)
    for (chosen, moments, values), (of_first, of_second) in zip(ways, fills, strict=True):
        assert chosen.all() and values.max() == pytest.approx(high - low)
        for number, (model_a, model_b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            ours, theirs = (
                values_by_question(counts, ungraded, weights, model, fill)
                for model, fill in ((model_a, of_first), (model_b, of_second))
            )
            d = np.array([ours[question] - theirs[question] for question in sorted(ours.keys() & theirs.keys())])
            assert moments.mean[number] == pytest.approx(d.mean())
            assert moments.var[number] == pytest.approx((d.var(ddof=1) + EVENTS * (high - low) ** 2 / len(d)) / len(d))
            assert moments.noise_at_horizon[number] / moments.noise[number] == pytest.approx(len(d) / questions)


@given(tallies())
def test_scores_of_models_with_equal_questions_are_plain_means(
    tally: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]],
) -> None:
    counts, ungraded, weights = tally
    counts[:, 3:][ungraded[:, 3:].any(axis=0)[None, :].repeat(len(counts), axis=0)] = 0
    asked = counts.any(axis=-1)
    alike = counts * (asked == asked.all(axis=0)).all(axis=0)[None, :, None]
    estimates = estimates_of_drawn(alike, weights)
    n = int(alike[0].any(axis=-1).sum())
    for model in range(len(alike)):
        values = np.array(list(values_by_question(alike, 0 * ungraded, weights, model, None).values()))
        assert estimates.score[model] == pytest.approx(values.mean())
        smallest_var = EVENTS * np.ptp(weights) ** 2 / n**2
        assert estimates.var[model] == pytest.approx(values.var(ddof=1) / n + smallest_var)


def test_being_asked_only_easy_questions_raises_no_score() -> None:
    """Two equally good models, of which one was asked only questions that are easy for every model."""
    values = np.tile(np.arange(200) < 80, (3, 1)).astype(int)
    values[:, 40:60], values[:, 120:150] = 0, 1
    counts = np.stack([1 - values, values], axis=-1)
    counts[0, 80:] = 0
    estimates = estimates_of_drawn(counts, BINARY)
    assert estimates.score.tolist() == pytest.approx([0.45, 0.45, 0.45])
    assert estimates.var[0] >= estimates.var[1] - 1e-12


@settings(max_examples=examples(12))
@given(st.integers(0, 2**20), st.integers(2, 4), st.sampled_from([BLOCK, 130, 200]))
def test_models_are_asked_the_first_ones_and_looks_are_so_in_any_order(seed: int, models: int, questions: int) -> None:
    """One trial of each, told in any order and resumed after kills."""
    plan = plan_for(models, questions, judging=Judging(futility=None))
    answers = Answers(plan, seed)
    plain = straight(plan, answers)
    asked = plain.counts.sum(axis=-1)
    assert asked.max() == 1 and (np.diff(asked, axis=1) <= 0).all()
    assert set(asked.sum(axis=1).tolist()) <= {*range(BLOCK, questions, 1), questions}
    shell = Shell(plan, answers, np.random.default_rng(seed), restarts=0.05)
    shell.run()
    assert exact(shell.controller.looks) == exact(plain.looks)


def test_it_ends_long_before_every_question_was_asked() -> None:
    plan = plan_for(4, 4000)
    controller = straight(plan, Answers(plan, 1, lambda model, question: 0.2 + 0.2 * model))
    assert controller.finished is not None and controller.finished.value == "settled"
    assert controller.trials.sum() <= 0.2 * 4 * 4000
    result = result_of(controller)
    assert [row.model for row in result.models] == [3, 2, 1, 0]
    assert not any(comparison.by_trial for comparison in result.comparisons)
    for comparison in result.comparisons:
        assert comparison.sampled_z == pytest.approx(comparison.verdict.z)
        assert comparison.difference == pytest.approx(comparison.verdict.z * comparison.sigma)


def test_questions_of_clusters_are_fewer_than_they_look_where_clusters_are_a_sample() -> None:
    """Ten questions of a passage are right or wrong together: scores of these questions are as without clusters."""
    passages = np.random.default_rng(3).permutation(np.arange(600) % 60)
    right = (np.arange(60) % 2)[passages]
    results = []
    for clusters in (None, passages):
        plan = plan_for(2, 600, bench=Bench(2, 600, BINARY, clusters=clusters))
        result = result_of(straight(plan, Answers(plan, 1, lambda model, question: float(right[question]))))
        results.append(result)
    plain, clustered = results
    for plain_row, clustered_row in zip(plain.models, clustered.models, strict=True):
        assert plain_row.sampled_sigma == plain_row.sigma == clustered_row.sigma
        assert clustered_row.sampled_sigma > 1.5 * clustered_row.sigma
    assert [pair.difference for pair in plain.comparisons] == [pair.difference for pair in clustered.comparisons]


def test_a_gate_counts_its_margin() -> None:
    plan = plan_for(2, 3000, objective=Gate(Margin(0, 0.1)))
    controller = straight(plan, Answers(plan, 1, lambda model, question: 0.5 + 0.05 * model))
    assert controller.finished is not None and controller.finished.value == "settled"
    (comparison,) = result_of(controller).comparisons
    assert comparison.verdict.first == 1 and controller.looks[0].trials == (BLOCK, BLOCK)
    assert comparison.difference + 0.1 == pytest.approx(comparison.verdict.z * comparison.sigma)


def test_answers_without_a_grade_are_neither_wrong_nor_the_end() -> None:
    """Every thirtieth answer of a model is ungraded: the model stays, and no call is made that these could reverse."""
    plan = plan_for(2, 2000)
    controller = play(
        Controller(plan), lambda a: None if a.model and a.question % 30 == 29 else (a.question * 7) % 10 // 5
    )
    assert not controller.set_aside
    assert all(pair.z == 0.0 for look in controller.looks for pair in look.comparisons)
    result = result_of(controller)
    assert result.models[0].lowest <= result.models[0].score <= result.models[0].highest


def test_a_difference_on_the_same_questions_is_called_though_some_answers_have_no_grade() -> None:
    """Whatever these are: by the scores alone, which vary far more, none of both would be called better."""
    plan = plan_for(2, 1000)

    def grade(ask: Ask) -> int | None:
        if ask.model and ask.question % 100 == 99:
            return None
        return max((ask.question * 7) % 10 // 5, ask.model * (ask.question % 16 == 0))

    (pair,) = play(Controller(plan), grade).looks[-1].comparisons
    assert pair.verdict is Verdict.RESOLVED and pair.first == 1


def ties(kind: str, models: int, questions: int) -> NDArray[np.float64]:
    """Chances (L, M) of models with one mean over all questions."""
    rng = np.random.default_rng(5)
    chances = np.tile(rng.beta(0.3, 0.3, questions), (models, 1))
    if kind == "other questions":
        chances = np.stack([rng.permutation(row) for row in chances])
    elif kind == "few much better":
        few = questions // 20
        chances[:] = 0.5
        chances[::2, :few], chances[::2, few:] = 1.0, 0.5 - 0.5 * few / (questions - few)
    elif kind == "rare":
        chances[:] = 0.01
    return chances


@pytest.mark.parametrize(
    ("kind", "share", "runs"),
    [
        # each kind and each share in some case, the others before a release
        pytest.param(kind, share, runs, marks=marks)
        for of, kind in enumerate(("alike", "other questions", "few much better", "rare"))
        for share in (1.0, 0.3)
        for runs, marks in ((8, pytest.mark.slow), (200, pytest.mark.release))[(share == 0.3) != of % 2 :]
    ],
)
def test_exact_ties_are_called_no_more_often_than_promised(kind: str, share: float, runs: int) -> None:
    """Looks at every block up to the last drawn question: all questions, or three in ten."""
    models, questions = 12, 2000
    chances, asked = ties(kind, models, questions), int(share * questions)
    plan = plan_for(models, asked, policy=Uniform(), judging=Judging(futility=None))
    called = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        right = (rng.random((models, asked)) < chances[:, rng.permutation(questions)[:asked]]).astype(int)
        standing = play_chances(Controller(plan, keep_looks=False), right.astype(float), rng).last_look
        assert standing is not None
        called.append([(standing.memory.call > 0).mean(), (standing.memory.call < 0).mean()])
    error = 2.0 * np.std(called, axis=0) / np.sqrt(runs)
    assert (np.mean(called, axis=0) <= 0.05 + error).all()
