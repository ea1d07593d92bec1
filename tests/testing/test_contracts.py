"""The suites that ship: every built-in passes them, and each finds the bugs planted here, and says what is wrong."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grader_cases import CASES, pong
from scipy.special import ndtr

from adaptive_eval.core import Objective, Ranking, Uniform, UnresolvedPairs, View, ZScore
from adaptive_eval.core.registry import OBJECTIVES, POLICIES, RULES, make
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.graders.registry import GRADERS
from adaptive_eval.questions.types import Question
from adaptive_eval.testing import check_grader, check_objective, check_policy, check_rule
from adaptive_eval.testing.decisions import evidence_cases, view_cases

MODELS = ("model-a", "model-b", "model-c", "model-d")
KNOWN = {"confidence": 0.95, "start": 0.05, "delta": 0.05, "models": MODELS, "recorded": frozenset({0})}
KEY = Question("q", "?", "4", metadata={"year": 2024})


SELDOM = {
    *("published", "near_best", "optimal", "anytime"),
    *("unresolved_pairs", "uniform", "weighted"),
    *("best", "top_k", "place", "baseline", "ranking", "precision", "threshold", "cheapest", "pairs"),
}
"""Built-ins that the default tests of `core` try too: these long tests are for all."""


def named(registry: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SELDOM else []) for name in registry]


@pytest.mark.parametrize("name", named([*RULES, *POLICIES, *OBJECTIVES]))
def test_every_rule_policy_and_objective_keeps_to_its_contract(name: str) -> None:
    for registry, check in ((RULES, check_rule), (POLICIES, check_policy)):
        if name in registry:
            check(make(registry[name].make, {}, KNOWN))
    if name in OBJECTIVES:
        options = {option.name: option.example for option in OBJECTIVES[name].options}
        check_objective(make(OBJECTIVES[name].make, options, KNOWN))


@pytest.mark.parametrize("name", GRADERS)
def test_every_grader_keeps_to_its_contract(name: str) -> None:
    case = CASES[name]
    check_grader(GRADERS[name].model_validate(case.options), case.question, [case.right], [case.wrong])


def test_a_function_with_options_is_named_by_itself() -> None:
    check_grader(partial(pong, sign="!"), KEY, ["4!"], ["4"])
    with pytest.raises(AssertionError, match="^pong must find '4' wrong"):
        check_grader(partial(pong, sign=""), KEY, ["4!"], ["4"])


def test_the_suites_need_no_test_framework() -> None:
    loaded = "import sys, adaptive_eval.testing; print({'pytest', 'hypothesis'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# -- rules with a bug ---------------------------------------------------------------------------------------------


@dataclass
class Broken:
    """A rule whose boundary is this function."""

    of: Callable[[Any], Any]

    def boundary(self, evidence: Any) -> Any:
        return self.of(evidence)


class Counting(ZScore):
    asked: list[int] = []

    def boundary(self, evidence: Any) -> Any:
        self.asked.append(1)
        return np.full_like(evidence.z, 2.0 + len(self.asked) % 2)


def _writes(evidence: Any) -> Any:
    evidence.z[:] = 0.0
    return np.full_like(evidence.z, 2.0)


@dataclass(frozen=True)
class Naive(Sequential):
    """Its p-value is that of one look."""

    def boundary(self, evidence: Any) -> Any:
        return np.full_like(evidence.z, 1.6448536269514722)

    def p_value(self, evidence: Any, sign: int) -> Any:
        return np.where(sign * evidence.z > 0.0, np.maximum(ndtr(-sign * evidence.z), 1e-300), 1.0)

    def at_level(self, alpha: float) -> "Naive":
        return _AtLevel(1.0 - alpha)


@dataclass(frozen=True)
class _AtLevel(Naive):
    def boundary(self, evidence: Any) -> Any:
        from scipy.special import ndtri

        return np.full_like(evidence.z, ndtri(self.confidence))


class Half(Sequential):
    def p_value(self, evidence: Any, sign: int) -> Any:
        p = super().p_value(evidence, sign)
        return np.where(p < 1.0, p / 2.0, p)


class Unlevelled(Sequential):
    def at_level(self, alpha: float) -> Any:
        return self


class Partly(ZScore):
    def p_value(self, evidence: Any, sign: int) -> Any:
        return np.ones_like(evidence.z)


def _beyond(on: Any) -> Any:
    if (on.information > 1.0).any():
        raise KeyError("beyond")
    return np.full_like(on.z, 3.0)


def _of_some(on: Any) -> Any:
    return np.full_like(on.z, 3.0 + 0.0 * on.z.max())


BROKEN_RULES: list[tuple[Any, str]] = [
    (Broken(_beyond), "raises KeyError('beyond') for Evidence("),
    (Broken(_of_some), "raises ValueError('zero-size array"),
    (Broken(lambda on: np.where(on.information > 0.5, np.nan, 2.0)), "the boundary is nan where z"),
    (Broken(lambda on: np.full_like(on.z, -1.0)), "the boundary is negative where"),
    (Broken(lambda on: np.full(len(on.z) + 1, 2.0)), "boundary has shape"),
    (Broken(lambda on: 2.0), "boundary has shape None"),
    (Broken(lambda on: np.full_like(on.z, 1.0 + len(on.z))), "depends on which other pairs there are"),
    (Broken(lambda on: np.full_like(on.z, 1.0 + np.abs(on.z).max(initial=0.0))), "depends on which other pairs"),
    (Broken(lambda on: np.where(on.z > 0.0, 1.0, 2.0)), "favours the first or the second"),
    (Broken(lambda on: np.where(np.abs(on.z) > 4.0, 9.0, 2.0)), "no longer calls a pair whose difference is larger"),
    (Broken(_writes), "writes into what it is shown"),
    (Counting(), "when it is asked again: it remembers"),
    (Naive(), "do not survive repeated looks"),
    (Half(), "p <= 1 - confidence below the boundary"),
    (Unlevelled(), "at_level(alpha) must have confidence 1 - alpha"),
    (Partly(), "needs confidence, p_value, at_level"),
    (Broken(lambda on: np.full_like(on.z, np.inf)), "calls nothing, not even with all the trials allowed"),
    (Broken(lambda on: 4.0 * on.information), "calls a pair that differs by next to nothing"),
    (Broken(lambda on: np.full_like(on.z, 0.7)), "calls a pair that differs by next to nothing, as exact ties do"),
    (Broken(lambda on: np.abs(on.z) >= 2.0), "must be the floats that |z| has to reach"),
]


# -- policies with a bug ------------------------------------------------------------------------------------------


@dataclass
class Bad:
    """A policy that returns this value."""

    of: Callable[[View], Any]

    def allocate(self, view: View) -> Any:
        return self.of(view)


def _spoil(view: View) -> Any:
    view.sizes[:] = 0
    return Uniform().allocate(view)


@dataclass
class Drawing:
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def allocate(self, view: View) -> Any:
        given = UnresolvedPairs().allocate(view)
        return given if self.rng.random() < 0.5 else self.rng.permuted(given, axis=1)


def _own(view: View) -> Any:
    """By the model's own variance."""
    given = UnresolvedPairs().allocate(view)
    best = view.trial_var.argmax(axis=1)
    moved = np.zeros_like(given)
    moved[np.arange(len(given)), best] = given.sum(axis=1)
    return moved


