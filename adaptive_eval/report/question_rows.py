"""Rows of results.json on questions, made lazily, a few at a time.

Each question's row has an entry for every model: 200 models and 10,000 questions make 2 million entries, each of some
800 bytes as objects and 70 as text. So only the counts are kept, and their JSON is made a few rows at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import PlainValidator
from scipy.special import betaincinv

from adaptive_eval.base.errors import DamagedValue
from adaptive_eval.store.packing import Parts
from scorio.moments import FloatArray, question_moments

TAIL = 0.025
_INTEGER = np.dtype("<i4")
PART_SIZE = 64
"""Rows made at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class CellCounts:
    """Counts (L, M, K) of the models with these numbers, and of all questions of the store."""

    models: tuple[int, ...]
    arrived: NDArray[np.integer]
    """All outcomes, also those of the round in flight."""
    judged: NDArray[np.integer]
    """Outcomes of complete rounds."""
    prior: NDArray[np.integer] | None = None
    """Outcomes of an earlier run that count in the scores (R0); None if there are none."""

    def to_parts(self) -> Parts:
        """The counts as little-endian integers: their shape, the models, and the arrays."""
        head = np.array([*self.judged.shape, *self.models], _INTEGER)
        arrays = [head, self.arrived, self.judged, *([] if self.prior is None else [self.prior])]
        return [np.ascontiguousarray(array, _INTEGER).data for array in arrays]

    @classmethod
    def from_parts(cls, parts: Parts) -> "CellCounts":
        """Counts from `to_parts`, however they are cut; raises `DamagedValue` if they are anything else."""
        data = b"".join(parts)
        values = np.frombuffer(data[: len(data) // 4 * 4], _INTEGER)
        shape: Sequence[int] = values[:3].tolist()
        size = int(np.prod(shape, dtype=np.int64)) if len(shape) == 3 and min(shape) >= 0 else -1
        first = 3 + shape[0] if size >= 0 else 0
        if size < 0 or len(values) - first not in (2 * size, 3 * size):
            raise DamagedValue("the stored report has counts of another size")
        arrays = values[first:].reshape(-1, *shape) if size else np.zeros((2, *shape), _INTEGER)
        return cls(tuple(values[3:first].tolist()), *arrays)


class CountedRows:
    """Rows computed from counts, in the order of `Results.models`.

    Each has the graded `trials` of complete and incomplete rounds, the posterior `mean` of the score with a 95%
    interval (`lo`, `hi`), the `counts` by category, and the trials `not_judged`, in a round that no look has used yet.
    Left out are trials that wait for a round to ask for them: those asked for under earlier settings or grades, or
    before a model came back.
    """

    def __init__(
        self,
        ids: Sequence[str],
        arrived: NDArray[np.integer],
        judged: NDArray[np.integer],
        weights: FloatArray,
        order: Sequence[int],
    ) -> None:
        """`arrived` (L, M, K) are all outcomes, `judged` those that a look has used; `order` numbers the models."""
        self._ids, self._arrived, self._judged, self._weights, self._order = ids, arrived, judged, weights, order

    def parts(self) -> Iterator[bytes]:
        """JSON of all rows, up to `PART_SIZE` in a part, separated by commas, without brackets."""
        return (self._part(slice(first, first + PART_SIZE)) for first in range(0, len(self._ids), PART_SIZE))

    def _part(self, part: slice) -> bytes:
        counts, judged = (
            np.ascontiguousarray(outcomes[:, part][self._order].swapaxes(0, 1))
            for outcomes in (self._arrived, self._judged)
        )
        trials = counts.sum(axis=-1)
        columns = {
            "trials": trials,
            **dict(zip(("mean", "lo", "hi"), question_posteriors(counts, self._weights), strict=True)),
            "counts": counts,
            "not_judged": trials - judged.sum(axis=-1),
        }
        rows = [
            {"id": key, **{name: column[at] for name, column in columns.items()}}
            for at, key in enumerate(self._ids[part])
        ]
        return orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]


QuestionRows = Annotated[CountedRows | tuple[()], PlainValidator(lambda rows: ())]
"""Rows of all questions; () where they are left out, as by readers of the file."""


def as_json(value: object) -> orjson.Fragment:
    """Serialize rows, as orjson's `default`."""
    if isinstance(value, CountedRows):
        return orjson.Fragment(b"[%b]" % b",".join(value.parts()))
    raise TypeError(f"{type(value).__name__} is no JSON")


def question_posteriors(counts: NDArray[np.integer], w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Posterior mean and 95% interval of the score on each question, for counts (..., K) under the uniform prior.

    The interval is that of the Beta distribution on [min w, max w] with the posterior's mean and variance: exact for
    two categories, and unlike a normal interval it stays inside the range and is asymmetric near its ends. With m and
    v scaled to [0, 1], s = m (1 - m) / v - 1 gives Beta(m s, (1 - m) s).
    """
    distinct, places = distinct_counts(counts)
    mean, var = question_moments(np.asarray(distinct + 1.0, dtype=np.float64), w)
    low, width = w.min(), np.ptp(w)
    m, v = (mean - low) / width, var / width**2
    s = m * (1.0 - m) / v - 1.0
    a, b = m * s, (1.0 - m) * s
    lo, hi = (low + width * betaincinv(a, b, tail) for tail in (TAIL, 1.0 - TAIL))
    return mean[places], lo[places], hi[places]


def distinct_counts(counts: NDArray[np.integer]) -> tuple[NDArray[np.integer], NDArray[np.intp]]:
    """The distinct rows of counts (..., K), in order, and the position of each row among them."""
    *shape, categories = counts.shape
    flat = counts.reshape(-1, categories)
    base = int(flat.max(initial=0)) + 1
    if base**categories < 2**63 and flat.min(initial=0) >= 0:  # encoded as one number each: sorts much faster
        powers = base ** np.arange(categories - 1, -1, -1, dtype=np.int64)
        _, first, places = np.unique(flat @ powers, return_index=True, return_inverse=True)
        return flat[first], places.reshape(shape)
    distinct, places = np.unique(flat, axis=0, return_inverse=True)
    return distinct, places.reshape(shape)
