"""What holds for every grader: any text gets marks, the same ones each time, in little time."""

import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from grader_cases import CASES, graders
from hypothesis import given, settings
from hypothesis import strategies as st
from reaching import check_reach
from thoroughness import examples, first_of

from adaptive_eval.graders.registry import GRADERS
from adaptive_eval.graders.types import Marks
from adaptive_eval.questions.types import Question
from adaptive_eval.testing.graders import HOSTILE

MEGABYTE = 1_000_000


GRADER = graders()
TEXTS = [*HOSTILE, "<think> 4 </think>"]
BIG = {
    "letters": "x" * MEGABYTE,
    "grouped digits": "123," * (MEGABYTE // 4) + "1",
    "boxes that never close": "\\boxed{" * (MEGABYTE // 7),
    "braces": "{" * MEGABYTE,
    "objects that never close": '{"a":' * (MEGABYTE // 5),
    "fences": "```json\n" * (MEGABYTE // 8),
    "fractions": "\\frac{" * (MEGABYTE // 6),
    "answer and spaces": "answer" + " " * MEGABYTE + "!",
    "answer is is": "answer " + "is " * (MEGABYTE // 3),
    "minus and spaces": "-" + " " * MEGABYTE,
    "slashes": "1 /" * (MEGABYTE // 3),
    "box and spaces": "\\boxed" + " " * MEGABYTE,
    "escapes": "\\boxed{" + "\\{" * (MEGABYTE // 2),
    "empty lines": "A" + "\n" * MEGABYTE,
    "choices": "choice " * (MEGABYTE // 7),
    "bold letters": "**A. " * (MEGABYTE // 5),
}
names = pytest.mark.parametrize("name", GRADERS)


def checked(marks: Any) -> Marks:
    assert isinstance(marks, Marks)
    assert isinstance(marks.signals["is_correct"], bool)
    assert all(isinstance(value, bool | float | str) for value in marks.signals.values())
    assert marks.extracted is None or isinstance(marks.extracted, str)
    return marks


def test_every_grader_is_here() -> None:
    assert CASES.keys() == GRADERS.keys(), "a new grader has a case in tests/grader_cases.py"
    assert all(grader.model_dump()["kind"] == name for name, grader in GRADER.items())


@names
def test_the_quick_way_says_the_same(name: str) -> None:
    grader, case = GRADER[name], CASES[name]
    for text in (case.right, case.wrong, *TEXTS):
        quick = grader.quick(text, case.question)
        assert quick is None or quick == grader.grade(text, case.question)


@names
@settings(max_examples=examples(40))
@given(text=st.text(alphabet=st.sampled_from("aAB4{}[]()\\$\"',.:/- \nboxed<think>%^_é"), max_size=60))
def test_any_text_gets_marks(name: str, text: str) -> None:
    grader, case = GRADER[name], CASES[name]
    checked(grader.grade(text, case.question))


def taken(work: Callable[[], object]) -> float:
    """CPU seconds of this thread: of the work, not of what the machine was doing meanwhile."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


@names
@pytest.mark.parametrize("kind", first_of(BIG, 4))
def test_time_grows_with_an_answer_and_not_with_its_square(name: str, kind: str) -> None:
    """The bounds are fifty times and more of what it takes; its square would be hours, and seconds in the loop."""
    grader, case = GRADER[name], CASES[name]
    text = BIG[kind]
    assert taken(lambda: grader.quick(text, case.question)) < 0.5, "the event loop would stand still"
    assert taken(lambda: grader.quick(text[:50_000], case.question)) < 1.0, "shorter ones are graded in it"
    assert taken(lambda: checked(grader.quick(text, case.question) or grader.grade(text, case.question))) < 60.0


@names
def test_a_grader_travels_to_a_worker_and_leaves_alone_what_an_answer_names(name: str) -> None:
    grader, case = GRADER[name], CASES[name]
    grader.grade(case.right, case.question)
    assert pickle.loads(pickle.dumps((grader, case.question))) == (grader, case.question)
    check_reach(lambda text: grader.grade(text, case.question), case.right, name)


@pytest.mark.parametrize("name", [name for name in GRADERS if name != "python"])
def test_thoughts_are_not_the_answer_and_a_key_is_needed(name: str) -> None:
    grader, case = GRADER[name], CASES[name]
    assert grader.grade(f"<think>{case.wrong}</think>{case.right}", case.question).signals["is_correct"] is True
    assert grader.grade(f"{case.right}</think>{case.wrong}", case.question).signals["is_correct"] is False
    assert grader.grade(f"<think>{case.right}", case.question).signals["is_correct"] is False
    assert grader.key_problem(case.question) is None
    assert grader.key_problem(Question("q", "?", " ")) is not None


@names
@pytest.mark.parametrize("key", ["?", "no key"])
def test_an_empty_answer_is_right_for_no_key(name: str, key: str) -> None:
    """Not where nothing can be read from either."""
    grader, case = GRADER[name], CASES[name]
    assert grader.grade("", replace(case.question, answer=key)).signals["is_correct"] is False
