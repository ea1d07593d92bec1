"""The suites that ship: every built-in passes them, and each finds the bugs planted here, and says what is wrong."""

import os
import pickle
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from grader_cases import CASES, pong
from scipy.special import ndtr
from together import told_by_each

from adaptive_eval.core import Objective, Precision, Ranking, Uniform, UnresolvedPairs, View, ZScore
from adaptive_eval.core.registry import OBJECTIVES, POLICIES, RULES, make
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.graders.registry import GRADERS
from adaptive_eval.graders.types import GraderOptions, Marks, marks
from adaptive_eval.questions.types import Question
from adaptive_eval.testing import check_grader, check_objective, check_policy, check_rule
from adaptive_eval.testing import graders as grader_suite
from adaptive_eval.testing import objectives as objective_suite
from adaptive_eval.testing import policies as policy_suite
from adaptive_eval.testing import rules as rule_suite
from adaptive_eval.testing.runs import THERE, check_elsewhere

MODELS = ("model-a", "model-b", "model-c", "model-d")
KNOWN = {"confidence": 0.95, "start": 0.05, "models": MODELS, "recorded": frozenset({0})}
KEY = Question("q", "?", "4", metadata={"year": 2024})


SELDOM = {
    *("published", "expected_loss", "optimal"),
    *("leader", "unresolved_pairs", "uniform", "soonest", "weighted"),
    *("best", "top_k", "place", "baseline", "ranking", "precision", "threshold"),
}
"""Built-ins whose boundaries, allocations and runs the default tests of `core` try too: these long ones are for all."""


def named(registry: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SELDOM else []) for name in registry]


@pytest.mark.parametrize("name", named(RULES))
def test_every_rule_keeps_to_its_contract(name: str) -> None:
    check_rule(make(RULES[name].make, {}, KNOWN))


@pytest.mark.parametrize("name", named(POLICIES))
def test_every_policy_keeps_to_its_contract(name: str) -> None:
    check_policy(make(POLICIES[name].make, {}, KNOWN))


@pytest.mark.parametrize("name", named(OBJECTIVES))
def test_every_objective_keeps_to_its_contract(name: str) -> None:
    options = {option.name: option.example for option in OBJECTIVES[name].options}
    check_objective(make(OBJECTIVES[name].make, options, KNOWN))


@pytest.mark.parametrize("name", GRADERS)
def test_every_grader_keeps_to_its_contract(name: str) -> None:
    case = CASES[name]
    check_grader(GRADERS[name].model_validate(case.options), case.question, [case.right], [case.wrong])


def test_a_function_is_a_grader_too() -> None:
    check_grader(pong, KEY, ["4"], ["5"])


def test_a_function_with_options_is_named_by_itself() -> None:
    check_grader(partial(pong, sign="!"), KEY, ["4!"], ["4"])
    with pytest.raises(AssertionError, match="^pong must find '4' wrong"):
        check_grader(partial(pong, sign=""), KEY, ["4!"], ["4"])


def test_they_need_no_test_framework() -> None:
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


@dataclass(frozen=True)
class Forgetful(Sequential):
    """At another level it has its defaults."""

    height: float = 1.0

    def boundary(self, evidence: Any) -> Any:
        return super().boundary(evidence) * self.height

    def p_value(self, evidence: Any, sign: int) -> Any:
        return super().p_value(replace(evidence, z=evidence.z / self.height), sign)

    def at_level(self, alpha: float) -> "Forgetful":
        return Forgetful(confidence=1.0 - alpha)


class Partly(ZScore):
    def p_value(self, evidence: Any, sign: int) -> Any:
        return np.ones_like(evidence.z)


class Anew(Sequential):
    """A raised horizon brings it all of its error again."""

    def extended(self, looks: Any, now: Any, delta: float) -> Any:
        return self


class Forgets(Sequential):
    """Once raised, a constant, which has nothing to say of a horizon."""

    def extended(self, looks: Any, now: Any, delta: float) -> Any:
        return ZScore(2.0)


class Constant(ZScore):
    """The same, and says that it stays so."""

    def extended(self, looks: Any, now: Any, delta: float) -> Any:
        return self


class Uncorrected(Sequential):
    def extended(self, looks: Any, now: Any, delta: float) -> Any:
        return Constant(2.0)


class HalfLeft(Constant):
    def remaining_error(self, evidence: Any) -> Any:
        return np.ones_like(evidence.z)


