"""The surface of the core: what the registry says of it, examples that run, and what it refuses."""

import doctest
import inspect
import math
import re
import string
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from core_runs import BINARY, Answers, tell_right

from adaptive_eval import core
from adaptive_eval.core import Anytime, Bench, Controller, Entry, Judging, NearBest, Option, Pace, Plan, Trials, View
from adaptive_eval.core.objectives import (
    Baseline,
    Best,
    Gate,
    ObjectiveEntry,
    Pairs,
    Place,
    PrecisionOf,
    Ranking,
    Threshold,
    TopK,
)
from adaptive_eval.core.optimal import Optimal, Spacing
from adaptive_eval.core.registry import OBJECTIVES, POLICIES, RULES, make, parameter_names
from adaptive_eval.core.rounds import MISSING
from adaptive_eval.core.rules import Correctable, Extendable, Precision, RuleEntry, ZScore, has_error_left, is_giving_up
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Budget, Margin, RecordedTrials
from adaptive_eval.core.types import Cost, Look, Outcome, SetAside
from adaptive_eval.testing.decisions import evidence_cases
from scorio.moments import IntArray

MODELS = ("model-a", "model-b", "model-c")
EVERY: list[Entry[object]] = [*RULES.values(), *POLICIES.values(), *OBJECTIVES.values()]  # type: ignore[list-item]
KNOWN = {"confidence": 0.9, "start": 0.1, "models": MODELS, "recorded": frozenset({0})}
PLACES = {"delta", "horizon", "wrong", "tie", "whose"}


def examples(entry: Entry[object]) -> dict[str, object]:
    return {option.name: option.example for option in entry.options}


def needed(entry: Entry[object]) -> dict[str, object]:
    return {option.name: option.example for option in entry.options if option.default is None}


@pytest.mark.parametrize("entry", EVERY, ids=lambda entry: entry.name)
def test_each_entry_is_built_from_its_options(entry: Entry[object]) -> None:
    assert make(entry.make, examples(entry), KNOWN) is not None
    assert make(entry.make, needed(entry), KNOWN) is not None
    assert set(parameter_names(entry.make)) >= {option.name for option in entry.options}


@pytest.mark.parametrize("entry", EVERY, ids=lambda entry: entry.name)
def test_entry_texts_name_only_existing_options(entry: Entry[object]) -> None:
    text = entry.description + (entry.promise if isinstance(entry, RuleEntry) else "")
    named = {name for _, name, _, _ in string.Formatter().parse(text) if name}
    assert named <= examples(entry).keys() | (PLACES if isinstance(entry, RuleEntry) else set())
    assert entry.summary and entry.description


@pytest.mark.parametrize("entry", RULES.values(), ids=lambda entry: entry.name)
def test_a_rule_is_what_its_entry_says(entry: RuleEntry) -> None:
    rule = make(entry.make, {}, KNOWN)
    assert isinstance(getattr(rule, "ties", rule), Correctable) == entry.correctable
    assert is_giving_up(rule) == entry.gives_up
    assert set(entry.only_for) <= OBJECTIVES.keys()
    assert bool(entry.instead) == bool(entry.only_for)
    on = next(case for case in evidence_cases() if (case.information > 0.0).any())
    assert isinstance(rule, Extendable) == (entry.correctable or entry.lenient), (
        "what survives looks knows what another horizon does"
    )
    raised = rule.extended([on], on, 0.0) if isinstance(rule, Extendable) else rule
    assert has_error_left(raised) == (entry.gives_up or entry.lenient)
    if isinstance(rule, Correctable):
        assert rule.confidence == KNOWN["confidence"]


@pytest.mark.parametrize("entry", OBJECTIVES.values(), ids=lambda entry: entry.name)
def test_an_objective_is_what_its_entry_says(entry: ObjectiveEntry) -> None:
    objective = make(entry.make, examples(entry), KNOWN)
    assert objective.compares == entry.compares
    assert (objective.rule is None) == (entry.own_rule is None)
    for order in (np.arange(4), np.array([2, 0, 3, 1])):
        next_ones = np.stack([order[:-1], order[1:]], axis=1)
        assert np.array_equal(objective.comparisons(order), next_ones) == entry.in_order


