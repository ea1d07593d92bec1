"""Replays: their decisions and pace, tapes of outcomes, whole rounds as counts, and what counts as a wrong call."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from thoroughness import examples

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.load import load_decisions
from adaptive_eval.config.planning import plan_on
from adaptive_eval.core import Bench, Budget, Controller, Judging, Optimal, Pace, Plan, Trials
from adaptive_eval.core.objectives import Baseline, Best, Objective, Ranking, Threshold, TopK
from adaptive_eval.core.rounds import Batch
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.tape import Tape, without_gaps
from adaptive_eval.core.types import Cost, Outcome, PairVerdict, SetAside, Verdict
from adaptive_eval.exchange.recording import count_outcomes
from adaptive_eval.simulate.worlds import World, binary, coins
from adaptive_eval.study.drive import DrawnBatch, drive, drive_rounds
from adaptive_eval.study.judged import is_wrong, judge_replay
from scorio.moments import FloatArray

TRUTH = np.array([0.5, 0.3, 0.3 + 1e-15])


def call(better: int, worse: int | None, z: float = 3.0) -> PairVerdict:
    return PairVerdict(better, worse, Verdict.RESOLVED, z, 0.99, 2.0, 0.5, 0.9, 10.0, False)


@pytest.mark.parametrize(
    ("pair", "reference", "wrong"),
    [
        (call(0, 1), None, False),
        (call(1, 0), None, True),
        (call(1, 2), None, True),
        (call(2, 1), None, True),
        (call(0, None), 0.4, False),
        (call(0, None, -3.0), 0.4, True),
        (call(1, None, -3.0), 0.4, False),
        (call(1, None), 0.3, True),
    ],
)
def test_a_call_for_a_worse_or_equal_model_is_wrong(pair: PairVerdict, reference: float | None, wrong: bool) -> None:
    assert is_wrong(pair, TRUTH, reference) is wrong


@pytest.mark.slow
def test_a_replay_is_judged_by_its_last_look() -> None:
    world = coins()
    controller = drive(
        Controller(Plan(Bench(11, 30, world.w))), Tape.from_chances(world.p, world.w, np.random.default_rng(1))
    )
    judged, look = judge_replay(1, controller, world.truth), controller.looks[-1]
    assert judged.trials == sum(look.trials) and judged.cost == judged.trials / 26_400
    assert judged.called + judged.tied + judged.out_of_reach == len(look.comparisons) == 10
    assert judged.wrong == sum(
        world.truth[pair.first] <= world.truth[pair.second] + 1e-9
        for pair in look.comparisons
        if pair.verdict is Verdict.RESOLVED and pair.second is not None
    )
    inside = np.abs(np.array(look.scores) - world.truth) <= 1.96 * np.array(look.sigmas)
    assert judged.covered == pytest.approx(inside.mean())
    assert judge_replay(1, controller, world.truth + 0.5).covered == 0.0
    assert 0.8 < judged.tau_b <= 1.0


def test_a_call_against_a_value_is_judged_by_that_value() -> None:
    world = World("w", binary(np.array([[0.9] * 20, [0.2] * 20])))
    plan = Plan(Bench(2, 20, world.w), objective=Threshold(0.5), trials=Trials(min=4, max=40))
    controller = drive(Controller(plan), Tape.from_chances(world.p, world.w, np.random.default_rng(0)))
    with pytest.raises(ValueError, match="after its first look"):
        judge_replay(0, Controller(plan), world.truth)
    judged = judge_replay(0, controller, world.truth)
    assert (judged.called, judged.tied, judged.out_of_reach, judged.wrong) == (2, 0, 0, 0)
    assert judge_replay(0, controller, 1.0 - world.truth).wrong == 2


NAMES = ("a", "b", "c")


def load(*overrides: str) -> Decisions:
    return load_decisions(None, overrides, NAMES)


def test_every_problem_is_listed_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "trials: {min: 4, max: 2}\nobjective: {kind: baseline, baseline: d}\nstoping: {delta: 0}\n"
        "models:\n- {name: a, api_key: sk-abcdefghijklmnopqrstuvwx}\n"  # which is not read
    )
    with pytest.raises(ConfigError) as caught:
        load_decisions(path, ["budget.trials=no"], NAMES)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{path}: 4 problems"
    assert "line 1: trials.max must be at least trials.min, which is 4" in lines[1]
    assert "line 2: objective.baseline must be the name of a model, but got 'd'; the models are a, b, c" in lines[2]
    assert "line 3: stoping is not a known key" in lines[3]
    assert "--set budget.trials: budget.trials must be a whole number" in lines[4]


def test_decisions_alone_make_a_plan() -> None:
    bench = Bench(3, 5, np.array([0.0, 1.0]))
    plan = plan_on(bench, load("objective={kind: baseline, baseline: c}", "trials.max=20"), NAMES)
    assert plan.bench is bench
    assert plan.objective == Baseline(2)
    assert plan.trials.max == 20
    rule = plan_on(bench, load("trials.optimize=time"), NAMES).rule
    assert isinstance(rule, Optimal) and rule.start == 12 / 80, "where its pace has the first look"


BINARY = np.array([0.0, 1.0])
FOUR = np.array([0.0, 0.0, 0.5, 1.0])


def draw(tape: Tape, shape: tuple[int, int], depth: int) -> np.ndarray:
    cells = itertools.product(range(shape[0]), range(shape[1]), range(depth))
    return np.array([tape.at(*cell) for cell in cells]).reshape(*shape, depth)


@given(arrays(np.int64, (2, 3, 4), elements=st.integers(0, 6)), st.integers(0, 2**31))
@settings(max_examples=examples(60), deadline=None)
def test_counts_are_drawn_without_replacement(counts: np.ndarray, seed: int) -> None:
    counts[..., 1] += counts.sum(axis=-1) == 0
    held = counts.sum(axis=-1)
    outcomes = draw(Tape.from_counts(counts, FOUR, np.random.default_rng(seed)), (2, 3), int(held.max()))
    for model, question in itertools.product(range(2), range(3)):
        cell = outcomes[model, question, : held[model, question]]
        assert np.bincount(cell, minlength=4).tolist() == counts[model, question].tolist()


def test_counts_come_in_random_order_and_beyond_them_by_their_shares() -> None:
    counts = np.full((400, 1, 2), 3)
    outcomes = draw(Tape.from_counts(counts, BINARY, np.random.default_rng(0)), (400, 1), 6)[:, 0]
    # every trial alike: the share of successes at each place is that of the urn, 3 s.e. = 0.075
    assert outcomes.mean(axis=0) == pytest.approx(0.5, abs=0.075)
    # without replacement a success makes the next one rarer: P(1 after 1) = 2/5
    assert outcomes[outcomes[:, 0] == 1, 1].mean() == pytest.approx(0.4, abs=0.105)
    counts = np.array([[[1, 3, 0, 0], [0, 0, 0, 2], [5, 0, 5, 0]]])
    outcomes = draw(Tape.from_counts(counts, FOUR, np.random.default_rng(1)), (1, 3), 2000)[0]
    assert set(outcomes[1]) == {3}
    assert set(outcomes[2]) == {0, 2}
    assert (outcomes[0, 4:] == 1).mean() == pytest.approx(0.75, abs=0.03)
    assert (outcomes[2, 10:] == 2).mean() == pytest.approx(0.5, abs=0.035)


def test_recorded_outcomes_keep_their_order_without_the_missing_ones() -> None:
    outcomes = np.array([[[0, 1, -1, 1], [-1, -1, 1, -1], [2, -1, 0, 3]]], dtype=np.int8)
    counts = count_outcomes(outcomes)
    shares = counts / counts.sum(axis=-1, keepdims=True)
    tape = Tape.continued(without_gaps(outcomes), shares, FOUR, np.random.default_rng(2))
    rows = draw(tape, (1, 3), 60)[0]
    assert rows[0, :3].tolist() == [0, 1, 1]
    assert rows[1].tolist() == [1] * 60, "the share of a cell that was right once of once"
    assert rows[2, :3].tolist() == [2, 0, 3]
    assert set(rows[2, 3:]) == {0, 2, 3}


@pytest.mark.parametrize("order", [1, -1])
def test_a_trial_is_the_same_whatever_was_asked_before(order: int) -> None:
    counts = np.array([[[2, 5], [1, 1]], [[4, 0], [3, 9]]])
    cells = list(itertools.product(range(2), range(2), range(20)))[::order]
    tape = Tape.from_counts(counts, BINARY, np.random.default_rng(4))
    asked = {cell: tape.at(*cell) for cell in cells}
    again = Tape.from_counts(counts, BINARY, np.random.default_rng(4))
    assert {cell: again.at(*cell) for cell in sorted(cells)} == asked
    other = Tape.from_counts(counts, BINARY, np.random.default_rng(5))
    assert {cell: other.at(*cell) for cell in sorted(cells)} != asked


MODELS, QUESTIONS = 4, 7
WEIGHTS = np.array([0.0, 0.5, 1.0])
COSTS = [[Cost(30 + at, 0.1, 1.0 / 3.0), Cost(20, 0.07, 0.2), Cost(10 + at, 0.03, 0.1)] for at in range(MODELS)]
OBJECTIVES: list[Objective] = [Ranking(), Best(), TopK(2), Threshold(0.5)]


def chances(seed: int) -> FloatArray:
    return np.asarray(np.random.default_rng(seed).dirichlet(np.full(3, 0.7), (MODELS, QUESTIONS)))


def tape(seed: int) -> Tape:
    return Tape.from_chances(chances(seed), WEIGHTS, np.random.default_rng(seed))


def by_trials(plan: Plan, outcomes: Tape, chunk: int) -> Controller:
    """The run asked and told in chunks, with an object for each outcome."""
    controller = Controller(plan)
    while controller.finished is None:
        outcome_rows = [(*ask[:3], outcomes.at(*ask[:3])) for ask in controller.ask(chunk)]
        controller.tell(Outcome(*row, COSTS[row[0]][row[3]]) for row in outcome_rows)
    return controller


@given(
    st.integers(0, 999), st.sampled_from(OBJECTIVES), st.integers(0, 3),
    st.sampled_from([Budget(), Budget(trials=300), Budget(tokens=6000), Budget(usd=15.0), Budget(gpu_seconds=60.0)]),
    st.integers(1, 200),
)  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
@pytest.mark.slow
def test_rounds_match_their_trials(seed: int, objective: Objective, lookahead: int, budget: Budget, chunk: int) -> None:
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


def test_the_outcomes_of_a_batch_are_those_of_its_trials() -> None:
    first, extra = (np.random.default_rng(seed).integers(0, 5, QUESTIONS) for seed in (1, 2))
    drawn = DrawnBatch.of(Batch(2, 0, first, extra), tape(3))
    places = [*zip(*(column.tolist() for column in drawn.trials), strict=True)]
    assert sorted(places) == [(2, at, first[at] + more) for at in range(QUESTIONS) for more in range(extra[at])]
    assert drawn.categories.tolist() == [tape(3).at(*place) for place in places]
    assert drawn.counts.sum(axis=1).tolist() == extra.tolist()


def test_counts_that_do_not_fit_the_round_are_refused() -> None:
    controller = Controller(Plan(Bench(MODELS, QUESTIONS, WEIGHTS), trials=Trials(min=3, max=20)))
    batches = controller.ask_batches()
    assert controller.ask_batches() == [] and controller.in_flight == sum(batch.size for batch in batches)
    right = np.zeros((MODELS, QUESTIONS, 3), dtype=np.int64)
    right[..., 1] = 3
    short, shape = right.copy(), right[:, :, :2]
    short[1, 2, 1] -= 1
    for wrong in (short, shape):
        with pytest.raises(ValueError, match=r"must add up to the trials of their batch|must be those of their batch"):
            controller.tell_counts(zip(batches, wrong, strict=True))
    negative = right.copy()
    negative[0, 0] = (-1, 4, 0)
    with pytest.raises(ValueError, match="must not be negative"):
        controller.tell_counts(zip(batches, negative, strict=True))
    controller.tell([SetAside(2, "gone")])
    (look,) = controller.tell_counts(zip(batches, right, strict=True))
    assert look.trials == (21, 21, 0, 21) and controller.arrived[2].sum() == 0, "of one that is gone nothing counts"
    (batch, *_) = controller.ask_batches()
    question = int(np.flatnonzero(batch.slots.extra)[0])
    controller.tell([Outcome(batch.model, question, int(batch.slots.first[question]), 1)])
    with pytest.raises(ValueError, match="in counts or trial by trial"):
        controller.tell_counts([(batch, batch.slots.extra[:, None] * np.array([0, 1, 0]))])


@pytest.mark.parametrize("budget", [Budget(trials=250), Budget(tokens=5000), Budget(usd=20.0)])
def test_trials_to_go_never_exceed_what_the_caps_pay_for(budget: Budget) -> None:
    bench = Bench(MODELS, QUESTIONS, WEIGHTS, worst_cost=(Cost(40, 0.1, 0.5),) * MODELS)
    free, capped = (
        Controller(Plan(bench, rule=Sequential(), trials=Trials(min=3, max=80), budget=cap))
        for cap in (Budget(), budget)
    )
    results = []
    for controller in (free, capped):
        batches = controller.ask_batches()
        controller.tell_counts([(batch, DrawnBatch.of(batch, tape(5)).counts) for batch in batches], COSTS)
        results.append(controller.result())
    unbound, bound = results
    assert unbound is not None and bound is not None
    shares = {name: getattr(bound.spent, name) for name in bound.spent._fields} | {"trials": bound.trials}
    (name,) = (name for name in shares if getattr(budget, name) is not None)
    paid = bound.trials * getattr(budget, name) / shares[name] - bound.trials
    assert bound.trials_to_go == pytest.approx(paid) and bound.trials_to_go < unbound.trials_to_go


def test_rounds_that_were_asked_trial_by_trial_are_not_kept() -> None:
    """A round holds all of its trials, so that keeping rounds would grow memory with every look."""
    bench, judging = Bench(MODELS, QUESTIONS, WEIGHTS), Judging(futility=None)
    controller = Controller(Plan(bench, rule=Sequential(), trials=Trials(min=3, max=20), judging=judging))
    for _ in range(4):
        controller.tell([Outcome(*ask[:3], category=ask.trial % 2) for ask in controller.ask(1000)])
    assert controller.finished is None and len(controller.looks) == 4
    assert {batch.round_index for batch in controller.ask_batches()} == {controller.rounds_issued - 1}