class Revived(Constant):
    """Calls what it says is spent."""

    def remaining_error(self, evidence: Any) -> Any:
        return np.zeros_like(evidence.z)

    def exhausted(self, evidence: Any) -> Any:
        return np.ones(evidence.z.shape, dtype=bool)

    def tied(self, evidence: Any, delta: float) -> Any:
        return np.zeros(evidence.z.shape, dtype=bool)


class Levelled(Broken):
    """It has a level, and forgets the p-values."""

    confidence = 0.95

    def __init__(self) -> None:
        super().__init__(lambda on: np.full_like(on.z, 3.0))

    def at_level(self, alpha: float) -> "Levelled":
        return self


def _beyond(on: Any) -> Any:
    if (on.information > 1.0).any():
        raise KeyError("beyond")
    return np.full_like(on.z, 3.0)


def _of_some(on: Any) -> Any:
    return np.full_like(on.z, 3.0 + 0.0 * on.z.max())


class Lost(Sequential):
    def p_value(self, evidence: Any, sign: int) -> Any:
        if np.isinf(evidence.sigma).any():
            raise OverflowError("of nothing")
        return super().p_value(evidence, sign)


class Abrupt(Sequential):
    def extended(self, looks: Any, now: Any, delta: float) -> Any:
        raise NotImplementedError


BROKEN_RULES: list[tuple[Any, str]] = [
    (Broken(_beyond), "raises KeyError('beyond') where z 0, sigma 0.1044, information 1.033"),
    (Broken(_of_some), "raises ValueError('zero-size array"),
    (Lost(), "p_value raises OverflowError('of nothing') for sign 1, where z 0, sigma inf"),
    (Abrupt(), "extended raises NotImplementedError() after 6 looks, the last z"),
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
    (Forgetful(), "at_level forgets start: with 0.045 the boundary is another"),
    (Partly(), "needs confidence, p_value, at_level"),
    (Anew(), "lets the error be spent again"),
    (Forgets(), "cannot be extended once more"),
    (Uncorrected(), "lacks p-values"),
    (HalfLeft(), "needs remaining_error, exhausted, tied"),
    (Revived(), "what is spent may not be called any more"),
    (Broken(lambda on: np.full_like(on.z, np.inf)), "calls nothing, not even with all the trials allowed"),
    (Broken(lambda on: 4.0 * on.information), "calls a pair that differs by next to nothing"),
    (Broken(lambda on: np.zeros_like(on.z)), "calls a pair that differs by next to nothing"),
    (Broken(lambda on: np.full_like(on.z, 0.3)), "calls a pair that differs by next to nothing, as exact ties do"),
    (Broken(lambda on: np.full_like(on.z, 0.7)), "calls a pair that differs by next to nothing, as exact ties do"),
    (Broken(lambda on: np.abs(on.z) >= 2.0), "must be the number that |z| has to reach"),
    (Levelled(), "needs confidence, p_value, at_level"),
]


@pytest.mark.parametrize(("rule", "said"), BROKEN_RULES, ids=range(len(BROKEN_RULES)))
def test_a_bug_in_a_rule_is_found(rule: Any, said: str) -> None:
    with pytest.raises(AssertionError) as found:
        check_rule(rule)
    assert said in str(found.value)
    assert type(rule).__name__ in str(found.value)


# -- policies with a bug ------------------------------------------------------------------------------------------


@dataclass
class Bad:
    """A policy that gives this."""

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


@pytest.mark.parametrize(("policy", "said"), BROKEN_POLICIES, ids=range(len(BROKEN_POLICIES)))
def test_a_bug_in_a_policy_is_found(policy: Any, said: str) -> None:
    with pytest.raises(AssertionError) as found:
        check_policy(policy)
    assert said in str(found.value)


# -- objectives with a bug ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Odd(Objective):
    """The ranking, but for these."""

    pairs: Callable[[Any], Any] = Ranking().comparisons
    of: Callable[[int], Any] = Ranking().family
    against: float | None = None
    says: bool = True
    own: Any = None

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
        return self.own


def _turn(order: Any) -> Any:
    order[:] = order[::-1].copy()
    return Ranking().comparisons(order)


