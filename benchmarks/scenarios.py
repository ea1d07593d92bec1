"""What benchmarks replay: worlds and recorded sets with known truth, and the plans run on them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.decisions import TrialsConfig
from adaptive_eval.config.pace import Optimize, make_pace
from adaptive_eval.core import Bench, Controller, Optimal, Plan, Trials
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Cost
from adaptive_eval.simulate.worlds import WORLDS, World, binary
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.judged import JudgedReplay, judge_replay

CAP = 80
RECORDED_CAPS = {"aime2024": CAP, "livecodebench": 10, "gpqa": 10}
"""Recorded sets, and the most trials of a question that a run may take from each."""
RECORDED = {
    "aime2024": "aime2024_counts.npz",
    "livecodebench": "livecodebench_counts.npz",
    "gpqa": "gpqa_ragged_counts.npz",
}


@dataclass(frozen=True)
class Scenario:
    """A world, or recorded counts that are drawn from without replacement; the truth is known either way."""

    name: str
    world: World
    counts: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    cap: int = CAP
    costs: tuple[Cost, ...] | None = None
    """What a trial of each model costs; None: all the same."""

    @property
    def trials(self) -> Trials:
        """Trials a question, by default."""
        return Trials(min=TrialsConfig(max=self.cap).min, max=self.cap)

    @property
    def start(self) -> float:
        """Where the first look lies, as a share of all trials."""
        return self.trials.min / self.cap

    def tape(self, seed: int) -> Tape:
        """The outcomes of a run."""
        rng = np.random.default_rng(seed)
        if self.counts is None:
            return Tape.from_chances(self.world.p, self.world.w, rng)
        correct, count = self.counts
        return Tape.from_counts(np.stack([count - correct, correct], axis=-1), self.world.w, rng)

    def plan(self, **choices: Any) -> Plan:
        """A plan with these choices, everything else by the core's defaults."""
        models, questions, _ = self.world.p.shape
        return replace(Plan(Bench(models, questions, self.world.w)), **choices)


def recorded(folder: Path, name: str, best: int = 12) -> Scenario:
    """The best models of a recorded set."""
    with np.load(folder / RECORDED[name]) as data:
        correct, count = data["correct"].astype(np.int64), data["count"].astype(np.int64)
    chosen = np.argsort(-(correct / count).mean(axis=1), kind="stable")[:best]
    correct, count = correct[chosen], count[chosen]
    return Scenario(name, World(name, binary(correct / count)), (correct, count), RECORDED_CAPS[name])


def all_recorded(folder: Path) -> list[Scenario]:
    """The best models of each recorded set; nothing where there are none."""
    return [recorded(folder, name) for name in RECORDED_CAPS] if folder.is_dir() else []


def simulated(name: str) -> Scenario:
    """A world of `adaptive_eval.simulate`."""
    return Scenario(name, WORLDS[name]())


def paced(scenario: Scenario, optimize: Optimize, *, batched: bool = False) -> dict[str, Any]:
    """The choices of the default plan of a configuration with this `trials.optimize`."""
    trials = TrialsConfig(max=scenario.cap, optimize=optimize)
    pace = make_pace(trials, scenario.world.p.shape[1], batched=batched)
    start = pace.first_round(scenario.trials.min, scenario.cap) / scenario.cap
    return {"pace": pace, "trials": scenario.trials, "rule": Optimal(start=start)}


def replay(scenario: Scenario, plan: Plan, seed: int) -> JudgedReplay:
    """One seeded replay, judged by the truth."""
    controller = drive_rounds(Controller(plan), scenario.tape(seed))
    return judge_replay(seed, controller, scenario.world.truth)
