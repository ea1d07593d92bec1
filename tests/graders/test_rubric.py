"""Rubrics: categories, schemata, what is known of an answer before it is graded, and labels at an answer slot."""

import json
import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from adaptive_eval.base.errors import GraderError, PartialCredit
from adaptive_eval.core.answer_kinds import INCOMPLETE, AnswerKind
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.pool import make_grade
from adaptive_eval.graders.rubric import Rubric, RubricConfig, apply_rubric, open_rubric, unsure_grades
from adaptive_eval.graders.types import (
    ANSWER_SIGNALS,
    REFUSAL_OPENINGS,
    Marks,
    answer_facts,
    reads_as_refusal,
    score_signals,
)
from adaptive_eval.graders.verifier import label_probabilities, label_scores
from scorio.categorical import SCHEMATA, Signals, Thresholds, classify

TRIAGE = RubricConfig.model_validate_json(
    """{"categories": [
        {"name": "cut off", "weight": 0, "when": {"truncated": true}},
        {"name": "tidy", "weight": 1, "when": {"is_correct": true, "token_ratio": {"below": 0.505}}},
        {"name": "rest", "weight": 0.1},
        {"name": "long", "weight": 0.8, "when": {"is_correct": true}},
        {"name": "by text", "weight": 0.2, "when": {"method": "expression"}},
        {"name": "by number", "weight": 0.3, "when": {"completion_tokens": 7}}
    ]}"""
)


def named(name: str, weight: float, **when: object) -> dict[str, object]:
    """A category of a rubric."""
    return {"name": name, "weight": weight, **({"when": when} if when else {})}


def rubric_of(*categories: dict[str, object]) -> Rubric:
    return open_rubric(RubricConfig.model_validate_json(json.dumps({"categories": categories})))


def answer(text: str = "x", **changes: Any) -> Answer:
    return Answer(**{"text": text, "finish_reason": "stop", "seed": 1, "replica": "r", "latency": 1.0, **changes})


class TestPartialCredit:
    """A score without `is_correct`: neither right nor wrong."""

    def test_right_and_wrong_alone_have_no_place_for_it(self) -> None:
        schema = RubricConfig(name="exact_match")
        for rubric in map(open_rubric, (RubricConfig(), schema)):
            with pytest.raises(
                PartialCredit, match=r"the score 0\.7 is neither right nor wrong, but the rubric only has"
            ):
                make_grade(answer(), Marks({"score": 0.7}, None), rubric)

    @pytest.mark.parametrize(
        ("score", "higher", "right"), [(1.0, True, True), (0.0, True, False), (0.0, False, True), (1.0, False, False)]
    )
    def test_best_value_is_right(self, score: float, higher: bool, right: bool) -> None:
        assert score_signals(score, higher_is_better=higher) == {"score": score, "is_correct": right}
        assert score_signals(0.5, higher_is_better=higher) == {"score": 0.5}


