"""Whole rounds as counts: the same looks, verdicts and costs as trial by trial on the same outcomes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.core import Bench, Budget, Controller, Cost, Judging, Outcome, Pace, Plan, Trials
from adaptive_eval.core.objectives import Best, Objective, Ranking, Threshold, TopK
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.tape import TrialArrays as Cells
from adaptive_eval.core.types import SetAside
from adaptive_eval.study.drive import DrawnRound, drive_rounds
from scorio.moments import FloatArray

MODELS, QUESTIONS = 4, 7
WEIGHTS = np.array([0.0, 0.5, 1.0])
COSTS = [
    [Cost(30 + model, 0.1, 1.0 / 3.0), Cost(20, 0.07, 0.2), Cost(10 + model, 0.03, 0.1)] for model in range(MODELS)
]
OBJECTIVES: list[Objective] = [Ranking(), Best(), TopK(2), Threshold(0.5)]


def chances(seed: int) -> FloatArray:
    return np.asarray(np.random.default_rng(seed).dirichlet(np.full(3, 0.7), (MODELS, QUESTIONS)))


def tape(seed: int) -> Tape:
    return Tape.from_chances(chances(seed), WEIGHTS, np.random.default_rng(seed))


def by_trials(plan: Plan, outcomes: Tape, chunk: int) -> Controller:
    """The run asked and told in chunks, with an object for each outcome."""
    controller = Controller(plan)
    while controller.finished is None:
        outcome_rows = [(*ask[:3], outcomes.category(*ask[:3])) for ask in controller.ask(chunk)]
        controller.tell(Outcome(*row, COSTS[row[0]][row[3]]) for row in outcome_rows)
    return controller


@given(
    st.integers(0, 999), st.sampled_from(OBJECTIVES), st.integers(0, 3),
    st.sampled_from([Budget(), Budget(trials=300), Budget(tokens=6000), Budget(usd=15.0), Budget(gpu_seconds=60.0)]),
    st.integers(1, 200),
)  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
@pytest.mark.slow
def test_rounds_as_counts_match_single_trials(
    seed: int, objective: Objective, lookahead: int, budget: Budget, chunk: int
) -> None:
    bench = Bench(MODELS, QUESTIONS, WEIGHTS, worst_cost=(Cost(60, 0.2, 0.5),) * MODELS)
    plan = Plan(bench, objective=objective, trials=Trials(min=3, max=20), pace=Pace(lookahead), budget=budget)
    by_counts, one_by_one = drive_rounds(Controller(plan), tape(seed), COSTS), by_trials(plan, tape(seed), chunk)
    assert by_counts.looks == one_by_one.looks and by_counts.finished is one_by_one.finished
    assert np.array_equal(by_counts.arrived, one_by_one.arrived) and np.array_equal(by_counts.counts, one_by_one.counts)
    assert by_counts.result() == one_by_one.result() and by_counts.in_flight == one_by_one.in_flight == 0


@pytest.mark.slow
@given(st.integers(0, 999), st.integers(0, 2))
@settings(max_examples=examples(20), deadline=None)
def test_looks_decide_alike_whether_or_not_they_are_kept(seed: int, lookahead: int) -> None:
    plan = Plan(Bench(MODELS, QUESTIONS, WEIGHTS), trials=Trials(min=3, max=20), pace=Pace(lookahead))
    full = drive_rounds(Controller(plan), tape(seed))
    bare = drive_rounds(Controller(plan, keep_looks=False), tape(seed))
    assert bare.looks == [] and bare.latest_look() == full.latest_look() == full.looks[-1]
    assert bare.finished is full.finished and np.array_equal(bare.counts, full.counts)


def test_counts_that_do_not_fit_the_round_are_refused() -> None:
    controller = Controller(Plan(Bench(MODELS, QUESTIONS, WEIGHTS), trials=Trials(min=3, max=20)))
    (asked,) = controller.ask_rounds()
    assert controller.ask_rounds() == [] and controller.in_flight == asked.extra.sum()
    right = np.zeros((MODELS, QUESTIONS, 3), dtype=np.int64)
    right[..., 1] = asked.extra
    short, shape = right.copy(), right[:, :, :2]
    short[1, 2, 1] -= 1
    for wrong in (short, shape):
        with pytest.raises(ValueError, match=r"must add up to the trials of their batch|counts are \(L, M, K\)"):
            controller.tell_round(asked, wrong)
    negative = right.copy()
    negative[0, 0] = (-1, 4, 0)
    with pytest.raises(ValueError, match="must not be negative"):
        controller.tell_round(asked, negative)
    controller.tell([Outcome(0, 0, 0, 1)])
    with pytest.raises(ValueError, match="in counts or trial by trial"):
        controller.tell_round(asked, right)


def test_a_model_that_is_set_aside_has_no_counts_to_tell() -> None:
    controller = Controller(Plan(Bench(MODELS, QUESTIONS, WEIGHTS), trials=Trials(min=3, max=20)))
    (asked,) = controller.ask_rounds()
    counts = np.zeros((MODELS, QUESTIONS, 3), dtype=np.int64)
    counts[..., 1] = asked.extra
    controller.tell([SetAside(2, "gone")])
    (look,) = controller.tell_round(asked, counts)
    assert look.trials == (21, 21, 0, 21) and controller.arrived[2].sum() == 0


def test_batched_tape_values_equal_single_ones() -> None:
    first = np.random.default_rng(1).integers(0, 5, (MODELS, QUESTIONS))
    extra = np.random.default_rng(2).integers(0, 4, (MODELS, QUESTIONS))
    cells, outcomes = Cells.from_round(first, extra), tape(3)
    places = list(zip(*(column.tolist() for column in cells), strict=True))
    assert places == [
        (model, question, first[model, question] + number)
        for model in range(MODELS)
        for question in range(QUESTIONS)
        for number in range(extra[model, question])
    ]
    assert outcomes.categories(cells).tolist() == [tape(3).category(*place) for place in places]


@pytest.mark.parametrize("budget", [Budget(trials=250), Budget(tokens=5000), Budget(usd=20.0)])
def test_trials_to_go_never_exceed_what_the_caps_pay_for(budget: Budget) -> None:
    bench = Bench(MODELS, QUESTIONS, WEIGHTS, worst_cost=(Cost(40, 0.1, 0.5),) * MODELS)
    free, capped = (
        Controller(Plan(bench, rule=Sequential(), trials=Trials(min=3, max=80), budget=cap))
        for cap in (Budget(), budget)
    )
    results = []
    for controller in (free, capped):
        (asked,) = controller.ask_rounds()
        controller.tell_round(asked, DrawnRound.of(asked, tape(5), 3).counts, COSTS)
        results.append(controller.result())
    unbound, bound = results
    assert unbound is not None and bound is not None
    shares = {name: getattr(bound.spent, name) for name in bound.spent._fields} | {"trials": bound.trials}
    (name,) = (name for name in shares if getattr(budget, name) is not None)
    paid = bound.trials * getattr(budget, name) / shares[name] - bound.trials
    assert bound.trials_to_go == pytest.approx(paid) and bound.trials_to_go < unbound.trials_to_go


def test_rounds_that_were_asked_trial_by_trial_are_not_kept() -> None:
    """A round holds all of its trials, so that keeping rounds would grow memory with every look."""
    plan = Plan(
        Bench(MODELS, QUESTIONS, WEIGHTS),
        rule=Sequential(),
        trials=Trials(min=3, max=20),
        judging=Judging(futility=None),
    )
    controller = Controller(plan)
    for _ in range(4):
        controller.tell([Outcome(*ask[:3], category=ask.trial % 2) for ask in controller.ask(1000)])
    assert controller.finished is None and len(controller.looks) == 4
    assert [asked.index for asked in controller.ask_rounds()] == [controller.rounds_issued - 1]
