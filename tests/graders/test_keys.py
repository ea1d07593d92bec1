"""Every answer key goes through the grader as an answer, and must be graded right."""

import asyncio
import json
from pathlib import Path

import pytest

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.graders.function import Python
from adaptive_eval.graders.keys import KeyCheck, require_right_keys
from adaptive_eval.graders.mathematics import Math
from adaptive_eval.graders.numeric import Numeric
from adaptive_eval.graders.pool import GradingPool
from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.graders.structured import Json
from adaptive_eval.graders.text import Contains, Exact, Regex
from adaptive_eval.graders.types import GraderOptions, GradingLimits, Marks, WorkerSettings
from adaptive_eval.questions.types import Question

GRADERS = """
def right(text, question):
    return question.answer in text

def other_way_round(question, text):
    return question.answer in text

def never(text, question):
    return False

def strict(text, question):
    if text != "yes":
        raise ValueError("no program")
    return True

def points(text, question):
    return {"points": 3.0}

def share(text, question):
    score = len(question.answer) / max(len(text), 1)
    return {"score": score, **({"is_correct": True} if score == 1.0 else {})}

class Wanted:
    pass

LIMIT = 3
"""


def tried(
    grader: GraderOptions,
    *keys: str,
    folder: Path = Path(),
    choices: tuple[str, ...] = (),
    rubric: RubricConfig = RubricConfig(),  # noqa: B008
) -> KeyCheck:
    async def run() -> KeyCheck:
        pool = GradingPool(grader, open_rubric(rubric), WorkerSettings(GradingLimits(workers=1), folder))
        try:
            questions = [Question(f"q{number}", "?", key, choices) for number, key in enumerate(keys)]
            return await require_right_keys(grader, pool, questions)
        finally:
            await pool.close()

    return asyncio.run(run())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "keygraders.py").write_text(GRADERS)
    return tmp_path


@pytest.mark.parametrize(
    ("grader", "keys"),
    [
        (Exact(), ("Paris", " two  words ", "-3")),
        (Contains(), ("Paris", "5")),
        (Numeric(), ("42", "$1,000", "1/2", "50%", "-3.5", "1e6")),
        (Math(), ("42", r"\frac{1}{2}", "$x^2+1$", r"\boxed{7}", r"\{1, 2\}", "(1, 2)", "x = 3", r"\sqrt{2}")),
        (Json(), ("42", "text", '{"a": 1}', "true")),
        (Json(field="result.0.value"), ("42", "text")),
        (Regex(pattern=r"Answer: (.+)"), ("42", "B")),
        (Regex(pattern=r"\\boxed\{(.*)\}"), ("42", "B")),
    ],
)
def test_right_keys_are_found_right(grader: GraderOptions, keys: tuple[str, ...]) -> None:
    assert tried(grader, *keys) == KeyCheck(len(keys), None)


def test_a_pattern_that_finds_some_keys_must_find_all_and_one_that_finds_none_is_told() -> None:
    trial = tried(Regex(pattern=r"<<(.*)>>"), "42", "43")
    assert trial.right == 0 and "the grader may require another form of answer" in trial.summary
    with pytest.raises(ConfigError, match=r"question q1: the answer '12.5' is graded wrong \(extracted: '5'\)"):
        tried(Regex(pattern=r"\d+"), "42", "12.5")


class Here(Python):
    """Called in the process of the test."""

    def quick(self, text: str, question: Question) -> Marks:
        return self.grade(text, question)


def function(name: str, kind: type[Python] = Python, **more: object) -> Python:
    return kind.model_validate({"function": f"keygraders:{name}", **more})


@pytest.mark.slow
def test_a_user_function_is_loaded_and_called(folder: Path) -> None:
    assert tried(function("right"), "42", "43", folder=folder) == KeyCheck(2, None)
    with pytest.raises(
        ConfigError, match=r"(?s)question q0: .*'str' object has no attribute.*function\(text, question\)"
    ):
        tried(function("other_way_round"), "42", folder=folder)
    with pytest.raises(ConfigError) as refused:
        tried(function("Wanted"), "42", "43", folder=folder)
    assert "keygraders:Wanted must be a function of text and question, but is a class" in str(refused.value)
    assert str(refused.value).count("Wanted") == 1 and "answer keys" not in str(refused.value), "it is said once"


def test_a_user_function_is_tried_on_the_keys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match=r"question q0: the answer '42' is graded wrong \(nothing extracted\)"):
        tried(function("never", Here), "42")
    assert tried(function("never", Here, key_is_answer=False), "42").right == 0
    with pytest.raises(ConfigError, match=r"(?s)question q1: .*set grader.key_is_answer: false"):
        tried(function("strict", Here), "yes", "no")
    trial = tried(function("strict", Here, key_is_answer=False), "yes", "no")
    assert trial.right == 1 and "they need not be answers; it fails on 1 of them: " in trial.summary
    accepted = tried(function("right", Here, key_is_answer=False), "42", "43")
    assert accepted.summary == "the grader accepts all 2 answer keys"
    assert "does not report whether every answer is correct" in tried(function("points", Here), "42").summary
    assert "a question has no key" in tried(function("right", Here), "42", "").summary
    for wrong, message in (
        (function("absent", key_is_answer=False), "has no attribute absent"),
        (function("LIMIT"), "but is a value of type int; put further arguments"),
        (Python(function="nomod:grade"), "module nomod could not be imported"),
    ):
        with pytest.raises(ConfigError, match=message):
            wrong.warm_up()


@pytest.mark.slow
def test_partial_credit_needs_a_rubric_that_places_it(folder: Path) -> None:
    """The key alone has the whole score, the key in a sentence a part."""
    grader = function("share", key_is_answer=False)
    with pytest.raises(ConfigError, match=r"question q0: the grader python on '.*42.*': the score 0\.\d+ is neither"):
        tried(grader, "42", folder=folder)
    half = {"name": "half", "weight": 0.5, "when": {"score": {"at_least": 0.2}}}
    right = {"name": "right", "weight": 1, "when": {"is_correct": True}}
    rubric = {"categories": [right, half, {"name": "wrong", "weight": 0}]}
    assert tried(grader, "42", folder=folder, rubric=RubricConfig.model_validate_json(json.dumps(rubric))).right == 1
