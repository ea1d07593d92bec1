"""All simulated runs of a forecast: without a cap, and within the configured budget.

Worlds are added until their figures are settled (`figures_settled`), so that many models, whose costs differ little
between worlds, need few.

Standard errors after n runs: for a quantile of roughly normal values sqrt(p (1 - p)/n) / phi(z_p) standard deviations,
1.71/sqrt(n) for the ends of the 80% interval; for a share sqrt(p (1 - p)/(n + 4)), with two more runs of each kind so
that a few runs that all end alike do not count as certain (Agresti and Coull 1998).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtri

from adaptive_eval.core import Budget
from adaptive_eval.study.scenario import Scenario, uncapped
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
END_ERROR = float(np.sqrt(END * (1.0 - END)) / (np.exp(-(ndtri(END) ** 2) / 2.0) / np.sqrt(2.0 * np.pi)))


def figures_settled(runs: Sequence[SimulatedRun]) -> bool:
    """Whether the interval of trials and the chance to reach the objective are precise enough."""
    trials = np.array([run.trials for run in runs], dtype=float)
    error = END_ERROR * trials.std(ddof=1) / np.sqrt(len(trials))
    return bool(error <= KNOWN_TO * np.median(trials)) and chance_error(runs) <= CHANCE_TO


def chance_error(runs: Sequence[SimulatedRun]) -> float:
    """The standard error of the share of runs that reach the objective."""
    number = len(runs) + 4
    share = (sum(run.reached for run in runs) + 2) / number
    return float(np.sqrt(share * (1.0 - share) / number))


STOPS = (3, 10, 20, 30, 40, 60, 80)
"""Numbers of worlds after which figures are shown, the first at once."""
FIRST = 20
"""Worlds before the first check whether they are enough."""
TIMED = 20
"""Worlds with timed runs, if timing changes no trials: times vary less between worlds than trials do."""


class OnForecastProgress(Protocol):
    """Callback with the completed share, 0 to 1, and the current state; first figures are shown `at_once`."""

    def __call__(self, done: float, state: str, *, at_once: bool = False) -> None: ...


Runs = dict[Budget, list[SimulatedRun]]


@dataclass(frozen=True, slots=True, eq=False)
class Simulations:
    """Runs by budget, in the order of the worlds."""

    runs: Mapping[Budget, Sequence[SimulatedRun]]
    need: Budget
    """Without any cap that a run reaches."""
    capped: Budget | None
    """With the configured caps; None without any."""
    worlds: int
    """Number of worlds used."""
    equal: Sequence[SimulatedRun]
    """Runs of a gate as configured in the same worlds, with every model exactly as good as the baseline."""

    @property
    def configured(self) -> Budget:
        """The run as it would be."""
        return self.capped or self.need


def simulate_all(
    scenario: Scenario, worlds: Sequence[FloatArray], budget: Budget, most: int, watch: OnForecastProgress
) -> Simulations:
    """The runs of the forecast in as many of the worlds as needed.

    `budget` is the run's own, and `most` its maximum of trials a question.
    """
    need = uncapped(budget)
    first = [need] if budget == Budget() else [need, budget]
    with SimulationWorkers(scenario, min(len(worlds), 2 * FIRST) * len(first), most) as workers:
        work = _Workload(workers, worlds, _Progress(len(worlds) * len(first), watch))
        for end in [at for at in STOPS if at < len(worlds)] + [len(worlds)]:
            work.do(first, end)
            work.progress.found(work.runs[need])
            if end >= FIRST and all(figures_settled(work.runs[one]) for one in first):
                break
        margin, configured = scenario.plan(need).objective.margin, first[-1]
        alike = [] if margin is None else [np.broadcast_to(one[margin.baseline], one.shape) for one in worlds[:end]]
        work.progress.expect(len(alike))
        equal = _Workload(workers, alike, work.progress)
        equal.do([configured], len(alike))
        capped = None if configured == need else configured
        return Simulations(work.runs, need, capped, end, equal.runs[configured])


class _Workload:
    """The runs simulated so far, for each budget in the first worlds."""

    def __init__(self, workers: SimulationWorkers, worlds: Sequence[FloatArray], progress: "_Progress") -> None:
        self._workers, self._worlds = workers, worlds
        self.progress = progress
        self.runs: Runs = {}

    def do(self, budgets: Sequence[Budget], end: int) -> None:
        """Simulate the runs with these budgets in the first `end` worlds that are missing."""
        jobs = [
            SimulationJob(world, self._worlds[world], one, timed=world < TIMED)
            for one in budgets
            for world in range(len(self.runs.setdefault(one, [])), end)
        ]
        for job, run in zip(jobs, self._workers.simulate(jobs, self.progress.more), strict=True):
            self.runs[job.budget].append(run)


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
        self.more(0)

    def found(self, runs: Sequence[SimulatedRun]) -> None:
        """Show the first figures, and better ones after more worlds."""
        trials, first = range_of([run.trials for run in runs]), not self._found
        self._found = f"; trials {trials.median:,.0f} ({trials.low:,.0f} .. {trials.high:,.0f}) in {len(runs)} worlds"
        self._tell(at_once=first)
