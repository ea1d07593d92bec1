"""Recorded models: their outcomes are known from the start, and only the other models get trials."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from adaptive_eval.core import Ask, Bench, Controller, Outcome, Plan, Trials
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.objectives import Place, Ranking
from adaptive_eval.core.policies import UnresolvedPairs
from adaptive_eval.core.rounds import MISSING, UNGRADED
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import RecordedTrials
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Verdict
from adaptive_eval.study.drive import drive

BINARY = np.array([0.0, 1.0])
QUESTIONS = 12
NEW = 3


def recorded_counts(trials: int, chances: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Counts (L, M, 2) with trials of each model and question, and none of the last model."""
    right = rng.binomial(trials, chances[:, None], (len(chances), QUESTIONS))
    counts = np.stack([trials - right, right], axis=-1)
    counts[-1] = 0
    return counts


def bench_of(counts: NDArray[np.int64]) -> Bench:
    models = len(counts)
    return Bench(models, QUESTIONS, BINARY, prior_counts=counts, recorded=frozenset(range(models - 1)))


def make_plan(counts: NDArray[np.int64], **changes: object) -> Plan:
    plan = Plan(
        bench_of(counts),
        objective=Place(frozenset(range(len(counts) - 1))),
        rule=Sequential(0.95, 2 / 20),
        policy=UnresolvedPairs(),
        trials=Trials(min=2, max=20),
    )
    return replace(plan, **changes)  # type: ignore[arg-type]


CHANCES = np.array([0.2, 0.5, 0.8, 0.55])


def carry_out(plan: Plan, seed: int = 0, chances: NDArray[np.float64] = CHANCES) -> Controller:
    p = np.repeat(chances[:, None], QUESTIONS, axis=1)
    tape = Tape.from_chances(np.stack([1.0 - p, p], axis=-1), BINARY, np.random.default_rng(seed))
    return drive(Controller(plan), tape)


@pytest.mark.parametrize("objective", [Place(frozenset({0, 1, 2})), Ranking()])
@pytest.mark.parametrize("pace", ["in step", "as the need"])
def test_only_the_new_model_is_asked(objective: Ranking, pace: str) -> None:
    plan = make_plan(recorded_counts(20, CHANCES, np.random.default_rng(1)), objective=objective)
    if pace == "as the need":
        plan = replace(plan, pace=replace(plan.pace, share=0.5))
    controller = Controller(plan)
    asked = set()
    while controller.finished is None:
        requested = controller.ask(64)
        asked |= {ask.model for ask in requested}
        controller.tell(_outcomes(requested))
    assert asked == {NEW}
    assert controller.trials[:NEW].tolist() == [0, 0, 0]
    assert not controller.needed_models()[:NEW].any()
    result = controller.result()
    assert result is not None
    assert result.fixed_trials == 20 * QUESTIONS, "a fixed design asks nobody else either"
    assert 0 < result.trials <= result.fixed_trials


def _outcomes(trials: list[Ask]) -> list[Outcome]:
    return [Outcome(ask.model, ask.question, ask.trial, ask.trial % 2) for ask in trials]


def test_a_recorded_model_has_the_score_of_its_outcomes_from_the_first_look_on() -> None:
    counts = recorded_counts(20, CHANCES, np.random.default_rng(2))
    controller = carry_out(make_plan(counts))
    for look in controller.looks:
        expected = (counts[:NEW, :, 1] / 20).mean(axis=1)
        assert look.scores[:NEW] == pytest.approx(expected)
        assert look.sigmas[:NEW] == pytest.approx(controller.looks[-1].sigmas[:NEW])


