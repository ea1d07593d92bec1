"""The twelve schemata against Table 5 written out trial by trial, their signals, thresholds and calibration."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from scorio.categorical import (
    SCHEMATA,
    Category,
    Schema,
    Signals,
    Thresholds,
    bits_per_token,
    calibrate_verifier,
    classify,
    fit_thresholds,
    repeated_pattern,
    token_ratio,
)

FROZEN = Thresholds(high=0.8, low_wrong=1.2, prompt=3.0, len_p33=0.2, len_p66=0.5, corr_p33=0.6, corr_p66=1.0)

TITLES = [
    "Exact Match",
    "Format Aware",
    "Conf-Calibrated",
    "OOD Robustness",
    "Strict Compliance",
    "Conf-Wrong Penalty",
    "Verifier-Only",
    "Format+Confidence",
    "Length-Robust",
    "Verifier Probe",
    "Efficiency-Adjusted",
    "Concision-High-Conf",
]
CATEGORIES = [3, 5, 6, 5, 3, 4, 4, 8, 3, 5, 7, 6]
"""C + 1 of each, counted in the paper's Table 5."""


def by_hand(title: str, s: SimpleNamespace, t: Thresholds) -> int:
    """Grade one trial following Tables 4 and 5, with early returns instead of masks."""
    if s.repeated_pattern == 1 or s.verifier_c >= 0.5:
        return 0
    correct, boxed, confident = s.is_correct >= 0.5, s.has_box >= 0.5, s.completion_bpt <= t.high
    a_high = s.verifier_a >= 0.6
    length = 0 if s.token_ratio <= t.len_p33 else 1 if s.token_ratio <= t.len_p66 else 2
    wrong_and_sure = not correct and s.completion_bpt <= t.low_wrong
    if title in ("Exact Match", "Length-Robust"):
        return 2 if correct else 1
    if title == "Format Aware":
        return 1 + boxed + 2 * correct
    if title == "Conf-Calibrated":
        if not correct:
            return 2 if wrong_and_sure else 1
        return 5 if s.completion_bpt <= t.corr_p33 else 4 if s.completion_bpt <= t.corr_p66 else 3
    if title == "OOD Robustness":
        return (1 if s.prompt_bpt >= t.prompt else 2) + 2 * correct
    if title == "Strict Compliance":
        return 2 if correct and boxed else 1
    if title == "Conf-Wrong Penalty":
        return 3 if correct else 1 if wrong_and_sure else 2
    if title == "Verifier-Only":
        return 3 if a_high else 1 if s.verifier_c > s.verifier_b else 2
    if title == "Format+Confidence":
        if not correct:
            return 2 + confident if boxed else 1
        return 4 + confident + 2 * boxed
    if title == "Verifier Probe":
        return (3 + a_high) if correct else (1 if a_high else 2)
    if title == "Efficiency-Adjusted":
        return 1 + length + 3 * correct
    assert title == "Concision-High-Conf"
    if not correct:
        return 1
    return (5 if confident else 4, 3, 2)[length]


def values(*choices: float) -> st.SearchStrategy[float]:
    return st.sampled_from(choices)


# Values on, below and above every threshold of FROZEN.
TRIAL = st.fixed_dictionaries(
    {
        "has_box": values(0, 0.49, 0.5, 1),
        "is_correct": values(0, 0.5, 1),
        "token_ratio": values(0.1, 0.2, 0.3, 0.5, 1.2),
        "repeated_pattern": values(0, 0, 0, 1),
        "prompt_bpt": values(2.9, 3.0, 3.1),
        "completion_bpt": values(0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3),
        "verifier_a": values(0.1, 0.3, 0.59, 0.6, 0.9),
        "verifier_b": values(0.0, 0.05, 0.3, 0.49),
        "verifier_c": values(0.0, 0.05, 0.3, 0.49, 0.5),
    }
)


