"""What a page or a monitor shows of a run's stored records: read once, then updated with newer records."""

from collections.abc import Container, Sequence

from adaptive_eval.config.prepare import StoredSetup
from adaptive_eval.machine.records import ASKED_AGAIN, BEGUN, DISCARDED, REGRADED, SETTINGS
from adaptive_eval.notes import Event
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import ReplicaTraffic, Spending
from adaptive_eval.report.summing import Counts, thin_out
from adaptive_eval.report.trial_sums import STEPS, TrialSums, read_sums
from adaptive_eval.store.read import StoredLook

RESETS = BEGUN | {SETTINGS, REGRADED, DISCARDED, ASKED_AGAIN}
"""Kinds of notes after which looks may be retaken, grades may have changed, or answers may have been dropped."""


class StoredSums:
    """Counts, usage, looks and events of a run; not safe for threads."""

    def __init__(self, reader: RunReader, setup: StoredSetup, events: Sequence[Event] | None = None) -> None:
        self.directory, self._setup = reader.directory, setup
        self._configuration = reader.newest_configuration_id()
        self._trials: TrialSums = read_sums(reader, setup)
        self.looks: list[StoredLook] = reader.looks()
        """Looks under the newest configuration."""
        self.look_times = reader.look_times()
        """Time of each of these looks, in seconds since 1970."""
        self.events: Sequence[Event] = reader.events() if events is None else events
        self.elapsed = reader.elapsed
        self._newest = reader.newest_seq

    def update(self, reader: RunReader) -> bool:
        """Read newer records; False, and nothing is read, if earlier ones are no longer valid."""
        newer = (note for _, (seq, note) in reader.log.timed_notes() if seq > self._newest)
        anew = any({note.kind, str(note.body.get("notice"))} & RESETS for note in newer)
        if anew or reader.newest_configuration_id() != self._configuration:
            return False
        self._trials = self._trials.with_newer(reader, self._setup)
        self.looks += reader.looks(len(self.looks))
        self.look_times = reader.look_times()
        self.events = reader.events()
        self.elapsed = reader.elapsed
        self._newest = reader.newest_seq
        return True

    @property
    def counts(self) -> Counts:
        """Graded trials by model, question and category (L, M, K); a new array whenever there are more."""
        return self._trials.counts

    @property
    def spending(self) -> list[Spending]:
        """Usage at up to `STEPS` moments."""
        return thin_out(self._trials.spending, STEPS)

    @property
    def traffic(self) -> list[ReplicaTraffic]:
        """Stored answers by model and replica."""
        return [row.traffic() for row in self._trials.replicas]

    def spent(self, models: Container[str] | None = None) -> Spending:
        """Usage so far, of these models or of all."""
        return self._trials.spent(models)
