"""Rules, policies, objectives and graders of one's own: with options and without, and what is wrong with them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from checked_text import problems_in

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.load import load_decisions
from adaptive_eval.config.planning import plan_on
from adaptive_eval.core import Bench, Plan
from adaptive_eval.graders.function import Python
from adaptive_eval.questions.types import Question

NAMES = ("a", "b", "c", "d")
BASE = (
    "questions: q.jsonl\nmodels: [{name: a, base_url: http://a/v1}, {name: b, base_url: http://b/v1}]\ngrader: math\n"
)
MINE = '''
from dataclasses import dataclass

import numpy as np

from adaptive_eval.core.objectives import Objective
from adaptive_eval.core.rules import Precision
from adaptive_eval.core.sequential import Sequential


@dataclass(frozen=True)
class Strict:
    """Stands as high as it is told."""

    confidence: float
    height: float = 3.0

    def __post_init__(self):
        if self.height <= 0.0:
            raise ValueError(f"height must be positive, but got {self.height!r}")

    def boundary(self, evidence):
        return np.full_like(evidence.z, self.height)


@dataclass(frozen=True)
class Frugal:
    share: float = 1.0

    def allocate(self, view):
        return np.zeros_like(view.issued)


@dataclass(frozen=True)
class Against(Objective):
    """Everyone against those who are named."""

    models: tuple
    named: tuple = ("a",)

    def comparisons(self, order):
        return self.family(len(order))

    def family(self, models):
        at = [self.models.index(name) for name in self.named]
        return np.array([(one, other) for one in at for other in range(models) if other not in at])


class Narrow(Objective):
    compares, rule, reference = False, Precision(0.1), -1e6

    def comparisons(self, order):
        return np.stack([order, np.full(len(order), len(order))], axis=1)

    def family(self, models):
        return 1


class Itself(Against):
    def family(self, models):
        return np.array([[0, 0]])


def strict(height):
    return Strict(0.9, height)


ready = Strict(0.9, 5.0)
nothing = 3


def grade(text, question, *, tolerance=0.0):
    return abs(float(text) - float(question.answer)) <= tolerance
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "mine.py").write_text(MINE)
    yield tmp_path
    sys.modules.pop("mine", None)


def plan(folder: Path, text: str) -> Plan:
    (folder / "run.yaml").write_text(text)
    return plan_on(Bench(4, 5, np.array([0.0, 1.0])), load_decisions(folder / "run.yaml", (), NAMES), NAMES)


@pytest.mark.parametrize(
    ("text", "height", "confidence"),
    [
        ("stopping: mine:Strict", 3.0, 0.95),
        ("stopping: {rule: 'mine:Strict', confidence: 0.8}", 3.0, 0.8),
        ("stopping: {rule: 'mine:Strict', options: {height: 4}}", 4, 0.95),
        ("stopping: {rule: 'mine:Strict', options: {height: 4, confidence: 0.7}}", 4, 0.7),
        ("stopping: {rule: 'mine:strict', options: {height: 2}}", 2, 0.9),
        ("stopping: {rule: 'mine:ready'}", 5.0, 0.9),
    ],
)
def test_rules_are_made_of_options_and_what_they_ask(folder: Path, text: str, height: float, confidence: float) -> None:
    rule = plan(folder, text).rule
    assert (rule.height, rule.confidence) == (height, confidence)  # type: ignore[attr-defined]


def test_a_policy_and_an_objective_too_which_may_bring_its_rule(folder: Path) -> None:
    result = plan(folder, "trials: {policy: 'mine:Frugal', options: {share: 0.5}}\nobjective: mine:Against")
    assert result.policy.share == 0.5  # type: ignore[attr-defined]
    assert result.objective.comparisons(np.arange(4)).tolist() == [[0, 1], [0, 2], [0, 3]]
    two = plan(folder, "objective: {kind: 'mine:Against', options: {named: [b, d]}}")
    assert two.objective.comparisons(np.arange(4)).tolist() == [[1, 0], [1, 2], [3, 0], [3, 2]]
    assert type(plan(folder, "objective: mine:Narrow").deciding_rule).__name__ == "Precision"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("stopping: {rule: 'mine:Strict', options: {hight: 4}}", "got an unexpected keyword argument 'hight'"),
        (
            "stopping: {rule: 'mine:Strict', options: {height: -1}}",
            "stopping.rule: mine:Strict could not be created with the options {'height': -1}: height must be positive",
        ),
        ("stopping: {rule: 'mine:strict'}", "stopping.rule: mine:strict could not be created without options"),
        ("stopping: {rule: 'mine:ready', options: {height: 2}}", "mine:ready has no options, since it is an object"),
        ("stopping: 'mine:Frugal'", "stopping.rule: mine:Frugal is not a valid rule: it has no boundary"),
        ("trials: {policy: 'mine:Strict'}", "trials.policy: mine:Strict is not a valid policy: it has no allocate"),
        ("objective: 'mine:Frugal'", "objective.kind: mine:Frugal is not a valid objective: it has no comparisons"),
        ("stopping: 'mine:nothing'", "stopping.rule: mine:nothing must be a class"),
        ("stopping: 'mine:Lost'", "module mine has no attribute Lost"),
        ("objective: 'mine:Itself'", "must compare two of the models 0 to 3, but got [[0, 0]]"),
        ("objective: 'mine:Narrow'\nstopping: {familywise: holm}", "familywise needs a rule with p-values"),
    ],
)
def test_settings_that_do_not_fit_are_reported(folder: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        plan(folder, text)
    assert problem in str(refused.value)


def test_a_grader_is_given_its_options(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    grader = Python.model_validate({"function": "mine:grade", "options": {"tolerance": 0.1}})
    grader.warm_up()
    assert grader.grade("4.05", Question("q", "?", "4")).signals["is_correct"] is True
    assert Python(function="mine:grade").grade("4.05", Question("q", "?", "4")).signals["is_correct"] is False
    text = BASE.replace("grader: math", "grader: {kind: python, function: mine}")
    assert "grader.function must name an object to import" in "\n".join(problems_in(text))
    with pytest.raises(ConfigError, match=r"mine:grade cannot be called with text, question, tolerence: .*tolerence"):
        Python(function="mine:grade", options={"tolerence": 0.1}).warm_up()
