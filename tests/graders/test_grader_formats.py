"""exact, contains, regex, choice, json and numeric: what is read from an answer, and what is equal to its key."""

import json
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from thoroughness import examples

from adaptive_eval.graders.answer_text import final_text
from adaptive_eval.graders.choice import Choice
from adaptive_eval.graders.numeric import Numeric
from adaptive_eval.graders.structured import Json
from adaptive_eval.graders.text import Contains, Exact, Regex
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.questions.types import Question


def correct(grader: GraderOptions, text: str, key: str) -> Any:
    return grader.grade(text, Question("q", "?", key)).signals["is_correct"]


@pytest.mark.parametrize(
    ("text", "key", "options", "expected"),
    [
        ("Paris", "Paris", {}, True),
        ("\n Paris \t", "Paris", {}, True),
        ("New  York\n", "New York", {}, True),
        ("paris", "Paris", {}, False),
        ("STRASSE", "straße", {"ignore_case": True}, True),
        ("e\u0301te\u0301", "été", {}, True),
        ("Paris.", "Paris", {}, False),
    ],
)
def test_exact(text: str, key: str, options: dict[str, Any], expected: bool) -> None:
    assert correct(Exact(**options), text, key) is expected


@pytest.mark.parametrize(
    ("text", "key", "options", "expected"),
    [
        ("I think it is 5.", "5", {}, True),
        ("I think it is 15.", "5", {}, False),
        ("A CAT!", "cat", {}, True),
        ("A CAT!", "cat", {"ignore_case": False}, False),
        ("C++ it is", "C++", {}, True),
        ("new\nyork", "New York", {}, True),
        ("The answer is -5", "5", {}, False),
        ("-5", "5", {}, False),
        ("x = −5", "5", {}, False),
        ("It is -5.", "-5", {}, True),
        ("pages 3-5", "5", {}, True),
        ("pages 3-5", "-5", {}, False),
        ("The answer is 2.5", "5", {}, False),
        ("The answer is .5", "5", {}, False),
        ("The answer is 0.5", ".5", {}, True),
        ("The answer is 10.5", ".5", {}, False),
        ("The answer is 5.2", "5", {}, False),
        ("The answer is 1/5", "5", {}, False),
        ("It costs 5,000", "5", {}, False),
        ("It costs 5,000.", "5,000", {}, True),
        ("It costs $5.00.", "5", {}, True),
        ("2.5, or rather 5.", "5", {}, True),
        ("It is 5, or 4, I think.", "5", {}, True),
        ("(5)", "5", {}, True),
        ("on 05/10/2020", "2020", {}, True),
        ("on 2020.05.10", "2020", {}, True),
        ("C++", "C", {}, False),
        ("C#, I think", "C", {}, False),
        ("C.", "C", {}, True),
        ("A+B", "A", {}, True),
        ("答案是北京。", "北京", {}, True),
        ("答えは東京です。", "東京", {}, True),
        ("答案是5。", "5", {}, True),
        ("答案是15。", "5", {}, False),
        ("答えはParisです", "Paris", {}, True),
        ("คำตอบคือกรุงเทพครับ", "กรุงเทพ", {}, True),
        ("답은 서울입니다.", "서울", {}, True),
        ("답은 북서울입니다.", "서울", {}, False),
    ],
)
def test_contains(text: str, key: str, options: dict[str, Any], expected: bool) -> None:
    assert correct(Contains(**options), text, key) is expected


@pytest.mark.parametrize(
    ("text", "key", "options", "expected"),
    [
        ("Answer: 4\nAnswer: 5", "5", {}, True),
        ("So\nAnswer: 4\nAnswer: 5", "4", {"pattern": r"\A(?s:.*?)Answer: (\w+)"}, True),
        ("ANSWER: 5", "5", {"ignore_case": True}, True),
        ("ANSWER: 5", "5", {}, False),
        ("no such thing", "5", {}, False),
    ],
)
def test_regex(text: str, key: str, options: dict[str, Any], expected: bool) -> None:
    assert correct(Regex(**{"pattern": r"Answer: (\w+)", **options}), text, key) is expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"\d+", "12"),
        (r"(\d)\d", "1"),
        (r"(?P<unit>\d)(?P<answer>\d)", "2"),
        (r"(x)?(\d+)", "12"),
        (r"(?P<answer>x)|\d", None),
    ],
)
def test_regex_takes_the_named_group_the_first_group_or_the_match(pattern: str, expected: str | None) -> None:
    assert Regex(pattern=pattern).grade("12", Question("q", "?", "1")).extracted == expected


