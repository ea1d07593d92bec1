"""Base signals, thresholds and the calibration of the verifier."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorio.categorical import (
    Signals,
    Thresholds,
    bits_per_token,
    calibrate_verifier,
    fit_thresholds,
    repeated_pattern,
    token_ratio,
)


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


def test_thresholds_of_signals_that_were_not_recorded_are_not_fitted() -> None:
    assert fit_thresholds(Signals(token_ratio=[0.0, 1.0])) == Thresholds(len_p33=0.33, len_p66=0.66)
    assert fit_thresholds(Signals(completion_bpt=[2.0])) == Thresholds(high=2.0)


def test_a_threshold_is_not_fitted_on_holes() -> None:
    with pytest.raises(ValueError, match=r"signal prompt_bpt is missing \(NaN\) for 1 of 2 trials: threshold prompt"):
        fit_thresholds(Signals(prompt_bpt=[1.0, float("nan")]))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"len_p33": 0.5, "len_p66": 0.2}, "threshold len_p33 must not be above len_p66, got 0.5 > 0.2"),
        ({"high": float("nan")}, "threshold high must be finite, got nan"),
    ],
)
def test_bad_thresholds_are_named(values: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Thresholds(**values)


@pytest.mark.parametrize(
    ("signals", "message"),
    [
        ({}, "signals must hold at least one signal, got none"),
        ({"has_box": [1, 2]}, r"signal has_box must be between 0 and 1 \(NaN: missing\), got 2.0"),
        ({"prompt_bpt": [-0.5]}, r"signal prompt_bpt must be finite and at least 0 \(NaN: missing\), got -0.5"),
        ({"token_ratio": [float("inf")]}, "signal token_ratio must be finite and at least 0 .* got inf"),
        ({"has_box": [1, 0], "is_correct": [1]}, r"one value per trial each, got the shapes .*\(2,\).*\(1,\)"),
    ],
)
def test_bad_signals_are_named(signals: dict[str, list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Signals(**signals)


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
    ("logits", "baseline", "temperature", "message"),
    [
        ([1.0], [1.0], 1.0, r"logits must have at least 2 labels on the last axis, got shape \(1,\)"),
        ([[1.0, 2.0]], [1.0, 2.0, 3.0], 1.0, r"baseline must hold one value per label, shape \(2,\) .* got \(3,\)"),
        ([1.0, float("inf")], [0.0, 0.0], 1.0, "logits must hold finite numbers, got inf"),
        ([1.0, 2.0], [0.0, 0.0], 0.0, "temperature must be above 0, got 0.0"),
    ],
)
def test_bad_logits_are_named(logits: list[float], baseline: list[float], temperature: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate_verifier(logits, baseline, temperature)
