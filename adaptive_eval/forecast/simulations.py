"""All simulated runs of a forecast: those of the run as it is configured, and those of the table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from adaptive_eval.core import Budget
from adaptive_eval.forecast.crew import Crew, Job
from adaptive_eval.forecast.scene import Scene
from adaptive_eval.forecast.simulated import Simulated
from adaptive_eval.forecast.variants import (
    BOUNDLESS,
    FACTORS,
    Variant,
    confidences,
    covers_everything,
    is_capped,
    scaled,
)
from scorio.moments import FloatArray

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
