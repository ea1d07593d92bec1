"""Workers for the simulations of a forecast: bundles of runs side by side, in several processes if worthwhile.

Results come in the order of the jobs, whatever the number of processes.
"""

import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait as wait_for_any
from typing import NamedTuple

from adaptive_eval.core import Budget
from adaptive_eval.core.side_by_side import can_stand_side_by_side
from adaptive_eval.core.stack import MOST_CELLS
from adaptive_eval.study.scenario import Scenario
from adaptive_eval.study.simulated import SimulatedRun, StackedJob, simulate_run, simulate_side_by_side
from scorio.moments import FloatArray

WORTH_A_PROCESS = 2.5
"""Seconds of work that justify a process that starts anew and imports everything."""
WORTH_A_COPY = 0.5
"""The same for a forked process, which starts at once."""
LEAST_SECONDS = 0.4e-6
"""Least seconds to simulate a run, per trial of the fixed design."""
FIRST_TELLS = 0.5
"""The part of the first bundle's seconds that counts, since it started cold."""


class SimulationJob(NamedTuple):
    """One run to be simulated."""

    world: int
    chances: FloatArray
    budget: Budget
    timed: bool = True


class SimulationWorkers:
    """Context that simulates jobs, in several processes once that is worthwhile."""

    def __init__(self, scenario: Scenario, jobs: int, most: int) -> None:
        """`jobs` is how many there may be, and `most` the maximum of trials a question."""
        self._scenario, self._left = scenario, jobs
        self._worker = _Worker(scenario)
        self._pool: ProcessPoolExecutor | None = None
        self._processes = 1
        self._cold = True
        self._hire_if_worth_it(jobs * scenario.bench.models * scenario.bench.questions * most * LEAST_SECONDS)

    def __enter__(self) -> "SimulationWorkers":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def simulate(
        self, jobs: Sequence[SimulationJob], on_done: Callable[[int], None] = lambda runs: None
    ) -> list[SimulatedRun]:
        """The simulated runs in the order of the jobs; `on_done` gets the size of each finished bundle."""
        found: dict[int, SimulatedRun] = {}
        bundles = deque(self._worker.bundles(jobs))
        while bundles and self._pool is None:
            bundle, start = bundles.popleft(), time.process_time()
            found |= zip(bundle, self._worker.simulate([jobs[number] for number in bundle]), strict=True)
            on_done(len(bundle))
            self._learn(len(bundle), time.process_time() - start)
        if self._pool is not None and bundles:
            parts = {
                self._pool.submit(_simulate, [jobs[number] for number in part]): part for part in self._split(bundles)
            }
            for future in as_completed(parts):
                found |= zip(parts[future], future.result(), strict=True)
                on_done(len(parts[future]))
        return [found[number] for number in range(len(jobs))]

    def _split(self, bundles: Iterable[Sequence[int]]) -> list[list[int]]:
        """Split bundles until there are as many as processes; smaller ones take more work in total."""
        whole = list(map(list, bundles))
        if len(whole) >= self._processes:
            return whole
        return [part for one in whole for part in _split_evenly(one, math.ceil(len(one) / self._processes))]

    def _learn(self, runs: int, seconds: float) -> None:
        """Estimate the time of the remaining jobs from a finished bundle."""
        self._left -= runs
        self._hire_if_worth_it(self._left * seconds / runs * (FIRST_TELLS if self._cold else 1.0))
        self._cold = False

    def _hire_if_worth_it(self, seconds: float) -> None:
        """Start processes if the work justifies it and there are none."""
        each = WORTH_A_COPY if _can_fork() else WORTH_A_PROCESS
        processes = min(os.cpu_count() or 1, math.floor(seconds / each))
        if self._pool is None and processes > 1:
            self.hire(processes)

    def hire(self, processes: int) -> None:
        """Simulate with this many processes from now on."""
        context = get_context("fork" if _can_fork() else "spawn")
        self._processes = processes
        self._pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(self._scenario,))
        self._pool.submit(_be_there)  # all copies are made now, while this process has no other thread


def _can_fork() -> bool:
    """Whether this process may be forked: not with other threads, whose locks would stay held in the copy, nor on
    systems whose libraries do not support it."""
    return sys.platform == "linux" and threading.active_count() == 1


class _Worker:
    """Simulates bundles one after the other, and keeps the plans, which are the same for every world."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._plan = lru_cache(maxsize=None)(scenario.plan)

    def bundles(self, jobs: Sequence[SimulationJob]) -> list[list[int]]:
        """Numbers of the jobs, in bundles that can be simulated side by side."""
        bench = self._scenario.bench
        room = max(MOST_CELLS // (bench.models * bench.questions), 1)
        alike: dict[Budget, list[int]] = {}
        bundles: list[list[int]] = []
        for number, job in enumerate(jobs):
            if self._can_be_stacked(job):
                # runs side by side may differ only in their cap on trials
                alike.setdefault(replace(job.budget, trials=None), []).append(number)
            else:
                bundles.append([number])
        for numbers in alike.values():
            bundles += _split_evenly(numbers, room)
        return bundles

    def _can_be_stacked(self, job: SimulationJob) -> bool:
        return can_stand_side_by_side(self._plan(job.budget)) and not self._is_timed(job)

    def _is_timed(self, job: SimulationJob) -> bool:
        """Whether its answers arrive one by one: what is asked ahead depends on their times."""
        return self._plan(job.budget).pace.held or (job.timed and self._scenario.served.usage.knows_seconds)

    def simulate(self, jobs: Sequence[SimulationJob]) -> list[SimulatedRun]:
        """Simulate the runs of a bundle."""
        scenario, plan = self._scenario, self._plan(jobs[0].budget)
        if not self._can_be_stacked(jobs[0]):
            (job,) = jobs
            seed = (scenario.seed, job.world)
            run = simulate_run(plan, job.chances, scenario.served, seed, timed=self._is_timed(job))
            return [run.after(scenario.before)]
        caps = [scenario.left(job.budget).trials for job in jobs]
        stacked = [StackedJob(job.world, job.chances, cap) for job, cap in zip(jobs, caps, strict=True)]
        return [
            run.after(scenario.before) for run in simulate_side_by_side(plan, stacked, scenario.served, scenario.seed)
        ]


def _split_evenly(numbers: Sequence[int], most: int) -> list[list[int]]:
    """Parts of about the same size, each of at most `most`."""
    parts = math.ceil(len(numbers) / most)
    ends = [len(numbers) * part // parts for part in range(parts + 1)]
    return [list(numbers[begin:end]) for begin, end in pairwise(ends)]


_here: list[_Worker] = []
"""The worker of another process."""


def _begin(scenario: Scenario) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the process that shows the progress
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # a copy has its parent's handlers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _here.append(_Worker(scenario))


def _end_with_parent() -> None:
    """End when the parent dies: a killed parent sends no message, and its queue stays open while others wait at it."""
    parent = parent_process()
    if parent is not None:
        wait_for_any([parent.sentinel])
        os._exit(1)


def _be_there() -> None:
    """Do nothing: a job that starts the processes."""


def _simulate(jobs: Sequence[SimulationJob]) -> list[SimulatedRun]:
    return _here[0].simulate(jobs)