def test_a_pattern_that_does_not_compile_is_refused() -> None:
    with pytest.raises(ValidationError, match="must be a regular expression: missing \\)"):
        Regex(pattern="(")


@pytest.mark.parametrize(
    ("text", "final"),
    [
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("<think>a", ""),
        ("b <think>a", "b <think>a"),
        ("<think>a</think>\n<think>b", ""),
        ("<thinking>a</thinking>b", "b"),
        ("<thinking>a</think>b", ""),
        ("b <thinking>a</thinking> b", "b <thinking>a</thinking> b"),
        ("[THINK]a [b] </think>[/THINK]b", "b"),
        ("<think></think>[THINK]a[/THINK]b", "b"),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", "b"),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b", ""),
        ("<|channel|>final <|constrain|>json<|message|>{}", "{}"),
    ],
)
def test_final_text(text: str, final: str) -> None:
    assert final_text(text) == final


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
        # the letter, then an explanation of each choice
        ("The answer is **C**.\n\n- Option A is incorrect.\n- Option C is correct.\n- Option D is incorrect.", "C"),
        ("Answer: C\n\nChoice B is wrong because it is in Germany; answer A is wrong.", "C"),
        ("The best answer is C because answer A is wrong", "C"),
        ("**C**\n\n**A** is in Italy. **B** is in Germany. **D** is in Norway.", "C"),
        ("C. Paris\n\nOption A is in Italy, and option D in Norway.", "C"),
        ("**C. Paris**\n\nWhy not the others:\n- A. Rome is in Italy.\n- D. Oslo is in Norway.", "C"),
        ("The answer is C.\n\nA. Rome is in Italy.\nB. Berlin is in Germany.\nD. Oslo is in Norway.", "C"),
        ("Option A is correct: it is false. The answer is (C). Option D is correct as well.", "C"),
        ("Answer: C\n\nOption D cannot be the answer.", "C"),
        # other statements
        ("Option C is correct.", "C"),
        ("C is correct, since Paris is the capital.", "C"),
        ("It is in France, so (C) is right.", "C"),
        ("(C) is the correct answer. D is the wrong answer.", "C"),
        ("The answer is not A but C", "C"),
        ("The correct answer is therefore option **(C)**.", "C"),
        ("The answer to the question is C.", "C"),
        ("The option that best fits this description is (C).", "C"),
        ("The answer choice is C", "C"),
        ("The answer is most likely C.", "C"),
        ("The answer would be C", "C"),
        ("## Final Answer\n\n**C**\n\nParis lies on the Seine.", "C"),
        ("The correct option is:\n\n**C) Paris**\n\nThe others are in other countries.", "C"),
        ("Final Answer: The final answer is $\\boxed{C}$. Option D is not correct.", "C"),
        ("I choose C because it is in France.", "C"),
        ("I would pick option C.", "C"),
        ("I'd go with **C**.", "C"),
        ("So the most accurate capital would be (C).", "C"),
        ("The capital is Paris, that is, option (C).", "C"),
        ("The capital of France is Paris (option C).", "C"),
        ("Paris is the capital.\n\n**Option C**", "C"),
        ("The capital of France is **C. Paris**, on the Seine.", "C"),
        ("The answer is `C`", "C"),
        ("The answer is C and A is wrong", "C"),
        ("The answer is C and I think so", "C"),
        ("The answer is C, not A", "C"),
        ("C", "C"),
        ("The answer is A as Rome is old", "A"),
        ("C is the answer.", "C"),
        ("Paris lies in France. Therefore, C.", "C"),
        ("Answer — C", "C"),
        ("<answer> C </answer>", "C"),
        ('{"answer": "C"}', "C"),
        (r"The answer is $\mathbf{(C)}$", "C"),
        (r"The answer is option \( C \)", "C"),
        ("The answer is likely to be C", "C"),
        ("The answer is C, D is wrong", "C"),
        ("The answer is (C) and (D) is wrong", "C"),
        # no statement
        ("Option A is not correct", None),
        ("Choice B is wrong because it is in Germany.", None),
        ("A is not the correct answer", None),
        ("The answer is not A", None),
        ("The answer is A or C", None),
        ("The answer is (A) and (C).", None),
        ("Answer: A, C", None),
        ("Answer: A/C", None),
        ("The answer is A. No: the answer is (A) or (C).", None),
        ("The answer is A or B. Since only one counts, I choose C.", "C"),
        ("The answer is: A city on the Seine", None),
        ("The answer is C++", None),
        ("Option A is correct. Option C is correct.", None),
        ("A. Rome\nB. Berlin\nC. Paris\nD. Oslo", None),
        ("A. Rome is in Italy.\nB. Berlin is in Germany.\nD. Oslo is in Norway.", None),
        ("We can test option A: it is in Italy.", None),
        ("(a) The first step is to", None),
    ],
)
def test_letters(text: str, letter: str | None) -> None:
    marks = Choice().grade(text, CITIES)
    assert marks.extracted == letter
    assert marks.signals == {"is_correct": letter == "C", "has_answer": letter is not None}


