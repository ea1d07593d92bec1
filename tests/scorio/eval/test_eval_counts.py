"""Counts, ragged counts and batches give what matrices and loops give; bad input is named."""

import math
import re
from typing import Any

import numpy as np
import pytest
from eval_calls import any_draws, binary, finite_bank, posterior, scales
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from thoroughness import examples

import scorio.eval as scorio_eval
from scorio.counts import Counts

NAMES = sorted(binary(1))
matrices = st.tuples(st.integers(1, 5), st.integers(1, 9)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 1))
)
tensors = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 1))
)
ragged = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=5)
some_k = st.integers(1, 9)


def flat(result: object) -> np.ndarray:
    return np.atleast_1d(np.asarray(result, dtype=np.float64))


def test_the_calls_cover_every_public_function() -> None:
    aliases = {"unanimous_at_k", "unanimous_at_k_ci"}
    results = {"Estimate", "Summary", "Corrected"}
    of_labels = {"corrected"}  # takes labels beside the outcomes: test_eval_predicted
    assert set(NAMES) | aliases | results | of_labels == set(scorio_eval.__all__)


@settings(max_examples=examples(40))
@given(R=matrices, k=some_k)
def test_counts_of_a_matrix_are_the_matrix(R: np.ndarray, k: int) -> None:
    k = min(k, R.shape[1])
    n = np.stack([(R == 0).sum(axis=1), (R == 1).sum(axis=1)], axis=1)
    for name, call in binary(k).items():
        np.testing.assert_array_equal(flat(call(Counts(n=n, w=[0.0, 1.0]))), flat(call(R)), err_msg=name)


@settings(max_examples=examples(25))
@given(R=tensors, k=some_k)
def test_a_batch_is_a_loop_over_its_models(R: np.ndarray, k: int) -> None:
    k = min(k, R.shape[2])
    batch = Counts.from_tensor(R)
    for name, call in binary(k).items():
        together = np.array(call(batch))
        assert together.shape[-1] == len(R), name
        one_by_one = np.array([call(model) for model in R]).T
        np.testing.assert_allclose(together, one_by_one, rtol=1e-12, atol=1e-14, err_msg=name)


@settings(max_examples=examples(25))
@given(R=matrices, k=some_k, seed=st.integers(0, 2**32 - 1))
def test_the_order_of_questions_and_trials_does_not_matter(R: np.ndarray, k: int, seed: int) -> None:
    k = min(k, R.shape[1])
    rng = np.random.default_rng(seed)
    shuffled = rng.permuted(rng.permutation(R), axis=1)
    for name, call in binary(k).items():
        np.testing.assert_allclose(flat(call(shuffled)), flat(call(R)), rtol=1e-12, atol=1e-14, err_msg=name)


@settings(max_examples=examples(40))
@given(R=matrices, k=some_k, confidence=st.floats(0.01, 0.999), ends=st.tuples(st.floats(-1, 2), st.floats(-1, 2)))
def test_values_and_intervals_stay_bounded(R: np.ndarray, k: int, confidence: float, ends: tuple[float, float]) -> None:
    k = min(k, R.shape[1])
    for name, call in (finite_bank(k) | scales()).items():
        assert -1e-15 <= flat(call(R))[0] <= 1.0 + 1e-15, name
    for name, call in posterior(k).items():
        mu, sigma, lo, hi = call(R)
        assert 0.0 <= lo <= hi <= 1.0, name
        assert lo <= mu + 1e-12 and mu - 1e-12 <= hi and sigma >= 0.0, name
    low, high = sorted(ends)
    for function in (scorio_eval.bayes_ci, scorio_eval.avg_ci):
        mu, sigma, lo, hi = function(R, confidence=confidence, bounds=(low, high))
        assert low <= lo <= hi <= high
    _, _, lo, hi = scorio_eval.pass_at_k_ci(R, k, confidence, (low, high))
    assert low <= lo <= hi <= high


