"""Outcomes known from the start, of recorded models and stored trials: looks use all of them, once."""

from dataclasses import replace

import numpy as np
import pytest
from core_runs import BINARY, Answers, exact, plans, play, restore, result_of, standing_of, straight
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom
from thoroughness import examples, sizes

from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.planning import RunFacts, first_information, plan_on
from adaptive_eval.core import Controller, Judging, Place, Plan, Ranking, UnresolvedPairs
from adaptive_eval.core.rounds import MISSING, UNGRADED
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Bench, Budget, Pace, RecordedTrials, Trials
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Ask, Cost, Outcome, Reason, Verdict
from adaptive_eval.study.drive import drive

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
    objective = Place(frozenset(range(len(counts) - 1)))
    usual = {"objective": objective, "rule": Sequential(0.95, 2 / 20), "trials": Trials(min=2, max=20)}
    return Plan(bench_of(counts), policy=UnresolvedPairs(), **(usual | changes))  # type: ignore[arg-type]


CHANCES = np.array([0.2, 0.5, 0.8, 0.55])


def carry_out(plan: Plan, seed: int = 0, chances: NDArray[np.float64] = CHANCES) -> Controller:
    p = np.repeat(chances[:, None], QUESTIONS, axis=1)
    tape = Tape.from_chances(np.stack([1.0 - p, p], axis=-1), BINARY, np.random.default_rng(seed))
    return drive(Controller(plan), tape)


@pytest.mark.parametrize("objective", [Place(frozenset({0, 1, 2})), Ranking()])
@pytest.mark.parametrize("pace", [Pace(), Pace(share=0.5)], ids=["in step", "as the need"])
def test_only_the_new_model_is_asked(objective: Ranking, pace: Pace) -> None:
    controller = Controller(
        make_plan(recorded_counts(20, CHANCES, np.random.default_rng(1)), objective=objective, pace=pace)
    )
    asked = set()
    while controller.finished is None:
        requested = controller.ask(64)
        asked |= {ask.model for ask in requested}
        controller.tell(_outcomes(requested))
    assert asked == {NEW}
    assert controller.trials[:NEW].tolist() == [0, 0, 0]
    assert not controller.needed_models()[:NEW].any()
    result = result_of(controller)
    assert result.fixed_trials == 20 * QUESTIONS, "a fixed design asks nobody else either"
    assert 0 < result.trials <= result.fixed_trials


def _outcomes(trials: list[Ask]) -> list[Outcome]:
    return [Outcome(ask.model, ask.question, ask.trial, ask.trial % 2) for ask in trials]


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
    looks = carry_out(make_plan(counts, objective=Ranking())).looks
    first, last = looks[0], looks[-1]
    for look in looks:
        assert look.scores[:NEW] == pytest.approx((counts[:NEW, :, 1] / 20).mean(axis=1))
        assert look.sigmas[:NEW] == pytest.approx(last.sigmas[:NEW])
    both = [pair for pair in last.comparisons if {pair.first, pair.second} <= {0, 1, 2}]
    assert both, "two recorded models are neighbours"
    of_first = {pair[:2]: pair.verdict for pair in first.comparisons}
    for pair in both:
        assert pair.information == 1.0 and pair.verdict in (Verdict.RESOLVED, Verdict.OUT_OF_REACH)
        assert of_first.get(pair[:2], pair.verdict) is pair.verdict


def test_information_of_a_pair_with_a_recorded_model_is_that_of_its_variance() -> None:
    """t = variance at the horizon over variance now, and the recorded model's part of either is the same."""
    counts = recorded_counts(8, CHANCES, np.random.default_rng(4))
    controller, n = Controller(make_plan(counts, prior="uniform")), 2
    controller.tell(_outcomes(controller.ask(64)))
    judged = standing_of(controller)
    assert controller.looks[0].trials[NEW] == n * QUESTIONS
    nu = controller.counts + counts + 1.0
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
    (look,), judged = controller.looks, standing_of(controller)
    finite = [pair for pair in look.comparisons if np.isfinite(pair.trials_needed)]
    assert finite
    for pair in finite:
        at = judged.evidence.positions(np.array([[pair.first, pair.second]]))
        fixed = float(judged.fixed[at][0])
        shrunk = (1 - fixed) * 2 / pair.trials_needed + fixed
        information = np.minimum(judged.evidence.information[at] / shrunk, 1.0)
        bound = rule.boundary(replace(judged.evidence, information=information))[0]
        assert abs(pair.z) / np.sqrt(shrunk) == pytest.approx(bound, rel=0.01)


