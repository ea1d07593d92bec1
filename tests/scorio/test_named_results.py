"""Results with names that unpack as plain tuples, and data frames as outcomes.

pandas is imported by the tests that need it: each process that runs tests imports this module.
"""

import numpy as np
import pytest

import scorio
from scorio import Counts

OUTCOMES = np.array([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
RAGGED = np.array([[0, 1, 1, -1, -1], [1, 1, 0, 1, 1]])


def test_results_have_names_and_unpack() -> None:
    mu, sigma = estimate = scorio.eval.bayes(OUTCOMES)
    assert (estimate.mu, estimate.sigma) == (mu, sigma) == tuple(estimate) and isinstance(estimate, tuple)
    summary = scorio.eval.pass_at_k_ci(OUTCOMES, 2)
    assert summary.lo < summary.mu < summary.hi and summary == tuple(summary)


@pytest.mark.parametrize("kind", ["float64", "Int64", "object", "boolean"])
def test_a_frame_is_its_trials_and_what_is_missing_is_none(kind: str) -> None:
    from pandas import DataFrame

    frame = DataFrame(RAGGED, index=["q1", "q2"]).where(RAGGED >= 0).astype(kind)
    same = Counts.from_ragged(RAGGED)
    assert np.array_equal(Counts.from_outcomes(frame).n, same.n) and np.array_equal(
        Counts.from_ragged(RAGGED).n, same.n
    )
    assert scorio.eval.bayes(frame) == scorio.eval.bayes(same) and scorio.eval.avg(frame) == scorio.eval.avg(same)
    assert scorio.eval.pass_at_k(frame, 2) == scorio.eval.pass_at_k(same, 2)


def test_a_whole_frame_is_its_matrix_and_a_column_is_one_question() -> None:
    from pandas import DataFrame, Series

    assert scorio.eval.bayes(DataFrame(OUTCOMES)) == scorio.eval.bayes(OUTCOMES)
    assert scorio.eval.bayes(Series([0, 1, None])) == scorio.eval.bayes([0, 1])
    assert scorio.eval.bayes(DataFrame([[0, 2, 1]]), [0.0, 0.5, 1.0]) == scorio.eval.bayes([0, 2, 1], [0.0, 0.5, 1.0])
    by_model = DataFrame([[1, 1, 0], [0, 1, 0]], index=["a", "b"])
    assert np.array_equal(scorio.rank.avg(by_model), scorio.rank.avg(by_model.to_numpy()))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.5, 1.0], "whole numbers"),
        (["right", "wrong"], "whole numbers"),
        ([-1, 1], "a missing trial is NaN"),
        ([2, 1], "w is omitted"),
    ],
)
def test_a_frame_that_holds_something_else_is_refused(row: list[object], message: str) -> None:
    from pandas import DataFrame

    with pytest.raises(ValueError, match=message):
        scorio.eval.bayes(DataFrame([row]))


def test_a_question_without_any_trial_has_no_average() -> None:
    from pandas import DataFrame

    with pytest.raises(ValueError, match="a trial of every question"):
        scorio.eval.avg(DataFrame([[1.0, 0.0], [np.nan, np.nan]]))