COUNT = iter(range(10**6))
BROKEN_OBJECTIVES: list[tuple[Odd, str]] = [
    (Odd(lambda order: np.stack([order, order], axis=1)), "compares a model with itself"),
    (Odd(lambda order: np.stack([order[:-1], order[1:] + 1], axis=1)), "compares"),
    (Odd(lambda order: np.array([[0, len(order)]])), "compares what is none of the models"),
    (Odd(lambda order: np.array([[0, 1], [1, 0]])), "names a comparison twice"),
    (Odd(lambda order: np.empty((0, 2), int)), "compares nothing in the order"),
    (Odd(lambda order: order), "comparisons must be (n, 2)"),
    (Odd(lambda order: np.array([[0.0, 1.0]])), "comparisons are positions"),
    (Odd(_turn), "changes the order that it is shown"),
    (Odd(lambda order: np.array([[0, 1 + next(COUNT) % 3]])), "when it is asked again"),
    (Odd(of=lambda models: 1), "could each turn out to be wrong"),
    (Odd(of=lambda models: np.array([[0, 1]])), "which is not in its family"),
    (Odd(against=float("nan")), "reference must be a finite number"),
    (Odd(against=0.5), "has a reference"),
    (Odd(says=False), "must bring a rule of its own"),
    (Odd(own=Broken(lambda on: np.full_like(on.z, -1.0))), "the boundary is negative"),
]


@pytest.mark.parametrize(("objective", "said"), BROKEN_OBJECTIVES, ids=range(len(BROKEN_OBJECTIVES)))
def test_a_bug_in_an_objective_is_found(objective: Odd, said: str) -> None:
    with pytest.raises(AssertionError) as found:
        check_objective(objective)
    assert said in str(found.value)


@pytest.mark.slow
def test_one_that_brings_a_sound_rule_passes() -> None:
    lone = OBJECTIVES["precision"].make(half_width=0.1)
    assert lone.rule == Precision(0.1)
    check_objective(lone, models=2)


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


def slow(text: str, question: Question) -> bool:
    return re.search(r"^(\w+\s?)*\.$", text) is None and pong(text, question)


def near(text: str, question: Question) -> bool:
    try:
        return not abs(float(text) - 4.0) > 0.1  # the bug: nan is no further away than anything
    except ValueError:
        return False


def leaving(text: str, question: Question) -> bool:
    if not text:
        raise SystemExit("no answer")
    return pong(text, question)


class Keeping:
    """Keeps the first key, or the marks of a text, for the questions that follow."""

    def __init__(self, what: Literal["key", "text"]) -> None:
        self.what, self.kept = what, dict[str, Any]()
        self.__name__ = "keeping"

    def __call__(self, text: str, question: Question) -> bool:
        if self.what == "text":
            return bool(self.kept.setdefault(text, pong(text, question)))
        return pong(text, replace(question, answer=self.kept.setdefault("key", question.answer)))


@cache
def _read(text: str) -> list[str]:
    return []


def keeping_for_all(text: str, question: Question) -> bool:
    """Keeps the first key for all questions."""
    _read("the key").append(question.answer)
    return text == _read("the key")[0]


def calls_all_right(text: str, question: Question) -> bool:
    return True


def nothing_is_nothing(text: str, question: Question) -> bool:
    """What cannot be read as a number is None, in an answer as in a key."""
    said, key = (float(one) if one in ("4", "5") else None for one in (text, question.answer))
    return said == key


def powers(text: str, question: Question) -> bool:
    found = re.findall(r"(\d{1,9})\^(\d+)", text)
    return all(int(base) ** int(power) for base, power in found) and pong(text, question)


def opening(text: str, question: Question) -> bool:
    """Where an answer is the name of a file, it reads on there."""
    try:
        return question.answer in Path(text).read_text()
    except (OSError, ValueError):
        return pong(text, question)


def listing(text: str, question: Question) -> bool:
    try:
        return any(question.answer == one.name for one in Path(text).iterdir())
    except (OSError, ValueError):
        return pong(text, question)


def calling(text: str, question: Question) -> bool:
    for host in re.findall(r"https?://([^/\s]+)", text):
        with suppress(OSError):
            socket.create_connection((host, 80), 0.1).close()
    return pong(text, question)


def looking(text: str, question: Question) -> bool:
    """It never opens what an answer names."""
    return text == question.answer or os.path.exists(text)  # noqa: PTH110


def expanding(text: str, question: Question) -> bool:
    return pong(os.path.expandvars(text), question)


def telling(text: str, question: Question) -> dict[str, object]:
    told = os.path.expandvars(text)
    return {"is_correct": pong(text, question), "said": told}