def test_letters_are_those_of_the_choices_five_without() -> None:
    assert Choice().grade("The answer is E", PLAIN).extracted == "E"
    assert Choice().grade("The answer is F", PLAIN).extracted is None
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
def test_other_keys_are_told_before_a_run(kind: Literal["letter", "index"], keys: tuple[str, ...], needs: str) -> None:
    for key in keys:
        problem = Choice(key=kind).key_problem(Question("q", "?", key, CITIES.choices))
        assert problem is not None and problem.startswith(f"needs {needs} as its answer"), key


def test_a_key_that_is_the_letter_of_one_choice_and_the_text_of_another_is_refused() -> None:
    groups = ("B", "A", "AB", "O")
    problem = Choice().key_problem(Question("q", "?", "A", groups))
    assert problem is not None and problem.endswith("write (A) for choice A, or (B) for the text")
    for key in ("(A)", "AB", "O"):
        question = Question("q", "?", key, groups)
        assert Choice().key_problem(question) is None
        assert Choice().grade(*Choice().right_answers(question), question).signals["is_correct"] is True
    assert Choice().key_problem(Question("q", "?", "A", ("A", "B"))) is None


@pytest.mark.parametrize(("key", "letter"), [("0", "A"), ("3", "D")])
def test_positions_count_from_zero(key: str, letter: str) -> None:
    question = Question("q", "?", key, CITIES.choices)
    assert Choice(key="index").grade(f"Answer: {letter}", question).signals["is_correct"] is True


@pytest.mark.parametrize("key", ["letter", "index"])
def test_a_key_without_choices_says_where_choices_are_given(key: Literal["letter", "index"]) -> None:
    problem = Choice(key=key).key_problem(Question("q", "?", "Paris"))
    assert problem is not None and "has no choices, and its answer 'Paris' is no" in problem
    assert problem.endswith("set questions.fields.choices to the field with the choices")


def graded_json(text: str, key: str, field: str = "") -> dict[str, Any]:
    return dict(Json(field=field).grade(text, Question("q", "?", key)).signals)