def test_one_option_key_has_one_meaning() -> None:
    for entries in (RULES, POLICIES, OBJECTIVES):
        options: dict[str, Option] = {}
        for entry in entries.values():
            for option in entry.options:
                assert options.setdefault(option.name, option) == option
    assert len({entry.name for entry in EVERY}) == len(EVERY)


def test_the_core_exports_everything_a_harness_needs() -> None:
    assert all(hasattr(core, name) for name in core.__all__)
    assert set(core.__all__) == set(core._HOME_OF)
    assert dir(core) == sorted(core.__all__) and not any(name.startswith("_") for name in dir(core))
    assert sorted(core.__all__) == sorted(set(core.__all__))
    made = [make(entry.make, examples(entry), KNOWN) for entry in EVERY]
    assert all(getattr(core, type(value).__name__) is type(value) for value in made)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = core.Nothing  # type: ignore[attr-defined]


def test_a_line_in_the_registry_is_all_that_a_new_rule_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unheard(ZScore):
        pass

    entry = RuleEntry(name="unheard", make=Unheard, summary="", description="", promise="", correctable=True)
    monkeypatch.setitem(RULES, "unheard", entry)
    assert core.Unheard is Unheard  # type: ignore[attr-defined]
    del core.Unheard  # type: ignore[attr-defined]


BUILT = (
    core.Baseline, core.Bench, core.Best, core.Budget, core.Controller, core.Judging, core.Optimal, core.Outcome,
    core.Pairs, core.Plan, core.Ranking, core.Threshold, core.TopK, core.Trials,
)  # fmt: skip


@pytest.mark.parametrize("built", BUILT, ids=lambda built: built.__name__)
def test_the_embedding_api_has_working_examples(built: type) -> None:
    docstring = inspect.getdoc(built) or ""
    test = doctest.DocTestParser().get_doctest(docstring, {}, built.__name__, None, 0)
    assert "Examples:" in docstring and test.examples
    output: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=output.append)
    assert "".join(output) == ""


BENCH = Bench(3, 4, np.array([0.0, 0.5, 1.0]))


PLAN = Plan(BENCH)
PARTS = Gate(Margin(0, 0.05, (0.2, 0.2)))
PRIOR = np.array([[[4, 6]] * 4, [[0, 0]] * 4])
"""Ten outcomes of each question by the first of two models, which is recorded."""
_TRIALS = np.full((2, 4, 10), MISSING, dtype=np.uint8)
_TRIALS[0] = np.arange(10) >= 4
RECORDED = Plan(
    Bench(2, 4, BINARY, prior_counts=PRIOR, recorded=frozenset({0}),
          recorded_trials=RecordedTrials(_TRIALS, np.zeros(_TRIALS.shape, dtype=bool))),
    objective=Gate(Margin(0, 0.03)), rule=Sequential(start=0.4), trials=Trials(min=4, max=10), coupled=True,
)  # fmt: skip


def recorded_bench(models: int, recorded: Iterable[int], unasked: tuple[int, int] | None = None) -> Bench:
    counts = np.full((models, 4, 2), 2)
    if unasked is not None:
        counts[unasked] = 0
    return Bench(models, 4, BINARY, prior_counts=counts, recorded=frozenset(recorded))


def started_controller() -> Controller:
    """Two rounds in flight, trials 0 and 1 of every question."""
    return Controller(Plan(BENCH, trials=Trials(min=1, max=8), pace=Pace(lookahead=1)))


@pytest.mark.parametrize(
    "place", [(3, 0, 0, 0), (-1, 0, 0, 0), (0, 4, 0, 0), (0, -1, 0, 0), (0, 0, 0, 3), (0, 0, 0, -1)]
)
@pytest.mark.parametrize("give", [Controller.tell, Controller.take])
def test_an_outcome_outside_the_plan_is_refused(
    place: tuple[int, int, int, int], give: Callable[[Controller, list[Outcome]], list[Look]]
) -> None:
    controller, outcome = started_controller(), Outcome(*place)
    rule = "one of 3 models, 4 questions and 3 categories, each counted from 0, but got " + re.escape(str(outcome))
    with pytest.raises(ValueError, match=rule):
        give(controller, [outcome])
    assert controller.arrived.sum() == 0
    assert len(controller.ask(1000)) == 24


