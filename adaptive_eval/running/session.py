"""One start of a run: the scheduler at work, results.json kept up to date, and those who are told of it."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from adaptive_eval import __version__
from adaptive_eval.base.errors import AdaptiveEvalError, Alarmed, StoreError
from adaptive_eval.config.planning import longest_prompts
from adaptive_eval.config.prepare import PreparedRun, make_lane
from adaptive_eval.core import Bench, Budget, Controller, Look, Outcome, Plan
from adaptive_eval.core.objectives import Ranking
from adaptive_eval.core.policies import UnresolvedPairs
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.report.build import build_results, build_unjudged
from adaptive_eval.report.ending import Ended, Ending, build_ended
from adaptive_eval.report.label_effect import LabelSource
from adaptive_eval.report.old.live_status import StatusTaker
from adaptive_eval.report.old.other_costs import spent_before, spent_on_removed_models
from adaptive_eval.report.other_costs import other_costs
from adaptive_eval.report.results import OtherCostRow, Results, Unjudged
from adaptive_eval.report.results_file import write_results
from adaptive_eval.report.snapshot import Snapshot, run_subject, take_snapshot
from adaptive_eval.running.interrupts import StopSource
from adaptive_eval.running.serving import Serving
from adaptive_eval.running.watching import Watcher
from adaptive_eval.scheduler.alarms import Alarms
from adaptive_eval.scheduler.grading import Grading
from adaptive_eval.scheduler.loop import Loop
from adaptive_eval.scheduler.model_states import GradedBenchmarks
from adaptive_eval.scheduler.scheduler import Scheduler
from adaptive_eval.scheduler.state import RunState
from adaptive_eval.scheduler.verdict_costs import verdict_reserve
from adaptive_eval.store import (
    CommitBatch,
    Event,
    OpenedStore,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
    Store,
    was_waited_for,
)
from adaptive_eval.store.repeats import SamplingFreedom

SHARE_OF_TIME = 0.1
"""The largest share of the time that goes into results.json: with thousands of questions it takes a while to write, and
where looks follow each other faster than that, only the latest is written."""
BETWEEN_LOOKS_SECONDS = 10.0
"""Trials whose round is not complete yet are in results.json, too, marked as not judged."""


class Publisher:
    """Writes the results after looks and now and then between them, one file at a time and off the loop."""

    def __init__(self, directory: Path, take: Callable[[], Snapshot | Unjudged | None]) -> None:
        self._directory = directory
        self._take = take
        self._due = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="results-writer")

    def looked(self) -> None:
        """Publish soon: a look was taken."""
        self._due.set()

    async def run(self) -> None:
        """Write until cancelled; raises the `StoreError` of a write that failed."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(BETWEEN_LOOKS_SECONDS):
                    await self._due.wait()
            self._due.clear()
            began = time.monotonic()
            await self.publish()
            await asyncio.sleep((time.monotonic() - began) * (1.0 / SHARE_OF_TIME - 1.0))

    async def publish(self) -> Results | None:
        """Write the results as they are now, if there are any; None before the first look."""
        known = self._take()
        if known is None:
            return None
        # shielded: a write that has begun ends before another one begins
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, self._write, known))

    def _write(self, known: Snapshot | Unjudged) -> Results | None:
        results = build_results(known) if isinstance(known, Snapshot) else known
        write_results(self._directory, results)
        return results if isinstance(results, Results) else None

    def close(self) -> None:
        """Wait for the writer's thread to end."""
        self._thread.shutdown()


