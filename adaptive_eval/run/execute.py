"""A run from its first request to its last look."""

import asyncio
import gc
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from adaptive_eval import __version__
from adaptive_eval.core import Bench, Budget, Controller, Look, Outcome, Plan
from adaptive_eval.core.objectives import Ranking
from adaptive_eval.core.policies import UnresolvedPairs
from adaptive_eval.errors import AdaptiveEvalError, StoreError
from adaptive_eval.graders.pool import GradingPool
from adaptive_eval.results import Snapshot, take_snapshot
from adaptive_eval.run.ending import Ended
from adaptive_eval.run.endpoints import Serving, opened_endpoints
from adaptive_eval.run.exit_codes import ExitCode
from adaptive_eval.run.history import look_back
from adaptive_eval.run.interrupts import Interrupts
from adaptive_eval.run.mishap import note_mishap
from adaptive_eval.run.prepare import Prepared, make_lane
from adaptive_eval.run.publish import Publisher
from adaptive_eval.run.servers import LOGS
from adaptive_eval.run.status import StatusTaker
from adaptive_eval.run.subject import subject_of
from adaptive_eval.run.watching import Watcher
from adaptive_eval.scheduler.grading import Grading
from adaptive_eval.scheduler.scheduler import Scheduler
from adaptive_eval.store import Batch, Event, EventKind, Opened, Store


async def execute(prepared: Prepared, directory: Path, watcher: Watcher, tell: Callable[[Ended], None]) -> ExitCode:
    """Begin or resume the run in `directory`, and carry it on until it is finished or stopped.

    `tell` hears how it ended while the servers that it has started are being stopped, which may take a while.
    Raises `ConfigError` when the run does not fit what it begins with, `StoreError` when the directory cannot be used
    or written, and `Rejected` when a model refuses its first request; whatever was committed by then is intact, and
    what was raised is stored beside it.
    """
    prepared, prior = look_back(prepared, directory)
    opened = Store.open(directory, prepared.header)
    store = opened.store
    try:
        if prior is not None:
            store.commit(Batch(events=[prior]))
        with Interrupts() as interrupts:
            async with opened_endpoints(prepared.config, directory / LOGS) as serving:
                config = prepared.config
                grading = GradingPool(config.grader, prepared.rubric, folder=config.folder, keys=config.keys)
                try:
                    session = _Session(prepared, store, serving, grading, watcher)
                    ended = await session.carry_on(opened, prior, interrupts)
                finally:
                    await grading.close()
                store.close()  # who reads how it ended may go on with the run
                tell(ended)
                return ended.exit_code
    except Exception as error:
        note_mishap(store, error)
        raise
    finally:
        store.close()


class _Session:
    """One start of a run: the scheduler at work, and those who are told of it."""

    def __init__(self, prepared: Prepared, store: Store, serving: Serving, grading: Grading, watcher: Watcher) -> None:
        self._prepared = prepared
        self._store = store
        self._serving = serving
        self._watcher = watcher
        self._controller = Controller(prepared.plan)
        self._publisher = Publisher(store.directory, self._snapshot)
        lanes = [make_lane(prepared, number, endpoint) for number, endpoint in enumerate(serving.endpoints)]
        self._scheduler = Scheduler(
            self._controller, lanes, prepared.questions, grading, store, self, hosts=serving.hosts
        )
        questions = tuple(question.id for question in prepared.questions)
        self._taker = StatusTaker(prepared.models, questions, self._controller, self._scheduler, serving.endpoints)
        self._subject = subject_of(prepared.config, prepared.questions, store.reader.created)
        self._events = store.reader.events()
        self._failed = False

    async def carry_on(self, opened: Opened, prior: Event | None, interrupts: Interrupts) -> Ended:
        """Run until the end, and write it down."""
        _warm_up(self._prepared.plan)
        trials = self._store.reader.trial_count()
        process = {"pid": os.getpid(), "host": socket.gethostname(), "version": __version__}
        kind = EventKind.RESUMED if opened.resumed else EventKind.STARTED
        try:
            async with self._watched():
                interrupts.hear(self._on_interrupt)
                begun = Event(kind, {"trials": trials, **process})
                self._store.commit(Batch(events=[begun]))  # whoever looks on sees it while stored answers are taken up
                self.happened(begun)
                for event in (opened.changed, prior):
                    if event is not None:
                        self._watcher.happened(event)
                await self._scheduler.run()
            return await self._end()
        except AdaptiveEvalError:
            self._failed = True
            with suppress(StoreError):
                await self._publisher.publish()
            raise
        finally:
            self._publisher.close()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """While results are published, and displays are open."""
        publishing = asyncio.create_task(self._publisher.run())
        publishing.add_done_callback(self._on_publisher_end)
        self._watcher.opened(self._subject.name, self._subject.models, self._taker.take)
        try:
            with _short_collections():
                yield
        finally:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            self._watcher.closed()

    # -- the scheduler's observer -----------------------------------------------------------------------------------

    def looked(self, looks: Sequence[Look]) -> None:
        """Rounds were completed."""
        self._publisher.looked()
        self._watcher.looked(looks)

    def happened(self, event: Event) -> None:
        """Something was recorded."""
        self._events.append(event)
        self._watcher.happened(event)

    # ---------------------------------------------------------------------------------------------------------------

    async def _end(self) -> Ended:
        reason = self._controller.finished
        results = await self._publisher.publish()
        event = Event(EventKind.STOPPED) if reason is None else Event(EventKind.FINISHED, {"reason": str(reason)})
        self._store.commit(Batch(events=[event], elapsed=self._scheduler.elapsed()))
        objective = self._prepared.config.objective
        gate = objective.baseline if objective.gate else None
        return Ended(
            reason,
            self._taker.take(),
            results,
            self._store.directory,
            gate=gate,
            lost={self._prepared.models[model]: lost for model, lost in self._scheduler.lost.items()},
            fixed=self._prepared.plan.fixed,
            servers_up=0 if self._serving.at_once else sum(host.up for host in self._serving.hosts),
        )

    def _snapshot(self) -> Snapshot | None:
        return take_snapshot(
            self._subject,
            self._controller,
            self._scheduler.tallies,
            elapsed=self._scheduler.elapsed(),
            now=time.time(),
            stopped=self._scheduler.halt is not None or self._failed,
            events=self._events,
        )

    def _on_publisher_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._scheduler.abort(error)

    def _on_interrupt(self) -> None:
        first = self._scheduler.halt is None and not self._scheduler.over
        self._scheduler.stop()
        if first:
            self._watcher.stopping(sum(self._scheduler.in_flight))
        else:
            self._serving.hurry()


@contextmanager
def _short_collections() -> Iterator[None]:
    """Keep what is loaded by now out of the garbage collector's sight.

    The modules alone are some 10^5 objects, and a full collection goes through them all, which takes 40 to 60 ms.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _warm_up(plan: Plan) -> None:
    """Take one look at a toy: a rule's boundary is solved for at its first look, which takes up to half a second."""
    bench = Bench(models=2, questions=1, weights=plan.bench.weights)
    plain = replace(plan, bench=bench, objective=Ranking(), policy=UnresolvedPairs(), budget=Budget(), first=None)
    toy = Controller(plain)
    while not toy.looks:
        toy.tell([Outcome(ask.model, ask.question, ask.trial, ask.trial % 2) for ask in toy.ask(plan.trials.max)])