def test_place_compares_only_the_new_model_with_its_neighbours() -> None:
    objective = Place(frozenset({0, 1, 2}))
    assert objective.comparisons(np.array([2, 3, 1, 0])).tolist() == [[2, 3], [3, 1]]
    assert objective.comparisons(np.array([3, 2, 1, 0])).tolist() == [[3, 2]]
    assert objective.family(4).tolist() == [[0, 3], [1, 3], [2, 3]]
    two_new = Place(frozenset({0, 1}))
    assert two_new.comparisons(np.array([2, 3, 1, 0])).tolist() == [[2, 3], [3, 1]]
    assert sorted(two_new.family(4).tolist()) == [[0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]


def test_recorded_pairs_are_judged_once_and_cost_nothing() -> None:
    counts = recorded_counts(20, CHANCES, np.random.default_rng(3))
    plan = make_plan(counts, objective=Ranking())
    controller = carry_out(plan)
    first, last = controller.looks[0], controller.looks[-1]
    both = [pair for pair in last.comparisons if {pair.first, pair.second} <= {0, 1, 2}]
    assert both, "two recorded models are neighbours"
    for pair in both:
        assert pair.information == 1.0
        assert pair.verdict in (Verdict.RESOLVED, Verdict.OUT_OF_REACH)
    of_first = {(pair.first, pair.second): pair.verdict for pair in first.comparisons}
    for pair in both:
        assert of_first.get((pair.first, pair.second), pair.verdict) is pair.verdict


def test_information_of_a_pair_with_a_recorded_model_is_that_of_its_variance() -> None:
    """t = variance at the horizon over variance now, and the recorded model's part of either is the same."""
    counts = recorded_counts(8, CHANCES, np.random.default_rng(4))
    look = carry_out(make_plan(counts, prior="uniform")).looks[0]
    n = look.trials[NEW] / QUESTIONS
    assert n == 2
    standing = Controller(make_plan(counts, prior="uniform"))
    for ask in standing.ask(64):
        standing.tell(_outcomes([ask]))
    judged = standing.last_look
    assert judged is not None
    nu = standing.counts + counts + 1.0
    share = nu[..., 1] / nu.sum(axis=-1)
    v = (share * (1 - share)).sum(axis=1)
    evidence = judged.evidence
    for at, (first, second) in enumerate(zip(evidence.first, evidence.second, strict=True)):
        if NEW in (first, second):
            other = first if second == NEW else second
            expected = (v[NEW] / 20 + v[other] / 8) / (v[NEW] / n + v[other] / 8)
            assert evidence.information[at] == pytest.approx(expected)
            assert judged.fixed[at] == pytest.approx((v[other] / 8) / (v[NEW] / n + v[other] / 8))


def test_the_trials_that_a_comparison_needs_are_those_of_the_new_model_alone() -> None:
    """With n trials of the new model the variance is (1 - f) 2/n + f of today's, which puts |z| at the boundary."""
    counts = recorded_counts(200, np.array([0.2, 0.45, 0.8, 0.5]), np.random.default_rng(5))
    rule = Sequential(0.95, 2 / 400)
    controller = Controller(make_plan(counts, prior="uniform", trials=Trials(min=2, max=400), rule=rule))
    controller.tell(_outcomes(controller.ask(64)))
    (look,), judged = controller.looks, controller.last_look
    assert judged is not None
    finite = [pair for pair in look.comparisons if np.isfinite(pair.trials_needed)]
    assert finite
    for pair in finite:
        at = judged.evidence.positions(np.array([[pair.first, pair.second]]))
        fixed = float(judged.fixed[at][0])
        shrunk = (1 - fixed) * 2 / pair.trials_needed + fixed
        information = np.minimum(judged.evidence.information[at] / shrunk, 1.0)
        bound = rule.boundary(replace(judged.evidence, information=information))[0]
        assert abs(pair.z) / np.sqrt(shrunk) == pytest.approx(bound, rel=0.01)


def test_ungraded_answers_of_recorded_models_widen_score_bounds() -> None:
    counts = recorded_counts(20, CHANCES, np.random.default_rng(7))
    categories = np.full((len(counts), QUESTIONS, 26), MISSING, dtype=np.uint8)
    categories[:NEW, :, :20] = np.arange(20) >= counts[:NEW, :, :1]
    categories[1, 0, 20:] = UNGRADED
    plan, trials = make_plan(counts), RecordedTrials(categories, np.zeros(categories.shape, dtype=bool))
    controller = carry_out(replace(plan, bench=replace(plan.bench, recorded_trials=trials)))
    result = controller.result()
    assert result is not None
    row = next(row for row in result.models if row.model == 1)
    wrong, right = counts[1, 0]
    others = (counts[1, 1:, 1] / 20).sum()
    assert row.lowest == pytest.approx((others + right / 26) / QUESTIONS)
    assert row.highest == pytest.approx((others + (right + 6) / 26) / QUESTIONS)


def test_a_bench_refuses_impossible_records() -> None:
    counts = recorded_counts(4, CHANCES, np.random.default_rng(8))
    with pytest.raises(ValueError, match="not all of them"):
        Bench(4, QUESTIONS, BINARY, prior_counts=counts, recorded=frozenset(range(4)))
    counts[1, 3] = 0
    with pytest.raises(ValueError, match="every question of a recorded model"):
        bench_of(counts)
    with pytest.raises(ValueError, match="recorded models need their outcomes"):
        Controller(Plan(Bench(4, QUESTIONS, BINARY, recorded=frozenset({0}))))
    with pytest.raises(ValueError, match="place needs recorded models"):
        Place(frozenset())


@pytest.mark.parametrize(
    ("trials", "runs"),
    [
        pytest.param(4, 40, marks=pytest.mark.slow),
        *(pytest.param(trials, 300, marks=pytest.mark.release) for trials in (4, 20, 80)),
    ],
)
def test_an_exact_tie_with_a_recorded_model_is_called_no_more_often_than_promised(trials: int, runs: int) -> None:
    """Every look up to the horizon, with nothing given up, on a new and a recorded model of the same true score."""
    called = 0
    chances = np.array([0.5, 0.5])
    for seed in range(runs):
        counts = recorded_counts(trials, chances, np.random.default_rng([9, seed]))
        plan = make_plan(counts, judging=Judging(futility=None))
        standing = carry_out(plan, seed, chances).last_look
        assert standing is not None
        called += bool(standing.memory.call[0])
    assert called / runs <= 0.10 + 2 * np.sqrt(0.09 / runs)
