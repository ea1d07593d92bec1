"""Sums over the graded trials of a run. A large run stores them every so often, with a report: its readers then read
only the trials since."""

from collections.abc import Container, Sequence
from itertools import chain
from math import isclose
from typing import NamedTuple

import numpy as np
from pydantic import TypeAdapter

from adaptive_eval.config.prepare import StoredSetup, stored_setup
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.machine.records import ASKED_AGAIN, BEGUN, DISCARDED, REGRADED, SETTINGS
from adaptive_eval.notes import Event
from adaptive_eval.report.other_costs import verdicts_in_vain
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import (
    Counts,
    ReplicaSums,
    ReplicaTraffic,
    Spending,
    merge_sums,
)
from adaptive_eval.store.forms import MAX_VALUE
from adaptive_eval.store.packing import Parts
from adaptive_eval.store.read import PackedSums, StoredLook

STORED_EVERY = 100_000
"""Trials after which sums are stored anew: reading so many takes half a second."""
_INTEGER = np.dtype("<i4")
_REPLICAS = TypeAdapter(list[ReplicaSums])


class TrialSums(NamedTuple):
    """Sums over the graded trials up to a place in the log."""

    counts: Counts
    """By model, question and category (L, M, K)."""
    replicas: list[ReplicaSums]

    @property
    def last(self) -> int:
        """The place of the newest of these trials; 0 without any."""
        return max((row.last for row in self.replicas), default=0)

    def with_newer(self, reader: RunReader, setup: StoredSetup) -> "TrialSums":
        """The sums with those over all trials that were stored since."""
        newer = reader.sums(self.last)
        if not newer:
            return self
        counts = reader.counts(setup.roster, self.counts.shape[2], self.last)
        counts += self.counts
        return TrialSums(counts, merge_sums(self.replicas, newer))

    def to_parts(self) -> Parts:
        """A line of JSON, and the counts as little-endian integers."""
        return [_REPLICAS.dump_json(self.replicas), b"\n", np.ascontiguousarray(self.counts, _INTEGER).data]

    @classmethod
    def from_parts(cls, parts: Parts, nothing: Counts) -> "TrialSums | None":
        """Sums from `to_parts`, with counts of this shape; None if they cannot be sums over trials."""
        replicas, _, counts = b"".join(parts).partition(b"\n")
        try:
            sums = cls(np.frombuffer(counts, _INTEGER).reshape(nothing.shape), _REPLICAS.validate_json(replicas))
        except ValueError:  # of pydantic, too
            return None
        return sums if sums._is_possible() else None

    def _is_possible(self) -> bool:
        numbers = [value for row in self.replicas for value in row[2:]]
        trials = sum(row.trials for row in self.replicas)
        return (
            all(0 <= value <= MAX_VALUE for value in numbers)
            and all(0 <= row.timed <= row.trials and row.trials for row in self.replicas)
            and bool(np.all(self.counts >= 0))
            and int(self.counts.sum(dtype=np.int64)) <= trials
        )


def read_sums(reader: RunReader, setup: StoredSetup) -> TrialSums:
    """Sums over all graded trials."""
    nothing, stored = _no_counts(setup), reader.log.sums()
    sums = None if stored is None else _parse(stored, reader, nothing)
    return (TrialSums(nothing, []) if sums is None else sums).with_newer(reader, setup)


def _no_counts(setup: StoredSetup) -> Counts:
    shape = len(setup.roster.models), len(setup.roster.questions), len(open_rubric(setup.config.rubric).weights)
    return np.zeros(shape, dtype=np.int32)


def _parse(stored: PackedSums, reader: RunReader, nothing: Counts) -> TrialSums | None:
    """Stored sums; None if they cannot be sums over trials of the run."""
    sums = TrialSums.from_parts(stored.body, nothing)
    if sums is None or not {row.model for row in sums.replicas} <= set(reader.model_names.values()):
        return None
    return sums if sums.last == stored.seq <= reader.newest_trial_id else None


