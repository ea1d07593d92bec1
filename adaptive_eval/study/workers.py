"""Who does the simulations of a forecast: bundles of runs side by side, in processes where that is worth it.

Results come in the order of the jobs, the same whatever the number of processes.
"""

import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait as wait_for_any
from types import TracebackType
from typing import NamedTuple

from adaptive_eval.core.stack import MOST_CELLS
from adaptive_eval.study.scenario import Scenario, Variant
from adaptive_eval.study.simulated import Simulated, StackedJob, can_be_stacked, simulate_run, simulate_side_by_side
from scorio.moments import FloatArray

WORTH_A_PROCESS = 2.5
"""Seconds of work that repay the one that a process takes to start, where it has everything to import."""
WORTH_A_COPY = 0.5
"""The same where it is a copy of this one, which is there at once."""
LEAST_SECONDS = 0.4e-6
"""What a trial of the fixed design takes to simulate in a run of it, at least."""
FIRST_TELLS = 0.5
"""Of the seconds that the first bundle took: it has found everything cold."""


class SimulationJob(NamedTuple):
    """One run to be simulated."""

    world: int
    chances: FloatArray
    variant: Variant
    timed: bool = True


class SimulationWorkers:
    """Does jobs, beside processes of its own where that is worth it, once they are ready; a context that ends them."""

    def __init__(self, scenario: Scenario, jobs: int, most: int) -> None:
        """`jobs` is how many there may be, and `most` the maximum of trials a question."""
        self._scene, self._left = scenario, jobs
        self._worker = _Worker(scenario)
        self._pool: ProcessPoolExecutor | None = None
        self._ready: Future[None] | None = None
        """Done when the first of the processes is there."""
        self._processes = 1
        self._cold = True
        self._hire_if_worth_it(jobs * scenario.bench.models * scenario.bench.questions * most * LEAST_SECONDS)

    def __enter__(self) -> "SimulationWorkers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def simulate(
        self, jobs: Sequence[SimulationJob], another: Callable[[int], None] = lambda runs: None
    ) -> list[Simulated]:
        """The simulated runs in the order of the jobs; `another` is told of each bundle of them that is done."""
        done: dict[int, Simulated] = {}
        bundles = deque(self._worker.bundled(jobs))
        if self._is_helped():
            bundles = self._in_parts(bundles)
        while bundles and not self._is_helped():
            bundle, start = bundles.popleft(), time.process_time()
            done |= self._do(jobs, bundle, another)
            self._learn(len(bundle), time.process_time() - start)
            if self._is_helped():
                bundles = self._in_parts(bundles)
        if self._pool is not None and bundles:
            done |= self._share(self._pool, jobs, bundles, another)
        return [done[number] for number in range(len(jobs))]

    def _do(
        self, jobs: Sequence[SimulationJob], bundle: Sequence[int], another: Callable[[int], None]
    ) -> dict[int, Simulated]:
        """A bundle, done here."""
        found = dict(zip(bundle, self._worker.do([jobs[number] for number in bundle]), strict=True))
        another(len(bundle))
        return found

    def _is_helped(self) -> bool:
        return self._ready is not None and self._ready.done()

    def _in_parts(self, bundles: Iterable[Sequence[int]]) -> deque[list[int]]:
        """At least as many as there are processes; smaller ones take more work in all."""
        whole = deque(map(list, bundles))
        if len(whole) >= self._processes:
            return whole
        return deque(part for one in whole for part in _parts(one, math.ceil(len(one) / self._processes)))

    def _share(
        self,
        pool: ProcessPoolExecutor,
        jobs: Sequence[SimulationJob],
        bundles: deque[list[int]],
        another: Callable[[int], None],
    ) -> dict[int, Simulated]:
        """Have bundles done by the other processes from the first on, and do them here from the last on.

        A bundle that was handed over cannot be had back: so few are, the fewer the nearer the end is.
        """
        done: dict[int, Simulated] = {}
        theirs: dict[Future[list[Simulated]], list[int]] = {}
        helpers = self._processes - 1
        while bundles or theirs:
            most = helpers if len(bundles) <= 2 * self._processes else 2 * helpers
            while len(bundles) > 1 and len(theirs) < most:
                bundle = bundles.popleft()
                theirs[pool.submit(_do, [jobs[number] for number in bundle])] = bundle
            if bundles:
                done |= self._do(jobs, bundles.pop(), another)
            else:
                wait(theirs, return_when=FIRST_COMPLETED)
            for future in [future for future in theirs if future.done()]:
                bundle = theirs.pop(future)
                done |= zip(bundle, future.result(), strict=True)
                another(len(bundle))
        return done

    def _learn(self, runs: int, seconds: float) -> None:
        """How long the others may take, by a bundle that was done."""
        self._left -= runs
        self._hire_if_worth_it(self._left * seconds / runs * (FIRST_TELLS if self._cold else 1.0))
        self._cold = False

    def _hire_if_worth_it(self, seconds: float) -> None:
        """Take on processes for so much work, if none are there."""
        each = WORTH_A_COPY if _may_be_copied() else WORTH_A_PROCESS
        processes = min(os.cpu_count() or 1, math.floor(seconds / each))
        if self._pool is None and processes > 1:
            self.hire(processes)

    def hire(self, processes: int) -> "Future[None]":
        """Have the jobs done by so many processes, of which this is one, from when the first of the others is there."""
        copied = _may_be_copied()
        context = get_context("fork" if copied else "spawn")
        self._processes = processes
        self._pool = ProcessPoolExecutor(processes - 1, context, initializer=_begin, initargs=(self._scene,))
        self._ready = self._pool.submit(_be_there)
        if copied:
            wait([self._ready])  # some milliseconds
        return self._ready