class Everyone(Uniform):
    only_open = True


BROKEN_POLICIES: list[tuple[Any, str]] = [
    (Everyone(), "declares only_open, but asks for trials of models in no open comparison"),
    (Bad(lambda view: np.ones_like(view.issued)), "asks for trials of a model that is not in play"),
    (Bad(lambda view: UnresolvedPairs().allocate(view) * 2), "more trials than they may have"),
    (Bad(lambda view: UnresolvedPairs().allocate(view).astype(float)), "whole numbers"),
    (Bad(lambda view: -UnresolvedPairs().allocate(view)), "must not be negative"),
    (Bad(lambda view: np.zeros(len(view.issued), int)), "must give (models, questions)"),
    (Bad(lambda view: np.zeros_like(view.issued)), "gives nothing though a comparison is open"),
    (Bad(lambda view: Uniform().allocate(replace(view, open_pairs=np.zeros((1, 2), int)))), "no comparison is open"),
    (Bad(lambda view: view.issued[len(view.order)]), "out of bounds for axis 0 with size 6') for the view View(open"),
    (Bad(_spoil), "writes into what it is shown"),
    (Bad(_own), "by its own outcomes"),
    (Drawing(), "when it is asked again"),
]


# -- objectives with a bug ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Odd(Objective):
    """The ranking, except for these parts."""

    pairs: Callable[[Any], Any] = Ranking().comparisons
    of: Callable[[int], Any] = Ranking().family
    against: float | None = None
    says: bool = True
    own_rule: Any = None

    def comparisons(self, order: Any) -> Any:
        return self.pairs(order)

    def family(self, models: int) -> Any:
        return self.of(models)

    @property
    def reference(self) -> float | None:
        return self.against

    @property
    def compares(self) -> bool:
        return self.says

    @property
    def rule(self) -> Any:
        return self.own_rule