def fault_of_sums(reader: RunReader) -> str | None:
    """What is wrong with the sums that readers take from the store; None if they are those of the trials."""
    if (stored := reader.log.sums()) is None:
        return None
    setup = stored_setup(reader.header())
    if (sums := _parse(stored, reader, _no_counts(setup))) is None:
        return f"sums: the row {stored.seq} cannot be sums over trials of the run"
    differing = _difference(sums, reader, setup)
    return None if differing is None else f"sums: the row {stored.seq} has other {differing} than the trials"


def _difference(sums: TrialSums, reader: RunReader, setup: StoredSetup) -> str | None:
    """What differs between stored sums and the trials that they count."""
    if not _are_close([*chain(*sorted(reader.sums(0, sums.last)))], [*chain(*sorted(sums.replicas))]):
        return "sums of replicas"
    newer, every = (reader.counts(setup.roster, sums.counts.shape[2], after) for after in (sums.last, 0))
    return None if np.array_equal(sums.counts + newer, every) else "counts of categories"


def _are_close(one: Sequence[object], other: Sequence[object]) -> bool:
    """Whether values are equal; sums of fractions depend on their order in the last digits."""
    return len(one) == len(other) and all(
        a == b or (isinstance(a, float) and isinstance(b, float) and isclose(a, b, rel_tol=1e-9))
        for a, b in zip(one, other, strict=True)
    )


def sums_to_store(reader: RunReader) -> PackedSums | None:
    """New sums, if there are `STORED_EVERY` or more trials that the stored ones do not count."""
    stored = reader.log.sums_seq()
    if reader.newest_trial_id - stored < STORED_EVERY:
        return None
    sums = read_sums(reader, stored_setup(reader.header()))
    return PackedSums(sums.last, sums.to_parts()) if sums.last > stored else None


RESETS = BEGUN | {SETTINGS, REGRADED, DISCARDED, ASKED_AGAIN}
"""Kinds of notes after which looks may be retaken, grades may have changed, or answers may have been dropped."""


class StoredSums:
    """Counts, usage, looks and events of a run, as a page or a monitor shows them: read once, then updated with newer
    records. Not safe for threads."""

    def __init__(self, reader: RunReader, setup: StoredSetup, events: Sequence[Event] | None = None) -> None:
        self.directory, self._setup = reader.directory, setup
        self._configuration = reader.log.newest_configuration()
        self._trials: TrialSums = read_sums(reader, setup)
        self.looks = list[StoredLook]()
        """Looks under the newest configuration."""
        self._first_waiting = 0
        self._read(reader, reader.events() if events is None else events)

    def update(self, reader: RunReader) -> bool:
        """Read newer records; False, and nothing is read, if earlier ones are no longer valid."""
        newer = (note for _, (seq, note) in reader.log.timed_notes() if seq > self._newest)
        anew = any({note.kind, str(note.body.get("notice"))} & RESETS for note in newer)
        if anew or reader.log.newest_configuration() != self._configuration:
            return False
        self._trials = self._trials.with_newer(reader, self._setup)
        self._read(reader, reader.events())
        return True

    def _read(self, reader: RunReader, events: Sequence[Event]) -> None:
        """Read all but the trials; no answer can wait for a verdict before the first of those that have waited."""
        self.looks += reader.log.looks(len(self.looks))
        self.events, self.elapsed, self._newest = events, reader.log.elapsed, reader.log.database.last_seq()
        waiting = reader.waiting(self._first_waiting)
        self._first_waiting = min((row.first for row in waiting), default=reader.newest_trial_id + 1)
        self._further = [(row.model, row.spent) for row in waiting]
        self._further += [
            (event.model, Spending(0, event.tokens, event.usd, event.gpu_seconds))
            for event in verdicts_in_vain(self.events)
        ]

    @property
    def counts(self) -> Counts:
        """Graded trials by model, question and category (L, M, K); a new array whenever there are more."""
        return self._trials.counts

    @property
    def traffic(self) -> list[ReplicaTraffic]:
        """Stored answers by model and replica."""
        return [row.traffic() for row in self._trials.replicas]

    def spent(self, models: Container[str] | None = None) -> Spending:
        """Usage of stored answers so far, graded or not, with all verdicts on them; of these models or of all."""
        parts = [(row.model, row) for row in self._trials.replicas] + self._further
        return Spending.total(part for name, part in parts if models is None or name in models)
