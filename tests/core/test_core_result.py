"""The result of a run as plain values."""

import math
from dataclasses import replace

import core_oracle as oracle
import numpy as np
import pytest
from core_runs import Answers, never_called, play, result_of, standing_of

from adaptive_eval.core import Controller, Judging, Plan, Rule, UnresolvedPairs, ZScore
from adaptive_eval.core.objectives import Gate, Objective, Pairs, PrecisionOf, Ranking, Threshold, TopK
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Bench, Margin, Trials
from adaptive_eval.core.types import Cost, PairVerdict, Reason, Verdict
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


def test_models_from_best_to_worst_on_both_scales() -> None:
    result = result_of(run_to_end(plan()))
    assert [(row.model, row.rank, row.tier, row.trials) for row in result.models] == [
        (0, 1, 1, 40),
        (1, 2, 2, 40),
        (2, 3, 2, 40),
    ]
    for row in result.models:
        tally = TALLIES[row.model]
        score, sigma = oracle.average(tally, W), oracle.sigma(tally, W)
        assert row.score == pytest.approx(score, rel=1e-12)
        assert row.sigma == pytest.approx(sigma, rel=1e-12)
        assert (row.lo, row.hi) == pytest.approx((score - 1.959964 * sigma, score + 1.959964 * sigma), rel=1e-6)
        assert (row.bayes, row.bayes_sigma) == pytest.approx(oracle.bayes(tally, W), rel=1e-12)
    assert result.reason is Reason.OUT_OF_REACH
    assert (result.trials, result.fixed_trials) == (120, 120)
    assert result.spent == pytest.approx(Cost(840, 1.2, 60.0))
    assert result.reversals == ()


def sampled(values: list[float]) -> float:
    """Standard error of the mean when the questions are a sample."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) * (len(values) - 1)))


def test_agreeing_questions_do_not_make_similar_questions_more_certain() -> None:
    """All wrong, all right and all alike: the question means agree, but the posterior allows that they may differ."""
    result = result_of(run_to_end(plan(), [[0] * 4, [10] * 4, [5] * 4]))
    for row in result.models:
        assert row.sampled_sigma == row.sigma > 0.0
    for comparison in result.comparisons:
        assert comparison.sampled_z == pytest.approx(comparison.verdict.z)


def test_questions_of_a_cluster_count_together() -> None:
    """Two clusters of two questions: residuals are first summed within each cluster."""
    result = result_of(run_to_end(plan(clusters=np.array([0, 1, 1, 0]))))
    first = result.models[0]
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


def test_outcomes_known_beforehand_are_in_every_score() -> None:
    earlier = np.arange(24).reshape(3, 4, 2)
    result = result_of(run_to_end(plan(prior_counts=earlier)))
    together = (np.array(TALLIES) + earlier).tolist()
    for row in result.models:
        assert row.score == pytest.approx(oracle.average(together[row.model], W))
        assert row.trials == 40
    for comparison in result.comparisons:
        assert comparison.verdict.second is not None
        scores = [oracle.average(together[model], W) for model in (comparison.verdict.first, comparison.verdict.second)]
        assert comparison.difference == pytest.approx(scores[0] - scores[1])


def reversing(objective: Pairs | Threshold) -> Controller:
    """Model 1 is right up to its fourth trial and wrong from then on, 2 the opposite; 0 and 3 are right by turns."""
    chosen = never_called(Bench(4, 4, np.array(W)), objective=objective, rule=ZScore(), trials=Trials(min=4, max=12))
    return play(
        Controller(chosen), lambda ask: int((ask.trial % 2, ask.trial < 4, ask.trial >= 4, ask.trial % 2)[ask.model])
    )


def test_reversals_are_all_that_were_called_and_turned() -> None:
    result = result_of(reversing(Pairs(((0, 3),))))
    turned = [(0, 1), (2, 0), (2, 1), (3, 1), (2, 3)]
    assert [(pair.first, pair.second) for pair in result.reversals] == turned
    assert all(pair.reversed and pair.z > 0.0 and pair.verdict is Verdict.RESOLVED for pair in result.reversals)
    assert {row.tier for row in result.models} == {1}


def test_a_reversal_against_a_fixed_value_names_the_model() -> None:
    result = result_of(reversing(Threshold(0.5)))
    assert [(pair.first, pair.second) for pair in result.reversals] == [(1, None), (2, None)]
    assert [pair.z > 0.0 for pair in result.reversals] == [False, True]


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "in clusters"])
@pytest.mark.parametrize(
    "objective",
    [TopK(4), Ranking(), Threshold(0.5), PrecisionOf(0.02), Gate(Margin(baseline=2, delta=0.03))],
    ids=lambda value: type(value).__name__,
)
def test_batched_comparisons_equal_single_ones(
    objective: Objective, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve models in batches of pairs: differences, sampled z and trials to go, computed here pair by pair."""
    monkeypatch.setattr("adaptive_eval.core.evidence_source.CHUNK_CELLS", 50)
    rng, models, questions = np.random.default_rng(3), 12, 9
    clusters = np.arange(questions) % 4 if grouped else None
    bench = Bench(models, questions, np.array(W), clusters=clusters)
    controller = Controller(Plan(bench, objective=objective, trials=Trials(min=4, max=40)))
    (opening, *_) = controller.ask_rounds()
    right = rng.binomial(4, np.linspace(0.2, 0.8, models)[:, None], (models, questions))
    controller.tell_round(opening, np.stack([4 - right, right], axis=-1))
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
                unseen += members not in [frozenset((pair.first, pair.second)) for pair in then]
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
