"""The simulated runs of a forecast: a run's controller on answers drawn from a world, in world after world.

They are simulated without a cap, and within the configured budget. Worlds are added until their figures are settled
(`is_precise`), so that many models, whose costs differ little between worlds, need few.

Standard errors after n runs: for a quantile of roughly normal values sqrt(p (1 - p)/n) / phi(z_p) standard deviations,
1.71/sqrt(n) for the ends of the 80% interval; for a share sqrt(p (1 - p)/(n + 4)), with two more runs of each kind so
that a few runs that all end alike do not count as certain (Agresti and Coull 1998).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from adaptive_eval.core import Budget, Controller, Plan, Reason
from adaptive_eval.core.tape import Layers, Tape
from adaptive_eval.core.types import PairVerdict, Verdict
from adaptive_eval.exchange.recording import count_outcomes
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.judged import compared_scores, true_lead
from adaptive_eval.study.pilot import guessed_lengths
from adaptive_eval.study.scenario import TINY, Scenario, ServiceCosts, uncapped
from adaptive_eval.study.servers import SimulatedHost
from adaptive_eval.study.timed import ServiceTimes, Timeline, drive_in_time
from scorio.moments import FloatArray, IntArray

DECIDED = (Verdict.RESOLVED, Verdict.TIED)
TIME_STEPS = 1000
"""Moments of a run among which the one is found where a cap on GPU time ends it."""


class SimulatedRun(NamedTuple):
    """Cost and findings of a simulated run, including what it had before."""

    reason: str
    trials: int
    tokens: float
    usd: float
    gpu_seconds: float
    """As caps count them; nan if servers are held and it was not timed."""
    seconds: float
    """nan if it was not timed."""
    comparisons: tuple[PairVerdict, ...]
    """The objective's comparisons at the last look; none without a look."""
    gaps: tuple[float, ...]
    """The absolute true difference of each; nan if the objective does not compare."""

    @property
    def reached(self) -> bool:
        """Whether the objective was reached: every comparison is resolved or tied."""
        return self.reason == Reason.SETTLED

    @property
    def decided(self) -> int:
        """Number of comparisons that are resolved or tied."""
        return sum(comparison.verdict in DECIDED for comparison in self.comparisons)

    def within(self, budget: Budget) -> "SimulatedRun":
        """A run that ends before its first look, as far as the caps allow: its answers are simulated all at once."""
        if self.comparisons:
            return self
        used = {
            "trials": self.trials,
            "tokens": self.tokens,
            "usd": self.usd,
            "gpu_seconds": self.gpu_seconds,
            "wall_seconds": self.seconds,
            "held_gpu_seconds": self.gpu_seconds,
        }
        caps = {name: cap for name in used if (cap := getattr(budget, name)) is not None}
        share = min([1.0, *(cap / used[name] for name, cap in caps.items() if used[name] > cap)])
        return self._replace(
            trials=int(share * self.trials),
            tokens=share * self.tokens,
            usd=share * self.usd,
            gpu_seconds=share * self.gpu_seconds,
            seconds=share * self.seconds,
        )


def simulate_run(
    plan: Plan, chances: FloatArray, served: ServiceCosts, seed: Sequence[int], *, timed: bool = True
) -> SimulatedRun:
    """Run the plan in a world of these chances (L, M, K); the same seed gives the same answers under any plan.

    Its time is only computed if `timed`, or if a cap on time may end the run.
    """
    controller, tape = Controller(plan, keep_looks=False), tape_of_world(plan, chances, served, seed)
    wall, held = plan.budget.wall_seconds, plan.budget.held_gpu_seconds
    timeline = _drive(controller, tape, served, seed, timed or wall is not None or held is not None)
    assert controller.finished is not None
    look, paid = controller.latest_look(), _paid(controller.arrived, served.recorded, timeline)
    tokens, usd, gpu_seconds = served.price(paid)
    compared, means = () if look is None else look.comparisons, chances @ plan.bench.weights
    reference, compares = plan.objective.reference, plan.objective.compares
    truth = compared_scores(plan, plan.bench.mean(means), means)
    run = SimulatedRun(
        reason=str(controller.finished),
        trials=int(paid.sum()),
        tokens=tokens,
        usd=usd,
        gpu_seconds=gpu_seconds + served.held_gpu_seconds(timeline),
        seconds=nan if timeline is None else timeline.seconds,
        comparisons=compared,
        gaps=tuple(abs(true_lead(pair, truth, reference)) if compares else nan for pair in compared),
    )
    if timeline is None or held is None or run.gpu_seconds < held:
        return run
    of_requests = run.gpu_seconds - served.held_gpu_seconds(timeline)

    def used(share: float) -> float:
        return served.held_gpu_seconds(timeline, share * timeline.seconds) + share * of_requests

    share = bisect_left(range(TIME_STEPS), held, key=lambda step: used(step / TIME_STEPS)) / TIME_STEPS
    ends = replace(plan.budget, wall_seconds=share * timeline.seconds + TINY, held_gpu_seconds=None)
    run = simulate_run(replace(plan, budget=ends), chances, served, seed)
    return run._replace(reason=str(Reason.GPU_TIME), gpu_seconds=held)


