"""From labels to counts: the one pass over the raw outcomes.

Counts are laid out category by category in memory, so that what follows runs along the questions.
"""

import numpy as np

from scorio.moments import IntArray

UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
BLOCK = 1 << 17  # labels tallied at a time, so that what is unpacked from them stays in the cache


def tally(labels: IntArray, categories: int, name: str, rule: str = "", missing: bool = False) -> IntArray:
    """(..., N) labels in {0, ..., K-1} to (..., K) counts; with `missing`, a label of -1 is no trial."""
    check_range(labels, -1 if missing else 0, categories - 1, name, rule)
    if missing:
        return _count(labels.astype(np.int64) + 1, categories + 1)[..., 1:]
    return _count(labels, categories)


def successes(labels: IntArray, name: str) -> IntArray:
    """(..., N) labels in {0, 1} to the (...) number of ones."""
    check_range(labels, 0, 1, name)
    return _count_ones(labels)


def check_range(labels: IntArray, low: int, high: int, name: str, rule: str = "") -> None:
    """Refuse labels outside [low, high], naming the first one."""
    # seen as unsigned, a negative label is a huge one, and one pass checks both ends
    unsigned = labels.view(UNSIGNED[labels.itemsize])
    inside = unsigned.max() <= high if low == 0 else labels.min() >= low and labels.max() <= high
    if not inside:
        got = labels[(labels < low) | (labels > high)][0]
        raise ValueError(f"{name} must hold categories in [{low}, {high}], got {got}" + (f" ({rule})" if rule else ""))


def _count(labels: IntArray, categories: int) -> IntArray:
    trials = labels.shape[-1]
    rows = labels.reshape(-1, trials)
    if categories == 2:
        counts: IntArray = np.empty((2, len(rows)), dtype=np.int64)
        np.subtract(trials, _count_ones(rows, out=counts[1]), out=counts[0])
    elif categories * trials.bit_length() <= 64:
        counts = _count_packed(rows, categories)
    else:
        cells = rows.astype(np.intp) + categories * np.arange(len(rows))[:, np.newaxis]
        counts = np.bincount(cells.ravel(), minlength=categories * len(rows)).reshape(len(rows), categories).T.copy()
    table = counts.reshape(categories, *labels.shape[:-1])
    return table.transpose(*range(1, table.ndim), 0)


def _count_ones(rows: IntArray, out: IntArray | None = None) -> IntArray:
    """Sums of rows of zeros and ones, of any type; `einsum` is faster than `sum` along a short axis."""
    ones: IntArray = np.einsum("...i->...", rows, dtype=np.int64, casting="unsafe", out=out)
    return ones


def _count_packed(rows: IntArray, categories: int) -> IntArray:
    """Sum words in which label j adds one to the j-th field of bits: one addition counts every category."""
    width = rows.shape[1].bit_length()
    labels = rows.astype(np.int64, copy=False).view(np.uint64)
    words = np.empty(len(rows), dtype=np.uint64)
    step = max(1, BLOCK // rows.shape[1])
    scratch = np.empty((min(step, len(rows)), rows.shape[1]), dtype=np.uint64)
    for start in range(0, len(rows), step):
        block = labels[start : start + step]
        fields = np.multiply(block, np.uint64(width), out=scratch[: len(block)])
        np.left_shift(np.uint64(1), fields, out=fields)
        np.einsum("ij->i", fields, out=words[start : start + step])
    counts = words >> np.arange(0, categories * width, width, dtype=np.uint64)[:, np.newaxis]
    counts &= np.uint64((1 << width) - 1)
    return counts.view(np.int64)
