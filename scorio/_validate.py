"""Every check of an argument, once, at the edge: what has passed here is trusted further in.

A check returns the value in the one form that the kernels take, or raises a `ValueError` that names the argument,
the rule and the value got.
"""

import math
import operator
from typing import Any

import numpy as np

from scorio.moments import FloatArray, IntArray


def labels(values: Any, name: str, ndim: int) -> IntArray:
    """Whole numbers with `ndim` axes, none of them empty; a vector counts as one row of a matrix."""
    array = whole(values, name)
    if array.ndim == 1 and ndim == 2:
        array = array[np.newaxis]
    if array.ndim != ndim:
        hint = "; for a tensor of models use Counts.from_tensor" if array.ndim == 3 else ""
        raise ValueError(f"{name} must have {ndim} axes, got shape {array.shape}{hint}")
    if array.size == 0:
        raise ValueError(f"{name} must have at least one question and one trial, got shape {array.shape}")
    return array


def whole(values: Any, name: str) -> IntArray:
    """An array of an integer type: booleans and whole floats are converted, anything else is refused."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} must not be masked; fill outcomes with -1 and use Counts.from_ragged")
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(
            f"{name} must have rows of one length, got rows of several; pad outcomes with -1 and use Counts.from_ragged"
        ) from None
    if array.dtype.kind in "iu":
        return array if array.dtype.isnative else array.astype(np.int64)
    if array.dtype.kind == "b":
        return array.view(np.uint8)
    if array.dtype.kind != "f":
        raise ValueError(f"{name} must hold whole numbers, got an array of type {array.dtype}")
    fits = np.abs(array) <= 2.0**53  # False for NaN
    bad = ~fits if not fits.all() else array != np.rint(array)
    if bad.any():
        raise ValueError(f"{name} must hold whole numbers, got {array[bad][0]}")
    return array.astype(np.int64)


def weights(values: Any, name: str = "w") -> FloatArray:
    """A vector of finite numbers."""
    array = floats(values, name)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a vector with one number per category, got shape {array.shape}")
    return array


def floats(values: Any, name: str) -> FloatArray:
    """An array of finite numbers."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers, got {values!r}") from None
    finite = np.isfinite(array)
    if not finite.all():
        raise ValueError(f"{name} must hold finite numbers, got {array[~finite][0]}")
    return array


def integer(value: Any, name: str, low: int, high: int | None = None, why: str = "") -> int:
    """An integer in [low, high]; `why` says where the upper end comes from."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if number < low or (high is not None and number > high) or value is True:
        rule = f">= {low}" if high is None else f"in [{low}, {high}]" + (f" ({why})" if why else "")
        raise ValueError(f"{name} must be an integer {rule}, got {value!r}")
    return number


def real(value: Any, name: str) -> float:
    """A finite number."""
    try:
        number = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return number


def positive(value: Any, name: str) -> float:
    """A finite number above zero."""
    number = real(value, name)
    if number <= 0.0:
        raise ValueError(f"{name} must be above 0, got {value!r}")
    return number


def fraction(value: Any, name: str) -> float:
    """A number in [0, 1]."""
    number = real(value, name)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{name} must lie in [0, 1], got {value!r}")
    return number


def probability(value: Any, name: str) -> float:
    """A number strictly between 0 and 1."""
    number = real(value, name)
    if not 0.0 < number < 1.0:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")
    return number


def interval_bounds(value: Any, name: str = "bounds") -> tuple[float, float] | None:
    """None, or a pair (low, high) with low <= high; either end may be infinite."""
    if value is None:
        return None
    try:
        low, high = (float(end) for end in value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a pair (low, high) of numbers or None, got {value!r}") from None
    if not low <= high:
        raise ValueError(f"{name} must satisfy low <= high, got {value!r}")
    return low, high


def spectrum_weights(values: Any, k: int, name: str = "weights") -> FloatArray:
    """k numbers >= 0 that sum to 1 at most."""
    array = floats(values, name)
    if array.shape != (k,):
        raise ValueError(f"{name} must be a vector of k = {k} numbers, got shape {array.shape}")
    if array.min() < 0.0:
        raise ValueError(f"{name} must hold numbers >= 0, got {array.min()}")
    if array.sum() > 1.0 + 1e-9:
        raise ValueError(f"{name} must sum to 1 at most, got {array.sum()}")
    return array