class Session:
    """One start of a run: the scheduler at work, and those who are told of it."""

    def __init__(
        self,
        prepared: PreparedRun,
        store: Store,
        serving: Serving,
        grading: Grading,
        watcher: Watcher,
        *,
        ask_again: bool = False,
    ) -> None:
        """`ask_again`: discard the answers since the alarms of earlier starts, and ask them again."""
        self._prepared = prepared
        self._store = store
        self._serving = serving
        self._watcher = watcher
        self._judged_at_once = grading.at_once if grading.lasting else None
        self._removed = removed = spent_on_removed_models(store.reader, prepared.roster.models, store.reader.events())
        controller = Controller(prepared.plan, outside_plan=spent_before(removed))
        self._publisher = Publisher(store.directory, self._take_state)
        lanes = [make_lane(prepared, number, endpoint) for number, endpoint in enumerate(serving.endpoints)]
        opening, stop_on = prepared.plan.opening, prepared.config.stopping.on_alarm
        drawn = [SamplingFreedom.from_sampling(model.sampling) for model in prepared.config.models]
        state = RunState(
            controller,
            prepared.roster,
            lanes,
            reserve=verdict_reserve(grading, capped=prepared.plan.budget.bought),
            alarms=Alarms(prepared.models, prepared.questions, opening, drawn, stop_on),
            graded=_graded_benchmarks(prepared),
        )
        gpu_seconds = sum(row.counted_gpu_seconds for row in removed)
        loop = Loop(state, prepared.questions, grading, store, self, serving.supplies, gpu_seconds)
        self._scheduler = Scheduler(loop, ask_again=ask_again)
        self._subject = run_subject(prepared.config, prepared.questions, store.reader.created)
        self._labels = LabelSource(cast(Any, store.reader), prepared.config, prepared.roster)
        self._taker = StatusTaker(
            self._subject,
            controller,
            self._scheduler,
            serving.endpoints,
            self._other_costs,
            lambda: self._events,
            self._labels.current,
        )
        self._events = store.reader.events()
        self._failed = False
        self._over = False
        """Whether the run is over."""

    async def carry_on(self, opened: OpenedStore, news: Sequence[Event], interrupts: StopSource) -> Ended:
        """Run until the end, and write it down."""
        _solve_boundary(self._prepared.plan)
        trials = self._store.reader.trial_count()
        kind = RunResumed if opened.resumed else RunStarted
        longest = dict(zip(self._prepared.models, longest_prompts(self._prepared.prompts), strict=True))
        begun = kind(
            trials,
            os.getpid(),
            socket.gethostname(),
            __version__,
            longest,
            self._prepared.arguments,
            self._prepared.overrides or None,
            self._judged_at_once,
        )
        try:
            async with self._watched():
                interrupts.hear(self._on_interrupt)
                # seen by watchers while stored answers are taken up
                for event in self._store.commit(CommitBatch(events=[begun])).events:
                    self.happened(event)
                for event in filter(None, (opened.changed, *news)):
                    self._watcher.happened(self._store.redacted(event))
                await self._scheduler.run()
            if (stopped := self._scheduler.state.alarms.stopped) is not None:
                raise Alarmed(stopped)
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
            yield
        finally:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            self._watcher.closed()

    # -- the scheduler's observer -----------------------------------------------------------------------------------

    def looked(self, looks: Sequence[Look]) -> None:
        """Publish and show looks."""
        self._publisher.looked()
        self._watcher.looked(looks)

    def happened(self, event: Event) -> None:
        """Keep and show an event."""
        self._events.append(event)
        self._watcher.happened(event)

    # ---------------------------------------------------------------------------------------------------------------

    async def _end(self) -> Ended:
        controller, self._over = self._scheduler.state.controller, True
        reason = controller.finished
        self._scheduler.meter.stop()
        names = self._waited_for()
        controller.count_overrun(map(self._subject.models.index, names))
        results = await self._publisher.publish()
        event = RunStopped(waited_for=names or None) if reason is None else RunFinished(reason, names or None)
        self._store.commit(CommitBatch(events=[event], elapsed=self._scheduler.meter.elapsed()))
        return build_ended(
            [*self._events, event],
            results,
            self._taker.take(),
            self._store.directory,
            gated=self._prepared.config.objective.gate,
            servers_up=0 if self._serving.at_once else sum(host.up for host in self._serving.hosts),
        )

    def _waited_for(self) -> tuple[str, ...]:
        """Models of which all that was asked has come, now and in earlier starts, where any is asked ahead of looks."""
        state = self._scheduler.state
        here = enumerate(self._subject.models) if state.controller.plan.pace.held else ()
        return tuple(name for at, name in here if state.trials.has_all(at) and was_waited_for(self._events, name))

    def _take_state(self) -> Snapshot | Unjudged | None:
        """State of the run; None if nothing has come yet, and the run goes on."""
        subject, controller = self._subject, self._scheduler.state.controller
        elapsed, now = self._scheduler.meter.elapsed(), time.time()
        stopped = self._scheduler.ending.halt is not None or self._failed
        judged = take_snapshot(
            subject,
            controller,
            self._scheduler.state.spent.usages,
            elapsed=elapsed,
            now=now,
            stopped=stopped,
            events=self._events,
            held=self._scheduler.meter.held_times(),
            beside=self._other_costs(),
            correct=self._over and not self._prepared.config.plug_ins,
            labels=self._labels.current(anew=self._over),
        )
        reason, any_answer = controller.finished, bool(controller.arrived.any())
        if judged is not None or not (any_answer or stopped or reason is not None):
            return judged
        weights, arrived = controller.plan.bench.weights, controller.arrived.copy()
        lost = {subject.models[model]: lost for model, lost in controller.set_aside.items()}
        gated, trials = self._prepared.config.objective.gate, int(arrived.sum())
        ending = Ending(reason=reason, results=None, trials=trials, lost=lost, gated=gated)
        why = None if reason is None else ending.why
        return build_unjudged(
            subject, weights, arrived, elapsed=elapsed, now=now, stopped=stopped, reason=reason, why=why
        )

    def _other_costs(self) -> tuple[OtherCostRow, ...]:
        counted = self._scheduler.meter.servers().counted
        return other_costs(self._removed, self._prepared.roster.models, counted, self._events)

    def _on_publisher_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._scheduler.abort(error)

    def _on_interrupt(self) -> None:
        scheduler = self._scheduler
        first = scheduler.ending.halt is None and not scheduler.ending.over
        left = sum(len(batch.requests) for batch in scheduler.supply.pending)  # to the next start
        scheduler.stop()
        if first:
            self._watcher.stopping(max(scheduler.under_way - left, 0), scheduler.patience)
        else:
            self._serving.hurry()


def _graded_benchmarks(prepared: PreparedRun) -> GradedBenchmarks:
    """None that is known yet; a model that Inspect asks loses an answer with its score."""
    config = prepared.config
    names = [benchmark_named(question.id) for question in prepared.questions] if config.benchmarks else []
    return GradedBenchmarks(names, [at for at, model in enumerate(config.models) if model.inspect is not None])


def _solve_boundary(plan: Plan) -> None:
    """Take one look at a toy: a rule's boundary is solved for at its first look, which takes up to half a second, and
    would stop the loop of a run for so long."""
    bench = Bench(models=2, questions=plan.drawn or 1, weights=plan.bench.weights)
    plain = replace(
        plan, bench=bench, objective=Ranking(), policy=UnresolvedPairs(), budget=Budget(), first=None, before=None
    )
    toy = Controller(plain)
    while not toy.looks:
        toy.tell([Outcome(ask.model, ask.question, ask.trial, ask.trial % 2) for ask in toy.ask(plan.trials.max)])