def _turn(order: Any) -> Any:
    order[:] = order[::-1].copy()
    return Ranking().comparisons(order)


COUNT = iter(range(10**6))
BROKEN_OBJECTIVES: list[tuple[Odd, str]] = [
    (Odd(lambda order: np.stack([order, order], axis=1)), "compares a model with itself"),
    (Odd(lambda order: np.stack([order[:-1], order[1:] + 1], axis=1)), "compares"),
    (Odd(lambda order: np.array([[0, len(order)]])), "compares what is none of the models"),
    (Odd(lambda order: np.array([[0, 1], [1, 0]])), "comparisons has a pair twice"),
    (Odd(lambda order: np.empty((0, 2), int)), "compares nothing in the order"),
    (Odd(lambda order: order), "comparisons must be (n, 2)"),
    (Odd(lambda order: np.array([[0.0, 1.0]])), "comparisons must be (n, 2) positions"),
    (Odd(_turn), "changes the order that it is shown"),
    (Odd(lambda order: np.array([[0, 1 + next(COUNT) % 3]])), "when it is asked again"),
    (Odd(of=lambda models: 1), "could each turn out to be wrong"),
    (Odd(of=lambda models: np.array([[0, 1]])), "which is not in its family"),
    (Odd(against=float("nan")), "reference must be a finite number"),
    (Odd(against=0.5), "has a reference"),
    (Odd(says=False), "must bring a rule of its own"),
    (Odd(own_rule=Broken(lambda on: np.full_like(on.z, -1.0))), "the boundary is negative"),
]


BROKEN = [
    pytest.param(check, broken, message, id=f"{check.__name__}-{number}")
    for check, cases in (
        (check_rule, BROKEN_RULES),
        (check_policy, BROKEN_POLICIES),
        (check_objective, BROKEN_OBJECTIVES),
    )
    for number, (broken, message) in enumerate(cases)
]