class TestDeclared:
    @pytest.mark.parametrize(
        ("facts", "name"),
        [
            ({}, "rest"),
            ({"truncated": True, "is_correct": True}, "cut off"),
            ({"is_correct": True, "token_ratio": 0.5}, "tidy"),
            ({"is_correct": 1.0, "token_ratio": 0.51}, "long"),
            ({"method": "expression"}, "by text"),
            ({"completion_tokens": 7.0}, "by number"),
        ],
    )
    def test_the_first_whose_conditions_hold(self, facts: dict[str, Any], name: str) -> None:
        rubric = open_rubric(TRIAGE)
        base = {"truncated": False, "is_correct": False, "token_ratio": 0.9, "method": "text", "completion_tokens": 8.0}
        assert rubric.names[rubric.category({**base, **facts})] == name

    @pytest.mark.parametrize(
        ("limits", "holds"),
        [
            ({"at_least": 1}, [False, True, True]),
            ({"below": 1}, [True, False, False]),
            ({"at_least": 1, "below": 2}, [False, True, False]),
        ],
    )
    def test_limits(self, limits: dict[str, float], holds: list[bool]) -> None:
        rubric = rubric_of(named("in", 1, n=limits), named("out", 0))
        assert [rubric.category({"n": float(n)}) == 0 for n in range(3)] == holds

    def test_a_missing_signal_is_named(self) -> None:
        with pytest.raises(GraderError, match="needs the signal completion_tokens, but this trial only has is_correct"):
            facts = {"truncated": False, "is_correct": False, "method": "text"}
            open_rubric(TRIAGE).category(facts)

    @pytest.mark.parametrize(
        ("settings", "rule"),
        [
            ({"categories": [named("a", 1, x=True)]}, "exactly one category without `when`, got none"),
            ({"categories": [named("a", 1), named("b", 0)]}, "without `when`, got a, b"),
            ({"categories": [named("a", 1), named("a", 0, x=True)]}, "must have different names"),
            ({"categories": [named("a", 1), named("b", 1, x=True)]}, "two different weights"),
            ({"categories": [named("a", 1e-9), named("b", 0, x=True)]}, "at least 0.01"),
            ({"categories": [named(str(at), at) for at in range(255)]}, "at most 254 items"),
            ({"name": "format_awere"}, "known are binary, exact_match, format_aware"),
            ({"name": "format_aware", "weights": [0.0, 1.0]}, "must be 5 numbers"),
            ({"weights": [0.0, 1.0]}, "only for the paper's schemata"),
            ({"thresholds": {"hihg": 1.0}}, "must not have hihg"),
        ],
    )
    def test_what_makes_no_rubric(self, settings: dict[str, Any], rule: str) -> None:
        with pytest.raises(ValidationError, match=rule):
            RubricConfig.model_validate_json(json.dumps(settings))


class TestSchemata:
    @pytest.mark.parametrize("name", SCHEMATA)
    def test_one_trial_is_classified_as_many_are(self, name: str) -> None:
        schema = SCHEMATA[name]
        random = np.random.default_rng(5)
        columns = {signal: random.uniform(0.0, 1.0, 200) for signal in schema.signals}
        columns["repeated_pattern"] = np.round(columns["repeated_pattern"])
        limits = dict.fromkeys(("high", "low_wrong", "prompt", "len_p33", "corr_p33"), 0.4)
        thresholds = Thresholds(**limits, len_p66=0.7, corr_p66=0.7)
        expected = classify(Signals(**columns), schema, thresholds)
        rubric = open_rubric(RubricConfig(name=name, thresholds={**limits, "len_p66": 0.7, "corr_p66": 0.7}))
        trials = [dict(zip(columns, map(float, values), strict=True)) for values in zip(*columns.values(), strict=True)]
        assert [rubric.category(trial) for trial in trials] == expected.tolist()
        assert rubric.names == schema.labels
        assert rubric.weights == schema.weights
        assert set(schema.signals) - rubric.needs <= {"verifier_c"}

    def test_without_a_verifier_nothing_is_off_task(self) -> None:
        rubric = open_rubric(RubricConfig(name="format_aware"))
        assert rubric.needs == {"has_box", "is_correct", "repeated_pattern"}
        facts = {"has_box": True, "is_correct": True, "repeated_pattern": 0.0}
        assert rubric.names[rubric.category(facts)] == "correct and boxed"
        assert rubric.category({**facts, "repeated_pattern": 1.0}) == 0
        assert rubric.category({**facts, "verifier_c": 0.9}) == 0