@settings(max_examples=examples(40))
@given(pairs=ragged, k=st.integers(1, 20))
def test_a_ragged_model_is_the_mean_of_its_questions(pairs: list[tuple[int, int]], k: int) -> None:
    counts = Counts(n=pairs, w=[0.0, 1.0])
    blends = {name for name in any_draws(k) if name.startswith(("geom_ds", "geo_spectrum"))}
    max_trials = int(counts.trials.max())
    calls = any_draws(k) | {"bayes": scorio_eval.bayes}
    calls |= posterior(min(k, max_trials)) if max_trials else {}
    for name, call in calls.items():
        if name in blends:
            continue
        alone = [call(Counts(n=[pair, [0, max_trials]], w=[0.0, 1.0])) for pair in pairs]
        filler = call(Counts(n=[[0, max_trials], [0, max_trials]], w=[0.0, 1.0]))
        means = [2.0 * row[0] - filler[0] for row in alone]
        variances = [4.0 * row[1] ** 2 - 2.0 * filler[1] ** 2 for row in alone]
        mu, sigma = call(counts)[:2]
        assert mu == pytest.approx(math.fsum(means) / len(pairs), rel=1e-9, abs=1e-12), name
        assert sigma == pytest.approx(math.sqrt(max(0.0, math.fsum(variances))) / len(pairs), rel=1e-6, abs=1e-9), name


@settings(max_examples=examples(40))
@given(pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5), k=some_k)
def test_a_ragged_bank_is_the_mean_of_its_questions(pairs: list[tuple[int, int]], k: int) -> None:
    counts = Counts(n=[(f, s + 1) for f, s in pairs], w=[0.0, 1.0])
    k = min(k, int(counts.trials.min()))
    calls = finite_bank(k) | {"avg": lambda R: scorio_eval.avg(R)[0]}
    for name, call in calls.items():
        if name.startswith(("geom_ds", "geo_spectrum")):
            continue
        alone = [call([[0] * int(f) + [1] * int(s)]) for f, s in counts.n]
        assert call(counts) == pytest.approx(math.fsum(alone) / len(pairs), rel=1e-12, abs=1e-14), name


def test_a_question_without_trials_has_the_posterior_of_the_prior() -> None:
    counts = Counts(n=[[0, 0], [1, 3]], w=[0.0, 1.0])
    assert scorio_eval.bayes(counts)[0] == pytest.approx((1 / 2 + 4 / 6) / 2)
    mu, sigma, _, _ = scorio_eval.pass_at_k_ci(counts, 1)
    assert (mu, sigma) == pytest.approx(scorio_eval.bayes(counts), rel=1e-12)
    with pytest.raises(ValueError, match="R must have a trial of every question, got none of 1 of them"):
        scorio_eval.avg(counts)


def test_the_average_scale_is_equation_20_question_by_question() -> None:
    """a and its variance at unequal N_q, from the formulas of the average scale."""
    n, w = np.array([[1, 4, 2], [0, 1, 1], [9, 0, 3]]), np.array([0.0, 0.5, 1.0])
    total, trials = n.sum(axis=1) + 3.0, n.sum(axis=1)
    share = (n + 1.0) / total[:, None]
    var = (share @ w**2 - (share @ w) ** 2) / (total + 1.0)
    a, sigma = scorio_eval.avg(Counts(n=n, w=w))
    assert a == pytest.approx((n @ w / trials).mean())
    assert sigma == pytest.approx(math.sqrt(((total / trials) ** 2 * var).sum()) / 3)
    mu, uncertainty = scorio_eval.bayes(Counts(n=n, w=w))
    assert (mu, uncertainty) == pytest.approx(((share @ w).mean(), math.sqrt(var.sum()) / 3))


def test_prior_outcomes_count_as_trials_on_both_scales() -> None:
    R, R0, w = [[0, 2, 1], [2, 2, 1]], [[1, 1], [2, 0]], [0.0, 0.3, 1.0]
    joined = np.concatenate([R, R0], axis=1)
    counts = Counts.from_outcomes(R, w, R0)
    assert scorio_eval.bayes(counts) == scorio_eval.bayes(R, w, R0) == scorio_eval.bayes(joined, w)
    assert scorio_eval.avg(counts) == scorio_eval.avg(joined, w)
    assert scorio_eval.max_at_k_ci(counts, 4) == scorio_eval.max_at_k_ci(R, 4, w, R0)
    assert scorio_eval.max_at_k(counts, 5) == scorio_eval.max_at_k(joined, 5, w)


