"""Stored sums over the trials of a large run, so that readers need not read all trials.

The table `summed` has one row with the sums over all trials up to some id. When one of these trials is changed or
removed, triggers that are stored in the file delete that row, so that no writer can forget it, not even one of an
earlier version. Missing sums are computed again from the trials.
"""

import sqlite3
import zlib
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from adaptive_eval.errors import StoreError
from adaptive_eval.store.checksums import has_table
from adaptive_eval.store.records import ReplicaSums, Spending

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
        unpacking = zlib.decompressobj()
        try:
            data = unpacking.decompress(self.packed, LARGEST)
            if not unpacking.eof:
                raise ValueError("it does not end")
            found = np.frombuffer(data, dtype="<i4").reshape(self.models, self.questions, -1)
        except (zlib.error, ValueError) as error:
            raise _malformed_error() from error
        return found.astype(np.int32)  # a copy, to which trials can be added


def _read(kind: type[T], text: str) -> list[T]:
    try:
        return TypeAdapter(list[kind]).validate_json(text)  # type: ignore[valid-type]
    except ValidationError as error:
        raise _malformed_error() from error


def _malformed_error() -> StoreError:
    return StoreError("the sums of a stored run are not as sums are written; restore a copy of it")


def read_sums(connection: sqlite3.Connection) -> KeptSums | None:
    """Read the stored sums of a run; None if there are none."""
    if not has_table(connection, "summed"):
        return None
    columns = "last, trials, replicas, spending, models, questions, counts"
    rows = connection.execute(f"SELECT {columns} FROM summed").fetchall()
    return KeptSums(*rows[0]) if rows else None


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