def table(trials: list[dict[str, float]]) -> Signals:
    return Signals(**{name: np.array([trial[name] for trial in trials]) for name in trials[0]})


def random_signals(seed: int, shape: tuple[int, ...]) -> Signals:
    rng = np.random.default_rng(seed)
    verifier = np.moveaxis(rng.dirichlet([2, 2, 0.5], size=shape), -1, 0)
    return Signals(
        has_box=rng.integers(0, 2, shape),
        is_correct=rng.integers(0, 2, shape),
        token_ratio=rng.gamma(2, 0.2, shape),
        repeated_pattern=rng.random(shape) < 0.1,
        prompt_bpt=rng.gamma(4, 0.5, shape),
        completion_bpt=rng.gamma(3, 0.3, shape),
        verifier_a=verifier[0],
        verifier_b=verifier[1],
        verifier_c=verifier[2],
    )


def test_the_twelve_of_the_paper_in_its_order() -> None:
    assert [schema.title for schema in SCHEMATA.values()] == TITLES
    assert [len(schema.weights) for schema in SCHEMATA.values()] == CATEGORIES
    assert all(schema.labels[0] == "invalid" for schema in SCHEMATA.values())


@settings(max_examples=examples(300))
@given(st.lists(TRIAL, min_size=1, max_size=12))
def test_every_schema_agrees_with_the_table(trials: list[dict[str, float]]) -> None:
    signals = table(trials)
    for schema in SCHEMATA.values():
        expected = [by_hand(schema.title, SimpleNamespace(**trial), FROZEN) for trial in trials]
        assert classify(signals, schema, FROZEN).tolist() == expected, schema.title


@pytest.mark.parametrize("schema", SCHEMATA.values(), ids=SCHEMATA)
def test_every_category_is_reached_and_none_is_missed(schema: Schema) -> None:
    signals = random_signals(1, (4000,))
    R = classify(signals, schema, fit_thresholds(signals))
    assert np.array_equal(np.unique(R), np.arange(len(schema.weights)))


def test_swapped_confidence_thresholds_leave_no_gap() -> None:
    """low_wrong below high: printed literally, a wrong trial between the two would be in no category."""
    signals = random_signals(2, (500,))
    thresholds = Thresholds(high=1.0, low_wrong=0.4, corr_p33=0.5, corr_p66=0.9)
    for name in ("conf_calibrated", "conf_wrong_penalty"):
        R = classify(signals, SCHEMATA[name], thresholds)
        assert ((R == 0) == ((signals.repeated_pattern == 1) | (signals.verifier_c >= 0.5))).all()


def test_weights_reward_the_better_of_two_categories() -> None:
    by_name = {name: dict(zip(schema.labels, schema.weights, strict=True)) for name, schema in SCHEMATA.items()}
    assert SCHEMATA["format_aware"].weights == (0, 0, 1, 2, 3)
    assert SCHEMATA["concision_high_conf"].weights == (0, 0, 0.7, 0.8, 0.9, 1)
    for name, schema in SCHEMATA.items():
        weights = by_name[name]
        assert weights["invalid"] == min(weights.values()) == 0
        assert max(weights.values()) == (3 if name == "format_aware" else 1)
        right = [w for label, w in weights.items() if label.startswith(("correct", "A_high")) or "and correct" in label]
        wrong = [w for label, w in weights.items() if w not in right]
        assert min(right) > max(wrong), schema.title
    assert by_name["conf_wrong_penalty"]["wrong_high_conf"] < by_name["conf_wrong_penalty"]["wrong and low_conf"]
    assert by_name["efficiency_adjusted"]["wrong and verbose"] < by_name["efficiency_adjusted"]["wrong and economical"]
    assert by_name["ood_robustness"]["ood and correct"] > by_name["ood_robustness"]["ind and correct"]


@given(TRIAL)
def test_one_trial_may_come_alone(trial: dict[str, float]) -> None:
    alone, listed = Signals(**trial), table([trial])
    for schema in SCHEMATA.values():
        assert classify(alone, schema, FROZEN).shape == ()
        assert classify(alone, schema, FROZEN) == classify(listed, schema, FROZEN)[0]


