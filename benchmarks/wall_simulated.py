"""Wall time in simulated time, where nothing but answers takes any: what `wall` measures over HTTP, and more sets."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from hours import FIXED, SpreadTimes, factors
from scenarios import CAP, Scenario

from adaptive_eval.config.decisions import AllocationConfig, TrialsConfig
from adaptive_eval.config.pace import Favour, pace_of
from adaptive_eval.core import Controller, Pace, Sequential
from adaptive_eval.core.policies import Uniform
from adaptive_eval.simulate.worlds import Latency
from adaptive_eval.study.judged import judge_replay, open_models
from adaptive_eval.study.timed import AnswerTimes, Timeline, drive_in_time, latency_of_mean
from scorio.moments import FloatArray

LATENCY = Latency(median=0.2, sigma=1.0, wrong_factor=1.0)
BESIDE = "fixed N"
DEFAULT: Favour = "soon"
"""What `trials.favour: auto` takes where nothing has a price."""
KINDS: dict[str, Favour | None] = {
    BESIDE: None,
    "default": DEFAULT,
    "time": "time",
    "balanced": "balanced",
    "cost": "cost",
    "servers": "servers",
}
HIRED: tuple[str, ...] = (BESIDE, "default", "time", "servers")
HIRED_SLOTS, HIRED_ANSWER, HIRED_SPREADS = 64, 30.0, (1.0, 8.0)
HEADER = (
    "set", "slots a model", "answers", "favour", "seconds", "time", "held", "trials", "in vain", "looks", "called",
    "wrong",
)  # fmt: skip


class Case(NamedTuple):
    """Servers of a set."""

    scenario: Scenario
    slots: int
    spread: float | None = None
    """None: answers as over HTTP; else of 30 s on the average, twice as long when wrong, and of the slowest model so
    many times as long as of the fastest."""

    @property
    def answers(self) -> str:
        if self.spread is None:
            return f"{LATENCY.median:g} s"
        return f"{HIRED_ANSWER:g} s, " + ("alike" if self.spread == 1.0 else f"spread {self.spread:g}-fold")

    def times(self, seed: int) -> SpreadTimes:
        """How long answers take."""
        world = self.scenario.world
        models, questions, _ = world.p.shape
        latency = LATENCY if self.spread is None else latency_of_mean(HIRED_ANSWER, world.p, world.w)
        drawn = AnswerTimes(latency, (models, questions), world.w, np.random.default_rng([seed, 1]))
        return SpreadTimes(drawn, factors(models, self.spread or 1.0))


def hired(scenario: Scenario) -> Iterator[Case]:
    """Servers that are paid for by the hour."""
    return (Case(scenario, HIRED_SLOTS, spread) for spread in HIRED_SPREADS)


class Ideal(NamedTuple):
    """One run, or the mean of several."""

    seconds: float
    held: float
    """Server time, where a server is released as soon as nothing can want its model."""
    trials: float
    """All that servers were asked for."""
    vain: float
    looks: float
    called: float
    wrong: float


def simulated(case: Case, kind: str, seed: int) -> Ideal:
    """The run where nothing but its answers takes any time."""
    scenario, favour = case.scenario, KINDS[kind]
    world = scenario.world
    if favour is None:
        choices: dict[str, Any] = {"pace": Pace(lookahead=CAP), **FIXED}
    else:
        trials = TrialsConfig(max=CAP, favour=favour)
        pace = pace_of(AllocationConfig(), trials, len(world.questions))
        choices = {"pace": pace, "rule": Sequential(start=pace.first_round(trials.min, CAP) / CAP)}
    controller = Controller(scenario.plan(**choices))
    timeline = drive_in_time(controller, scenario.tape(seed), case.times(seed), case.slots)
    found = judge_replay(seed, controller, world.truth)
    vain = 0 if timeline.unwanted is None else int(timeline.unwanted.sum())
    hours = float(_held(controller, timeline).sum())
    return Ideal(timeline.seconds, hours, found.trials + vain, vain, found.looks, found.called, found.wrong)


def _held(controller: Controller, timeline: Timeline) -> FloatArray:
    """(L,): until when the server of each model is of use: a comparison of it is open, or something is to come."""
    own = np.array([served.end.max(initial=0.0) for served in timeline.served])
    if isinstance(controller.plan.policy, Uniform):  # a fixed design, whose looks decide nothing
        return own
    times = np.append(timeline.looks, timeline.seconds)
    last = [int(np.flatnonzero(column).max(initial=0)) for column in open_models(controller.looks).T]
    full = controller.trials >= controller.plan.trials.max * controller.plan.bench.questions
    return np.where(full, own, np.maximum(own, times[last]))


Simulated = Sequence[tuple[Case, Mapping[str, Ideal]]]
"""Means, by case and kind."""


def all_simulated(cases: Iterable[Case], kinds: Sequence[str], seeds: int) -> Simulated:
    """Every case at every pace."""
    found = []
    for case in cases:
        means = {}
        for kind in kinds:
            means[kind] = Ideal(*np.mean([simulated(case, kind, seed) for seed in range(seeds)], axis=0).tolist())
            print(case.scenario.name, case.slots, case.answers, kind, means[kind], file=sys.stderr, flush=True)
        found.append((case, means))
    return found


def rows(ideals: Simulated) -> Iterator[tuple[object, ...]]:
    """For people; of the fixed design, whose rule here never calls, there are no calls."""
    for case, found in ideals:
        fixed = found[BESIDE]
        for kind, one in found.items():
            calls = ("", "", "") if one is fixed else (f"{one.looks:.0f}", f"{one.called:.2f}", f"{one.wrong:.2f}")
            yield (
                case.scenario.name, case.slots, case.answers, kind, f"{one.seconds:.1f}", one.seconds / fixed.seconds,
                one.held / fixed.held, one.trials / fixed.trials, one.vain / fixed.trials, *calls,
            )  # fmt: skip
