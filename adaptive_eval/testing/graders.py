"""Contract of a grader: any text gets marks, the same ones each time."""

import copy
import math
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType
from typing import Any

from adaptive_eval.graders.function import make_marks
from adaptive_eval.graders.types import GraderOptions, Marks
from adaptive_eval.questions.types import Question
from adaptive_eval.testing.runs import fail_unless

AnyGrader = GraderOptions | Callable[..., object]
"""A grader of this package, or a function of the author's."""
RAN = "ADAPTIVE_EVAL_RAN_AN_ANSWER"
"""The environment variable set by texts that are run as code."""
_SETS_IT = f"__import__('os').environ.__setitem__({RAN!r},'1')"
MAX_CPU_SECONDS = 20.0
"""Maximum CPU seconds per text; a run's worker is killed much earlier."""
REPEATS = 30
"""Number of times to grade each right and wrong answer, which detects random graders."""
EMPTY = ("", " \n\t ")
NO_NUMBER = ("nan", "-NaN")
"""Texts that Python reads as a number with which every comparison is false: `not abs(answer - key) > slack` is true."""
REPEATED = 2_000
MORE = "777"
"""Digits that make another number or word of a key if put before or after it."""
HOSTILE = (
    *EMPTY,
    *NO_NUMBER,
    "inf",
    "a" * 40 + "!",  # patterns such as (\w+\s?)*$ take 2^40 steps to find that these end otherwise
    "a " * 40 + "!",
    "1" * 40 + "!",
    " " * 40 + "!",
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
    "10^1000000000",
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
    empty_by_key = _right_if_empty(grader, question, right, wrong, name)
    at_length = (
        text for answer_marks in right[:1] for text in (f"{answer_marks} " * REPEATED, answer_marks[:-1] * REPEATED)
    )
    texts = (*right, *wrong, *HOSTILE, *at_length)
    os.environ.pop(RAN, None)
    marks = [_graded(grader, text, question, name) for text in texts]
    fail_unless(os.environ.pop(RAN, None) is None, f"{name} runs what a model has written as code")
    for text, answer in zip(texts, marks, strict=True):
        _check_marks(answer, text, name)
    fail_unless(question == before, f"{name} changes the question that it is given")
    for text, is_right in (*((text, True) for text in right), *((text, False) for text in wrong)):
        graded = [_is_right(grader, text, question, name) for _ in range(REPEATS)]
        fail_unless(len(set(graded)) == 1, f"{name} gives {text!r:.80} other marks at times, so it remembers or draws")
        must = "right" if is_right else "wrong"
        fail_unless(graded[0] is is_right, f"{name} must find {text!r:.80} {must}, but says {graded[0]!r}")
    fail_unless(not empty_by_key, f"{name} calls an empty answer right for the keys {empty_by_key}: is None == None?")
    for text, problem in _never_right(right, question.answer):
        if text not in right:
            fail_unless(not _is_right(grader, text, question, name), f"{name} {problem}")
    for text, answer in reversed(list(zip(texts, marks, strict=True))):
        again = _graded(grader, text, question, name)
        fail_unless(
            again == answer, f"{name} gives other marks the second time, so it remembers or draws: {text!r:.80}"
        )


def _right_if_empty(
    grader: AnyGrader, question: Question, right: Sequence[str], wrong: Sequence[str], name: str
) -> list[str]:
    """Other keys with which an empty answer is graded correct.

    All answers are graded with each key, which detects graders that remember a key. A key that the grader cannot parse
    is not a bug.
    """
    accepting_keys = []
    for number, key in enumerate((*wrong, "?", "no key", "")):
        other = replace(question, id=f"{question.id}, with another key {number}", answer=key)
        for text in (*EMPTY, *right, *wrong):
            with suppress(AssertionError):
                accepting_keys += [key] * (_is_right(grader, text, other, name) and text in EMPTY and bool(key.strip()))
    return accepting_keys


def _never_right(right: Sequence[str], key: str) -> Iterator[tuple[str, str]]:
    """Texts that must be wrong, with the problem if they are not: empty, not a number, or the key in a longer word."""
    yield from ((text, f"calls an empty answer right: {text!r}") for text in EMPTY)
    yield from ((text, f"calls what is no number right: {text!r}") for text in NO_NUMBER)
    whole_word = re.compile(rf"(?<![\w.]){re.escape(key)}(?!\w)")
    before = (MORE + key,) * key[:1].isalnum()  # a sign before a number begins a word of its own
    behind = (key + MORE,) * key[-1:].isalnum()
    for text in right:
        for longer in (*before, *behind):
            if whole_word.search(text):
                altered = whole_word.sub(longer, text)
                yield altered, f"finds the key {key!r:.80} in a longer word, and calls {altered!r:.80} right"


def _is_right(grader: AnyGrader, text: str, question: Question, name: str) -> bool:
    return _graded(grader, text, question, name).signals.get("is_correct") is True


def _graded(grader: AnyGrader, text: str, question: Question, name: str) -> Marks:
    try:
        with _bounded_cpu(f"{name} takes more than {MAX_CPU_SECONDS:g} s of the processor for the answer {text!r:.80}"):
            if callable(grader):
                return make_marks(grader(text, question), name)
            return grader.grade(text, question)
    except AssertionError:
        raise
    except (Exception, SystemExit) as error:  # no text of a model may raise an error
        raise AssertionError(f"{name} raises {error!r:.200} for the answer {text!r:.80}") from error


@contextmanager
def _bounded_cpu(problem: str) -> Iterator[None]:
    """Raise AssertionError after `MAX_CPU_SECONDS` of CPU time, which does not depend on the load of the machine."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise AssertionError(problem)

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


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
