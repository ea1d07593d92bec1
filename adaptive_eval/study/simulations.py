"""All simulated runs of a forecast: the configured run, and the variants of the table.

Worlds are added until their figures are settled (`figures_settled`), so that many models, whose costs differ little
between worlds, need few.

The table has the configured budget times some factors at the configured confidence, and other confidences at that
budget, in the first of the same worlds: worlds differ more than variants do within a world, so that few are enough.

Standard errors after n runs: for a quantile of roughly normal values sqrt(p (1 - p)/n) / phi(z_p) standard deviations,
1.71/sqrt(n) for the ends of the 80% interval; for a share sqrt(p (1 - p)/(n + 4)), with two more runs of each kind so
that a few runs that all end alike do not count as certain (Agresti and Coull 1998).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import ndtri

from adaptive_eval.core import Budget
from adaptive_eval.study.scenario import (
    BOUNDLESS,
    CAPS,
    FACTORS,
    Scenario,
    Variant,
    confidences,
    covers_everything,
    only_trials,
    scaled,
)
from adaptive_eval.study.simulated import SimulatedRun
from adaptive_eval.study.types import range_of
from adaptive_eval.study.workers import SimulationJob, SimulationWorkers
from scorio.moments import FloatArray

END = 0.1
"""The quantiles at which the interval ends."""
KNOWN_TO = 0.10
"""Final standard error of the ends of the interval, as a share of the median."""
CHANCE_TO = 0.06
"""Final standard error of the chance to reach the objective."""
CELL_TO = 0.10
"""The same for a cell of the table: for that chance, and for the share of decided comparisons."""
END_ERROR = float(np.sqrt(END * (1.0 - END)) / (np.exp(-(ndtri(END) ** 2) / 2.0) / np.sqrt(2.0 * np.pi)))


def figures_settled(runs: Sequence[SimulatedRun]) -> bool:
    """Whether the interval of trials and the chance to reach the objective are precise enough."""
    trials = np.array([run.trials for run in runs], dtype=float)
    error = END_ERROR * trials.std(ddof=1) / np.sqrt(len(trials))
    return bool(error <= KNOWN_TO * np.median(trials)) and chance_error(runs) <= CHANCE_TO


def cell_settled(runs: Sequence[SimulatedRun]) -> bool:
    """Whether a cell of the table is precise enough."""
    shares = [run.decided / max(len(run.comparisons), 1) for run in runs]
    return chance_error(runs) <= CELL_TO and float(np.std(shares, ddof=1)) <= CELL_TO * np.sqrt(len(shares))


def chance_error(runs: Sequence[SimulatedRun]) -> float:
    """The standard error of the share of runs that reach the objective."""
    number = len(runs) + 4
    share = (sum(run.reached for run in runs) + 2) / number
    return float(np.sqrt(share * (1.0 - share) / number))


TABLE_SHARE = 3
"""The table has this many times fewer worlds, since each cell costs as much as a forecast."""
OWN = 1.0
"""The factor of the configured budget."""
STOPS = (3, 10, 20, 30, 40, 60, 80)
"""Numbers of worlds after which figures are shown, the first at once."""
FIRST = 20
"""Worlds before the first check whether they are enough."""
TIMED = 20
"""Worlds with timed runs, if timing changes no trials: times vary less between worlds than trials do."""
TABLE_FIRST, TABLE_STEP = 10, 5


class OnForecastProgress(Protocol):
    """Callback with the completed share, 0 to 1, and the current state; first figures are shown `at_once`."""

    def __call__(self, done: float, state: str, *, at_once: bool = False) -> None: ...


Runs = dict[Variant, list[SimulatedRun]]


@dataclass(frozen=True, slots=True, eq=False)
class Simulations:
    """Runs by variant, in the order of the worlds."""

    runs: Mapping[Variant, Sequence[SimulatedRun]]
    need: Variant
    """The variant without any cap."""
    capped: Variant | None
    """The variant with the configured caps."""
    budgets: Mapping[float, Budget]
    """The table's budgets by factor: of the configured caps, or without any of the median number of trials."""
    table: Mapping[tuple[float, float], Variant]
    """The table's variants by factor and confidence."""
    worlds: int
    """Number of worlds used."""
    table_worlds: int
    equal: Sequence[SimulatedRun]
    """Runs of a gate as configured in the same worlds, with every model exactly as good as the baseline."""

    @property
    def configured(self) -> Variant:
        """The run as it would be."""
        return self.capped or self.need


