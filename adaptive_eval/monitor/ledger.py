"""What a run has stored, kept up to date by reading only what is new.

A live run commits some thousand trials a second, and a monitor is to cost it next to nothing: so each trial is read
once, by its number, whatever is drawn of it afterwards. Looks and events are few.
"""

from collections.abc import Sequence

from adaptive_eval.reading.types import STEPS
from adaptive_eval.store import Event, EventKind, ReplicaTraffic, RunReader, Spending, StoredLook, Sums

ANEW = {EventKind.STARTED, EventKind.RESUMED, EventKind.CONFIGURED, EventKind.REGRADED}
"""After these, looks may have been taken anew, and grades may have changed."""

Cell = tuple[str, str]


class Ledger:
    """A `Source` of views; not safe for threads."""

    def __init__(self, reader: RunReader) -> None:
        self._configuration = reader.newest_configuration_id()
        self._graded = reader.graded()
        self._sums = {(one.model, one.replica): one for one in reader.sums()}
        self._spending = reader.spending(STEPS)
        self._looks = reader.looks()
        self._look_times = reader.look_times()
        self._events = reader.events()
        self._last = max((one.last for one in self._sums.values()), default=0)
        self.elapsed = reader.elapsed

    def fits(self, reader: RunReader) -> bool:
        """Whether what has been read still holds, so that `update` is enough."""
        if reader.newest_configuration_id() != self._configuration:
            return False
        return not any(event.kind in ANEW for event in reader.events()[len(self._events) :])

    def update(self, reader: RunReader) -> None:
        """Read what has come since."""
        for cell, graded in reader.graded(self._last).items():
            self._graded[cell] = self._graded.get(cell, 0) + graded
        self._add(reader.sums(self._last))
        self._looks += reader.looks(len(self._looks))
        self._look_times = reader.look_times()
        self._events = reader.events()
        self.elapsed = reader.elapsed

    def _add(self, new: Sequence[Sums]) -> None:
        if not new:
            return
        for one in new:
            known = self._sums.get((one.model, one.replica))
            self._sums[one.model, one.replica] = one if known is None else _together(known, one)
        self._last = max(one.last for one in new)
        self._spending.append(self.spent())
        if len(self._spending) > 2 * STEPS:
            self._spending = self._spending[1::2]  # the last one stays

    # -- what views are made of --------------------------------------------------------------------------------------

    def graded(self) -> dict[Cell, int]:
        """How many trials of each model and question have a grade."""
        return self._graded

    def looks(self) -> list[StoredLook]:
        """The looks that were taken under the newest configuration."""
        return self._looks

    def look_times(self) -> dict[int, float]:
        """When each of these was taken, in seconds since 1970."""
        return self._look_times

    def spending(self, steps: int) -> list[Spending]:
        """What had been used at up to so many moments."""
        every = -(-len(self._spending) // steps)
        return self._spending[::-1][:: max(every, 1)][::-1]

    def traffic(self) -> list[ReplicaTraffic]:
        """The stored answers by model and replica."""
        return [one.traffic() for one in self._sums.values()]

    def events(self) -> list[Event]:
        """Everything that happened to the run."""
        return self._events

    # ----------------------------------------------------------------------------------------------------------------

    def spent(self) -> Spending:
        """What has been used so far."""
        sums = self._sums.values()
        return Spending(
            at=max((one.at for one in sums), default=0.0),
            trials=sum(one.trials for one in sums),
            tokens=sum(one.tokens for one in sums),
            usd=sum(one.usd for one in sums),
            gpu_seconds=sum(one.gpu_seconds for one in sums),
        )


def _together(one: Sums, later: Sums) -> Sums:
    return Sums(
        model=one.model,
        replica=one.replica,
        trials=one.trials + later.trials,
        retries=one.retries + later.retries,
        prompt_tokens=one.prompt_tokens + later.prompt_tokens,
        completion_tokens=one.completion_tokens + later.completion_tokens,
        latency=one.latency + later.latency,
        timed=one.timed + later.timed,
        ttft=one.ttft + later.ttft,
        tokens=one.tokens + later.tokens,
        usd=one.usd + later.usd,
        gpu_seconds=one.gpu_seconds + later.gpu_seconds,
        last=later.last,
        at=later.at,
    )
