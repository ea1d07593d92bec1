"""Rows of results.json on questions, made a few at a time when they are wanted.

There is one for each question, with what is known of every model on it: 200 models and 10,000 questions are 2 million
entries, of some 800 bytes each as objects and of 70 as text. So rows are kept as what they follow from, counts or the
text of a file, and whoever asks for them gets one after the other.
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
AT_ONCE = 64
"""Rows that are made or read together."""


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """One question: for each model its trials, the posterior mean of its score and a 95% interval."""

    id: str
    trials: tuple[int, ...]
    """Graded trials of complete and incomplete rounds. Others wait for a round that asks for them: they were asked for
    under earlier settings or grades, or without a model that has come back."""
    mean: tuple[float, ...]
    lo: tuple[float, ...]
    hi: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...] = ()
    """The trials by category."""
    not_judged: tuple[int, ...] = ()
    """Trials in an incomplete round, which no look has used yet."""


class QuestionRows(Sequence[QuestionRow], ABC):
    """The rows of all questions, equal to any other sequence of the same rows."""

    @abstractmethod
    def part(self, number: int) -> bytes:
        """The JSON of rows `AT_ONCE * number` and after, of so many at most: separated by commas, without brackets."""

    def parts(self) -> Iterator[bytes]:
        """The JSON of all rows, part by part."""
        return map(self.part, range(-(-len(self) // AT_ONCE)))

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
        number, place = divmod(range(len(self))[index], AT_ONCE)
        return parse_rows(self.part(number))[place]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(other) != len(self):
            return NotImplemented
        return all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


class CountedRows(QuestionRows):
    """Rows that follow from counts."""

    def __init__(
        self, ids: Sequence[str], counts: NDArray[np.integer], waiting: NDArray[np.integer], weights: FloatArray
    ) -> None:
        """Take all outcomes (L, M, K), and how many (L, M) of them wait for a look."""
        self._ids, self._counts, self._waiting, self._weights = ids, counts, waiting, weights

    def __len__(self) -> int:
        return len(self._ids)

    def part(self, number: int) -> bytes:
        some = slice(number * AT_ONCE, (number + 1) * AT_ONCE)
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
    """Rows as a file has them."""

    def __init__(self, file: bytes, starts: Sequence[int]) -> None:
        """`starts` says where each row begins in the text of the file, and where one after the last would."""
        self._file, self._starts = file, starts

    @classmethod
    def within(cls, data: bytes, begin: int, end: int) -> "WrittenRows | None":
        """The rows in a text, each of which is read once; None if they are not in the form that is written here."""
        starts, at = [begin], data.find(_NEXT, begin, end)
        while at >= 0:
            starts.append(at + 2)
            at = data.find(_NEXT, at + 1, end)
        found = cls(data, [*starts, end + 1])
        try:
            sizes = [len(parse_rows(part)) for part in found.parts()]
        except ValueError:
            return None
        return found if sizes == [min(AT_ONCE, len(found) - at) for at in range(0, len(found), AT_ONCE)] else None

    def __len__(self) -> int:
        return len(self._starts) - 1

    def part(self, number: int) -> bytes:
        first, after = number * AT_ONCE, min((number + 1) * AT_ONCE, len(self))
        return self._file[self._starts[first] : self._starts[after] - 1]


_NEXT = b'},{"id":'
"""The bytes between two rows, and nowhere else: in a text of JSON its quotes have a backslash before them."""


def parse_rows(part: bytes) -> tuple[QuestionRow, ...]:
    """Parse the JSON of a part; raises `ValueError` if it is none."""
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
    """Posterior mean, and a 95% interval, of the score on each question, for counts (..., K) under the uniform prior.

    The interval is that of the Beta distribution on [min w, max w] with the posterior's mean and variance: exact for
    two categories, and unlike the normal one inside the range and not symmetric near its ends. With m and v scaled to
    [0, 1], s = m (1 - m) / v - 1 gives Beta(m s, (1 - m) s).
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
    if base**categories < 2**63 and flat.min(initial=0) >= 0:  # as one number each, which is sorted much faster
        powers = base ** np.arange(categories - 1, -1, -1, dtype=np.int64)
        _, first, places = np.unique(flat @ powers, return_index=True, return_inverse=True)
        return flat[first], places.reshape(shape)
    distinct, places = np.unique(flat, axis=0, return_inverse=True)
    return distinct, places.reshape(shape)