class TestFacts:
    def test_what_every_answer_has(self) -> None:
        cut = {"finish_reason": "length", "signals": frozenset({"truncated"})}
        facts = answer_facts(answer(prompt_tokens=9, completion_tokens=16_384, **cut))
        assert facts["truncated"] is True
        assert facts["refusal"] is False
        assert facts["token_ratio"] == 0.5
        assert facts["repeated_pattern"] == 1.0
        assert facts.keys() == ANSWER_SIGNALS - {"completion_bpt", "prompt_bpt"}

    def test_a_number_of_tokens_that_was_not_reported_is_not_0(self) -> None:
        assert "token_ratio" not in answer_facts(answer())
        for kind in ("empty", "content_filter"):  # a prompt that is refused has no answer
            assert answer_facts(answer("", signals=frozenset({kind})))["completion_tokens"] == 0.0
        rubric = rubric_of(named("brief", 1, is_correct=True, prompt_tokens={"below": 100}), named("other", 0))
        for is_correct in (True, False):  # else only wrong ones would have a grade
            with pytest.raises(GraderError, match="prompt_tokens"):
                apply_rubric({**answer_facts(answer()), "is_correct": is_correct}, rubric, "q")

    @pytest.mark.parametrize("opening", REFUSAL_OPENINGS)
    def test_refusals(self, opening: str) -> None:
        assert reads_as_refusal(f"  {opening.capitalize()} that.")
        assert reads_as_refusal(opening.replace("'", "’"))

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "42",
            "I'm sorry for the long wait. The answer is 42.",
            "The villain said: I can't help with that.",
            "I can't help with " + "x" * 700,
            "Sorry!",
        ],
    )
    def test_what_is_no_refusal(self, text: str) -> None:
        assert not reads_as_refusal(text)


class TestGrade:
    BINARY = open_rubric(RubricConfig())

    def test_flags_that_are_up_are_kept_and_numbers_are_not(self) -> None:
        marks = Marks({"is_correct": True, "has_answer": True}, "42")
        grade = make_grade(answer(signals=frozenset({"truncated"}), completion_tokens=9), marks, self.BINARY)
        assert grade.category == 1
        assert grade.signals == {"is_correct": True, "has_answer": True, "truncated": True}
        assert grade.extracted == "42"

    @pytest.mark.parametrize(("has_answer", "refusal"), [(False, True), (True, False)])
    def test_a_refusal_is_only_seen_where_there_is_no_answer(self, has_answer: bool, refusal: bool) -> None:
        marks = Marks({"is_correct": False, "has_answer": has_answer}, None)
        grade = make_grade(answer("I'm sorry, but I can't do that."), marks, self.BINARY)
        assert grade.signals.get("refusal", False) is refusal

    def test_a_graders_signal_wins_over_a_fact_of_the_same_name(self) -> None:
        rubric = open_rubric(TRIAGE)
        marks = Marks({"is_correct": True, "truncated": False, "method": "text"}, None)
        grade = make_grade(answer(signals=frozenset({"truncated"}), completion_tokens=9), marks, rubric)
        assert rubric.names[grade.category] == "tidy"


@pytest.mark.parametrize(
    ("right", "wrong", "sure"), [(1.0, 0.0, True), (0.0, 1.0, False)], ids=["higher is better", "lower is better"]
)
def test_the_best_category_is_sure_unless_what_says_nothing_is_in_it(right: float, wrong: float, sure: bool) -> None:
    for when in ({"is_correct": True}, {"score": {"at_least": 0.5}}, {"verdict": "pass"}):
        rubric = rubric_of(named("right", right, **when), named("wrong", wrong))
        assert unsure_grades(rubric, in_gate=False).sure == (0 if sure else None)


def test_the_best_category_of_every_schema_is_sure() -> None:
    assert unsure_grades(open_rubric(RubricConfig()), in_gate=False).sure == 1
    for name in SCHEMATA:
        rubric = open_rubric(RubricConfig(name=name))
        assert unsure_grades(rubric, in_gate=False).sure == np.argmax(rubric.weights)


LABELS = ("A", "B", "C")


def softmax(values: np.ndarray) -> np.ndarray:
    """By hand, as an oracle for the calibration."""
    raised = np.exp(values - values.max())
    return np.asarray(raised / raised.sum())


def vocabulary(rng: np.random.Generator) -> dict[str, float]:
    """Log-probabilities of labels, with a space and without, and of many other tokens."""
    tokens = ["A", "B", "C", " A", "▁B", *(f"word{number}" for number in range(50))]
    scores = rng.normal(0.0, 3.0, len(tokens))
    return dict(zip(tokens, np.log(softmax(scores)).tolist(), strict=True))