@pytest.mark.parametrize(
    ("text", "field", "key"),
    [
        ('{"a": 1}', "a", "1"),
        ('{"a": "x"}', "a", '"x"'),
        ('{"a": {"b": [10, 20]}}', "a.b.1", "20"),
        ('{"a": 1.0}', "a", "1"),
        ('{"a": "1"}', "a", "1"),
        ('{"a": true}', "a", "true"),
        ('{"a": [1, 2]}', "a", "[1.0, 2]"),
        ('{"b": 2, "a": 1}', "", '{"a": 1, "b": 2}'),
        ('Sure!\n```json\n{"a": 1}\n```\nDone.', "a", "1"),
        ('```\n{"a": 0}\n```\n```json\n{"a": 1}\n```', "a", "1"),
        ('I answer {"a": 1}, as asked.', "a", "1"),
        ('First {"a": 0} then {"a": 1}', "a", "1"),
        ('a set {x} and {"a": 1}', "a", "1"),
        ("if x[0] < x[1]: x[2]\n" * 500 + 'so {"a": 1}', "a", "1"),
    ],
)
def test_correct(text: str, field: str, key: str) -> None:
    assert graded_json(text, key, field) == {"is_correct": True, "has_answer": True, "valid_json": True}


@pytest.mark.parametrize(
    ("text", "key", "has_answer", "valid"),
    [
        *((text, "1", True, True) for text in ('{"a": 2}', '{"a": true}')),
        *(('{"a": [2, 1]}', "[1, 2]", True, True), ('{"a": "x"}', "X", True, True)),
        *((text, "1", False, True) for text in ('{"b": 1}', "[1]")),
        *((text, "1", False, False) for text in ('{"a": ', "a: 1")),
    ],
)
def test_wrong_or_no_answer_without_the_field(text: str, key: str, has_answer: bool, valid: bool) -> None:
    assert graded_json(text, key, "a") == {"is_correct": False, "has_answer": has_answer, "valid_json": valid}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=examples(50))
@given(values, st.sampled_from(["{}", "Here:\n```json\n{}\n```", "I say: {}"]))
def test_any_value_is_found_and_equal_to_itself(value: Any, around: str) -> None:
    document = json.dumps({"value": value})
    signals = graded_json(around.replace("{}", document), json.dumps(value), "value")
    if "```" not in document:
        assert signals["is_correct"] is True