def tape_of_world(plan: Plan, chances: FloatArray, served: ServiceCosts, seed: Sequence[int]) -> Tape:
    """The answers of a world."""
    weights, answers = plan.bench.weights, np.random.default_rng([*seed, 0])
    if served.recorded is None:
        return Tape.from_chances(chances, weights, answers)
    return Tape.continued(served.recorded, chances, weights, answers)


def _drive(
    controller: Controller, tape: Tape, served: ServiceCosts, seed: Sequence[int], timed: bool
) -> Timeline | None:
    """Run to the end; returns its timeline if that is needed."""
    if not timed:
        drive_rounds(controller, tape, served.costs)
        return None
    plan = controller.plan
    times = _service_times(served, plan, np.random.default_rng([*seed, 1]))
    shared = [
        SimulatedHost(
            group.models,
            served.slots[group.models[0]],
            served.swap_seconds,
            places=len(group.places),
            wake_seconds=served.wake_seconds,
        )
        for group in served.in_turn
    ]
    if served.recorded is None:
        alone = [model for model in served.launched if not any(model in group.models for group in served.in_turn)]
        shared += [SimulatedHost((model,), served.slots[model], served.swap_seconds) for model in alone]
    return drive_in_time(controller, tape, times, served.slots, shared, served.costs, recorded=served.recorded)


def _paid(told_counts: IntArray, recorded: IntArray | None, timeline: Timeline | None) -> IntArray:
    """Counts (L, K) of all recorded trials, plus those that were requested from servers.

    Without a timeline the latter are all trials in `told_counts` (L, M, K)."""
    asked = told_counts.sum(axis=1) if timeline is None else timeline.asked
    if recorded is not None:
        is_told = np.arange(recorded.shape[2]) < told_counts.sum(axis=2)[..., None]
        others = recorded if timeline is not None else np.where(is_told, -1, recorded)
        asked = asked + count_outcomes(others, told_counts.shape[-1]).sum(axis=1)
    return asked


def _service_times(served: ServiceCosts, plan: Plan, rng: np.random.Generator) -> ServiceTimes:
    """Seconds of trials, log-normal around their means. Unknown means are those of other models or arbitrary, since
    only ratios matter for the answers asked ahead."""
    spread = served.usage.log_spread[:, None]
    means, is_known = served.usage.seconds, np.isfinite(served.usage.seconds)
    guessed = (means[is_known].mean() if is_known.any() else 1.0) * guessed_lengths(plan.bench.weights)
    medians = np.where(is_known, means, guessed) * np.exp(-(spread**2) / 2.0)
    factors = Layers[float](_factors(spread, plan.bench.questions, rng))
    return lambda trials, categories: np.asarray(medians[trials.model, categories] * factors.look_up(trials))


def _factors(spread: FloatArray, questions: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Layers (L, M) of log-normal factors with median 1."""
    while True:
        yield np.exp(spread * rng.standard_normal((len(spread), questions)))


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
    timed = TIMED_WORLDS if scenario.served.usage.knows_seconds else 0

    def simulate(each: Budget, simulated: list[SimulatedRun], in_worlds: Sequence[FloatArray]) -> None:
        plan = scenario.plan(each)
        for number in range(len(simulated), len(in_worlds)):
            # answers arrive one by one where what is asked ahead depends on their times
            in_time = plan.pace.dedicated_servers or number < timed
            seed = scenario.seed, number
            simulated.append(simulate_run(plan, in_worlds[number], scenario.served, seed, timed=in_time))
            done = sum(map(len, runs.values())) + len(equal)
            watch(done / (len(worlds) * (len(runs) + is_new)), f"{done:,} simulated runs")

    for end in [stop for stop in CHECKPOINTS if stop < len(worlds)] + [len(worlds)]:
        for each, simulated in runs.items():
            simulate(each, simulated, worlds[:end])
        if all(map(is_precise, runs.values())):
            break
    if is_new:
        simulate(budget, equal, [np.broadcast_to(world[baseline], world.shape) for world in worlds[:end]])
    watch(1.0, f"{sum(map(len, runs.values())) + len(equal):,} simulated runs")
    return Simulations(runs, need, None if budget == need else budget, end, equal)
