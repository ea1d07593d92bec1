"""Sums over trials: computed for readers, and stored of a large run, so that readers need not read all its trials.

The table `summed` has one row with the sums over all trials up to some id. When one of these trials is changed or
removed, triggers that are stored in the file delete that row, so that no writer can forget it, not even one of an
earlier version. Missing sums are computed again from the trials.
"""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from adaptive_eval.base.errors import StoreError
from adaptive_eval.store import queries
from adaptive_eval.store.checksums import has_table
from adaptive_eval.store.queries import Row
from adaptive_eval.store.records import AWAITS_VERDICT, ReplicaSums, Spending
from adaptive_eval.store.roster import Names, Roster

if TYPE_CHECKING:
    from adaptive_eval.store.run_database import RunDatabase

LARGEST = 2**30
"""Largest size of unpacked counts, in bytes; more are taken for damage."""

Counts = NDArray[np.int32]
T = TypeVar("T")


class KeptSums(NamedTuple):
    """The row of sums, parsed on demand."""

    last: int
    trials: int
    replicas: str
    spending_json: str
    models: int
    questions: int
    packed: bytes

    def sums(self) -> list[ReplicaSums]:
        """The sums by model and replica."""
        return _read(ReplicaSums, self.replicas)

    def spending(self) -> list[Spending]:
        """Cumulative spending at some moments, the last of them that of the last trial."""
        return _read(Spending, self.spending_json)

    def counts(self) -> Counts:
        """Counts[model, question, category] of graded trials; indices are ids minus 1."""
        if not self.last:
            return np.zeros((0, 0, 1), dtype=np.int32)
        unpacking = zlib.decompressobj()
        try:
            data = unpacking.decompress(self.packed, LARGEST)
            if not unpacking.eof:
                raise ValueError("it does not end")
            found = np.frombuffer(data, dtype="<i4").reshape(self.models, self.questions, -1)
        except (zlib.error, ValueError) as error:
            raise _malformed_error() from error
        return found.astype(np.int32)  # a copy, to which trials can be added


NO_SUMS = KeptSums(0, 0, "[]", "[]", 0, 0, b"")
"""Of a run that has none stored."""


def _read(kind: type[T], text: str) -> list[T]:
    if text == NO_SUMS.replicas:
        return []
    try:
        return TypeAdapter(list[kind]).validate_json(text)  # type: ignore[valid-type]
    except ValidationError as error:
        raise _malformed_error() from error


def _malformed_error() -> StoreError:
    return StoreError("the sums of a stored run are not as sums are written; restore a copy of it")


def read_sums(connection: sqlite3.Connection) -> KeptSums:
    """Read the stored sums of a run."""
    if not has_table(connection, "summed"):
        return NO_SUMS
    columns = "last, trials, replicas, spending, models, questions, counts"
    rows = connection.execute(f"SELECT {columns} FROM summed").fetchall()
    return KeptSums(*rows[0]) if rows else NO_SUMS


def merge_sums(known: Sequence[ReplicaSums], later: Sequence[ReplicaSums]) -> list[ReplicaSums]:
    """Add the sums of later trials to those of earlier ones."""
    found = {(one.model, one.replica): one for one in known}
    for one in later:
        before = found.get((one.model, one.replica))
        found[one.model, one.replica] = one if before is None else before.and_then(one)
    return list(found.values())


def total_spending(sums: Sequence[ReplicaSums]) -> Spending:
    """The total over all models and replicas."""
    return Spending(
        at=max((one.at for one in sums), default=0.0),
        trials=sum(one.trials for one in sums),
        tokens=sum(one.tokens for one in sums),
        usd=sum(one.usd for one in sums),
        gpu_seconds=sum(one.gpu_seconds for one in sums),
    )


