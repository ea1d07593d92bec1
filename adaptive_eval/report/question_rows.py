"""Rows of results.json on questions, made lazily, a few at a time.

Each question's row has an entry for every model: 200 models and 10,000 questions make 2 million entries, each of some
800 bytes as objects and 70 as text. So only their source is kept, counts or the text of a file, and their JSON is made
or checked a few rows at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import PlainValidator, TypeAdapter
from scipy.special import betaincinv

from scorio.moments import FloatArray, question_moments

TAIL = 0.025
PART_SIZE = 64
"""Rows made or checked at a time."""


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """One question: each model's trials, and the posterior mean of its score with a 95% interval."""

    id: str
    trials: tuple[int, ...]
    """Graded trials of complete and incomplete rounds. Left out are trials that wait for a round to ask for them: those
    asked for under earlier settings or grades, or before a model came back."""
    mean: tuple[float, ...]
    lo: tuple[float, ...]
    hi: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...] = ()
    """Trials by category."""
    not_judged: tuple[int, ...] = ()
    """Trials in an incomplete round, which no look has used yet."""


class CountedRows:
    """Rows computed from counts."""

    def __init__(
        self, ids: Sequence[str], counts: NDArray[np.integer], waiting: NDArray[np.integer], weights: FloatArray
    ) -> None:
        """`counts` (L, M, K) are all outcomes; `waiting` (L, M) of them wait for a look."""
        self._ids, self._counts, self._waiting, self._weights = ids, counts, waiting, weights

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CountedRows | WrittenRows):
            return NotImplemented
        return b",".join(self.parts()) == b",".join(other.parts())

    def __hash__(self) -> int:
        return hash(b",".join(self.parts()))

    def parts(self) -> Iterator[bytes]:
        """JSON of all rows, up to `PART_SIZE` in a part, separated by commas, without brackets."""
        return (self._part(slice(first, first + PART_SIZE)) for first in range(0, len(self._ids), PART_SIZE))

    def _part(self, part: slice) -> bytes:
        counts = np.ascontiguousarray(self._counts[:, part].swapaxes(0, 1))
        columns = {
            "trials": counts.sum(axis=-1),
            **dict(zip(("mean", "lo", "hi"), question_posteriors(counts, self._weights), strict=True)),
            "counts": counts,
            "not_judged": np.ascontiguousarray(self._waiting[:, part].T),
        }
        rows = [
            {"id": key, **{name: column[at] for name, column in columns.items()}}
            for at, key in enumerate(self._ids[part])
        ]
        return orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]


class WrittenRows:
    """Rows of a file, as the JSON that it has."""

    def __init__(self, text: bytes) -> None:
        """`text` is without brackets."""
        self._text = text

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, WrittenRows) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)

    def parts(self) -> Iterator[bytes]:
        """All rows in one part, as those of `CountedRows`."""
        if self._text:
            yield self._text


_NEXT = b'},{"id":'
"""Bytes between two rows. They occur nowhere else, since quotes within JSON strings are escaped."""


def rows_within(data: bytes, begin: int, end: int) -> WrittenRows | None:
    """Find and check the rows in a text; None if they are not in the format of `CountedRows`."""
    starts, at = [begin], data.find(_NEXT, begin, end)
    while at >= 0:
        starts.append(at + 2)
        at = data.find(_NEXT, at + 1, end)
    starts.append(end + 1)
    for first in range(0, len(starts) - 1, PART_SIZE):
        after = min(first + PART_SIZE, len(starts) - 1)
        try:
            rows = _reader().validate_json(b"[%b]" % data[starts[first] : starts[after] - 1])
        except ValueError:
            return None
        if len(rows) != after - first:
            return None
    return WrittenRows(data[begin:end])


@cache
def _reader() -> TypeAdapter[tuple[QuestionRow, ...]]:
    return TypeAdapter(tuple[QuestionRow, ...])


def _rewritten(rows: object) -> WrittenRows:
    """Check the rows of a file that another program has written, and write them anew."""
    return WrittenRows(orjson.dumps(_reader().validate_python(rows))[1:-1])


QuestionRows = Annotated[
    CountedRows | WrittenRows | tuple[()], PlainValidator(_rewritten, json_schema_input_type=tuple[QuestionRow, ...])
]
"""Rows of all questions; () where they are left out."""


def as_json(value: object) -> orjson.Fragment:
    """Serialize rows, as orjson's `default`."""
    if isinstance(value, CountedRows | WrittenRows):
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
