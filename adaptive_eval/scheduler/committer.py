"""The way of all records of a run to the store: they are gathered for a moment, and one thread writes them.

Each commit waits on the disk and costs a fixed 0.1 to 0.2 ms of CPU. Gathering for `GATHER_SECONDS` makes one commit of
some 60 trials at 3,000 trials a second. It delays a user or the next round by no more than that time plus one fsync,
and there is no delay when no more records are expected.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from adaptive_eval.core import Plan
from adaptive_eval.core.types import Look
from adaptive_eval.scheduler.meter import BEAT_SECONDS, RunMeter
from adaptive_eval.scheduler.state import RunState
from adaptive_eval.store import AnswersLost, CommitBatch, Event, HeldTime, Store
from adaptive_eval.store.looks import plain_look
from adaptive_eval.store.roster import Names
from adaptive_eval.supply.happenings import Committed, LossFound, Say

GATHER_SECONDS = 0.02


class Committer:
    """Commits records in order, and reports each batch when it is on disk."""

    def __init__(
        self,
        store: Store,
        say: Say,
        *,
        elapsed: Callable[[], float],
        held: Callable[[], Mapping[str, HeldTime] | None] = lambda: None,
    ) -> None:
        self._store, self._say = store, say
        self._elapsed, self._held = elapsed, held
        self.gathers = False
        """More records are expected soon, so a commit waits a moment for them."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-writer")
        self._next = CommitBatch()
        self._waiting: list[asyncio.Future[None]] = []
        """Futures to resolve when the next batch is on disk."""
        self._taken_at = 0.0
        self._added = asyncio.Event()
        self._writing: tuple[asyncio.Future[CommitBatch], list[asyncio.Future[None]]] | None = None
        """The batch that the thread is writing, or has written but not reported."""

    @property
    def idle(self) -> bool:
        """Whether everything given has been committed and reported."""
        return self._writing is None and not self._added.is_set()

    def next_batch(self) -> CommitBatch:
        """The batch that is committed next, for records to be added to it at once."""
        self._added.set()
        return self._next

    async def safe(self) -> None:
        """Wait until everything added so far is on disk."""
        on_disk = asyncio.get_running_loop().create_future()
        self._waiting.append(on_disk)
        self._added.set()
        await on_disk

    def beat(self) -> None:
        """Commit the elapsed time if nothing was committed for `BEAT_SECONDS`."""
        if self._elapsed() - self._taken_at >= BEAT_SECONDS:
            self._added.set()

    async def run(self) -> None:
        """Commit until cancelled; raises the `StoreError` of a commit that failed."""
        while True:
            await self._added.wait()
            if self.gathers:
                await asyncio.sleep(GATHER_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Commit and report the next batch, or report the batch that a cancelled flush has left to the thread."""
        if self._writing is None:
            if not self._added.is_set():
                return
            self._writing = self._take()
        written, waiting = self._writing
        await asyncio.wait([written])  # cancelled here, the batch is still written, and the next flush reports it
        self._writing = None
        self._say(Committed(written.result(), waiting))

    def _take(self) -> tuple[asyncio.Future[CommitBatch], list[asyncio.Future[None]]]:
        """Start to write the next batch in the thread."""
        self._taken_at = self._elapsed()
        batch, self._next = self._next, CommitBatch()
        batch.elapsed, batch.held = self._taken_at, self._held()
        waiting, self._waiting = self._waiting, []
        self._added.clear()
        written = asyncio.get_running_loop().run_in_executor(self._thread, self._store.commit, batch)
        return written, waiting

    def close(self) -> None:
        """Wait for the writer's thread to end."""
        self._thread.shutdown()


class RepeatGuard:
    """Lets endpoints and judges repeat a request that may have cost something: once its loss is on disk, if the caps
    allow both."""

    def __init__(self, state: RunState, committer: Committer, say: Say) -> None:
        self._state, self._committer, self._say = state, committer, say

    async def may_repeat(self, model: int | None = None, loss: AnswersLost | None = None) -> bool:
        """Whether a model's lost answer, counted by its endpoint, or a judge's lost reply may be requested again."""
        counted = asyncio.get_running_loop().create_future()
        self._say(LossFound(loss, counted))
        await counted
        if self._is_over(model):
            return False
        await self._committer.safe()
        return not self._is_over(model)

    def _is_over(self, model: int | None) -> bool:
        gone = model is not None and self._state.models.is_gone(model)
        return gone or self._state.controller.finished is not None


class Observer(Protocol):
    """Is told of looks and events as they happen; may not take long."""

    def looked(self, looks: Sequence[Look]) -> None:
        """Called when rounds were completed."""

    def happened(self, event: Event) -> None:
        """Called for each recorded event, such as a model set aside."""


class RunJournal:
    """Records events and looks, and tells the observer of events; `committer` takes trials, verdicts and requests."""

    def __init__(self, store: Store, meter: RunMeter, observer: Observer, say: Say) -> None:
        self.store, self.meter, self.observer = store, meter, observer
        self.committer = Committer(store, say, elapsed=meter.elapsed, held=meter.times.held_times)

    def note(self, event: Event) -> None:
        """Record an event, and tell the observer."""
        event = self.store.redacted(event)
        self.meter.hear(event)
        self.committer.next_batch().events.append(event)
        self.observer.happened(event)

    def note_looks(self, looks: Sequence[Look], names: Names, plan: Plan) -> None:
        """Record looks."""
        if looks:
            capped = plan.has_capped_opening
            plain = [plain_look(look, tuple(names), capped_opening=capped) for look in looks]
            self.committer.next_batch().looks.extend(plain)
