"""Simulated runs on all cores: results in the order of the jobs, the same whatever the number of processes."""

import os
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from types import TracebackType
from typing import NamedTuple

from adaptive_eval.forecast.scene import Scene
from adaptive_eval.forecast.simulated import Simulated, simulate
from adaptive_eval.forecast.variants import Variant
from scorio.moments import FloatArray

WORTH_PROCESSES = 500_000
"""Trials to be simulated from which further processes repay the second that they take to start."""


class Job(NamedTuple):
    """One run to be simulated."""

    world: int
    chances: FloatArray
    variant: Variant


class Crew:
    """Does jobs, in processes of its own where that is worth it; a context that ends them."""

    def __init__(self, scene: Scene, trials: float) -> None:
        processes = (os.cpu_count() or 1) if trials >= WORTH_PROCESSES else 1
        self._worker = _Worker(scene)
        self._pool = None
        if processes > 1:
            # spawned, not forked: the caller may have threads
            context = get_context("spawn")
            self._pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(scene,))

    def __enter__(self) -> "Crew":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def simulate(self, jobs: Iterable[Job]) -> Iterator[Simulated]:
        """The simulated runs in the order of the jobs."""
        if self._pool is None:
            return map(self._worker.do, jobs)
        return self._pool.map(_do, jobs)


class _Worker:
    """Does jobs one after the other, and keeps the plans, which are the same for every world."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._plan = lru_cache(maxsize=None)(scene.plan)

    def do(self, job: Job) -> Simulated:
        scene = self._scene
        return simulate(self._plan(job.variant), job.chances, scene.served, (scene.seed, job.world))


_here: list[_Worker] = []
"""The worker of a spawned process."""


def _begin(scene: Scene) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that shows the progress
    _here.append(_Worker(scene))


def _do(job: Job) -> Simulated:
    return _here[0].do(job)
