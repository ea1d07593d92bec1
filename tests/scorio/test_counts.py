"""Counts: the tally of every kind of outcomes, and what a table of counts must be."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from thoroughness import examples

from scorio.counts import Counts


def counted(labels: np.ndarray, categories: int) -> np.ndarray:
    return np.stack([(labels == k).sum(axis=-1) for k in range(categories)], axis=-1)


@settings(max_examples=examples(60))
@given(data=st.data(), categories=st.integers(1, 12), dtype=st.sampled_from(["i1", "u1", "i2", "i4", "u4", "i8", "u8"]))
def test_a_tally_counts_every_label(data: st.DataObject, categories: int, dtype: str) -> None:
    shape = data.draw(array_shapes(min_dims=2, max_dims=2, max_side=40))
    labels = data.draw(arrays(dtype, shape, elements=st.integers(0, categories - 1)))
    counts = Counts.from_outcomes(labels, np.zeros(categories))
    np.testing.assert_array_equal(counts.n, counted(labels, categories))
    assert counts.n.dtype == np.int64
    assert (counts.questions, counts.categories) == (shape[0], categories)


@pytest.mark.parametrize(
    ("trials", "categories"), [(64, 4), (300, 7), (300, 8), (5000, 4), (5000, 5), (9, 200), (70_000, 4)]
)
def test_wide_tables_are_tallied_however_their_counts_fit_a_word(trials: int, categories: int) -> None:
    labels = np.random.default_rng(1).integers(0, categories, (60, trials))
    labels[3] = categories - 1
    labels[4] = 0
    np.testing.assert_array_equal(Counts.from_outcomes(labels, np.zeros(categories)).n, counted(labels, categories))


@settings(max_examples=examples(60))
@given(data=st.data(), categories=st.integers(1, 5), ndim=st.integers(2, 3))
def test_minus_one_is_no_trial(data: st.DataObject, categories: int, ndim: int) -> None:
    shape = data.draw(array_shapes(min_dims=ndim, max_dims=ndim, max_side=6))
    labels = data.draw(arrays(np.int64, shape, elements=st.integers(-1, categories - 1)))
    counts = Counts.from_ragged(labels, np.zeros(categories))
    np.testing.assert_array_equal(counts.n, counted(labels, categories))
    np.testing.assert_array_equal(counts.trials, (labels >= 0).sum(axis=-1))


def test_a_vector_is_one_question_and_a_tensor_several_models() -> None:
    assert Counts.from_outcomes([0, 1, 1]).n.tolist() == [[1, 2]]
    assert Counts.from_ragged([0, 1, -1]).n.tolist() == [[1, 1]]
    tensor = Counts.from_tensor([[[0, 1], [1, 1]], [[0, 0], [0, 1]], [[1, 1], [1, 1]]])
    assert tensor.n.tolist() == [[[1, 1], [0, 2]], [[2, 0], [1, 1]], [[0, 2], [0, 2]]]
    assert tensor.trials.tolist() == [[2, 2]] * 3


def test_prior_outcomes_are_shared_or_each_models_own() -> None:
    tensor = np.array([[[0, 1], [1, 1]], [[0, 0], [0, 1]]])
    shared = Counts.from_tensor(tensor, None, [[1], [0]])
    assert shared.r0 is not None
    assert shared.r0.tolist() == [[0, 1], [1, 0]]
    assert shared.outcomes.tolist() == [[[1, 2], [1, 2]], [[2, 1], [2, 1]]]
    by_model = Counts.from_tensor(tensor, None, tensor)
    assert by_model.outcomes.tolist() == (2 * Counts.from_tensor(tensor).n).tolist()
    with pytest.raises(ValueError, match="R0 must have one row per question"):
        Counts.from_tensor(tensor, None, [[[1], [0]]])


def test_nu_is_one_more_than_all_outcomes() -> None:
    counts = Counts(n=[[2, 0, 1], [0, 0, 0]], w=[0, 1, 2], r0=[[0, 1, 0], [0, 0, 3]])
    assert counts.nu.tolist() == [[3.0, 2.0, 2.0], [1.0, 1.0, 4.0]]
    assert counts.trials.tolist() == [4, 3]
    assert counts.nu.dtype == np.float64


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n": [[1, 2]], "w": [0, 1, 2]}, "n must have one column per weight, got 2 columns and 3 weights"),
        ({"n": [1, 2], "w": [0, 1]}, "n must have the shape (..., questions, categories), none empty, got (2,)"),
        ({"n": np.zeros((0, 2)), "w": [0, 1]}, "none empty, got (0, 2)"),
        ({"n": np.zeros((0, 3, 2)), "w": [0, 1]}, "none empty, got (0, 3, 2)"),
        ({"n": [[1, -2]], "w": [0, 1]}, "n must hold counts >= 0, got -2"),
        ({"n": [[1, 0.5]], "w": [0, 1]}, "n must hold whole numbers, got 0.5"),
        ({"n": [[1, np.nan]], "w": [0, 1]}, "n must hold whole numbers, got nan"),
        ({"n": [["a", "b"]], "w": [0, 1]}, "n must hold whole numbers, got an array of type"),
        ({"n": [[1], [2, 3]], "w": [0, 1]}, "n must have rows of one length"),
        ({"n": [[1, 2]], "w": [0, np.inf]}, "w must hold finite numbers, got inf"),
        ({"n": [[1, 2]], "w": [[0, 1]]}, "w must be a vector with one number per category, got shape (1, 2)"),
        (
            {"n": [[1, 2]], "w": [0, 1], "r0": [[1], [2]]},
            "r0 must be broadcastable to the shape of n, (1, 2), got (2, 1)",
        ),
        (
            {"n": [[1, 2]], "w": [0, 1], "r0": [[1, 2, 3]]},
            "r0 must be broadcastable to the shape of n, (1, 2), got (1, 3)",
        ),
        ({"n": [[1, 2]], "w": [0, 1], "r0": [[1, -1]]}, "r0 must hold counts >= 0, got -1"),
    ],
)
def test_a_table_of_counts_is_checked(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Counts(**fields)


def test_missing_trials_and_whole_floats_are_read_and_lower_labels_are_not() -> None:
    assert Counts.from_ragged(np.array([[0.0, 1.0, -1.0]])).n.tolist() == [[1, 1]]
    assert Counts.from_ragged(np.array([[0, 1, 1]], dtype=np.uint8)).n.tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="R must have rows of one length, got rows of several; pad outcomes with -1"):
        Counts.from_ragged([[0, 1], [1]])
    with pytest.raises(ValueError, match=re.escape("R must hold categories in [-1, 1], got -2")):
        Counts.from_ragged([[0, -1, -2]])
    with pytest.raises(ValueError, match="R must have 3 axes, got shape"):
        Counts.from_tensor([[0, 1]])
    assert Counts(n=np.array([[1.0, 2.0]]), w=[0, 1]).n.dtype == np.int64
    assert Counts(n=np.array([[200, 100]], dtype=np.uint8), w=[0, 1]).nu.tolist() == [[201.0, 101.0]]
    assert Counts.from_outcomes([[True, False, True]]).n.tolist() == [[1, 2]]
