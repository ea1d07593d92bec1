"""What every grader keeps to: any text gets marks, the same ones each time."""

import copy
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from adaptive_eval.graders.function import marks_of
from adaptive_eval.graders.types import Grader, Marks
from adaptive_eval.questions.types import Question
from adaptive_eval.testing.runs import fail_unless

HOSTILE = (
    "",
    " \n\t ",
    "\x00\x01",
    "\ud800",
    "４",
    "\\boxed{" * 50,
    "\\boxed{}" * 50,
    "{" * 500,
    "[" * 500,
    "((((" * 200,
    "1" * 5000,
    "1/0",
    "1e999999999999",
    "\\frac{1}{0}",
    "$" * 100,
    "<think>" * 10,
    "-" * 1000 + "4",
    "\\" * 999,
    '{"a": {"b": NaN}}',
    '{"a": ' * 200 + "1" + "}" * 200,
)
"""Texts that a model may have written."""


def check_grader(
    grader: Grader | Callable[..., object], question: Question, right: Sequence[str], wrong: Sequence[str]
) -> None:
    """Raise AssertionError unless the grader, or the function of your own, keeps to its contract.

    `right` and `wrong` are answers to the question that it has to tell apart.
    """
    function = getattr(grader, "func", grader)  # a partial hands options to a function of another name
    name = getattr(function, "__name__", type(grader).__name__)
    before, texts = copy.deepcopy(question), (*right, *wrong, *HOSTILE)
    found = [_graded(grader, text, question, name) for text in texts]
    for text, marks in zip(texts, found, strict=True):
        _check_marks(marks, text, name)
    fail_unless(question == before, f"{name} changes the question that it is given")
    for texts_of, wanted in ((right, True), (wrong, False)):
        for text in texts_of:
            said = _graded(grader, text, question, name).signals.get("is_correct")
            fail_unless(
                said is wanted, f"{name} must find {text!r:.80} {'right' if wanted else 'wrong'}, but says {said!r}"
            )
    for text in ("", " \n\t "):
        said = _graded(grader, text, question, name).signals.get("is_correct")
        fail_unless(said is not True, f"{name} calls an empty answer right: {text!r}")
    for text, marks in reversed(list(zip(texts, found, strict=True))):
        again = _graded(grader, text, question, name)
        fail_unless(again == marks, f"{name} gives other marks the second time, so it remembers or draws: {text!r:.80}")
    if not callable(grader):
        _check_section(grader, question, texts, found, name)


def _check_section(grader: Grader, question: Question, texts: Sequence[str], found: Sequence[Marks], name: str) -> None:
    """What holds of a grader that is more than a function."""
    for text, marks in zip(texts, found, strict=True):
        quick = grader.quick(text, question)
        fail_unless(quick is None or quick == marks, f"{name}: quick says otherwise than grade of {text!r:.80}")
    sent = pickle.loads(pickle.dumps(grader))
    fail_unless(sent == grader, f"{name} does not come to a worker process as it was")
    named = set(found[0].signals)
    fail_unless(
        not grader.gives or named == grader.gives, f"{name}: gives names {sorted(grader.gives)}, not {sorted(named)}"
    )
    fail_unless(grader.key_problem(question) is None, f"{name} refuses the key: {grader.key_problem(question)}")


def _graded(grader: Grader | Callable[..., object], text: str, question: Question, name: str) -> Marks:
    try:
        if callable(grader):
            return marks_of(grader(text, question), name)
        return grader.grade(text, question)
    except Exception as error:  # whatever it is: no text that a model wrote may be an error
        raise AssertionError(f"{name} raises {error!r:.200} for the answer {text!r:.80}") from error


def _check_marks(marks: Any, text: str, name: str) -> None:
    fail_unless(isinstance(marks, Marks), f"{name} must give marks, but gives {marks!r:.80} for {text!r:.80}")
    fail_unless("is_correct" in marks.signals, f"{name} gives no signal is_correct for {text!r:.80}")
    for key, value in marks.signals.items():
        sound = isinstance(value, bool | str) or (isinstance(value, int | float) and math.isfinite(value))
        fail_unless(sound, f"{name}: signal {key} must be true, false, a finite number or a text, but is {value!r:.80}")
    extracted = marks.extracted is None or isinstance(marks.extracted, str)
    fail_unless(extracted, f"{name}: extracted must be a text or None, but is {marks.extracted!r:.80}")
