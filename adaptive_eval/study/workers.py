"""Who does the simulations of a forecast: bundles of runs side by side, in processes where that is worth it.

Results come in the order of the jobs, the same whatever the number of processes.
"""

import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from multiprocessing import get_context
from types import TracebackType
from typing import NamedTuple

from adaptive_eval.study.simulated import (
    Scene,
    Simulated,
    StackedJob,
    Variant,
    can_be_stacked,
    simulate_run,
    simulate_side_by_side,
)
from adaptive_eval.study.stack import MOST_CELLS
from scorio.moments import FloatArray

WORTH_A_PROCESS = 2.5
"""Seconds of work that repay the one that a process takes to start."""


class SimulationJob(NamedTuple):
    """One run to be simulated."""

    world: int
    chances: FloatArray
    variant: Variant
    timed: bool = True


class SimulationWorkers:
    """Does jobs, in processes of its own where that was found to be worth it; a context that ends them."""

    def __init__(self, scene: Scene, jobs: int) -> None:
        self._scene, self._left = scene, jobs
        self._worker = _Worker(scene)
        self._pool: ProcessPoolExecutor | None = None
        self._processes = 1
        self._bundles = 0

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
        bundles = self._worker.bundled(jobs, self._processes)
        while self._pool is None and bundles:
            bundle, start = bundles.pop(0), time.process_time()
            done |= zip(bundle, self._worker.do([jobs[number] for number in bundle]), strict=True)
            another(len(bundle))
            self._left -= len(bundle)
            self._hire_if_worth_it(len(bundle), time.process_time() - start)
        if self._pool is not None:
            parts = [part for bundle in bundles for part in _parts(bundle, math.ceil(len(bundle) / self._processes))]
            done |= self._share(self._pool, jobs, parts, another)
        return [done[number] for number in range(len(jobs))]

    def _share(
        self,
        pool: ProcessPoolExecutor,
        jobs: Sequence[SimulationJob],
        bundles: Sequence[Sequence[int]],
        another: Callable[[int], None],
    ) -> dict[int, Simulated]:
        """Have bundles done by the other processes from the first on, and do them here from the last on."""
        done: dict[int, Simulated] = {}
        asked = [(bundle, pool.submit(_do, [jobs[number] for number in bundle])) for bundle in bundles]
        for bundle, theirs in reversed(asked):
            if theirs.cancel():
                done |= zip(bundle, self._worker.do([jobs[number] for number in bundle]), strict=True)
                another(len(bundle))
        for bundle, theirs in asked:
            if not theirs.cancelled():
                done |= zip(bundle, theirs.result(), strict=True)
                another(len(bundle))
        return done

    def _hire_if_worth_it(self, runs: int, seconds: float) -> None:
        """Take on processes where the bundle that was done says that the others take long; not by the very first."""
        self._bundles += 1
        if self._bundles > 1:
            processes = min(os.cpu_count() or 1, math.floor(self._left * seconds / runs / WORTH_A_PROCESS))
            if processes > 1:
                self.hire(processes)

    def hire(self, processes: int) -> None:
        """Have the jobs done by so many processes from now on, of which this is one."""
        # spawned, not forked: the caller may have threads
        context = get_context("spawn")
        self._processes = processes
        self._pool = ProcessPoolExecutor(processes - 1, context, initializer=_begin, initargs=(self._scene,))


class _Worker:
    """Does bundles of jobs one after the other, and keeps the plans, which are the same for every world."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._plan = lru_cache(maxsize=None)(scene.plan)

    def bundled(self, jobs: Sequence[SimulationJob], processes: int) -> list[list[int]]:
        """The numbers of the jobs, in bundles of those that can be simulated side by side, for so many processes."""
        bench = self._scene.bench
        room = max(MOST_CELLS // (bench.models * bench.questions), 1)
        alike: dict[Variant, list[int]] = {}
        bundles: list[list[int]] = []
        for number, job in enumerate(jobs):
            if can_be_stacked(self._plan(job.variant), self._scene.served):
                alike.setdefault(_but_its_cap(job.variant), []).append(number)
            else:
                bundles.append([number])
        for numbers in alike.values():
            bundles += _parts(numbers, min(room, math.ceil(len(numbers) / processes)))
        return bundles

    def do(self, jobs: Sequence[SimulationJob]) -> list[Simulated]:
        """The runs of a bundle."""
        scene, plan = self._scene, self._plan(jobs[0].variant)
        knows = scene.served.usage.knows_seconds
        if not can_be_stacked(plan, scene.served):
            (job,) = jobs
            return [simulate_run(plan, job.chances, scene.served, (scene.seed, job.world), timed=job.timed and knows)]
        stacked = [StackedJob(job.world, job.chances, job.variant.budget.trials, job.timed and knows) for job in jobs]
        return simulate_side_by_side(plan, stacked, scene.served, scene.seed)


def _but_its_cap(variant: Variant) -> Variant:
    """What runs side by side have in common."""
    return variant._replace(budget=replace(variant.budget, trials=None))


def _parts(numbers: Sequence[int], most: int) -> list[list[int]]:
    """In parts of at most so many, about alike."""
    parts = math.ceil(len(numbers) / most)
    ends = [len(numbers) * part // parts for part in range(parts + 1)]
    return [list(numbers[begin:end]) for begin, end in pairwise(ends)]


_here: list[_Worker] = []
"""The worker of a spawned process."""


def _begin(scene: Scene) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that shows the progress
    _here.append(_Worker(scene))


def _do(jobs: Sequence[SimulationJob]) -> list[Simulated]:
    return _here[0].do(jobs)