def simulate_all(
    scenario: Scenario, worlds: Sequence[FloatArray], budget: Budget, most: int, watch: OnForecastProgress
) -> Simulations:
    """The runs of the forecast in as many of the worlds as needed, and those of the table in the first of them.

    `budget` is the run's own, and `most` its maximum of trials a question.
    """
    own, few = scenario.decisions.stopping.confidence, max(len(worlds) // TABLE_SHARE, 1)
    need = Variant(own, scaled(budget, BOUNDLESS))
    capped = Variant(own, budget) if any(getattr(budget, name) is not None for name in CAPS) else None
    first = [need] if capped is None else [need, capped]
    cells = len(confidences(scenario.decisions)) + len(FACTORS) - 2
    expected = len(worlds) * len(first) + few * cells
    likely = min(len(worlds), 2 * FIRST) * len(first) + min(few, TABLE_FIRST) * cells
    with SimulationWorkers(scenario, likely, most) as workers:
        work = _Workload(workers, worlds, _Progress(expected, watch))
        for end in [at for at in STOPS if at < len(worlds)] + [len(worlds)]:
            work.do(WantedRuns(first, end, timed=True))
            work.progress.found(work.runs[need])
            if end >= FIRST and all(figures_settled(work.runs[one]) for one in first):
                break
        few = min(few, end)
        median = round(float(np.median([run.trials for run in work.runs[need]])))
        budgets = _budgets(scenario, budget if capped is not None else Budget(trials=max(median, 1)), most)
        table = _table(scenario, budgets, need.budget, most)
        cells_to_fill = list(dict.fromkeys(table.values()))
        margin, configured = scenario.plan(need).objective.margin, capped or need
        alike = [] if margin is None else [np.broadcast_to(one[margin.baseline], one.shape) for one in worlds[:end]]
        work.progress.expect(few * sum(one not in work.runs for one in cells_to_fill) + len(alike))
        table_worlds = _fill_table(work, cells_to_fill, few)
        equal = _Workload(workers, alike, work.progress)
        equal.do(WantedRuns([configured], len(alike), timed=True))
        return Simulations(work.runs, need, capped, budgets, table, end, table_worlds, equal.runs[configured])


def _fill_table(work: "_Workload", cells: Sequence[Variant], few: int) -> int:
    """Simulate the cells in at most `few` of the first worlds; returns the number used."""
    done = 0
    for end in [*range(min(TABLE_FIRST, few), few, TABLE_STEP), few]:
        work.do(WantedRuns(cells, end, timed=False))
        done = end
        if end >= TABLE_FIRST and all(cell_settled(work.runs[one][:end]) for one in cells):
            break
    return done


class WantedRuns(NamedTuple):
    """Every variant in the first `end` worlds."""

    variants: Sequence[Variant]
    end: int
    timed: bool


class _Workload:
    """The runs simulated so far, for each variant in the first worlds."""

    def __init__(self, workers: SimulationWorkers, worlds: Sequence[FloatArray], progress: "_Progress") -> None:
        self._workers, self._worlds = workers, worlds
        self.progress = progress
        self.runs: Runs = {}

    def do(self, wanted: WantedRuns) -> None:
        """Simulate wanted runs that are missing."""
        missing = [
            (world, one) for one in wanted.variants for world in range(len(self.runs.setdefault(one, [])), wanted.end)
        ]
        known = [self._unhindered(world, one) for world, one in missing]
        jobs = [
            SimulationJob(world, self._worlds[world], one, wanted.timed and world < TIMED)
            for (world, one), run in zip(missing, known, strict=True)
            if run is None
        ]
        done = iter(self._workers.simulate(jobs, self.progress.more))
        for (_, one), run in zip(missing, known, strict=True):
            self.runs[one].append(next(done) if run is None else run)

    def _unhindered(self, world: int, variant: Variant) -> SimulatedRun | None:
        """The run in this world with a larger cap on trials, if that was never close, so that this run is the same."""
        cap = _cap(variant.budget)
        for other, runs in self.runs.items():
            alike = other._replace(budget=variant.budget) == variant and only_trials(other.budget)
            larger = alike and _cap(other.budget) > cap and only_trials(variant.budget)
            if larger and world < len(runs) and runs[world].unhindered <= cap:
                return runs[world]
        return None


def _cap(budget: Budget) -> float:
    """The cap on trials."""
    return np.inf if budget.trials is None else float(budget.trials)


class _Progress:
    """Counts simulated runs, and reports their figures so far."""

    def __init__(self, expected: int, watch: OnForecastProgress) -> None:
        self._expected, self._watch = expected, watch
        self._done, self._share = 0, 0.0
        self._found = ""

    def more(self, runs: int) -> None:
        """Count runs that were simulated."""
        self._done += runs
        self._share = max(self._share, min(self._done / self._expected, 1.0))
        self._tell()

    def _tell(self, *, at_once: bool = False) -> None:
        self._watch(self._share, f"{self._done:,} simulated runs{self._found}", at_once=at_once)

    def expect(self, jobs: int) -> None:
        """Set the number of jobs still to come."""
        self._expected = self._done + jobs

    def found(self, runs: Sequence[SimulatedRun]) -> None:
        """Show the first figures, and better ones after more worlds."""
        trials, first = range_of([run.trials for run in runs]), not self._found
        self._found = f"; trials {trials.median:,.0f} ({trials.low:,.0f} .. {trials.high:,.0f}) in {len(runs)} worlds"
        self._tell(at_once=first)


def _budgets(scenario: Scenario, reference: Budget, most: int) -> dict[float, Budget]:
    """The reference times each factor, up to a budget that allows the maximum of trials for every model."""
    whole = scenario.most_trials
    trials = reference.trials and min(reference.trials, whole)
    reference, found = replace(reference, trials=trials), dict[float, Budget]()
    for factor in FACTORS:
        budget = scaled(reference, factor)
        if trials is not None and budget.trials is not None and budget.trials >= whole:
            budget = replace(budget, trials=whole)
            if only_trials(budget):
                return found | {round(whole / trials, 2): budget}
        found[factor] = budget
        if factor >= OWN and covers_everything(scenario.left(budget), scenario.bench, most):
            break
    return found


def _table(
    scenario: Scenario, budgets: Mapping[float, Budget], boundless: Budget, most: int
) -> dict[tuple[float, float], Variant]:
    """The variant to simulate for each cell; a budget that restricts nothing is like none."""
    own = scenario.decisions.stopping.confidence
    cells = [(factor, own) for factor in budgets]
    cells += [(OWN, confidence) for confidence in confidences(scenario.decisions) if confidence != own]
    return {
        (factor, confidence): Variant(
            confidence,
            boundless if covers_everything(scenario.left(budgets[factor]), scenario.bench, most) else budgets[factor],
        )
        for factor, confidence in sorted(cells)
    }