def test_weights_may_be_any_numbers() -> None:
    """Bayes@N is affine in the weights and so is its interval."""
    R = [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]]
    mu, sigma, lo, hi = scorio_eval.bayes_ci(R, [0.0, 0.5, 1.0])
    moved = scorio_eval.bayes_ci(R, [7.0, 5.0, 3.0])
    assert moved == pytest.approx((7.0 - 4.0 * mu, 4.0 * sigma, 7.0 - 4.0 * hi, 7.0 - 4.0 * lo))
    assert scorio_eval.avg(R, [2.0, 2.0, 2.0]) == pytest.approx((2.0, 0.0))


def test_more_questions_than_distinct_counts_and_the_reverse() -> None:
    """Both ways of finding distinct counts, and none for few questions, agree."""
    rng = np.random.default_rng(3)
    for trials, questions in ((9, 500), (1_000_000, 200), (9, 20)):
        successes = rng.integers(0, trials + 1, questions)
        n = np.stack([trials - successes, successes], axis=1)
        value = scorio_eval.pass_at_k(Counts(n=n, w=[0, 1]), 3)
        misses = [math.comb(int(f), 3) / math.comb(trials, 3) for f in n[:, 0]]
        assert value == pytest.approx(1.0 - math.fsum(misses) / questions, rel=1e-9)


R = np.array([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
GRADED = np.array([[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]])
W = [0.0, 0.5, 1.0]

BAD_OUTCOMES = [
    (np.zeros((0, 5), dtype=int), "R must have at least one question and one trial, got shape (0, 5)"),
    (np.zeros((2, 0), dtype=int), "R must have at least one question and one trial, got shape (2, 0)"),
    ([], "R must have at least one question and one trial, got shape (1, 0)"),
    (R[np.newaxis], "R must have 2 axes, got shape (1, 2, 5); for a tensor of models use Counts.from_tensor"),
    (1, "R must have 2 axes, got shape ()"),
    (
        [[0, 1], [1]],
        "R must have rows of one length, got rows of several; pad outcomes with -1 and use Counts.from_ragged",
    ),
    (np.ma.masked_equal(R, 0), "R must not be masked; fill outcomes with -1 and use Counts.from_ragged"),
    (R + 0.5, "R must hold whole numbers, got 0.5"),
    (R * np.nan, "R must hold whole numbers, got nan"),
    (np.where(R == 1, np.inf, 0.0), "R must hold whole numbers, got inf"),
    ([["right", "wrong"]], "R must hold whole numbers, got an array of type"),
    (R - 1, "R must hold categories in [0, 1], got -1"),
    (GRADED, "R must hold categories in [0, 1], got 2"),
    (GRADED.astype(np.uint8), "R must hold categories in [0, 1], got 2"),
    (GRADED.astype(float), "R must hold categories in [0, 1], got 2"),
]


@pytest.mark.parametrize(("outcomes", "message"), BAD_OUTCOMES)
def test_every_function_refuses_bad_outcomes(outcomes: Any, message: str) -> None:
    for call in binary(2).values():
        with pytest.raises(ValueError, match=re.escape(message)):
            call(outcomes)


@pytest.mark.parametrize("k", [0, -1, 6, 2.0, 2.5, "2", None, True, float("nan")])
def test_draws_without_replacement_need_as_many_trials(k: Any) -> None:
    calls = finite_bank(1) | {name: call for name, call in posterior(1).items() if name not in any_draws(1)}
    for name in calls:
        extra = {"g_pass_at_k_tau": (0.5,), "threshold_spectrum_at_k": ([1.0],)}.get(name.removesuffix("_ci"), ())
        with pytest.raises(ValueError, match=re.escape("k must be an integer")) as error:
            getattr(scorio_eval, name)(R, k, *extra)
        assert str(error.value).endswith(f"got {k!r}")


@pytest.mark.parametrize("k", [0, -3, 1.0, None, True])
def test_latent_draws_are_any_positive_number(k: Any) -> None:
    for name in any_draws(1):
        extra = ([1.0],) if name.startswith("threshold") else ()
        with pytest.raises(ValueError, match=re.escape(f"k must be an integer >= 1, got {k!r}")):
            getattr(scorio_eval, name)(R, k, *extra)
        assert getattr(scorio_eval, name)(R, 9, *([[0.1] * 9] if extra else []))[1] > 0.0


def test_a_ragged_bank_is_as_deep_as_its_shallowest_question() -> None:
    counts = Counts(n=[[1, 3], [1, 1], [0, 4]], w=[0, 1])
    for call in finite_bank(3).values():
        with pytest.raises(ValueError, match=r"k must be an integer in \[1, 2\] \(the smallest number of trials of a"):
            call(counts)
    for name, call in posterior(5).items():
        if name not in any_draws(1):
            with pytest.raises(
                ValueError, match=r"k must be an integer in \[1, 4\] \(the largest number of trials of a"
            ):
                call(counts)


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        *(("confidence", value) for value in (0, 1, -0.1, 1.5, float("nan"), "0.5", None)),
        *(("bounds", value) for value in ((0.6, 0.5), (0.0, float("nan")), (0.0,), (0, 1, 2), 0.5, ("a", "b"))),
    ],
)
def test_confidence_and_bounds_of_every_interval_are_checked(keyword: str, value: Any) -> None:
    for name in (name for name in binary(1) if name.endswith("_ci")):
        extra = () if name in ("bayes_ci", "avg_ci") else (2,)
        extra += {"g_pass_at_k_tau_ci": (0.5,), "threshold_spectrum_at_k_ci": ([0.5, 0.5],)}.get(name, ())
        with pytest.raises(ValueError, match=f"{keyword} must") as error:
            getattr(scorio_eval, name)(R, *extra, **{keyword: value})
        assert keyword == "confidence" or repr(value) in str(error.value)


