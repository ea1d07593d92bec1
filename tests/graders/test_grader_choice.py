"""Which letter an answer settled on."""

from typing import Literal

import pytest

from adaptive_eval.graders.choice import Choice
from adaptive_eval.questions.types import Question

CITIES = Question("q", "?", "C", ("Rome", "Berlin", "Paris", "Oslo"))
PLAIN = Question("q", "?", "C")


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("C", "C"),
        (" (c) ", "C"),
        ("**C**", "C"),
        ("C. Paris", "C"),
        ("C) Paris, since the others are no capitals of France", "C"),
        ("Paris", "C"),
        ("The answer is C", "C"),
        ("The answer is (C).", "C"),
        ("the correct answer is option C because", "C"),
        ("**Answer:** C", "C"),
        (r"The answer is $\boxed{C}$", "C"),
        (r"\boxed{c}", "C"),
        (r"\boxed{\textbf{(C) } Paris}", "C"),
        (r"\boxed{Paris}", "C"),
        ("The answer is A. Wait, no. The answer is C.", "C"),
        ("A is Rome, B is Berlin.\nSo I choose\nC", "C"),
        ("Choice: C", "C"),
        (r"The answer is A, or rather \boxed{C}. The answer is A.", "C"),
        ("The answer is (c), as shown above", "C"),
        ("**Answer:** c.\n\nThe others are wrong.", "C"),
        ("**Answer: Paris**\n\nIt lies on the Seine.", "C"),
        ("The answer is a little unclear", None),
        ("The answer is a\u00e9rial photography", None),
        ("The answer is Paris or Rome", None),
        ("I like A and B and C equally", None),
        ("E", None),
        ("Answer: Cologne", None),
        ("", None),
        ("The capital of France is Paris", None),
    ],
)
def test_letters(text: str, letter: str | None) -> None:
    marks = Choice().grade(text, CITIES)
    assert marks.extracted == letter
    assert marks.signals == {"is_correct": letter == "C", "has_answer": letter is not None}


def test_without_choices_there_are_five_letters() -> None:
    assert Choice().grade("The answer is E", PLAIN).extracted == "E"
    assert Choice().grade("The answer is F", PLAIN).extracted is None


def test_as_many_letters_as_choices() -> None:
    question = Question("q", "?", "J", tuple("abcdefghij"))
    assert Choice().grade("Answer: J", question).signals["is_correct"] is True


@pytest.mark.parametrize(("text", "letter"), [("The answer is I.", "I"), ("Answer: I think it is B", None)])
def test_the_ninth_letter_is_not_the_pronoun(text: str, letter: str | None) -> None:
    assert Choice().grade(text, Question("q", "?", "I", tuple("abcdefghij"))).extracted == letter


@pytest.mark.parametrize("key", ["C", "c", "(C)", "Paris", "paris", "C. Paris"])
def test_the_key_may_be_a_letter_or_a_choice(key: str) -> None:
    question = Question("q", "?", key, CITIES.choices)
    assert Choice().key_problem(question) is None
    assert Choice().grade("The answer is C", question).signals["is_correct"] is True


@pytest.mark.parametrize(
    ("kind", "keys", "needs"),
    [
        ("letter", ("E", "2", "London", "AB", ""), "a letter A to D, or the text of a choice,"),
        ("index", ("4", "-1", "C", "1.0", "²"), "an index from 0 to 3"),
    ],
)
def test_any_other_key_is_reported_before_a_run(
    kind: Literal["letter", "index"], keys: tuple[str, ...], needs: str
) -> None:
    for key in keys:
        problem = Choice(key=kind).key_problem(Question("q", "?", key, CITIES.choices))
        assert problem is not None and problem.startswith(f"needs {needs} as its answer"), key


def test_a_choice_whose_text_is_a_letter_is_meant_by_its_text() -> None:
    assert Choice().grade("The answer is A", Question("q", "?", "B", ("B", "A"))).signals["is_correct"] is True


@pytest.mark.parametrize(("key", "letter"), [("0", "A"), ("3", "D")])
def test_positions_count_from_zero(key: str, letter: str) -> None:
    question = Question("q", "?", key, CITIES.choices)
    assert Choice(key="index").grade(f"Answer: {letter}", question).signals["is_correct"] is True


@pytest.mark.parametrize("key", ["letter", "index"])
def test_a_key_without_choices_says_where_choices_are_given(key: Literal["letter", "index"]) -> None:
    problem = Choice(key=key).key_problem(Question("q", "?", "Paris"))
    assert problem is not None and "has no choices, and its answer 'Paris' is no" in problem
    assert problem.endswith("set questions.fields.choices to the field with the choices")
