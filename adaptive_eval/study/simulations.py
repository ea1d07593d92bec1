"""All simulated runs of a forecast: those of the run as it is configured, and those of the table.

Simulated runs on all cores: results in the order of the jobs, the same whatever the number of processes.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from types import TracebackType
from typing import NamedTuple

import numpy as np

from adaptive_eval.core import Budget
from adaptive_eval.study.simulated import (
    BOUNDLESS,
    FACTORS,
    Scene,
    Simulated,
    Variant,
    confidences,
    covers_everything,
    is_capped,
    scaled,
    simulate,
)
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


TABLE_SHARE = 3
"""The table has this many times fewer worlds: each of its cells costs as much as a forecast."""

Watch = Callable[[float, str], None]
"""Told how much is done, 0 to 1, and what is being done."""


@dataclass(frozen=True, slots=True, eq=False)
class Simulations:
    """Runs by what was varied, in the order of the worlds."""

    runs: Mapping[Variant, Sequence[Simulated]]
    need: Variant
    """Without any cap."""
    capped: Variant | None
    """With the configured ones."""
    reference: Budget
    """What the table's factors are of: the configured caps, or without any the median need of trials."""
    table: Mapping[tuple[float, float], Variant]
    """By factor and confidence."""
    table_worlds: int

    @property
    def configured(self) -> Variant:
        """The run as it would be."""
        return self.capped or self.need


def simulate_all(scene: Scene, worlds: Sequence[FloatArray], budget: Budget, most: int, watch: Watch) -> Simulations:
    """The runs of the forecast in all worlds, and those of the table in the first of them.

    `budget` is the run's own, and `most` its maximum of trials a question.
    """
    own, few = scene.decisions.stopping.confidence, max(len(worlds) // TABLE_SHARE, 1)
    need = Variant(own, scaled(budget, BOUNDLESS))
    capped = Variant(own, budget) if is_capped(budget) else None
    first = [need] if capped is None else [need, capped]
    expected = len(worlds) * len(first) + few * (len(confidences(scene.decisions)) * len(FACTORS) - 1)
    bench = scene.bench
    with Crew(scene, expected * bench.models * bench.questions * most / 2.0) as crew:
        progress = _Progress(expected, watch)
        runs = _simulate(crew, first, worlds, progress)
        median = round(float(np.median([run.trials for run in runs[need]])))
        reference = budget if capped is not None else Budget(trials=max(median, 1))
        table = _table(scene, reference, need.budget, most)
        missing = [one for one in dict.fromkeys(table.values()) if one not in runs]
        runs |= _simulate(crew, missing, worlds[:few], progress)
    return Simulations(runs, need, capped, reference, table, few)


class _Progress:
    """Counts simulated runs."""

    def __init__(self, expected: int, watch: Watch) -> None:
        self._expected, self._watch = expected, watch
        self._done = 0

    def another(self) -> None:
        self._done += 1
        self._watch(min(self._done / self._expected, 1.0), f"{self._done:,} simulated runs")


def _simulate(
    crew: Crew, variants: Sequence[Variant], worlds: Sequence[FloatArray], progress: _Progress
) -> dict[Variant, list[Simulated]]:
    """Every variant in every world."""
    runs: dict[Variant, list[Simulated]] = {one: [] for one in variants}
    jobs = [Job(world, chances, one) for world, chances in enumerate(worlds) for one in variants]
    for job, run in zip(jobs, crew.simulate(jobs), strict=True):
        runs[job.variant].append(run)
        progress.another()
    return runs


def _table(scene: Scene, reference: Budget, boundless: Budget, most: int) -> dict[tuple[float, float], Variant]:
    """What is simulated for each cell; a budget that holds nothing back is like none."""
    budgets = {factor: scaled(reference, factor) for factor in FACTORS}
    return {
        (factor, confidence): Variant(confidence, boundless if covers_everything(caps, scene.bench, most) else caps)
        for factor, caps in budgets.items()
        for confidence in confidences(scene.decisions)
    }
