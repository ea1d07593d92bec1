"""A rubric on many trials at once gives what it gives of each trial by itself."""

import numpy as np
import pytest

from adaptive_eval.base.errors import GraderError
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.frozen import NOTHING_FROZEN, Facts, FrozenThresholds, fact_numbers, fit_frozen
from adaptive_eval.graders.rubric import Rubric, RubricConfig, open_rubric
from adaptive_eval.graders.types import SignalValue, answer_facts
from adaptive_eval.report.rescore import NO_CATEGORY, classify_trials, fit_thresholds, missing_signals
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


def drawn(seed: int = 0) -> list[Facts]:
    """The facts of trials; some lack log-probabilities, or what a verifier says."""
    rng = np.random.default_rng(seed)
    trials: list[Facts] = []
    for _ in range(TRIALS):
        reason = str(rng.choice(["stop", "stop", "length"]))
        has_logprobs = bool(rng.random() < 0.9)
        answer = Answer(
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
        a, b, c = rng.dirichlet((1.0, 1.0, 1.0)).tolist()
        grade: dict[str, SignalValue] = {"is_correct": bool(rng.random() < 0.5), "has_box": bool(rng.random() < 0.7)}
        grade |= {"method": str(rng.choice(["text", "number"]))}
        if rng.random() < 0.95:
            grade |= {"verifier_a": a, "verifier_b": b, "verifier_c": c}
        trials.append({**answer_facts(answer), **grade})
    return trials


def one_by_one(rubric: Rubric, trials: list[Facts]) -> list[int]:
    categories = []
    for facts in trials:
        try:
            categories.append(rubric.category(facts))
        except GraderError:
            categories.append(NO_CATEGORY)
    return categories


@pytest.mark.parametrize("name", ["own", *SCHEMATA])
def test_many_at_once_are_as_one_by_one(name: str) -> None:
    trials = drawn()
    config = OWN if name == "own" else RubricConfig(name=name)
    rubric, _ = fit_thresholds(config, trials, ["q"] * TRIALS, NOTHING_FROZEN)
    categories = classify_trials(trials, rubric).tolist()
    assert categories == one_by_one(rubric, trials)
    lacks = any(rubric.needs - facts.keys() for facts in trials)
    assert len(set(categories)) > 2 and (NO_CATEGORY in categories) == (name != "own" and lacks)


def test_a_threshold_is_the_percentile_of_the_trials_that_have_its_signal() -> None:
    trials = drawn(1)
    rubric, frozen = fit_thresholds(
        RubricConfig(name="format_confidence"), trials, ["q"] * TRIALS, FrozenThresholds({"high": 0.5})
    )
    assert frozen.values == {"high": 0.5} and not rubric.lacks
    fitted = fit_frozen(fact_numbers(trials), ["q"] * TRIALS, PERCENTILES, with_medians=True)
    assert fitted.medians == {"q": np.median([facts["completion_tokens"] for facts in trials])}
    thresholds = Thresholds(**fitted.values)
    lengths = fact_numbers(trials)("completion_tokens") / 32768
    assert thresholds.len_p33 == pytest.approx(np.percentile(lengths, PERCENTILES["len_p33"].percent))
    wrong = [facts["completion_bpt"] for facts in trials if not facts["is_correct"] and "completion_bpt" in facts]
    assert thresholds.low_wrong == pytest.approx(np.percentile(np.array(wrong, float), 60))


def test_what_no_trial_has_is_named() -> None:
    of_graders = {"has_box", "method", "verifier_a", "verifier_b", "verifier_c"}
    bare = [{name: value for name, value in facts.items() if name not in of_graders} for facts in drawn(2)]
    assert missing_signals(bare, open_rubric(RubricConfig(name="format_aware"))) == ("has_box",)
    assert missing_signals(bare, open_rubric(RubricConfig(name="verifier_only"))) == (
        "verifier_a",
        "verifier_b",
        "verifier_c",
    )
    assert missing_signals(bare, open_rubric(RubricConfig())) == ()
    assert missing_signals(bare, open_rubric(OWN)) == ("method",)
