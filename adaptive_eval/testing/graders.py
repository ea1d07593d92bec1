"""Contract of a grader: any text gets marks, the same ones each time."""

import copy
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from adaptive_eval.base.errors import GraderError
from adaptive_eval.graders.function import make_marks
from adaptive_eval.graders.types import GraderOptions, Marks, marks
from adaptive_eval.questions.types import Question
from adaptive_eval.testing.runs import fail_unless

AnyGrader = GraderOptions | Callable[..., object]
"""A grader of this package, or a function of the author's."""
RAN = "ADAPTIVE_EVAL_RAN_AN_ANSWER"
"""The environment variable set by texts that are run as code."""
_SETS_IT = f"__import__('os').environ.__setitem__({RAN!r},'1')"
REPEATS = 30
"""Number of times to grade each right and wrong answer, which detects random graders."""
EMPTY = ("", " \n\t ")
NO_NUMBER = ("nan", "-NaN")
"""Texts that Python reads as a number with which every comparison is false: `not abs(answer - key) > slack` is true."""
REPEATED = 2_000
GIANT = "10^1000000000"
"""A number that no grader should compute: it may refuse it by a `GraderError`, which leaves the answer ungraded."""
HOSTILE = (
    *EMPTY,
    *NO_NUMBER,
    "inf",
    "a" * 40 + "!",  # patterns such as (\w+\s?)*$ take 2^40 steps to find that these end otherwise
    "\x00\x01",
    "\ud800",
    "４",
    "\\boxed{" * 50,
    "\\boxed{}" * 50,
    "[" * 500,
    "1" * 5000,
    "1/0",
    "1e999999999999",
    GIANT,
    "\\frac{1}{0}",
    "$" * 100,
    "<think>" * 10,
    "-" * 1000 + "4",
    "\\" * 999,
    '{"a": {"b": NaN}}',
    '{"a": ' * 200 + "1" + "}" * 200,
    "{" * 20_000,
    "(" * 5_000 + "4" + ")" * 5_000,
    "a " * 20_000,
    "4," * 5_000 + "x",
    _SETS_IT,
    f"```python\n{_SETS_IT}\n```",
)
"""Texts that a model may have written."""


def check_grader(grader: AnyGrader, question: Question, right: Sequence[str], wrong: Sequence[str]) -> None:
    """Raise AssertionError if the grader, or a function for `grader: {kind: python}`, breaks its contract.

    `right` are correct answers to the question, `wrong` are wrong answers that the grader must distinguish from them:

        check_grader(grade, Question("q1", "2 + 2?", "4"), right=["It is 4."], wrong=["It is 5."])
    """
    function = getattr(grader, "func", grader)  # a partial hands options to a function of another name
    name = getattr(function, "__name__", type(grader).__name__)
    before = copy.deepcopy(question)
    at_length = (text for answer in right[:1] for text in (f"{answer} " * REPEATED, answer[:-1] * REPEATED))
    os.environ.pop(RAN, None)
    texts = (*right, *wrong, *HOSTILE, *at_length)
    answers = [_graded(grader, text, question, name) for text in texts]
    fail_unless(os.environ.pop(RAN, None) is None, f"{name} runs what a model has written as code")
    for text, answer in zip(texts, answers, strict=True):
        _check_marks(answer, text, name)
    fail_unless(question == before, f"{name} changes the question that it is given")
    never_right = [text for text in (*wrong, *EMPTY, *NO_NUMBER) if text not in right]
    for text, is_right in (*((text, True) for text in right), *((text, False) for text in never_right)):
        graded = {_graded(grader, text, question, name).signals["is_correct"] for _ in range(REPEATS)}
        fail_unless(len(graded) == 1, f"{name} gives {text!r:.80} other marks at times, so it remembers or draws")
        must = "right" if is_right else "wrong"
        fail_unless(graded == {is_right}, f"{name} must find {text!r:.80} {must}, but says {not is_right}")
    for text, answer in reversed(list(zip(texts, answers, strict=True))):
        same = _graded(grader, text, question, name) == answer
        fail_unless(same, f"{name} gives other marks the second time, so it remembers or draws: {text!r:.80}")


def _graded(grader: AnyGrader, text: str, question: Question, name: str) -> Marks:
    try:
        return make_marks(grader(text, question), name) if callable(grader) else grader.grade(text, question)
    except AssertionError:
        raise
    except (Exception, SystemExit) as error:  # no text of a model may raise an error
        if isinstance(error, GraderError) and text == GIANT:
            return marks(False, None)
        raise AssertionError(f"{name} raises {error!r:.200} for the answer {text!r:.80}") from error


def _check_marks(marks: Any, text: str, name: str) -> None:
    fail_unless(isinstance(marks, Marks), f"{name} must give marks, but gives {marks!r:.80} for {text!r:.80}")
    is_correct = marks.signals.get("is_correct")
    must = "must give is_correct, true or false"
    fail_unless(isinstance(is_correct, bool), f"{name} {must}, but gives {is_correct!r:.80} for {text!r:.80}")
    fail_unless(
        not is_correct or marks.signals.get("has_answer", True) is True,
        f"{name} finds {text!r:.80} right, and says by has_answer that it is no answer",
    )
    for key, value in marks.signals.items():
        sound = isinstance(value, bool | str) or (isinstance(value, int | float) and math.isfinite(value))
        fail_unless(sound, f"{name}: signal {key} must be true, false, a finite number or a text, but is {value!r:.80}")
    extracted = marks.extracted is None or isinstance(marks.extracted, str)
    fail_unless(extracted, f"{name}: extracted must be a text or None, but is {marks.extracted!r:.80}")