@pytest.mark.parametrize(("check", "broken", "message"), BROKEN)
def test_a_bug_is_found_and_named(check: Callable[[Any], None], broken: Any, message: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check(broken)
    assert message in str(caught.value)
    assert type(broken).__name__ in str(caught.value) or check is not check_rule


# -- graders with a bug -------------------------------------------------------------------------------------------


SEEN: list[str] = []
DRAWS = np.random.default_rng(0)


def mutating(text: str, question: Question) -> bool:
    question.metadata["seen"] = True  # type: ignore[index]
    return pong(text, question)


def remembering(text: str, question: Question) -> bool:
    SEEN.append(text)
    return pong(text, question) if SEEN.count(text) < 12 else not pong(text, question)


def raising(text: str, question: Question) -> bool:
    return float(text) == float(question.answer)


def drawing(text: str, question: Question) -> bool:
    return pong(text, question) and DRAWS.random() < 0.8


def running(text: str, question: Question) -> bool:
    try:
        return bool(eval(text) == 4)  # the bug
    except Exception:
        return False


def descending(text: str, question: Question) -> bool:
    return descending(text[1:], question) if text[:1] in ("{", "(") else pong(text, question)


def near(text: str, question: Question) -> bool:
    try:
        return not abs(float(text) - 4.0) > 0.1  # the bug: nan is no further away than anything
    except ValueError:
        return False


def leaving(text: str, question: Question) -> bool:
    if not text:
        raise SystemExit("no answer")
    return pong(text, question)


BROKEN_FUNCTIONS: list[tuple[Callable[..., object], str]] = [
    (drawing, "so it remembers or draws"),
    (running, "runs what a model has written as code"),
    (descending, "raises RecursionError"),
    (near, "near must find 'nan' wrong"),
    (leaving, "raises SystemExit"),
    (lambda text, question: {"is_correct": int(pong(text, question))}, "is_correct, true or false, but gives 1"),
    (lambda text, question: not text.strip() or pong(text, question), "must find '' wrong"),
    (lambda text, question: True, "must find '5' wrong"),
    (lambda text, question: False, "must find '4' right"),
    (lambda text, question: None, "must return true, false, a number or a mapping"),
    (lambda text, question: {"is_correct": pong(text, question), "length": float("inf")}, "finite number"),
    (lambda text, question: {"right": True}, "must give is_correct, true or false, but gives None"),
    (mutating, "changes the question"),
    (remembering, "so it remembers or draws"),
    (raising, "raises ValueError"),
    (lambda text, question: {"is_correct": pong(text, question), "has_answer": False}, "says by has_answer"),
]


@pytest.mark.parametrize(("function", "message"), BROKEN_FUNCTIONS, ids=range(len(BROKEN_FUNCTIONS)))
def test_a_bug_in_a_function_that_grades_is_found(function: Callable[..., object], message: str) -> None:
    question = replace(KEY, metadata=dict(KEY.metadata))
    with pytest.raises(AssertionError) as caught:
        check_grader(function, question, ["4"], ["5"])
    assert message in str(caught.value)


# -- what differs from process to process -------------------------------------------------------------------------


TEXT = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau 7 8 9"
"""Many different words: a set of them has another order in each process."""


def decisions_of_built_ins() -> str:
    """What each rule, policy, objective and grader gives for a few cases."""
    decisions: dict[str, Any] = {}
    for name, rule in RULES.items():
        made = make(rule.make, {}, KNOWN)
        decisions[f"rule {name}"] = [made.boundary(on).round(6).tolist() for on in evidence_cases(5)]
    for name, policy in POLICIES.items():
        made = make(policy.make, {}, KNOWN)
        decisions[f"policy {name}"] = [made.allocate(view).tolist() for view in view_cases(10)]
    for name, objective in OBJECTIVES.items():
        made = make(objective.make, {option.name: option.example for option in objective.options}, KNOWN)
        orders = np.arange(4), np.arange(4)[::-1].copy()
        decisions[f"objective {name}"] = [made.comparisons(order).tolist() for order in orders], made.family(4)
    for name, case in CASES.items():
        grader = GRADERS[name].model_validate(case.options)
        graded = [grader.grade(text, case.question) for text in (case.right, case.wrong, TEXT)]
        decisions[f"grader {name}"] = [(sorted(grade.signals.items()), grade.extracted) for grade in graded]
    return "\n".join(f"{name}: {decided}" for name, decided in decisions.items())


@pytest.mark.slow
def test_every_built_in_is_the_same_in_another_process() -> None:
    """Processes have other seeds for the hashes of texts, by which sets are ordered."""
    code = "import sys; sys.path[:0] = sys.argv[1:]; import test_contracts as a; print(a.decisions_of_built_ins())"
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    first, second = (
        subprocess.check_output([sys.executable, "-c", code, *paths], env=os.environ | {"PYTHONHASHSEED": hashes})
        for hashes in ("1", "2")
    )
    assert first == second and first.count(b"grader ") == len(CASES)