BROKEN_FUNCTIONS: list[tuple[Callable[..., object], str]] = [
    (drawing, "so it remembers or draws"),
    (running, "runs what a model has written as code"),
    (descending, "raises RecursionError"),
    (near, "calls what is no number right: 'nan'"),
    (leaving, "raises SystemExit"),
    (lambda text, question: {"is_correct": int(pong(text, question))}, "is_correct must be true or false, but is"),
    (lambda text, question: not text.strip() or pong(text, question), "calls an empty answer right"),
    (lambda text, question: True, "must find '5' wrong"),
    (lambda text, question: False, "must find '4' right"),
    (lambda text, question: None, "must return true, false, a number or a mapping"),
    (lambda text, question: {"is_correct": pong(text, question), "length": float("inf")}, "finite number"),
    (lambda text, question: {"right": True}, "gives no signal is_correct"),
    (mutating, "changes the question"),
    (remembering, "so it remembers or draws"),
    (raising, "raises ValueError"),
    (Keeping("key"), "are marks or keys kept?"),
    (Keeping("text"), "are marks or keys kept?"),
    (opening, "opening reaches for what an answer names (open)"),
    (listing, "listing reaches for what an answer names (os."),
    (calling, "calling reaches for what an answer names (socket.getaddrinfo)"),
    (looking, "looking opens a file that an answer names"),
    (expanding, "expanding reads a variable of the environment that an answer names"),
    (telling, "telling gives away a variable of the environment"),
    (lambda text, question: question.answer in text, "finds the key '4' in a longer word, and calls '7774' right"),
    (lambda text, question: text.strip(".").endswith(question.answer), "in a longer word, and calls '7774' right"),
    (lambda text, question: text.startswith(question.answer), "in a longer word, and calls '4777' right"),
    (nothing_is_nothing, "calls an empty answer right where the key is '?'"),
    (lambda text, question: {"is_correct": pong(text, question), "has_answer": False}, "says by has_answer"),
]


def test_a_grader_that_takes_a_part_of_a_signed_key_is_found() -> None:
    with pytest.raises(AssertionError, match="finds the key '-4' in a longer word, and calls 'It is -4777' right"):
        check_grader(lambda text, question: question.answer in text, Question("q", "?", "-4"), ["It is -4"], ["5"])


def test_a_grader_that_takes_a_part_of_a_key_with_a_sign_behind_is_found() -> None:
    with pytest.raises(AssertionError, match="finds the key '4%' in a longer word, and calls 'It is 7774%' right"):
        check_grader(lambda text, question: question.answer in text, Question("q", "?", "4%"), ["It is 4%"], ["5%"])


@pytest.mark.parametrize("function", [lambda text, question: True, lambda text, question: False, calls_all_right])
def test_a_grader_that_keeps_nothing_is_not_said_to(function: Callable[..., object]) -> None:
    with pytest.raises(AssertionError, match=r"but says (True|False)$"):
        check_grader(function, KEY, ["4"], ["5"])


@pytest.mark.slow
@pytest.mark.usefixtures("another_process")
def test_what_a_function_keeps_in_its_module_is_found() -> None:
    with pytest.raises(AssertionError, match="are marks or keys kept"):
        check_grader(keeping_for_all, KEY, ["4"], ["5"])


@pytest.mark.parametrize(("function", "said"), BROKEN_FUNCTIONS, ids=range(len(BROKEN_FUNCTIONS)))
def test_a_bug_in_a_function_that_grades_is_found(function: Callable[..., object], said: str) -> None:
    question = replace(KEY, metadata=dict(KEY.metadata))
    with pytest.raises(AssertionError) as found:
        check_grader(function, question, ["4"], ["5"])
    assert said in str(found.value)


class Hasty(GraderOptions):
    """Its quick way says otherwise."""

    kind: Literal["hasty"] = "hasty"

    def quick(self, text: str, question: Question) -> Marks:
        return marks(True, text)

    def grade(self, text: str, question: Question) -> Marks:
        return marks(text == question.answer, text or None)


class Undeclared(Hasty):
    """It gives a signal that it does not declare."""

    def quick(self, text: str, question: Question) -> Marks:
        return self.grade(text, question)

    def grade(self, text: str, question: Question) -> Marks:
        return marks(text == question.answer, text or None, extra=1.0)


def test_a_grader_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grader_suite, "LONGEST_CPU", 0.2)
    with pytest.raises(AssertionError, match="slow takes more than 0.2 s of the processor for the answer 'a"):
        check_grader(slow, KEY, ["4"], ["5"])
    with pytest.raises(AssertionError, match="powers takes more than 0.2 s of the processor for the answer '10"):
        check_grader(powers, KEY, ["4"], ["5"])


