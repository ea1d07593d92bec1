"""All simulated runs of a forecast: without a cap, and within the configured budget.

Worlds are added until their figures are settled (`is_precise`), so that many models, whose costs differ little
between worlds, need few.

Standard errors after n runs: for a quantile of roughly normal values sqrt(p (1 - p)/n) / phi(z_p) standard deviations,
1.71/sqrt(n) for the ends of the 80% interval; for a share sqrt(p (1 - p)/(n + 4)), with two more runs of each kind so
that a few runs that all end alike do not count as certain (Agresti and Coull 1998).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from adaptive_eval.core import Budget
from adaptive_eval.study.scenario import Scenario, uncapped
from adaptive_eval.study.simulated import SimulatedRun, simulate_run
from scorio.moments import FloatArray

END = 0.1
"""The quantiles at which the interval ends."""
MAX_END_ERROR = 0.10
"""Final standard error of the ends of the interval, as a share of the median."""
MAX_CHANCE_ERROR = 0.06
"""Final standard error of the chance to reach the objective."""
END_ERROR = float(np.sqrt(END * (1.0 - END)) / (np.exp(-(ndtri(END) ** 2) / 2.0) / np.sqrt(2.0 * np.pi)))


def is_precise(runs: Sequence[SimulatedRun]) -> bool:
    """Whether the interval of trials and the chance to reach the objective are precise enough."""
    trials = np.array([run.trials for run in runs], dtype=float)
    error = END_ERROR * trials.std(ddof=1) / np.sqrt(len(trials))
    return bool(error <= MAX_END_ERROR * np.median(trials)) and chance_error(runs) <= MAX_CHANCE_ERROR


def chance_error(runs: Sequence[SimulatedRun]) -> float:
    """The standard error of the share of runs that reach the objective."""
    number = len(runs) + 4
    share = (sum(run.reached for run in runs) + 2) / number
    return float(np.sqrt(share * (1.0 - share) / number))


CHECKPOINTS = (20, 30, 40, 60, 80)
"""Numbers of worlds after which it is checked whether they are enough."""
TIMED_WORLDS = 20
"""Worlds with timed runs, if timing changes no trials: times vary less between worlds than trials do."""


OnForecastProgress = Callable[[float, str], None]
"""Is told the completed share, 0 to 1, and the current state."""


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
    """Runs of a gate as configured in the same worlds, with every model exactly as good as the baseline.
    Empty without a baseline, and of a run that has answers."""

    @property
    def configured(self) -> Budget:
        """The run as it would be."""
        return self.capped or self.need


def simulate_all(
    scenario: Scenario, worlds: Sequence[FloatArray], budget: Budget, watch: OnForecastProgress
) -> Simulations:
    """The runs of the forecast, with the run's own budget and without, in as many of the worlds as needed."""
    need, equal = uncapped(budget), list[SimulatedRun]()
    runs = {each: list[SimulatedRun]() for each in (need, budget)}
    objective = scenario.plan(need).objective
    baseline = None if objective.margin is None or objective.reference is not None else objective.margin.baseline
    # of a run with answers, verdicts of other builds are there already
    is_new = baseline is not None and scenario.served.recorded is None

    def report(*, is_over: bool = False) -> None:
        done = sum(map(len, runs.values())) + len(equal)
        watch(1.0 if is_over else done / (len(worlds) * (len(runs) + is_new)), f"{done:,} simulated runs")

    def simulate(each: Budget, simulated: list[SimulatedRun], in_worlds: Sequence[FloatArray]) -> None:
        for run in _simulate(scenario, each, in_worlds, len(simulated)):
            simulated.append(run)
            report()

    for end in [stop for stop in CHECKPOINTS if stop < len(worlds)] + [len(worlds)]:
        for each, simulated in runs.items():
            simulate(each, simulated, worlds[:end])
        if all(map(is_precise, runs.values())):
            break
    if is_new:
        simulate(budget, equal, [np.broadcast_to(world[baseline], world.shape) for world in worlds[:end]])
    report(is_over=True)
    return Simulations(runs, need, None if budget == need else budget, end, equal)


def _simulate(scenario: Scenario, budget: Budget, worlds: Sequence[FloatArray], first: int) -> Iterator[SimulatedRun]:
    """The runs with this budget in the worlds from number `first` on."""
    served, plan = scenario.served, scenario.plan(budget)
    timed = TIMED_WORLDS if served.usage.knows_seconds else 0
    for number in range(first, len(worlds)):
        # answers arrive one by one where what is asked ahead depends on their times
        in_time = plan.pace.dedicated_servers or number < timed
        yield simulate_run(plan, worlds[number], served, (scenario.seed, number), timed=in_time)