@pytest.mark.parametrize("trial", [2, 7, -1])
def test_a_trial_that_was_never_issued_is_refused(trial: int) -> None:
    with pytest.raises(ValueError, match=f"no round in flight holds this trial: Outcome.*trial={trial}"):
        started_controller().tell([Outcome(0, 0, trial, 0)])


def test_a_trial_is_told_once() -> None:
    controller = started_controller()
    outcomes = Answers(controller.plan, 0).of(controller.ask(1000))
    controller.tell(outcomes[:1])
    with pytest.raises(ValueError, match="the same trial was told twice: Outcome"):
        controller.tell(outcomes[:1])
    with pytest.raises(ValueError, match="was told twice"):
        controller.take(outcomes[:1])
    controller.tell(outcome for outcome in outcomes[1:] if outcome.trial == 0)
    assert len(controller.looks) == 1
    with pytest.raises(ValueError, match="no round in flight holds this trial"):
        controller.tell(outcomes[:1])


def test_a_refused_outcome_does_no_harm() -> None:
    controller = started_controller()
    outcomes = Answers(controller.plan, 0).of(controller.ask(1000))
    with pytest.raises(ValueError, match="categories"):
        controller.tell([*outcomes[:5], Outcome(0, 0, 1, 9), *outcomes[5:]])
    assert controller.in_flight == 19
    assert len(controller.tell(outcomes[5:])) == 2


@pytest.mark.parametrize("cost", [Cost(usd=float("nan")), Cost(gpu_seconds=float("inf"))])
def test_a_non_finite_cost_is_refused(cost: Cost) -> None:
    controller = started_controller()
    ask = controller.ask(1)[0]
    with pytest.raises((ValueError, OverflowError), match="cannot convert float"):
        controller.tell([Outcome(*ask[:3], 0, cost)])
    assert controller.in_flight == 1


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: Trials(min=0, max=5), "trials must hold 1 <= min <= max"),
        (lambda: Trials(min=6, max=5), "trials must hold 1 <= min <= max"),
        (lambda: Pace(lookahead=-1), "lookahead must not be negative"),
        (lambda: Judging(delta=-0.01), "delta must not be negative"),
        (lambda: Judging(futility=1.0), "futility must lie in [0, 1)"),
        (lambda: TopK(0), "k must be at least 1"),
        (lambda: PrecisionOf(0.0), "half_width must be positive"),
        (lambda: Precision(-1.0), "half_width must be positive"),
        (lambda: ZScore(0.0), "threshold must be positive"),
        (lambda: Sequential(confidence=1.0), "confidence must lie in [0.5, 1)"),
        (lambda: Sequential(start=0.0), "start must lie in (0, 1]"),
        (lambda: Sequential(kappa=0.6), "kappa must lie in [0, 0.5]"),
        (lambda: Anytime(confidence=0.4), "confidence must lie in [0.5, 1)"),
        (lambda: Anytime(start=-0.1), "start must lie in [0, 1]"),
        (lambda: Anytime(optimum=0.0), "optimum must be positive"),
        (lambda: NearBest(0.0), "margin must be positive"),
        *(
            (lambda wrong=wrong: Optimal(**wrong), "but got")
            for wrong in (
                {"confidence": 0.5},
                {"start": 0.0},
                {"worth": 0.05},
                {"spacing": Spacing(0.0)},
                {"spacing": Spacing(-0.1, 0.1)},
                {"spacing": Spacing(step=-0.1)},
                {"spacing": Spacing(finest=1.0)},
            )
        ),
        (lambda: Bench(0, 1, BINARY), "at least one model"),
        (lambda: Bench(1, 0, BINARY), "at least one question"),
        (lambda: Bench(1, 1, np.array([1.0])), "a rubric has 2 to 254 categories"),
        (lambda: Bench(1, 1, np.arange(256.0)), "a rubric has 2 to 254 categories"),
        (lambda: Bench(1, 1, np.array([1.0, np.nan])), "weights must be finite"),
        (lambda: Bench(1, 1, np.array([0.5, 0.5])), "weights must not all be equal"),
        (lambda: Bench(2, 1, BINARY, (Cost(),)), "worst_cost needs one entry a model"),
        (lambda: Bench(1, 1, BINARY, (Cost(usd=-1.0),)), "worst_cost must not be negative"),
        (lambda: Bench(1, 1, BINARY, (), np.zeros((1, 1, 3), int)), "prior_counts must have shape"),
        (lambda: Bench(1, 1, BINARY, (), np.full((1, 1, 2), -1)), "prior_counts must not be negative"),
        (lambda: Bench(1, 2, BINARY, clusters=np.array([0])), "clusters needs one label a question"),
        (lambda: Bench(1, 2, BINARY, clusters=np.array([0, 2])), "labels of clusters must be 0, 1, ..."),
        (lambda: Bench(2, 2, BINARY, question_weights=np.array([1.0, 0.0])), "a vector of positive numbers"),
        (lambda: Bench(2, 2, BINARY, question_weights=np.array([1.0, np.nan])), "a vector of positive numbers"),
        (lambda: Bench(2, 2, BINARY, question_weights=np.array([1.0])), "one weight a question"),
        (lambda: Bench(2, 2, BINARY, benchmark_of=np.array([0, 2])), "labels of benchmark_of must be 0, 1"),
        (lambda: recorded_bench(4, range(4)), "not all of them"),
        (lambda: recorded_bench(4, [0], unasked=(0, 3)), "every question of a recorded model"),
        (lambda: replace(RECORDED.bench, prior_counts=PRIOR * 2), "must have the outcomes of prior_counts"),
        (lambda: Controller(Plan(replace(BENCH, recorded=frozenset({0})))), "recorded models need their outcomes"),
        (lambda: Place(frozenset()), "place needs recorded models"),
        (lambda: Gate(Margin(0, -0.1)), "must not be negative"),
        *(
            (lambda name=name, cap=cap: Budget(**{name: cap}), f"budget.{name} must be positive, but got")
            for name in ("trials", "tokens", "usd", "gpu_seconds", "wall_seconds")
            for cap in (0, -1, math.nan)
        ),
    ],
)
def test_values_are_checked_where_they_are_given(make: Callable[[], object], rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)):
        make()


