"""From a score to signals: nothing is taken for wrong that was not scored as wrong."""

import math

import pytest

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.inspect.endpoint import marks_from_scores


def scored(value: object, scorer: str | None = None, *, binary: bool = True) -> dict[str, object] | None:
    marks = marks_from_scores({"match": {"value": value, "answer": "42"}}, scorer, only_right_and_wrong=binary)
    return None if marks is None else dict(marks.signals)


@pytest.mark.parametrize(("value", "right"), [("C", 1), ("I", 0), ("N", 0), (1, 1), (0.0, 0), (True, 1), (False, 0)])
def test_right_and_wrong(value: object, right: int) -> None:
    assert scored(value) == {"score": float(right), "is_correct": bool(right), "has_answer": value != "N"}


@pytest.mark.parametrize(("value", "score"), [("P", 0.5), (0.7, 0.7), (2, 2.0)])
def test_other_numbers_need_a_rubric_that_knows_them(value: object, score: float) -> None:
    assert scored(value, binary=False) == {"score": score, "is_correct": False, "has_answer": True}
    with pytest.raises(ConfigError, match="the rubric only has right and wrong; declare a category for it"):
        scored(value)


def test_a_sample_without_a_score_is_no_trial() -> None:
    assert scored(math.nan) is None


@pytest.mark.parametrize("value", ["yes", "", None, [1]])
def test_what_is_no_number_is_reported(value: object) -> None:
    with pytest.raises(ConfigError, match="but a score must be a number, true or false, or C, P, I or N"):
        scored(value)


def test_one_of_several_values_is_named() -> None:
    values = {"strict": "I", "loose": 1}
    assert scored(values, "match.loose") == {"score": 1.0, "is_correct": True, "has_answer": True}
    with pytest.raises(ConfigError, match=r"a sample has no score match\.exact; it has strict, loose"):
        scored(values, "match.exact")
    with pytest.raises(ConfigError, match=r"\(strict, loose\); .* --set benchmark\.scorer=match\.strict"):
        scored(values)


def test_a_long_answer_is_shortened() -> None:
    marks = marks_from_scores({"match": {"value": 1, "answer": "x" * 5000}}, None, only_right_and_wrong=True)
    assert marks is not None and marks.extracted == "x" * 1000