@pytest.mark.parametrize("schema", SCHEMATA.values(), ids=SCHEMATA)
def test_each_needed_signal_is_named_when_it_is_missing(schema: Schema) -> None:
    signals = random_signals(4, (50,))
    thresholds = fit_thresholds(signals)
    complete = vars(signals)
    needed = Signals(**{name: complete[name] for name in schema.signals})
    assert np.array_equal(classify(needed, schema, thresholds), classify(signals, schema, thresholds))
    for name in schema.signals:
        incomplete = Signals(**{other: complete[other] for other in schema.signals if other != name})
        with pytest.raises(ValueError, match=f"signal {name} is missing: schema {schema.name} needs it"):
            classify(incomplete, schema, thresholds)
        holed = complete[name].copy()
        holed[[3, 8]] = np.nan
        with pytest.raises(ValueError, match=rf"signal {name} is missing \(NaN\) for 2 of 50 trials"):
            classify(Signals(**{**complete, name: holed}), schema, thresholds)


@pytest.mark.parametrize("schema", [s for s in SCHEMATA.values() if s.thresholds], ids=lambda s: s.name)
def test_each_needed_threshold_is_named_when_it_was_not_fitted(schema: Schema) -> None:
    signals = random_signals(5, (200,))
    fitted = vars(fit_thresholds(signals))
    for name in schema.thresholds:
        incomplete = Thresholds(**{other: value for other, value in fitted.items() if other != name})
        with pytest.raises(ValueError, match=f"threshold {name} is missing: schema {schema.name} needs it"):
            classify(signals, schema, incomplete)


def test_a_threshold_that_no_trial_depends_on_is_not_asked_for() -> None:
    right = random_signals(6, (60,))
    right = Signals(**{**vars(right), "is_correct": np.ones(60)})
    thresholds = fit_thresholds(right)
    assert thresholds.low_wrong is None
    assert set(classify(right, SCHEMATA["conf_wrong_penalty"], thresholds)) == {0, 3}


def test_a_custom_schema_must_cover_every_trial_once() -> None:
    signals = random_signals(7, (100,))
    gap = Schema("gap", "Gap", (Category("correct and boxed", 1.0, (("correct", "boxed"),)),))
    overlap = Schema("overlap", "Overlap", tuple(Category(v, 1.0, ((v,),)) for v in ("correct", "wrong", "boxed")))
    with pytest.raises(ValueError, match=r"schema gap must put each valid trial into exactly one category, but [1-9]"):
        classify(signals, gap)
    with pytest.raises(ValueError, match=r"schema overlap .* 0 fit none and [1-9]\d* fit several"):
        classify(signals, overlap)
    with pytest.raises(ValueError, match="schema typo uses unknown rubric variables corect"):
        Schema("typo", "Typo", (Category("corect", 1.0, (("corect",),)),))