def test_a_model_without_prior_outcomes_needs_trials_of_its_own() -> None:
    """Beside one that has many; as many as where both have none, or fewer."""
    needed = {}
    for prior in 0, 200:
        before = np.zeros((2, 10, 2), dtype=np.int64)
        before[0] = prior // 2
        bench = Bench(2, 10, BINARY, prior_counts=before if prior else None)
        run = Controller(Plan(bench, rule=Sequential(0.95, 0.02), prior="uniform", trials=Trials(min=10, max=400)))
        asks = run.ask(1 << 20)
        run.tell(Outcome(*ask[:3], int(ask.trial < (5 if ask.model == 0 else 3))) for ask in asks)
        (pair,) = run.looks[0].comparisons
        assert pair.verdict is Verdict.OPEN
        needed[prior] = pair.trials_needed
    assert 10.0 < needed[200] <= needed[0]


def test_ungraded_answers_of_recorded_models_widen_score_bounds() -> None:
    counts = recorded_counts(20, CHANCES, np.random.default_rng(7))
    categories = np.full((len(counts), QUESTIONS, 26), MISSING, dtype=np.uint8)
    categories[:NEW, :, :20] = np.arange(20) >= counts[:NEW, :, :1]
    categories[1, 0, 20:] = UNGRADED
    plan, trials = make_plan(counts), RecordedTrials(categories, np.zeros(categories.shape, dtype=bool))
    result = result_of(carry_out(replace(plan, bench=replace(plan.bench, recorded_trials=trials))))
    row = next(row for row in result.models if row.model == 1)
    wrong, right = counts[1, 0]
    others = (counts[1, 1:, 1] / 20).sum()
    assert row.lowest == pytest.approx((others + right / 26) / QUESTIONS)
    assert row.highest == pytest.approx((others + (right + 6) / 26) / QUESTIONS)


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
        standing = standing_of(carry_out(plan, seed, chances))
        called += bool(standing.memory.call[0])
    assert called / runs <= 0.10 + 2 * np.sqrt(0.09 / runs)


def with_stored_trials(plan: Plan, answers: Answers) -> Controller:
    """A controller restored with the stored trials that the plan states."""
    assert plan.first is not None
    cells = [(m, q, t) for (m, q), n in np.ndenumerate(plan.first) for t in range(int(n))]
    controller = Controller(plan)
    restore(controller, answers.of(Ask(m, q, t, 0) for m, q, t in cells))
    return controller


@pytest.mark.parametrize("cap", [None, 10])
def test_the_first_look_uses_all_stored_trials_and_caps_count_them(cap: int | None) -> None:
    first = np.array([[7, 5, 9], [4, 6, 5]])
    trials, budget = Trials(min=4, max=80), Budget(trials=cap)
    plan = Plan(Bench(2, 3, BINARY), trials=trials, pace=Pace(lookahead=2), budget=budget, first=first)
    controller = with_stored_trials(plan, Answers(plan, 1, skill=lambda model, question: 0.5))
    assert [look.trials for look in controller.looks] == [(21, 15)]
    assert controller.counts.sum(axis=2).tolist() == first.tolist()
    assert (controller.finished is Reason.BUDGET) == (cap is not None)


def test_what_is_below_the_minimum_is_asked_first_and_nothing_runs_ahead_of_it() -> None:
    bench = Bench(3, 2, BINARY)
    plan = Plan(bench, trials=Trials(min=4, max=10), pace=Pace(lookahead=3), first=np.array([[6, 2], [5, 5], [0, 0]]))
    controller = with_stored_trials(plan, Answers(plan, 1))
    assert controller.looks == []
    requested = controller.ask(100)
    assert [(ask.model, ask.question, ask.trial) for ask in requested] == [
        *((0, 1, trial) for trial in (2, 3)),
        *((2, question, trial) for trial in range(4) for question in (0, 1)),
    ]


def test_caps_count_stored_trials_before_missing_ones_are_requested() -> None:
    first = np.array([[30] * 3, [30] * 3, [0] * 3])
    plan = Plan(Bench(3, 3, BINARY), trials=Trials(min=4, max=60), budget=Budget(trials=191), first=first)
    controller = with_stored_trials(plan, Answers(plan, 1))
    assert controller.finished is Reason.BUDGET and controller.short_caps == {"trials": 192.0}
    enough = with_stored_trials(replace(plan, budget=Budget(trials=192)), Answers(plan, 1))
    assert len(enough.ask(100)) == 12


class Fixed(Answers):
    """Answers whose cost is that of their model."""

    tokens = (100, 100, 1000)

    def _outcome(self, ask: Ask) -> Outcome:
        return super()._outcome(ask)._replace(cost=Cost(self.tokens[ask.model], 0.0, 0.0))


@pytest.mark.parametrize(
    ("missing", "cap", "asked"), [(1, 29_999, 0), (1, 30_000, 1), (12, 20_000, 2), (12, 30_000, 12)]
)
def test_missing_trials_are_asked_as_far_as_the_cost_of_stored_ones_allows(missing: int, cap: int, asked: int) -> None:
    first = np.array([[30] * 3, [30] * 3, [0] * 3 if missing == 12 else [4, 4, 3]])
    bench = Bench(3, 3, BINARY, worst_cost=(Cost(1000, 0.0, 0.0),) * 3)
    plan = Plan(bench, trials=Trials(min=4, max=60), budget=Budget(tokens=cap), first=first)
    answers = Fixed(plan, 1)
    controller, new = with_stored_trials(plan, answers), 0
    while requested := controller.ask(100):
        new += len(requested)
        controller.tell(answers.of(requested))
    assert (new, controller.finished) == (asked, Reason.BUDGET)


