"""What the allocation benchmark replays: worlds and recorded sets with known truth, and the setups run on them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.decisions import TrialsConfig
from adaptive_eval.config.pace import Optimize, make_pace
from adaptive_eval.core import Bench, Controller, Optimal, Pace, Plan, Trials
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Cost, Verdict
from adaptive_eval.simulate.worlds import WORLDS, World, binary
from adaptive_eval.study.drive import drive
from adaptive_eval.study.judged import EQUAL
from scorio.rank.order import pair_signs, tau_b

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
        rng = np.random.default_rng(seed)
        if self.counts is None:
            return Tape.from_chances(self.world.p, self.world.w, rng)
        correct, count = self.counts
        return Tape.from_counts(np.stack([count - correct, correct], axis=-1), self.world.w, rng)

    def plan(self, **choices: object) -> Plan:
        models, questions, _ = self.world.p.shape
        plan = Plan(Bench(models, questions, self.world.w))
        return replace(plan, **choices)  # type: ignore[arg-type]


def recorded(folder: Path, name: str, best: int = 12) -> Scenario:
    """The best models of a recorded set."""
    with np.load(folder / RECORDED[name]) as data:
        correct, count = data["correct"].astype(np.int64), data["count"].astype(np.int64)
    chosen = np.argsort(-(correct / count).mean(axis=1), kind="stable")[:best]
    correct, count = correct[chosen], count[chosen]
    return Scenario(name, World(name, binary(correct / count)), (correct, count), RECORDED_CAPS[name])


def simulated(name: str) -> Scenario:
    return Scenario(name, WORLDS[name]())


def paced(scenario: Scenario, optimize: Optimize, *, batched: bool = False) -> dict[str, Any]:
    """The choices of the default plan of a configuration that favours this."""
    trials = TrialsConfig(max=scenario.cap, optimize=optimize)
    return at_pace(scenario, make_pace(trials, scenario.world.p.shape[1], batched=batched))


def at_pace(scenario: Scenario, pace: Pace) -> dict[str, Any]:
    """The choices of the default plan at a pace."""
    return {
        "pace": pace,
        "trials": scenario.trials,
        "rule": Optimal(start=pace.first_round(scenario.trials.min, scenario.cap) / scenario.cap),
    }


@dataclass(frozen=True)
class Run:
    """What one replay did, judged by the truth."""

    share: float
    called: int
    wrong: int
    tied: int
    pairs_wrong: int
    pairs_false: int
    errors: NDArray[np.float64]
    covered_share: float
    tau: float
    regret: float
    looks: int
    usd: float
    reason: str


def replay(scenario: Scenario, plan: Plan, seed: int) -> Run:
    """One seeded replay. A wrong call names the worse model, or parts an exact tie."""
    controller = drive(Controller(plan), scenario.tape(seed), costs=scenario.costs)
    truth = scenario.world.truth
    standing, look, result = controller.last_look, controller.looks[-1], controller.result()
    assert standing is not None
    assert result is not None
    evidence, call = standing.evidence, standing.memory.call
    sign = np.sign(np.round(truth[evidence.first] - truth[evidence.second], 12))
    pairs = [pair for pair in look.comparisons if pair.second is not None]
    calls = [pair for pair in pairs if pair.verdict is Verdict.RESOLVED and not pair.reversed]
    wrong = sum(truth[pair.first] <= truth[pair.second] + 1e-12 for pair in calls if pair.second is not None)
    scores, sigmas = np.array(look.scores), np.array(look.sigmas)
    return Run(
        share=float(controller.trials.sum()) / (truth.size * plan.bench.questions * scenario.cap),
        called=len(calls),
        wrong=wrong,
        tied=look.count(Verdict.TIED),
        pairs_wrong=int(((call != 0) & (call != sign) & (sign != 0)).sum()),
        pairs_false=int(((call != 0) & (sign == 0)).sum()),
        errors=scores - truth,
        covered_share=float((np.abs(scores - truth) <= 1.959964 * sigmas).mean()),
        tau=float(np.nan_to_num(tau_b(pair_signs(scores), pair_signs(truth, EQUAL)))),
        regret=float(truth.max() - truth[look.order[0]]),
        looks=len(controller.looks),
        usd=result.spent.usd,
        reason=str(controller.finished),
    )