def percentile(values: list[float], percent: float) -> float:
    """Linear interpolation between order statistics, written out."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def test_base_signals_from_what_servers_report() -> None:
    assert token_ratio([32_768, 8_192]).tolist() == [1.0, 0.25]
    assert repeated_pattern(["stop", "length", "content_filter"]).tolist() == [0.0, 1.0, 1.0]
    bits = bits_per_token([-8 * np.log(2), -1.0, 0.0], [4, 2, 0])
    assert bits[:2] == pytest.approx([2.0, 0.5 / np.log(2)])
    assert np.isnan(bits[2])


trials = st.lists(st.tuples(st.booleans(), st.floats(0, 8), st.floats(0, 8), st.floats(0, 2)), min_size=1, max_size=30)


@given(trials)
def test_thresholds_are_the_percentiles_of_table_4(rows: list[tuple[bool, float, float, float]]) -> None:
    correct, completion, prompt, ratio = (list(column) for column in zip(*rows, strict=True))
    thresholds = fit_thresholds(
        Signals(is_correct=correct, completion_bpt=completion, prompt_bpt=prompt, token_ratio=ratio)
    )
    right = [bpt for bpt, hit in zip(completion, correct, strict=True) if hit]
    wrong = [bpt for bpt, hit in zip(completion, correct, strict=True) if not hit]
    expected = {
        "high": percentile(completion, 40),
        "low_wrong": percentile(wrong, 60) if wrong else None,
        "prompt": percentile(prompt, 90),
        "len_p33": percentile(ratio, 33),
        "len_p66": percentile(ratio, 66),
        "corr_p33": percentile(right, 33) if right else None,
        "corr_p66": percentile(right, 66) if right else None,
    }
    assert vars(thresholds) == pytest.approx(expected)


def test_thresholds_are_fitted_on_what_was_recorded() -> None:
    assert fit_thresholds(Signals(token_ratio=[0.0, 1.0])) == Thresholds(len_p33=0.33, len_p66=0.66)
    assert fit_thresholds(Signals(completion_bpt=[2.0])) == Thresholds(high=2.0)
    with pytest.raises(ValueError, match=r"signal prompt_bpt is missing \(NaN\) for 1 of 2 trials: threshold prompt"):
        fit_thresholds(Signals(prompt_bpt=[1.0, float("nan")]))


def test_signals_are_frozen_copies() -> None:
    given_values = np.array([0.0, 1.0])
    signals = Signals(has_box=given_values)
    given_values[0] = 1.0
    assert signals.has_box is not None
    assert signals.has_box.tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        signals.has_box[0] = 1.0


LOGIT = st.floats(-30, 30)
LABELS = st.tuples(LOGIT, LOGIT, LOGIT)


@given(st.lists(LABELS, min_size=1, max_size=5), LABELS, st.floats(0.1, 10))
def test_calibration_is_the_formula(
    logits: list[tuple[float, float, float]], baseline: tuple[float, float, float], temperature: float
) -> None:
    calibrated = calibrate_verifier(logits, baseline, temperature)
    for row, scores in zip(calibrated, logits, strict=True):
        scaled = [(s - b) / temperature for s, b in zip(scores, baseline, strict=True)]
        odds = [np.exp(x - max(scaled)) for x in scaled]
        assert row == pytest.approx([x / sum(odds) for x in odds])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Thresholds(len_p33=0.5, len_p66=0.2), "threshold len_p33 must not be above len_p66, got 0.5 > 0.2"),
        (lambda: Thresholds(high=float("nan")), "threshold high must be finite, got nan"),
        (lambda: Signals(), "signals must hold at least one signal, got none"),
        (lambda: Signals(has_box=[1, 2]), r"signal has_box must be between 0 and 1 \(NaN: missing\), got 2.0"),
        (lambda: Signals(prompt_bpt=[-0.5]), r"prompt_bpt must be finite and at least 0 \(NaN: missing\), got -0.5"),
        (lambda: Signals(token_ratio=[float("inf")]), "signal token_ratio must be finite and at least 0 .* got inf"),
        (lambda: Signals(has_box=[1, 0], is_correct=[1]), r"one value per trial each, got the shapes .*\(2,\).*\(1,\)"),
        (lambda: calibrate_verifier([1.0], [1.0], 1.0), r"logits must have at least 2 labels .* got shape \(1,\)"),
        (lambda: calibrate_verifier([[1.0, 2.0]], [1.0] * 3, 1.0), r"one value per label, shape \(2,\) .* got \(3,\)"),
        (lambda: calibrate_verifier([1.0, np.inf], [0.0, 0.0], 1.0), "logits must hold finite numbers, got inf"),
        (lambda: calibrate_verifier([1.0, 2.0], [0.0, 0.0], 0.0), "temperature must be above 0, got 0.0"),
    ],
)
def test_bad_values_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
