"""How far scores are off in the mean where a run ends early: of rankings, and of the search for the best.

A run ends when a difference looks large, or too small to be decided: so the mean over many runs of a score is not the
truth. Of each model that is the mean of its error over the runs; told is the largest over the models. With few runs
that is mostly chance: the largest of a dozen means, each with a standard error, is about two of these where nothing is
off at all. So there are many runs, and beside it stands what chance alone makes of it, by runs in which each error has
either sign. "At the first look" is the score after the trials that every run has, which no stopping can change: it is
not off, and spreads as its standard deviation says.

    python benchmarks/bias.py [--quick] [--runs 1000] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scenarios import Scenario, recorded, simulated
from tables import Check, add_data, arguments, conclude, markdown

from adaptive_eval.core import Best, Controller, Trials
from adaptive_eval.core.objectives import Objective, Ranking
from adaptive_eval.core.policies import Leader, Policy, Weighted
from adaptive_eval.study.drive import DrawnRound

HEADER = (
    "set", "asked for", "largest bias, points", "by chance alone", "its model's standard error",
    "sd of a score, points", "at the first look: largest bias", "its sd",
)  # fmt: skip
GOALS = {"ranking": 0.2, "best": 0.3}
FLIPS = 200
FloatArray = NDArray[np.float64]


class Errors(NamedTuple):
    """(runs, L): of the scores, in points."""

    ended: FloatArray
    first: FloatArray


def errors(scenario: Scenario, objective: Objective, policy: Policy, runs: int) -> Errors:
    """Those of so many whole runs, and those at their first looks."""
    plan = scenario.plan(trials=Trials(4, scenario.cap), objective=objective, policy=policy)
    truth, ended, first = scenario.world.truth, [], []
    for seed in range(runs):
        controller, tape = Controller(plan, keep_looks=False), scenario.tape(seed)
        at_first: FloatArray | None = None
        while controller.finished is None:
            for asked in controller.ask_rounds():
                controller.tell_round(asked, DrawnRound.of(asked, tape, len(scenario.world.w)).counts)
            assert controller.standing is not None
            if at_first is None:
                at_first = controller.standing.estimates.score
        assert controller.standing is not None and at_first is not None
        ended.append(100.0 * (controller.standing.estimates.score - truth))
        first.append(100.0 * (at_first - truth))
    return Errors(np.array(ended), np.array(first))


def largest(of: FloatArray) -> float:
    """The mean error that is furthest from 0, of any model."""
    return float(np.abs(of.mean(axis=0)).max())


def by_chance(of: FloatArray) -> float:
    """What it is on average where each run's errors about their means have either sign."""
    rng, rest = np.random.default_rng(1), of - of.mean(axis=0)
    return float(np.mean([largest(rest * rng.choice([-1.0, 1.0], (len(of), 1))) for _ in range(FLIPS)]))


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    add_data(parser)
    options = parser.parse_args()
    runs = 60 if options.quick else options.runs
    sets = [simulated("coins"), simulated("shared_difficulty")]
    if options.data.exists():
        sets.append(recorded(options.data, "aime2024"))
    rows, checks = [], []
    for scenario in sets:
        for asked, objective, policy in (("ranking", Ranking(), Weighted()), ("best", Best(), Leader())):
            ended, first = errors(scenario, objective, policy, runs)
            bias, worst = largest(ended), int(np.abs(ended.mean(axis=0)).argmax())
            error = float(ended[:, worst].std() / np.sqrt(runs))
            rows.append((
                scenario.name, asked, f"{bias:.2f}", f"{by_chance(ended):.2f}", f"{error:.2f}",
                f"{ended.std(axis=0).mean():.2f}", f"{largest(first):.2f}", f"{first.std(axis=0).mean():.2f}",
            ))  # fmt: skip
            print(*rows[-1], flush=True)
            said = f"{scenario.name}, {asked}: largest bias, points"
            checks.append(Check(said, round(bias, 2), f"< {GOALS[asked]}", bias < GOALS[asked]))
    conclude(options, "Scores of runs that end early", __doc__.split("\n\n")[1], f"{runs} seeded runs a row",
             markdown(HEADER, rows), checks)  # fmt: skip


if __name__ == "__main__":
    main()