def _may_be_copied() -> bool:
    """Whether this process may be forked: where it has other threads, what they hold would be held in the copy for
    ever, and elsewhere libraries of the system do not bear it."""
    return sys.platform == "linux" and threading.active_count() == 1


class _Worker:
    """Does bundles of jobs one after the other, and keeps the plans, which are the same for every world."""

    def __init__(self, scenario: Scenario) -> None:
        self._scene = scenario
        self._plan = lru_cache(maxsize=None)(scenario.plan)

    def bundled(self, jobs: Sequence[SimulationJob]) -> list[list[int]]:
        """The numbers of the jobs, in bundles of those that can be simulated side by side."""
        bench = self._scene.bench
        room = max(MOST_CELLS // (bench.models * bench.questions), 1)
        alike: dict[Variant, list[int]] = {}
        bundles: list[list[int]] = []
        for number, job in enumerate(jobs):
            if self._stacks(job):
                alike.setdefault(_but_its_cap(job.variant), []).append(number)
            else:
                bundles.append([number])
        for numbers in alike.values():
            bundles += _parts(numbers, room)
        return bundles

    def _stacks(self, job: SimulationJob) -> bool:
        return can_be_stacked(self._plan(job.variant), self._scene.served, timed=self._is_timed(job))

    def _is_timed(self, job: SimulationJob) -> bool:
        return job.timed and self._scene.served.usage.knows_seconds

    def do(self, jobs: Sequence[SimulationJob]) -> list[Simulated]:
        """The runs of a bundle."""
        scenario, plan = self._scene, self._plan(jobs[0].variant)
        if not self._stacks(jobs[0]):
            (job,) = jobs
            seed = (scenario.seed, job.world)
            run = simulate_run(plan, job.chances, scenario.served, seed, timed=self._is_timed(job))
            return [run.after(scenario.before)]
        caps = [scenario.left(job.variant.budget).trials for job in jobs]
        stacked = [
            StackedJob(job.world, job.chances, cap, self._is_timed(job)) for job, cap in zip(jobs, caps, strict=True)
        ]
        return [
            run.after(scenario.before) for run in simulate_side_by_side(plan, stacked, scenario.served, scenario.seed)
        ]


def _but_its_cap(variant: Variant) -> Variant:
    """What runs side by side have in common."""
    return variant._replace(budget=replace(variant.budget, trials=None))


def _parts(numbers: Sequence[int], most: int) -> list[list[int]]:
    """In parts of at most so many, about alike."""
    parts = math.ceil(len(numbers) / most)
    ends = [len(numbers) * part // parts for part in range(parts + 1)]
    return [list(numbers[begin:end]) for begin, end in pairwise(ends)]


_here: list[_Worker] = []
"""The worker of another process."""


def _begin(scenario: Scenario) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that shows the progress
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # a copy has what its parent does then
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    _here.append(_Worker(scenario))


def _end_with_the_parent() -> None:
    """A parent that is killed cannot say so, and its queue stays open as long as anyone waits at it."""
    parent = parent_process()
    if parent is not None:
        wait_for_any([parent.sentinel])
        os._exit(1)


def _be_there() -> None:
    """What the first process does that is there."""


def _do(jobs: Sequence[SimulationJob]) -> list[Simulated]:
    return _here[0].do(jobs)