HALVES = Bench(2, 4, BINARY, benchmark_of=np.array([0, 0, 1, 1]), gates=((0, 0.2), (1, 0.2)))
GATE = Plan(Bench(2, 4, BINARY), objective=Gate(Margin(0, 0.03)), trials=Trials(min=4, max=10), coupled=True)
DRAWN = Plan(Bench(2, 300, BINARY), rule=Sequential(start=1 / 6), trials=Trials(min=1, max=1), drawn=50)


@pytest.mark.parametrize(
    ("plan", "changes", "rule"),
    [
        (PLAN, {"objective": Baseline(3)}, "compare two of the models 0 to 2, but got [[3, 0]]"),
        (PLAN, {"objective": Baseline(-1)}, "compare two of the models 0 to 2, but got [[-1, 0]]"),
        (PLAN, {"objective": Pairs(((0, 1), (1, 3)))}, "compare two of the models 0 to 2, but got [[1, 3]]"),
        (PLAN, {"objective": Pairs(((0, 1), (2, 2)))}, "compare two of the models 0 to 2, but got [[2, 2]]"),
        *((PLAN, {"objective": nothing}, "must compare something") for nothing in (Pairs(()), TopK(3), TopK(4))),
        *(
            (PLAN, {"judging": Judging(familywise=True), **changes}, "familywise needs a rule with p-values")
            for changes in ({"rule": ZScore()}, {"rule": NearBest()}, {"objective": PrecisionOf(0.1)})
        ),
        *(
            (PLAN, {"first": np.array(first), "trials": Trials(min=4, max=10)}, rule)
            for first, rule in (
                ([[4, 4]] * 3, "first must have shape (3, 4)"),
                ([[-1] * 4] * 3, "first must not be negative"),
                ([[11, 10, 10, 10], [4] * 4, [4] * 4], "must not exceed trials.max on average, which is 10"),
                ([[38, 0, 0, 0], [4] * 4, [4] * 4], "with at least trials.min a question"),
            )
        ),
        (GATE, {"objective": Gate(Margin(0, 0.1), 0.6)}, "a gate on a value"),
        (GATE, {"objective": Gate(Margin(2, 0.1))}, "a gate on a value"),
        (GATE, {"prior": "uniform"}, "coupled needs the prior self"),
        (GATE, {"estimator": "bayes"}, "coupled compares averages"),
        (GATE, {"bench": Bench(2, 4, BINARY, prior_counts=np.ones((2, 4, 2), int))}, "of R0 there are only counts"),
        (RECORDED, {"bench": replace(RECORDED.bench, recorded_trials=None)}, "coupled needs the recorded_trials"),
        *(
            (replace(GATE, coupled=False), {"bench": HALVES, "objective": PARTS, **changes}, rule)
            for changes, rule in (
                ({"objective": Gate(Margin(2, 0.1, (0.2, 0.2)), 0.6)}, "gates of benchmarks compare with a baseline"),
                ({"rule": ZScore()}, "p-values"),
                ({"judging": Judging(familywise=True)}, "share their error"),
                ({"coupled": True}, "seeds"),
                ({"objective": Ranking()}, "parts of a gate"),
                ({"objective": Gate(Margin(0, 0.05))}, "parts of a gate"),
            )
        ),
        (DRAWN, {"drawn": 20}, "drawn must be 50 to 300"),
        (DRAWN, {"drawn": 301}, "drawn must be 50 to 300"),
        (DRAWN, {"trials": Trials(min=1, max=2)}, "one trial each"),
        (DRAWN, {"objective": Threshold(0.5)}, "compares models with each other"),
        (DRAWN, {"estimator": "bayes"}, "compares averages"),
        (DRAWN, {"pace": Pace(share=0.5)}, "in step"),
        (DRAWN, {"coupled": True, "objective": Baseline(0)}, "with shared seeds"),
        (DRAWN, {"first": np.ones((2, 300), dtype=int)}, "with earlier outcomes"),
        (DRAWN, {"bench": replace(DRAWN.bench, question_weights=np.arange(1.0, 301.0))}, "questions that weigh alike"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together_are_refused(plan: Plan, changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)):
        replace(plan, **changes)


def test_coupled_outcomes_are_told_one_by_one() -> None:
    controller = Controller(GATE)
    (opening, _) = controller.ask_batches()
    with pytest.raises(ValueError, match="told one by one"):
        tell_right(controller, opening, opening.slots.extra)


class Greedy:
    """A custom policy that allocates too many or negative trials."""

    def __init__(self, trials: int) -> None:
        self.trials = trials

    def allocate(self, view: View) -> IntArray:
        return np.full_like(view.issued, self.trials)


@pytest.mark.parametrize(("trials", "events"), [(-1, []), (2, []), (1, [SetAside(2, "gone")])])
def test_a_policy_that_exceeds_its_sizes_is_refused(trials: int, events: list[SetAside]) -> None:
    """Such as those of a model that was set aside, which has none."""
    plan = Plan(BENCH, objective=Best(), policy=Greedy(trials), trials=Trials(min=1, max=8))
    controller = Controller(plan)
    outcomes = Answers(plan, 0, skill=lambda model, question: 0.5).of(controller.ask(1000))
    with pytest.raises(ValueError, match="must give each model 0 to view.sizes trials"):
        controller.tell([*events, *outcomes])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Trials(min="4"), "trials.min must be a whole number"),
        (lambda: Trials(max=8.5), "trials.max must be a whole number"),
        (lambda: Trials(min=True), "trials.min must be a whole number"),
        (lambda: Plan(BENCH, objective=Trials()), "objective of a plan must have `comparisons`"),
        (lambda: Plan(BENCH, trials=(4, 8)), "trials of a plan must be of type Trials"),
        (lambda: Plan("bench"), "bench of a plan must be of type Bench"),
    ],
)
def test_values_of_another_type_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


def test_a_plan_shows_what_differs_from_the_defaults() -> None:
    bench = Bench(2, 30, BINARY, question_weights=np.arange(1.0, 31.0))
    shown = "Bench(models=2, questions=30, weights=[0.0, 1.0], question_weights=<array of shape (30,)>)"
    assert repr(Plan(bench, trials=Trials(max=8))) == f"Plan(bench={shown}, trials=Trials(min=4, max=8))"
