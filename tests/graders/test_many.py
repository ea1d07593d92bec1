"""A rubric on many trials at once gives what it gives of each trial by itself."""

import json

import numpy as np
import pytest

from adaptive_eval.base.errors import GraderError
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.frozen import NOTHING_FROZEN, FrozenThresholds, fit_frozen
from adaptive_eval.graders.many_trials import (
    NO_CATEGORY,
    AnswerMeasures,
    SignalsBuilder,
    TrialSignals,
    classify_trials,
    fit_thresholds,
    missing_signals,
)
from adaptive_eval.graders.rubric import Rubric, RubricConfig, open_rubric
from adaptive_eval.graders.types import answer_facts
from scorio.categorical import SCHEMATA, Thresholds
from scorio.categorical.variables import PERCENTILES

TRIALS = 400
OWN = RubricConfig.model_validate_json(
    """{"categories": [
        {"name": "cut off", "weight": 0, "when": {"truncated": true}},
        {"name": "short", "weight": 1, "when": {"is_correct": true, "token_ratio": {"below": 0.2}}},
        {"name": "right", "weight": 0.8, "when": {"is_correct": true}},
        {"name": "by text", "weight": 0.3, "when": {"method": "text"}},
        {"name": "rest", "weight": 0.1}
    ]}"""
)


def drawn(seed: int = 0) -> tuple[list[Answer], list[dict[str, object]]]:
    """Answers and what a grader said of them; some lack log-probabilities, or what a verifier says."""
    rng = np.random.default_rng(seed)
    answers, grades = [], []
    for _ in range(TRIALS):
        reason = str(rng.choice(["stop", "stop", "length"]))
        has_logprobs = bool(rng.random() < 0.9)
        answers.append(
            Answer(
                text="x",
                finish_reason=reason,
                seed=1,
                replica="r",
                latency=1.0,
                prompt_tokens=int(rng.integers(10, 90)),
                completion_tokens=int(rng.integers(1, 32768)),
                completion_bpt=float(rng.gamma(2.0)) if has_logprobs else None,
                prompt_bpt=float(rng.gamma(2.0)) if has_logprobs else None,
                signals=frozenset({"truncated"}) if reason == "length" else frozenset(),
            )
        )
        a, b, c = rng.dirichlet((1.0, 1.0, 1.0)).tolist()
        grade: dict[str, object] = {"is_correct": bool(rng.random() < 0.5), "has_box": bool(rng.random() < 0.7)}
        grade |= {"method": str(rng.choice(["text", "number"]))}
        if rng.random() < 0.95:
            grade |= {"verifier_a": a, "verifier_b": b, "verifier_c": c}
        grades.append(grade)
    return answers, grades


def stored(answers: list[Answer], grades: list[dict[str, object]]) -> TrialSignals:
    gathered = SignalsBuilder()
    for answer, grade in zip(answers, grades, strict=True):
        measures = AnswerMeasures(*(getattr(answer, name) for name in AnswerMeasures._fields))
        gathered.add((json.dumps(grade), " ".join(sorted(answer.signals)) or None), measures)
    return gathered.build()


def one_by_one(rubric: Rubric, answers: list[Answer], grades: list[dict[str, object]]) -> list[int]:
    categories = []
    for answer, grade in zip(answers, grades, strict=True):
        try:
            categories.append(rubric.category({**answer_facts(answer), **grade}))  # type: ignore[dict-item]
        except GraderError:
            categories.append(NO_CATEGORY)
    return categories


@pytest.mark.parametrize("name", ["own", *SCHEMATA])
def test_many_at_once_are_as_one_by_one(name: str) -> None:
    answers, grades = drawn()
    trials = stored(answers, grades)
    config = OWN if name == "own" else RubricConfig(name=name)
    rubric, _ = fit_thresholds(config, trials, ["q"] * TRIALS, NOTHING_FROZEN)
    categories = classify_trials(trials, rubric).tolist()
    assert categories == one_by_one(rubric, answers, grades)
    lacks = any(
        rubric.needs - answer_facts(answer).keys() - grade.keys() for answer, grade in zip(answers, grades, strict=True)
    )
    assert len(set(categories)) > 2 and (NO_CATEGORY in categories) == (name != "own" and lacks)


def test_a_threshold_is_the_percentile_of_the_trials_that_have_its_signal() -> None:
    answers, grades = drawn(1)
    trials = stored(answers, grades)
    rubric, frozen = fit_thresholds(
        RubricConfig(name="format_confidence"), trials, ["q"] * TRIALS, FrozenThresholds({"high": 0.5})
    )
    assert frozen.values == {"high": 0.5} and not rubric.lacks
    fitted = fit_frozen(trials.numbers, ["q"] * TRIALS, PERCENTILES, with_medians=True)
    assert fitted.medians == {"q": np.median([answer.completion_tokens for answer in answers])}
    thresholds = Thresholds(**fitted.values)
    lengths = np.array([answer.completion_tokens / 32768 for answer in answers])
    assert thresholds.len_p33 == pytest.approx(np.percentile(lengths, PERCENTILES["len_p33"].percent))
    wrong = [
        answer.completion_bpt
        for answer, grade in zip(answers, grades, strict=True)
        if not grade["is_correct"] and answer.completion_bpt is not None
    ]
    assert thresholds.low_wrong == pytest.approx(np.percentile(wrong, 60))


def test_what_no_trial_has_is_named() -> None:
    answers, grades = drawn(2)
    bare = stored(answers, [{"is_correct": grade["is_correct"]} for grade in grades])
    assert missing_signals(bare, open_rubric(RubricConfig(name="format_aware"))) == ("has_box",)
    assert missing_signals(bare, open_rubric(RubricConfig(name="verifier_only"))) == (
        "verifier_a",
        "verifier_b",
        "verifier_c",
    )
    assert missing_signals(bare, open_rubric(RubricConfig())) == ()
    assert missing_signals(bare, open_rubric(OWN)) == ("method",)