class Uneven(Undeclared):
    """An answer without the key lacks a signal that it declares."""

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"is_correct", "has_answer", "extra"})

    def grade(self, text: str, question: Question) -> Marks:
        return super().grade(text, question) if text else marks(False, None)


class Thoughtless(Undeclared):
    """It takes the thoughts for the answer."""

    def grade(self, text: str, question: Question) -> Marks:
        return marks(text == question.answer, text or None)


class LastWord(Undeclared):
    """It takes thoughts that never end for the answer."""

    def grade(self, text: str, question: Question) -> Marks:
        words = text.replace(">", "> ").split()
        return marks(words[-1:] == [question.answer], words[-1] if words else None)


@pytest.mark.parametrize(
    ("grader", "said"),
    [
        (Hasty(), "quick says otherwise"),
        (Undeclared(), "gives names"),
        (Uneven(), "gives names .* which '' gets"),
        (Thoughtless(), "takes thoughts for the answer in '<think>5</think>4'"),
        (LastWord(), "takes thoughts for the answer in '<think>4'"),
    ],
)
def test_a_bug_in_a_grader_is_found(grader: GraderOptions, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_grader(grader, KEY, ["4"], ["5"])


# -- what differs from process to process -------------------------------------------------------------------------


class RuleByHash:
    def boundary(self, evidence: Any) -> Any:
        return np.full_like(evidence.z, 2.0 + hash("a rule") % 10**6 / 10**6)


class PolicyByHash(Uniform):
    def allocate(self, view: View) -> Any:
        given = super().allocate(view)
        return given[:, np.random.default_rng(hash("a policy") % 10**6).permutation(given.shape[1])]


class ObjectiveByHash(Ranking):
    def comparisons(self, order: Any) -> Any:
        pairs = super().comparisons(order)
        return pairs[np.random.default_rng(hash(order.tobytes()) % 10**6).permutation(len(pairs))]


def words_in_a_set(text: str, question: Question) -> dict[str, object]:
    return {"is_correct": pong(text, question), "extracted": " ".join(set(text.split()))}


@pytest.mark.parametrize(
    ("check", "name"),
    [
        pytest.param(partial(check_rule, RuleByHash()), "RuleByHash", marks=pytest.mark.slow),
        pytest.param(partial(check_policy, PolicyByHash()), "PolicyByHash", marks=pytest.mark.slow),
        pytest.param(partial(check_objective, ObjectiveByHash(), models=8), "ObjectiveByHash", marks=pytest.mark.slow),
        pytest.param(
            partial(check_grader, words_in_a_set, KEY, ["4"], ["5"]), "words_in_a_set", marks=pytest.mark.slow
        ),
    ],
)
@pytest.mark.usefixtures("another_process")
def test_what_goes_by_hashes_is_found(check: Callable[[], None], name: str) -> None:
    with pytest.raises(AssertionError, match=f"{name} gives something else in another process, .* the order of a set"):
        check()


def is_there() -> str:
    return str(THERE in os.environ)


@pytest.mark.slow
@pytest.mark.usefixtures("another_process")
def test_a_module_that_calls_a_suite_when_it_is_loaded_begins_no_third_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="'True' for 'False'"):
        check_elsewhere(is_there, (), "it")
    monkeypatch.setenv(THERE, "1")
    check_elsewhere(is_there, (), "it")


def test_what_cannot_be_sent_to_another_process_is_not_tried() -> None:
    check_grader(lambda text, question: pong(text, question), KEY, ["4"], ["5"])


@pytest.mark.slow
@pytest.mark.usefixtures("another_process")
def test_every_built_in_is_the_same_in_another_process() -> None:
    asked: dict[str, tuple[Callable[..., str], tuple[Any, ...]]] = {}
    for name, rule in RULES.items():
        asked[f"rule {name}"] = (rule_suite._boundaries, (make(rule.make, {}, KNOWN),))
    for name, policy in POLICIES.items():
        asked[f"policy {name}"] = (policy_suite._allocations, (make(policy.make, {}, KNOWN),))
    for name, objective in OBJECTIVES.items():
        made = make(objective.make, {option.name: option.example for option in objective.options}, KNOWN)
        asked[f"objective {name}"] = (objective_suite._comparisons, (made, 4))
    for name, case in CASES.items():
        grader, texts = GRADERS[name].model_validate(case.options), [case.right, case.wrong, grader_suite.WORDS]
        asked[f"grader {name}"] = (grader_suite._marks_of_all, (grader, case.question, texts))
    assert pickle.dumps(asked), "all of them can be sent there"
    check_elsewhere(told_by_each, (asked,), "a built-in")
