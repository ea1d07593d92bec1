"""From a score to a category: nothing is taken for wrong that was not scored as wrong."""

import math

import pytest

from adaptive_eval.errors import ConfigError
from adaptive_eval.exchange.inspect.adapter import category_of, require_scorable
from adaptive_eval.graders.rubric import RubricConfig, open_rubric

BINARY = open_rubric(RubricConfig())
GRADED = open_rubric(
    RubricConfig.model_validate(
        {
            "categories": (
                {"name": "right", "weight": 1.0, "when": {"score": 1.0}},
                {"name": "half", "weight": 0.5, "when": {"score": {"at_least": 0.5}}},
                {"name": "silent", "weight": 0.1, "when": {"has_answer": False}},
                {"name": "wrong", "weight": 0.0},
            )
        }
    )
)


@pytest.mark.parametrize(("value", "category"), [("C", 1), ("I", 0), ("N", 0), (1, 1), (0.0, 0), (True, 1), (False, 0)])
def test_right_and_wrong(value: object, category: int) -> None:
    assert category_of(value, BINARY, "match") == category


@pytest.mark.parametrize(
    ("value", "name"), [("C", "right"), ("P", "half"), (0.7, "half"), ("I", "wrong"), ("N", "silent"), (0.2, "wrong")]
)
def test_declared_categories(value: object, name: str) -> None:
    category = category_of(value, GRADED, "judge")
    assert category is not None and GRADED.names[category] == name


def test_a_sample_without_a_score_is_no_trial() -> None:
    assert category_of(math.nan, BINARY, "match") is None


@pytest.mark.parametrize("value", ["P", 0.5, 2])
def test_what_is_neither_right_nor_wrong_needs_a_category(value: object) -> None:
    with pytest.raises(ConfigError, match="the rubric knows right and wrong alone; declare what it is worth"):
        category_of(value, BINARY, "match")


@pytest.mark.parametrize("value", ["yes", "", None, [1], {"a": 1}])
def test_what_is_no_number_is_told(value: object) -> None:
    with pytest.raises(ConfigError, match="but a trial needs one number, true or false, or C, P, I or N"):
        category_of(value, BINARY, "match")


def test_a_rubric_that_needs_more_than_a_score_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs the signal has_box, but a score of another harness has only"):
        require_scorable(
            open_rubric(RubricConfig.model_validate({"name": "format_aware", "assume": {"verifier_c": 0}}))
        )