@given(plan=plans(capped=False), seed=st.integers(0, 99))
@settings(max_examples=examples(60), deadline=None)
def test_any_plan_continues_from_stored_trials_and_after_a_restart(plan: Plan, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, plan.trials.max + 1, (plan.bench.models, plan.bench.questions))
    held = replace(plan, first=first)
    answers = Answers(held, seed)
    controller = straight(held, answers)
    again = Controller(held)
    earlier = [Ask(m, q, t, 0) for (m, q), n in np.ndenumerate(controller.counts.sum(axis=2)) for t in range(int(n))]
    assert exact(restore(again, answers.of(earlier))) == exact(controller.looks)
    assert np.all(controller.counts.sum(axis=2) >= np.maximum(first, held.trials.min))


@pytest.mark.parametrize(
    ("first", "prior", "start"),
    [
        (None, None, 4 / 80),
        ([[80, 80], [80, 80]], None, 1.0),
        ([[64, 32], [40, 100]], None, 32 / 80),
        ([[64, 0], [40, 60]], None, 4 / 80),
        (None, [[2, 4], [3, 3]], 6 / 82),
        ([[8, 8], [8, 8]], [[8, 8], [8, 8]], 16 / 88),
    ],
)
def test_the_first_look_has_at_least_the_information_of_its_least_cell(
    first: list[list[int]] | None, prior: list[list[int]] | None, start: float
) -> None:
    before = None if prior is None else np.stack([np.array(prior), np.zeros((2, 2), int)], axis=-1)
    bench = Bench(2, 2, BINARY, prior_counts=before)
    trials = Decisions().trials
    information = first_information(bench, trials, trials.min, None if first is None else np.array(first))
    assert information == pytest.approx(start)


def default_plan(first: NDArray[np.int64], max_trials: int) -> Plan:
    """The plan of a default configuration for 20 questions."""
    config = Decisions.model_validate({"trials": {"min": 4, "max": max_trials}})
    return replace(plan_on(Bench(2, 20, BINARY), config, ["a", "b"], RunFacts(first)), policy=UnresolvedPairs())


@pytest.mark.parametrize("runs", sizes(40, 400))
@pytest.mark.parametrize("stored", ["everything", "half", "ragged"])
def test_ties_are_called_no_more_often_than_promised(stored: str, runs: int) -> None:
    """At most 2 (1 - confidence) = 10%, which a finished design spends on its one look."""
    max_trials = 24
    rng = np.random.default_rng(5)
    called = 0
    first = {
        "everything": lambda: np.full((2, 20), max_trials),
        "half": lambda: np.full((2, 20), max_trials // 2),
        "ragged": lambda: rng.integers(4, max_trials // 2, (2, 20)),
    }[stored]
    for _ in range(runs):
        plan = default_plan(first(), max_trials)
        p = rng.beta(2.0, 2.0, 20)
        controller = play(Controller(plan), lambda ask, p=p: int(rng.random() < p[ask.question]))
        called += controller.looks[-1].comparisons[0].verdict is Verdict.RESOLVED
    assert called <= binom.ppf(0.999, runs, 0.10)
    if stored == "everything":
        assert called >= binom.ppf(0.001, runs, 0.07)


def test_prior_outcomes_count_towards_the_trials_needed() -> None:
    """4 trials with 4 of R0 stand where 8 trials without stand, against a horizon that is 4 nearer."""
    right = np.random.default_rng(3).binomial(1, np.array([0.7, 0.5])[:, None, None], (2, 12, 8))
    plain = Plan(Bench(2, 12, BINARY), trials=Trials(min=8, max=40), budget=Budget(trials=600))
    counts = np.stack([4 - right[:, :, :4].sum(axis=2), right[:, :, :4].sum(axis=2)], axis=-1)
    bench = Bench(2, 12, BINARY, prior_counts=counts)
    with_prior = Plan(bench, trials=Trials(min=4, max=36), budget=Budget(trials=600 - 96))
    looks = []
    for plan, start in ((plain, 0), (with_prior, 4)):
        controller = Controller(plan)
        requested = controller.ask(1 << 20)
        outcomes = (
            Outcome(a.model, a.question, a.trial, int(right[a.model, a.question, start + a.trial])) for a in requested
        )
        looks += controller.tell(outcomes)
    (before,), (after,) = (look.comparisons for look in looks)
    assert after.z == pytest.approx(before.z)
    assert after.information == pytest.approx(before.information)
    assert after.power == pytest.approx(before.power)
    assert after.trials_needed == pytest.approx(before.trials_needed - 4)
