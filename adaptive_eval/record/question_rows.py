"""Rows of results.json on questions, made lazily, a few at a time.

Each question's row has an entry for every model: 200 models and 10,000 questions make 2 million entries, each of some
800 bytes as objects and 70 as text. So only their source is kept, counts or the text of a file, and rows are iterated
one after the other.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import overload

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import TypeAdapter
from scipy.special import betaincinv

from scorio.moments import FloatArray, question_moments

TAIL = 0.025
PART_SIZE = 64
"""Rows made or read at a time."""


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


class QuestionRows(Sequence[QuestionRow], ABC):
    """Rows of all questions; equal to any other sequence of the same rows."""

    @abstractmethod
    def part(self, number: int) -> bytes:
        """JSON of up to `PART_SIZE` rows from row `PART_SIZE * number`, separated by commas, without brackets."""

    def parts(self) -> Iterator[bytes]:
        """JSON of all rows, part by part."""
        return map(self.part, range(-(-len(self) // PART_SIZE)))

    def __iter__(self) -> Iterator[QuestionRow]:
        for part in self.parts():
            yield from parse_rows(part)

    @overload
    def __getitem__(self, index: int) -> QuestionRow: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[QuestionRow, ...]: ...

    def __getitem__(self, index: int | slice) -> QuestionRow | tuple[QuestionRow, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        number, place = divmod(range(len(self))[index], PART_SIZE)
        return parse_rows(self.part(number))[place]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(other) != len(self):
            return NotImplemented
        return all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


class CountedRows(QuestionRows):
    """Rows computed from counts."""

    def __init__(
        self, ids: Sequence[str], counts: NDArray[np.integer], waiting: NDArray[np.integer], weights: FloatArray
    ) -> None:
        """`counts` (L, M, K) are all outcomes; `waiting` (L, M) of them wait for a look."""
        self._ids, self._counts, self._waiting, self._weights = ids, counts, waiting, weights

    def __len__(self) -> int:
        return len(self._ids)

    def part(self, number: int) -> bytes:
        some = slice(number * PART_SIZE, (number + 1) * PART_SIZE)
        counts = np.ascontiguousarray(self._counts[:, some].swapaxes(0, 1))
        columns = {
            "trials": counts.sum(axis=-1),
            **dict(zip(("mean", "lo", "hi"), question_posteriors(counts, self._weights), strict=True)),
            "counts": counts,
            "not_judged": np.ascontiguousarray(self._waiting[:, some].T),
        }
        rows = [
            {"id": key, **{name: column[at] for name, column in columns.items()}}
            for at, key in enumerate(self._ids[some])
        ]
        return orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]


class WrittenRows(QuestionRows):
    """Rows read from a file."""

    def __init__(self, file: bytes, starts: Sequence[int]) -> None:
        """`starts` has the offset of each row in the file, and of one that would follow the last."""
        self._file, self._starts = file, starts

    @classmethod
    def within(cls, data: bytes, begin: int, end: int) -> "WrittenRows | None":
        """Find and check the rows in a text; None if they are not in the format of `as_json`."""
        starts, at = [begin], data.find(_NEXT, begin, end)
        while at >= 0:
            starts.append(at + 2)
            at = data.find(_NEXT, at + 1, end)
        found = cls(data, [*starts, end + 1])
        try:
            sizes = [len(parse_rows(part)) for part in found.parts()]
        except ValueError:
            return None
        return found if sizes == [min(PART_SIZE, len(found) - at) for at in range(0, len(found), PART_SIZE)] else None

    def __len__(self) -> int:
        return len(self._starts) - 1

    def part(self, number: int) -> bytes:
        first, after = number * PART_SIZE, min((number + 1) * PART_SIZE, len(self))
        return self._file[self._starts[first] : self._starts[after] - 1]


_NEXT = b'},{"id":'
"""Bytes between two rows. They occur nowhere else, since quotes within JSON strings are escaped."""


def parse_rows(part: bytes) -> tuple[QuestionRow, ...]:
    """Parse the JSON of a part; raises `ValueError` if it is invalid."""
    return _reader().validate_json(b"[%b]" % part)


@cache
def _reader() -> TypeAdapter[tuple[QuestionRow, ...]]:
    return TypeAdapter(tuple[QuestionRow, ...])


def as_json(value: object) -> orjson.Fragment:
    """Serialize rows, as orjson's `default`."""
    if isinstance(value, QuestionRows):
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