TAU = "g_pass_at_k_tau g_pass_at_k_tau_ci"
WITH_PRIOR = "pass_at_k_ci geom_at_k_ci geo_spectrum_star_at_k_ci"
BLENDS = "geo_spectrum_at_k geo_spectrum_at_k_ci"
SPECTRA = f"threshold_spectrum_at_k threshold_spectrum_at_k_ci {BLENDS}"
GEOMETRIC = "geom_at_k geom_at_k_ci geom_ds_at_k geom_ds_at_k_ci"


@pytest.mark.parametrize(
    ("names", "arguments", "message"),
    [
        *((TAU, {"tau": tau}, "tau must") for tau in (-0.1, 1.1, float("nan"), "0.5", None)),
        *(
            (WITH_PRIOR, {name: value}, f"{name} must")
            for name in ("alpha0", "beta0")
            for value in (0, -1.0, float("inf"), float("nan"), "flat")
        ),
        (SPECTRA, {"weights": [0.5]}, "weights must be a vector of k = 2 numbers, got shape (1,)"),
        (SPECTRA, {"weights": [[0.5, 0.5]]}, "weights must be a vector of k = 2 numbers, got shape (1, 2)"),
        (SPECTRA, {"weights": [-0.1, 0.5]}, "weights must hold numbers >= 0, got -0.1"),
        (SPECTRA, {"weights": [0.6, 0.6]}, "weights must sum to 1 at most, got 1.2"),
        (SPECTRA, {"weights": [0.5, np.inf]}, "weights must hold finite numbers, got inf"),
        (BLENDS, {"lam": 2.0}, "lam must lie in [0, 1], got 2.0"),
        (BLENDS, {"lambda_": -0.1}, "lam must lie in [0, 1], got -0.1"),
        (BLENDS, {"lam": 0.3, "lambda_": 0.4}, "lam and lambda_ are one argument, give only one of them, got 0.3 and"),
        *(
            (GEOMETRIC, {"pass_power": a, "unanimous_power": b}, f">= 0 and not both 0, got {a} and {b}")
            for a, b in ((-1.0, 0.5), (0.5, -1.0), (0.0, 0.0))
        ),
        (
            GEOMETRIC,
            {"pass_power": 0.5, "unanimous_power": float("nan")},
            "unanimous_power must be a finite number, got nan",
        ),
    ],
)
def test_parameters_are_checked(names: str, arguments: dict[str, Any], message: str) -> None:
    for name in names.split():
        with pytest.raises(ValueError, match=re.escape(message)):
            getattr(scorio_eval, name)(R, 2, **arguments)


