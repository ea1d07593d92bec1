"""Sums over a run's stored records: read once, then updated with newer records."""

from collections.abc import Container, Sequence

from adaptive_eval.config.prepare import StoredSetup
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.notes import Event, RunBegun, SettingsChanged, TrialsRegraded
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import ReplicaSums, ReplicaTraffic, Spending
from adaptive_eval.report.summing import Counts, merge_sums, thin_out, total_spending
from adaptive_eval.store.read import StoredLook

STEPS = 200
"""Number of moments at which the usage is kept."""
RESET_EVENTS = (RunBegun, SettingsChanged, TrialsRegraded)
"""Events after which looks may be retaken, or grades may have changed."""


class StoredSums:
    """Counts, usage, looks and events of a run; not safe for threads."""

    def __init__(self, reader: RunReader, setup: StoredSetup, events: Sequence[Event] | None = None) -> None:
        self.directory = reader.directory
        self._configuration = reader.newest_configuration_id()
        self._roster, self._categories = setup.roster, len(open_rubric(setup.config.rubric).weights)
        self.counts: Counts = reader.counts(self._roster, self._categories)
        """Graded trials by model, question and category (L, M, K); a new array whenever there are more."""
        self._sums = reader.sums()
        self._spending = reader.spending(STEPS)
        self.looks: list[StoredLook] = reader.looks()
        """Looks under the newest configuration."""
        self.look_times = reader.look_times()
        """Time of each of these looks, in seconds since 1970."""
        self.events: Sequence[Event] = reader.events() if events is None else events
        self._last = max((row.last for row in self._sums), default=0)
        self.elapsed = reader.elapsed

    def update(self, reader: RunReader) -> bool:
        """Read newer records; False, and nothing is read, if earlier ones are no longer valid."""
        events = reader.events()
        anew = any(isinstance(event, RESET_EVENTS) for event in events[len(self.events) :])
        if anew or reader.newest_configuration_id() != self._configuration:
            return False
        self.counts = self.counts + reader.counts(self._roster, self._categories, self._last)
        self._add(reader.sums(self._last))
        self.looks += reader.looks(len(self.looks))
        self.look_times = reader.look_times()
        self.events = events
        self.elapsed = reader.elapsed
        return True

    def _add(self, new: Sequence[ReplicaSums]) -> None:
        if not new:
            return
        self._sums = merge_sums(self._sums, new)
        self._last = max(row.last for row in new)
        self._spending.append(self.spent())
        if len(self._spending) > 2 * STEPS:
            self._spending = self._spending[1::2]  # the last one stays

    @property
    def spending(self) -> list[Spending]:
        """Usage at up to `STEPS` moments."""
        return thin_out(self._spending, STEPS)

    @property
    def traffic(self) -> list[ReplicaTraffic]:
        """Stored answers by model and replica."""
        return [row.traffic() for row in self._sums]

    def spent(self, models: Container[str] | None = None) -> Spending:
        """Usage so far, of these models or of all."""
        return total_spending([row for row in self._sums if models is None or row.model in models])
