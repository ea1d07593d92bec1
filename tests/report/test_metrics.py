"""Metrics of several draws: against enumeration of all draws, and with unequal numbers of trials."""

from itertools import combinations
from math import ceil

import numpy as np
import pytest

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.load import config_from_mapping
from adaptive_eval.config.reports import find_metric
from adaptive_eval.report.report_rows import metric_cautions, metric_rows

WEIGHTS = np.array([0.0, 1.0])
COUNTS = np.array([[[1, 3], [4, 2], [5, 0]], [[2, 2], [0, 9], [3, 1]]])
"""(L, M, 2), wrong and right: questions with unequal numbers of trials."""

ORACLES = {
    "pass@2": lambda draw: any(draw),
    "pass^3": lambda draw: all(draw),
    "g-pass@3": lambda draw: all(draw),
    "maj@3": lambda draw: sum(draw) >= 2,
    "g-pass@4:0.5": lambda draw: sum(draw) >= ceil(0.5 * len(draw)),
}


@pytest.mark.parametrize("name", ORACLES)
def test_a_metric_is_the_mean_over_all_draws_of_a_questions_trials(name: str) -> None:
    metric = find_metric(name)
    assert metric is not None
    rows = {row.model: row for row in metric_rows([name], ["a", "b"], COUNTS, WEIGHTS)}
    for model, counts in zip("ab", COUNTS, strict=True):
        questions = []
        for wrong, right in counts:
            trials = [False] * wrong + [True] * right
            questions.append(np.mean([ORACLES[name](draw) for draw in combinations(trials, metric.draws)]))
        row = rows[model]
        assert row.value == pytest.approx(np.mean(questions))
        assert row.sigma is not None and row.lo is not None and row.hi is not None
        assert 0.0 <= row.lo <= row.value <= row.hi <= 1.0


def test_fewer_trials_bias_no_metric_and_intervals_hold_what_they_should() -> None:
    """One model with 5 trials and a copy of it with 40: the same on average, where the posterior's mean is not."""
    rng = np.random.default_rng(11)
    chances = rng.beta(0.6, 1.2, 20)
    truth = (1.0 - (1.0 - chances) ** 4).mean()
    estimates, covered = {5: [], 40: []}, {5: 0, 40: 0}
    runs = 150
    for _ in range(runs):
        for trials, values in estimates.items():
            right = rng.binomial(trials, chances)
            counts = np.stack([trials - right, right], axis=-1)[None]
            (row,) = metric_rows(["pass@4"], ["m"], counts, WEIGHTS)
            assert row.value is not None and row.lo is not None and row.hi is not None
            values.append(row.value)
            covered[trials] += row.lo <= truth <= row.hi
    for values in estimates.values():
        assert np.mean(values) == pytest.approx(truth, abs=4.0 * np.std(values) / np.sqrt(runs))
    assert min(covered.values()) / runs >= 0.93
    assert min(covered.values()) < runs, "an interval of everything says nothing"


def test_where_a_question_has_too_few_trials_there_is_a_warning_and_no_value() -> None:
    rows = list(metric_rows(["pass@5", "pass@2"], ["a", "b"], COUNTS, WEIGHTS))
    assert [row.value is None for row in rows] == [True, True, False, False]
    (caution,) = metric_cautions(rows)
    assert "a, b: no pass@5" in caution.text
    turned = metric_rows(["pass@2"], ["a", "b"], COUNTS[..., ::-1], np.array([1.0, 0.0]))
    assert list(turned) == rows[2:], "weights say which category is success"


WORTH = {"has_answer": 0.5, "is_correct": 1}
SETTINGS = {
    "name": "m",
    "questions": {"world": "coins"},
    "grader": "math",
    "models": [{"name": "coin-01", "simulate": True}, {"name": "coin-02", "simulate": True}],
}


@pytest.mark.parametrize("name", ["pass@0", "pass", "best@3", "pass@3:0.5", "g-pass@4:2"])
def test_an_unknown_metric_is_refused(name: str) -> None:
    assert find_metric(name) is None
    with pytest.raises(ConfigError, match="must be a metric"):
        config_from_mapping({**SETTINGS, "report": {"metrics": [name]}})


def test_a_metric_needs_trials_that_a_model_may_get() -> None:
    settings = {**SETTINGS, "report": {"metrics": ["pass@4", "maj@8"]}}
    rule = r"report\.metrics\[1\] needs 8 trials of every question, but trials\.max is 7; raise trials\.min and "
    with pytest.raises(ConfigError, match=rule):
        config_from_mapping({**settings, "trials": {"max": 7}})
    config_from_mapping({**settings, "trials": {"max": 8}})
    half, whole = ({"name": name, "weight": weight, "when": {name: True}} for name, weight in WORTH.items())
    rubric = {"categories": [whole, half, {"name": "bad", "weight": 0}]}
    with pytest.raises(ConfigError, match="a rubric of two categories"):
        config_from_mapping({**SETTINGS, "rubric": rubric, "report": {"metrics": ["pass@2"]}})