@pytest.mark.parametrize(
    ("w", "R0", "message"),
    [
        (None, None, "R must hold categories in [0, 1], got 2 (w is omitted, so R must be binary; give w"),
        ([0.0, 1.0], None, "R must hold categories in [0, 1], got 2"),
        ([0.0, np.nan, 1.0], None, "w must hold finite numbers, got nan"),
        ([[0.0, 0.5, 1.0]], None, "w must be a vector with one number per category, got shape (1, 3)"),
        ([], None, "w must be a vector with one number per category, got shape (0,)"),
        ("abc", None, "w must hold numbers, got 'abc'"),
        (W, [[0], [1], [2]], "R0 must have one row per question of R, (2,) in all, got shape (3, 1)"),
        (W, [0, 1, 2], "R0 must have one row per question of R, (2,) in all, got shape (3, 1)"),
        (W, [[[0], [1]]], "R0 must have one row per question of R, (2,) in all, got shape (1, 2, 1)"),
        (W, [[0], [3]], "R0 must hold categories in [0, 2], got 3"),
        (W, [[0], [-1]], "R0 must hold categories in [0, 2], got -1"),
        (W, [[0.5], [1]], "R0 must hold whole numbers, got 0.5"),
    ],
)
def test_weights_and_prior_outcomes(w: Any, R0: Any, message: str) -> None:
    for function in (scorio_eval.bayes, scorio_eval.bayes_ci, lambda *a: scorio_eval.max_at_k_ci(a[0], 2, *a[1:])):
        with pytest.raises(ValueError, match=re.escape(message)):
            function(GRADED, w, R0)


def test_prior_outcomes_have_several_forms_and_are_checked() -> None:
    with pytest.raises(ValueError, match=re.escape("R0 must hold categories in [0, 1], got 2 (w is omitted")):
        scorio_eval.bayes(R, None, [[2], [1]])
    assert scorio_eval.bayes(R, None, [0, 1]) == scorio_eval.bayes(R, None, [[0], [1]])
    assert scorio_eval.bayes(R, None, np.zeros((2, 0), dtype=int)) == scorio_eval.bayes(R)
    assert scorio_eval.bayes(R[0], None, [0, 1, 1]) == scorio_eval.bayes(R[0], None, [[0, 1, 1]])


def test_counts_have_their_own_weights_and_prior() -> None:
    counts = Counts.from_outcomes(GRADED, W)
    with pytest.raises(ValueError, match="w must be omitted where R is a Counts"):
        scorio_eval.bayes(counts, W)
    with pytest.raises(ValueError, match="R0 must be omitted where R is a Counts"):
        scorio_eval.max_at_k_ci(counts, 2, R0=[[0], [1]])
    with pytest.raises(ValueError, match="R must be binary, got counts of 3 categories"):
        scorio_eval.pass_at_k(counts, 2)


@pytest.mark.parametrize("dtype", ["?", "f8", "f4", "u1", "i2", ">i4", ">f8", "u8"])
def test_other_types_of_the_same_outcomes(dtype: str) -> None:
    for name, call in binary(3).items():
        assert call(R.astype(dtype)) == call(R) == call(R.tolist()), name


def test_strided_outcomes() -> None:
    wide = np.zeros((10, 4), dtype=np.int64)
    wide[::2, ::2] = [[1, 0], [1, 1], [0, 0], [0, 1], [1, 1]]
    for view in (wide[::2, ::2], wide[::2, ::2].T, np.asfortranarray(wide)):
        for name, call in binary(2).items():
            assert call(view) == call(np.ascontiguousarray(view)), name