def thin_out(spending: Sequence[Spending], most: int) -> list[Spending]:
    """Select at most `most` of these moments, about evenly spaced and including the last."""
    every = -(-len(spending) // most)
    return list(spending[::-1][:: max(every, 1)][::-1])


SUMMED_EVERY = 200_000
"""Trials after which sums are stored, which takes about a second; smaller runs have none."""
MOST_MOMENTS = 400
"""Largest number of moments at which spending is stored."""
AT_ONCE = 8192
NOTHING = Spending(0.0, 0, 0, 0.0, 0.0)
_LAST = "SELECT coalesce(max(id), 0) FROM trials"
_COUNT = "SELECT count(*) FROM trials"
_PENDING = f"SELECT 1 FROM trials WHERE id > ? AND category IS NULL AND grader_error = '{AWAITS_VERDICT}' LIMIT 1"
KEEP_SUMS = "INSERT OR REPLACE INTO summed VALUES (1, ?, ?, ?, ?, ?, ?, ?)"


def add_cells(counts: Counts, cells: Iterable[Row]) -> Counts:
    """Add rows of (model id, question id, category, trials); the array grows as needed."""
    rows = iter(cells)
    while some := list(islice(rows, AT_ONCE)):
        *places, trials = np.array(some, dtype=np.int64).T
        places[:2] = [one - 1 for one in places[:2]]
        room = [max(have, int(one.max()) + 1) for have, one in zip(counts.shape, places, strict=True)]
        if room != list(counts.shape):
            counts = np.pad(counts, [(0, wide - have) for have, wide in zip(counts.shape, room, strict=True)])
        np.add.at(counts, tuple(places), trials.astype(np.int32))
    return counts


def align_with_roster(
    counts: Counts, models: Mapping[str, int], questions: Mapping[str, int], roster: Roster, categories: int
) -> Counts:
    """Convert counts by id to the positions of a roster; models and questions that it lacks are dropped."""
    found = np.zeros((len(roster.models), len(roster.questions), categories), dtype=np.int32)
    known = min(categories, counts.shape[2])
    (to_model, model), (to_question, question) = (
        _places(names, numbers, size)
        for names, numbers, size in zip(roster, (models, questions), counts.shape, strict=False)
    )
    for to, row in zip(to_model, model, strict=True):  # one by one, to avoid a second copy of all counts
        found[to, to_question, :known] = counts[row, question, :known]
    return found


def _places(names: Names, numbers: Mapping[str, int], size: int) -> tuple[list[int], list[int]]:
    """The positions of these names in the roster, and their indices in the counts."""
    pairs = [(at, numbers[name] - 1) for at, name in enumerate(names) if numbers.get(name, size + 1) <= size]
    return [at for at, _ in pairs], [place for _, place in pairs]


def newest_sums(database: "RunDatabase") -> Row | None:
    """The values of KEEP_SUMS up to the last trial of a large run; None if nothing is new, or grades are pending."""
    known = database.kept_sums()
    ((last,),) = database.rows(_LAST)
    if last < SUMMED_EVERY or last == known.last or list(database.rows(_PENDING, known.last)):
        return None
    if not known.last:  # trials may have been deleted: the last id can exceed their number
        ((count,),) = database.rows(_COUNT)
        if count < SUMMED_EVERY:
            return None
    sums = all_sums(database, known)
    spending = thin_out(all_spending(database, known, MOST_MOMENTS), MOST_MOMENTS)
    counts = add_cells(known.counts(), database.rows(queries.GRADED, known.last))
    told = [orjson.dumps(rows).decode() for rows in (list(map(tuple, sums)), spending)]
    packed = zlib.compress(counts.astype("<i4", copy=False).tobytes(), 1)
    return (last, sum(one.trials for one in sums), *told, *counts.shape[:2], packed)


def all_sums(database: "RunDatabase", known: KeptSums) -> list[ReplicaSums]:
    """Sums by model and replica: the stored ones plus those of later trials."""
    found = known.sums()
    for after, until in _parts(database, known.last):
        found = merge_sums(found, list(map(ReplicaSums._make, database.rows(queries.SUMS, after, until))))
    return found


def all_spending(database: "RunDatabase", known: KeptSums, steps: int) -> list[Spending]:
    """Cumulative spending at the stored moments, and at about `steps` moments after them."""
    told = [NOTHING, *known.spending()]
    parts = list(_parts(database, known.last))
    for after, until in parts:
        moments = -(-steps * (until - after) // (parts[-1][1] - known.last))
        for row in database.rows(queries.SPENDING, after, until, after, moments, until - after):
            told.append(told[-1].and_then(Spending(*row)))
    return told[1:]


def _parts(database: "RunDatabase", after: int) -> Iterator[tuple[int, int]]:
    """Ranges of trial ids above `after`, each small enough to be grouped in memory."""
    ((last,),) = database.rows(_LAST)
    for first in range(after, last, SUMMED_EVERY):
        yield first, min(first + SUMMED_EVERY, last)
