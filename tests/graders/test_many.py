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
        {"name": "short", "weight": 1, "when": {"is_correct": true, "token_ratio": {"at_most": 0.2}}},
        {"name": "right", "weight": 0.8, "when": {"is_correct": true}},
        {"name": "by text", "weight": 0.3, "when": {"method": "text"}},
        {"name": "rest", "weight": 0.1}
    ]}"""
)


def drawn(seed: int = 0) -> tuple[list[Answer], list[dict[str, object]]]:
    """Answers and what a grader said of them; some lack log-probabilities, or what a verifier says."""
    rng = np.random.default_rng(seed)
    answers, said = [], []
    for _ in range(TRIALS):
        reason = str(rng.choice(["stop", "stop", "length"]))
        known = bool(rng.random() < 0.9)
        answers.append(
            Answer(
                text="x",
                finish_reason=reason,
                seed=1,
                replica="r",
                latency=1.0,
                prompt_tokens=int(rng.integers(10, 90)),
                completion_tokens=int(rng.integers(1, 32768)),
                completion_bpt=float(rng.gamma(2.0)) if known else None,
                prompt_bpt=float(rng.gamma(2.0)) if known else None,
                signals=frozenset({"truncated"}) if reason == "length" else frozenset(),
            )
        )
        a, b, c = rng.dirichlet((1.0, 1.0, 1.0)).tolist()
        told: dict[str, object] = {"is_correct": bool(rng.random() < 0.5), "has_box": bool(rng.random() < 0.7)}
        told |= {"method": str(rng.choice(["text", "number"]))}
        if rng.random() < 0.95:
            told |= {"verifier_a": a, "verifier_b": b, "verifier_c": c}
        said.append(told)
    return answers, said


def stored(answers: list[Answer], said: list[dict[str, object]]) -> TrialSignals:
    gathered = SignalsBuilder()
    for one, told in zip(answers, said, strict=True):
        measures = AnswerMeasures(*(getattr(one, name) for name in AnswerMeasures._fields))
        gathered.add((json.dumps(told), " ".join(sorted(one.signals)) or None), measures)
    return gathered.build()


def one_by_one(rubric: Rubric, answers: list[Answer], said: list[dict[str, object]]) -> list[int]:
    found = []
    for answer, told in zip(answers, said, strict=True):
        try:
            found.append(rubric.category({**answer_facts(answer), **told}))  # type: ignore[dict-item]
        except GraderError:
            found.append(NO_CATEGORY)
    return found


@pytest.mark.parametrize("name", ["own", *SCHEMATA])
def test_many_at_once_are_as_one_by_one(name: str) -> None:
    answers, said = drawn()
    trials = stored(answers, said)
    config = OWN if name == "own" else RubricConfig(name=name)
    rubric, _ = fit_thresholds(config, trials, ["q"] * TRIALS, NOTHING_FROZEN)
    found = classify_trials(trials, rubric).tolist()
    assert found == one_by_one(rubric, answers, said)
    lacks = any(rubric.needs - answer_facts(one).keys() - told.keys() for one, told in zip(answers, said, strict=True))
    assert len(set(found)) > 2 and (NO_CATEGORY in found) == (name != "own" and lacks)


def test_a_threshold_is_the_percentile_of_the_trials_that_have_its_signal() -> None:
    answers, said = drawn(1)
    trials = stored(answers, said)
    rubric, kept = fit_thresholds(
        RubricConfig(name="format_confidence"), trials, ["q"] * TRIALS, FrozenThresholds({"high": 0.5})
    )
    assert kept.values == {"high": 0.5} and not rubric.lacks
    fitted = fit_frozen(trials.numbers, ["q"] * TRIALS, PERCENTILES, with_medians=True)
    assert fitted.medians == {"q": np.median([one.completion_tokens for one in answers])}
    found = Thresholds(**fitted.values)
    lengths = np.array([one.completion_tokens / 32768 for one in answers])
    assert found.len_p33 == pytest.approx(np.percentile(lengths, PERCENTILES["len_p33"].percent))
    wrong = [
        one.completion_bpt
        for one, told in zip(answers, said, strict=True)
        if not told["is_correct"] and one.completion_bpt is not None
    ]
    assert found.low_wrong == pytest.approx(np.percentile(wrong, 60))


def test_what_no_trial_has_is_named() -> None:
    answers, said = drawn(2)
    bare = stored(answers, [{"is_correct": told["is_correct"]} for told in said])
    assert missing_signals(bare, open_rubric(RubricConfig(name="format_aware"))) == ("has_box",)
    assert missing_signals(bare, open_rubric(RubricConfig(name="verifier_only"))) == (
        "verifier_a",
        "verifier_b",
        "verifier_c",
    )
    assert missing_signals(bare, open_rubric(RubricConfig())) == ()
    assert missing_signals(bare, open_rubric(OWN)) == ("method",)


def test_some_of_the_trials_are_what_they_are_among_all() -> None:
    answers, said = drawn(3)
    trials, rubric = stored(answers, said), open_rubric(OWN)
    chosen = np.arange(TRIALS) % 3 == 0
    assert (classify_trials(trials.select(chosen), rubric) == classify_trials(trials, rubric)[chosen]).all()