def is_number(text: str, key: str, **options: float) -> bool:
    return Numeric(**options).grade(text, Question("q", "?", key)).signals["is_correct"] is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("42", "42"),
        ("The answer is 42, not 43", "42"),
        ("The answer is 41. No: the answer is 42", "42"),
        ("#### 42\nThank you for 2 minutes", "42"),
        (r"7 then \boxed{42} or 8", "42"),
        (r"\boxed{x = 42}", "42"),
        (r"\boxed{42^\circ}", "42"),
        (r"\boxed{\$42}", "42"),
        (r"\boxed{\sqrt{2}}", None),
        ("$1,234.50", "1,234.50"),
        ("−5", "-5"),
        ("pages 3-5", "5"),
        ("x=-5", "-5"),
        (r"\frac{1}{3}", "1/3"),
        (r"-\dfrac{ 1 }{ 3 }", "-1/3"),
        ("50%", "50%"),
        ("1e-3", "1e-3"),
        ("The answer is:\n\n18\n\n(for 3 days)", "18"),
        ("**Answer:**\n**18**\nin 3 days", "18"),
        ("The answer is 18 apples in 3 bags.", "18"),
        ("The answer is about 5.", "5"),
        ("The answer is 3:2", "3"),
        ("The answer is 3–5", "3"),
        ("The answer is x = 5, y = 6", "5"),
        ("It covers 12 cm^2.", "12"),
        ("It covers 12 m²", "12"),
        ("It is 5 m s^{-1}", "5"),
        ("2^10 = 1024", "1024"),
        ("1024 = 2^10", "1024"),
        (r"\boxed{2^{10}}", None),
        (r"\boxed{12\text{ cm}^2}", "12"),
        (r"\boxed{12\ \mathrm{m}^{2}}", "12"),
        (r"\boxed{5\;\mathrm{m\,s^{-1}}}", "5"),
        (r"\boxed{\text{18 apples}}", "18"),
        (r"\boxed{\approx 5}", "5"),
        ("no number", None),
        ("", None),
    ],
)
def test_which_number_is_meant(text: str, expected: str | None) -> None:
    marks = Numeric().grade(text, Question("q", "?", "0"))
    assert marks.extracted == expected
    assert marks.signals["has_answer"] is (expected is not None)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("42.0", "42"),
        ("4.2e1", "42"),
        ("1,000,000", "1000000"),
        ("0.5", "1/2"),
        ("50%", "0.5"),
        ("0.5", "50%"),
        ("$5", "$5"),
        ("Answer: -$5", "-5"),
        ("a loss of −€1,234.50", "-1234.5"),
        ("#### -£5", "-5"),
        ("$-5", "-$5"),
        (r"\boxed{-\$5}", "-5"),
        ("$3-$5", "5"),
        (r"\boxed{70{,}000}", "70000"),
        (r"\boxed{70,\!000}", "70000"),
        (r"\boxed{\$1\,234\,567.50}", "1234567.5"),
        ("12\u2009345", "12345"),
        ("12\u202f345\u202f678", "12345678"),
        ("12\u00a0345", "12345"),
        (r"\boxed{1{,}5}", "1.5"),
        ("Answer: 1.5 × 10^3", "1500"),
        ("Answer: 1.5 × 10³", "1.5e3"),
        ("Answer: 1.5 x 10^−3 m", "0.0015"),
        (r"\boxed{1.5 \times 10^{3}}", "1500"),
        (r"The answer is $-1.5\cdot10^{-3}$.", "-0.0015"),
        (r"\boxed{6.02 \times 10^{23}\text{ mol}^{-1}}", "6.02 × 10^23"),
        ("10^6", "1,000,000"),
        ("Answer: 2 1/2 cups", "2.5"),
        (r"\boxed{-2\frac{1}{2}}", "-2.5"),
        (r"\boxed{\frac12}", ".5"),
        ("The answer is .5", "1/2"),
        ("The answer is 5.", "5"),
        ("1e400", "1e400"),
        ("1" * 900, "1" * 900),
        ("-0", "0"),
    ],
)
def test_equal(text: str, key: str) -> None:
    assert is_number(text, key)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("0.3333", "1/3"),
        ("42.0001", "42"),
        ("1e401", "1e400"),
        ("1e99999999999999999999", "3"),
        ("1" * 899 + "2", "1" * 900),
        ("Answer: -$5", "5"),
        (r"\boxed{70{,}000}", "0"),
        ("Answer: 1.5 × 10^3", "1.5"),
        (r"\boxed{2\frac{1}{2}}", "10.5"),
        ("9" * 2000, "1"),
        ("1/0", "1"),
        ("0.1", "0.10000000000000001"),
    ],
)
def test_not_equal(text: str, key: str) -> None:
    assert not is_number(text, key)


@pytest.mark.parametrize(
    ("text", "key", "tolerance", "expected"),
    [
        ("3.14", "3.14159", 0.01, True),
        ("3.1", "3.14159", 0.01, False),
        ("101.1", "100", "1%", False),
        ("-101", "-100", "1%", True),
        ("100.5", "100", "0.5%", True),
        ("0.001", "0", "50%", False),
        ("0.33", "1/3", 0.01, True),
    ],
)
def test_tolerance(text: str, key: str, tolerance: float | str, expected: bool) -> None:
    assert is_number(text, key, tolerance=tolerance) is expected


@pytest.mark.parametrize("tolerance", [-0.1, "1", "-1%", "many"])
def test_what_is_no_tolerance_is_refused(tolerance: object) -> None:
    with pytest.raises(ValidationError, match="tolerance"):
        Numeric.model_validate({"tolerance": tolerance})


@given(st.decimals(-(10**15), 10**15, places=6), st.decimals(-1, 1, places=6))  # sums that a Decimal holds exactly
def test_tolerance_is_exact_at_its_edge(key: Decimal, off: Decimal) -> None:
    within = abs(off) <= Decimal("0.5")
    assert is_number(f"{key + off:f}", f"{key:f}", tolerance=0.5) is within


@pytest.mark.parametrize("key", ["", "seven", "1 or 2", "1e99999999999999999999", "1/0", "1,00"])
def test_a_key_that_is_no_number_is_reported_before_a_run(key: str) -> None:
    assert Numeric().key_problem(Question("q", "?", key)) is not None
