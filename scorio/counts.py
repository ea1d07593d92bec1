"""Counts: how often each question of a model ended in each category, the one input type of the library.

A trial that does not exist is not a zero: questions may have different numbers of trials, and none. Leading axes are a
batch of models, evaluated at once.

From labels to counts: the one pass over the raw outcomes.

Counts are laid out category by category in memory, so that what follows runs along the questions.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from scorio import _validate
from scorio._tables import frame_outcomes, is_frame
from scorio.moments import FloatArray, IntArray

UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


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
    else:
        cells = rows.astype(np.intp) + categories * np.arange(len(rows))[:, np.newaxis]
        counts = np.bincount(cells.ravel(), minlength=categories * len(rows)).reshape(len(rows), categories).T.copy()
    table = counts.reshape(categories, *labels.shape[:-1])
    return table.transpose(*range(1, table.ndim), 0)


def _count_ones(rows: IntArray, out: IntArray | None = None) -> IntArray:
    """Sums of rows of zeros and ones, of any type; `einsum` is faster than `sum` along a short axis."""
    return np.einsum("...i->...", rows, dtype=np.int64, casting="unsafe", out=out)


BINARY = np.array([0.0, 1.0])
BINARY.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Trials by question and category, with the value of each category.

    Args:
        n: (..., M, K), trials of question q that ended in category k.
        w: (K,), what a category is worth.
        r0: broadcastable to n, outcomes known beforehand (R0), without the +1 of the uniform prior; None for none.

    Examples:
        >>> from scorio import Counts
        >>> counts = Counts(n=[[1, 3], [2, 0]], w=[0.0, 1.0])  # questions by (wrong, right)
        >>> counts.trials, counts.questions, counts.categories
        (array([4, 2]), 2, 2)
    """

    n: IntArray
    w: FloatArray
    r0: IntArray | None = None

    def __post_init__(self) -> None:
        w = _validate.weights(self.w)
        n = _table(self.n, "n")
        if n.ndim < 2 or 0 in n.shape[:-1]:
            raise ValueError(f"n must have the shape (..., questions, categories), none empty, got {n.shape}")
        if n.shape[-1] != w.size:
            raise ValueError(f"n must have one column per weight, got {n.shape[-1]} columns and {w.size} weights")
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "w", w)
        if self.r0 is not None:
            r0 = _table(self.r0, "r0")
            try:
                fits = np.broadcast_shapes(r0.shape, n.shape) == n.shape
            except ValueError:
                fits = False
            if not fits:
                raise ValueError(f"r0 must be broadcastable to the shape of n, {n.shape}, got {r0.shape}")
            object.__setattr__(self, "r0", r0)

    @classmethod
    def trusted(cls, n: IntArray, w: FloatArray, r0: IntArray | None = None) -> Self:
        """The same without any check, for callers whose arrays are right by construction.

        Args:
            n: Counts (..., M, K), as 64-bit integers.
            w: Weights (K,), as floats.
            r0: Prior counts, broadcastable to n; None for none.

        Returns:
            The `Counts` of these arrays.

        Examples:
            >>> import numpy as np
            >>> from scorio import Counts
            >>> Counts.trusted(np.array([[1, 3]]), np.array([0.0, 1.0])).trials
            array([4])
        """
        counts = object.__new__(cls)
        for name, value in (("n", n), ("w", w), ("r0", r0)):
            object.__setattr__(counts, name, value)
        return counts

    @classmethod
    def from_outcomes(cls, R: Any, w: Any = None, R0: Any = None) -> Self:
        """Build from an (M, N) matrix of categories, or a vector for one question; by default, 1 is right.

        A data frame of questions by trials will do, NaN where there is no such trial.

        Args:
            R: An (M, N) matrix of categories, a vector for one question, or a data frame.
            w: What each category is worth; None where 0 is wrong and 1 is right.
            R0: Outcomes known beforehand, one row per question; None for none.

        Returns:
            The `Counts` of one model.

        Examples:
            >>> from scorio import Counts
            >>> Counts.from_outcomes([[1, 0, 1, 1], [0, 0, 1, 0]]).n
            array([[1, 3],
                   [3, 1]])
        """
        if is_frame(R):
            return cls.from_ragged(frame_outcomes(R, "R"), w, R0)
        return cls._from_labels(_validate.labels(R, "R", ndim=2), w, R0)

    @classmethod
    def from_tensor(cls, R: Any, w: Any = None, R0: Any = None) -> Self:
        """Build from an (L, M, N) tensor of L models; R0 is (M, D), shared, or (L, M, D).

        Args:
            R: An (L, M, N) tensor of categories.
            w: What each category is worth; None where 0 is wrong and 1 is right.
            R0: Outcomes known beforehand; None for none.

        Returns:
            The `Counts` of a batch of L models.

        Examples:
            >>> from scorio import Counts
            >>> Counts.from_tensor([[[1, 0, 1]], [[1, 1, 1]]]).n[..., 1]
            array([[2],
                   [3]])
        """
        return cls._from_labels(_validate.labels(R, "R", ndim=3), w, R0)

    @classmethod
    def from_ragged(cls, R: Any, w: Any = None, R0: Any = None) -> Self:
        """Build from a vector, matrix or tensor in which -1 means that there is no such trial.

        Args:
            R: A vector, an (M, N) matrix or an (L, M, N) tensor of categories, -1 for no trial.
            w: What each category is worth; None where 0 is wrong and 1 is right.
            R0: Outcomes known beforehand, one row per question; None for none.

        Returns:
            The `Counts` of one model, or of a batch for a tensor.

        Examples:
            >>> from scorio import Counts
            >>> Counts.from_ragged([[1, 0, 1], [0, -1, -1]]).trials
            array([3, 1])
        """
        outcomes = _validate.whole(R, "R")
        return cls._from_labels(_validate.labels(outcomes, "R", 3 if outcomes.ndim == 3 else 2), w, R0, missing=True)

    @classmethod
    def _from_labels(cls, outcomes: IntArray, w: Any, R0: Any, missing: bool = False) -> Self:
        weights = BINARY if w is None else _validate.weights(w)
        rule = "w is omitted, so R must be binary; give w, one weight per category" if w is None else ""
        n = tally(outcomes, weights.size, "R", rule, missing)
        r0 = None if R0 is None else _prior_outcomes(R0, outcomes.shape, weights.size, rule)
        return cls.trusted(n, weights, r0)

    @property
    def outcomes(self) -> IntArray:
        """n + r0: prior outcomes count as trials, on both scales."""
        return self.n if self.r0 is None else self.n + self.r0

    @property
    def nu(self) -> FloatArray:
        """The posterior Dirichlet parameters under the uniform prior: 1 + outcomes."""
        return np.asarray(self.outcomes + 1.0, dtype=np.float64)

    @property
    def trials(self) -> IntArray:
        """N_q, the number of outcomes of each question: (..., M)."""
        return np.asarray(self.outcomes.sum(axis=-1))

    @property
    def questions(self) -> int:
        """M."""
        return int(self.n.shape[-2])

    @property
    def categories(self) -> int:
        """K = C + 1."""
        return int(self.n.shape[-1])


def _table(values: Any, name: str) -> IntArray:
    """A table of counts: whole numbers, none negative."""
    table = _validate.whole(values, name).astype(np.int64, copy=False)
    if table.size and table.min() < 0:
        raise ValueError(f"{name} must hold counts >= 0, got {table.min()}")
    return table


def _prior_outcomes(R0: Any, shape: tuple[int, ...], categories: int, rule: str) -> IntArray | None:
    """R0 as counts: (M, D), or (L, M, D) beside a tensor; a vector is one outcome for each of several questions."""
    prior = _validate.whole(R0, "R0")
    questions = shape[-2]
    if prior.ndim == 1:
        prior = prior[np.newaxis] if questions == 1 else prior[:, np.newaxis]
    if prior.shape[:-1] not in (shape[-2:-1], shape[:-1]):
        raise ValueError(f"R0 must have one row per question of R, {shape[:-1]} in all, got shape {prior.shape}")
    if prior.shape[-1] == 0:
        return None
    return tally(prior, categories, "R0", rule)