@pytest.mark.parametrize("shown", [55, 20, 8, 5])
def test_what_is_shown_is_added_up_and_what_is_not_is_bounded(shown: int) -> None:
    bounded = 0
    for seed in range(200):
        probabilities = vocabulary(np.random.default_rng(seed))
        slot = sorted(probabilities.items(), key=lambda pair: -pair[1])[:shown]
        seen = {token for token, _ in slot}
        truth = {
            label: [value for token, value in probabilities.items() if token.strip(" ▁") == label] for label in LABELS
        }
        if not any(token.strip(" ▁") in LABELS for token in seen):
            with pytest.raises(GraderError, match="one of A, B, C"):
                label_scores(slot, LABELS)
            continue
        scores = label_scores(slot, LABELS)
        for at, label in enumerate(LABELS):
            if at in scores.unseen:
                bounded += 1
                assert label not in seen and all(value <= scores.values[at] + 1e-12 for value in truth[label])
            elif shown == 55:
                assert math.exp(scores.values[at]) == pytest.approx(sum(math.exp(value) for value in truth[label]))
        assert 0.0 < scores.share <= 1.0 + 1e-9
    assert bounded == 0 if shown == 55 else bounded > 20


def test_the_probabilities_are_as_open_as_is_said() -> None:
    rng = np.random.default_rng(1)
    opened = 0
    for _ in range(300):
        values, baseline = rng.normal(-3.0, 2.0, 3), rng.normal(-1.0, 1.0, 3)
        tokens = dict(zip(LABELS, values.tolist(), strict=True)) | {
            "The": math.log(max(1 - np.exp(values).sum(), 1e-9))
        }
        if np.exp(values).sum() > 0.99:
            continue
        slot = sorted(tokens.items(), key=lambda pair: -pair[1])[:3]
        if not {token for token, _ in slot} & set(LABELS):
            continue
        probabilities, left_open = label_probabilities(label_scores(slot, LABELS), baseline.tolist())
        truth = softmax(values - baseline)
        assert np.abs(np.array(probabilities) - truth).max() <= left_open + 1e-9
        assert sum(probabilities) == pytest.approx(1.0)
        opened += left_open > 0.0
    assert opened > 50


def test_a_token_that_comes_twice_counts_once() -> None:
    slot = [("A", math.log(0.5)), ("A", math.log(0.5)), ("B", math.log(0.3)), ("C", math.log(0.2))]
    assert label_scores(slot, LABELS).values == pytest.approx((math.log(0.5), math.log(0.3), math.log(0.2)))


@pytest.mark.parametrize(
    ("slot", "message"),
    [
        ([], "no log-probabilities"),
        ([("A", 0.5), ("B", -1.0)], "no log-probabilities"),
        ([("A", -0.1), ("B", -0.1), ("C", -0.1)], "no log-probabilities"),
        ([("A", math.nan), ("B", math.inf)], "no log-probabilities"),
        ([("The", -0.1), ("a", -3.0)], "replied 'The'"),
    ],
)
def test_what_is_no_slot_of_labels_is_an_error(slot: list[tuple[str, float]], message: str) -> None:
    with pytest.raises(GraderError, match=message):
        label_scores(slot, LABELS)


@pytest.mark.parametrize("kind", [*INCOMPLETE, AnswerKind.EMPTY])
def test_a_category_for_a_kind_of_incomplete_answers_makes_their_grades_sure(kind: AnswerKind) -> None:
    rubric = rubric_of(named("named", 1, **{kind.signal: True}), named("wrong", 0))
    assert unsure_grades(rubric, in_gate=True).kinds == (INCOMPLETE | AnswerKind.EMPTY) & ~kind
    assert unsure_grades(rubric, in_gate=False).kinds == INCOMPLETE & ~kind
    plain, schema = open_rubric(RubricConfig()), open_rubric(RubricConfig(name="format_aware"))
    assert unsure_grades(plain, in_gate=False).kinds == INCOMPLETE
    assert not unsure_grades(schema, in_gate=False).kinds, "its category for invalid answers holds all of them"
