"""An answer with a key in it is graded as it came and stored without the key."""

from adaptive_eval.base.errors import GraderError, GraderExhausted
from adaptive_eval.endpoints.redaction import secret_forms
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.types import Grade
from adaptive_eval.scheduler.grading import redact_answer

KEY = "sk-a1b2c3d4e5f6g7h8i9"
FORMS = secret_forms([KEY])


def answered(text: str, reasoning: str | None = None) -> Answer:
    return Answer(text, "stop", 1, "http://a/v1", 0.1, reasoning=reasoning)


def test_what_was_found_stays_where_the_rest_of_the_answer_has_it() -> None:
    grade = Grade(1, {"is_correct": True, "boxed": KEY, "unit": "m"}, "42")
    answer, kept = redact_answer(answered(f"{KEY} says 42 m", f"my key is {KEY[:15]}"), grade, FORMS)
    assert (answer.text, answer.reasoning) == ("*** says 42 m", "my key is ***")
    assert kept == Grade(1, {"is_correct": True, "boxed": "***", "unit": "m"}, "42")


def test_a_piece_of_a_key_that_a_grader_has_found_goes() -> None:
    _, kept = redact_answer(answered(f"the answer is {KEY}"), Grade(0, {"is_correct": False}, "1b2c3d4"), FORMS)
    assert isinstance(kept, Grade) and kept.extracted == "***"


def test_an_error_of_a_grader_keeps_its_kind_and_loses_the_key() -> None:
    error = GraderExhausted(f"the grader raised ValueError: could not convert {KEY[:18]}")
    _, kept = redact_answer(answered(f"it is {KEY}"), error, FORMS)
    assert type(kept) is GraderExhausted and "a1b2" not in str(kept)


def test_nothing_else_is_touched() -> None:
    answer, error = answered("the answer is 42", ""), GraderError("no")
    assert redact_answer(answer, error, FORMS) == (answer, error)
    assert redact_answer(answered(KEY), error, ()) == (answered(KEY), error)
