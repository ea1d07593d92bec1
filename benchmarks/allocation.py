"""What the default rule saves, and whether it keeps its promise: replays against known truth.

    python benchmarks/allocation.py [--quick] [--runs 400] [--json PATH]

Exact ties first: the cost of the other rows counts only if those hold in the same call. Two exact ties are two copies
of one model, or two models with equal scores (profiles that are unequal, or crossed). "Any looks" is the boundary
c t^(-1/4) with four trials before the first look.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from replays import Ended, replay_all
from scenarios import Scenario, all_recorded, simulated
from tables import Check, arguments, at_least, at_most, markdown, publish, with_errors

from adaptive_eval.core.judge import Judging
from adaptive_eval.core.optimal import Optimal
from adaptive_eval.core.policies import Uniform, UnresolvedPairs
from adaptive_eval.core.rules import ZScore
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Trials
from adaptive_eval.simulate.worlds import World, binary

PUBLISHED: dict[str, Any] = {
    "rule": ZScore(),
    "policy": UnresolvedPairs(),
    "prior": "uniform",
    "estimator": "bayes",
    "judging": Judging(futility=None, latch=False),
}
FIXED: dict[str, Any] = {
    "rule": ZScore(),
    "policy": Uniform(),
    "prior": "uniform",
    "judging": Judging(futility=None),
}
"""As usually done: everyone gets all trials, and z is looked at once, at the end."""
ANY_LOOKS = "any looks"
GOALS = {"aime2024": 0.48, "coins": 0.38, "gpqa": 0.66, "livecodebench": 0.62}
"""The cost, with at most 2% fewer calls than the boundary for any looks has."""
FEWER, PROMISE, ANY_WRONG = 0.98, 0.10, 0.05
HEADER = ("set", "setup", "cost", "called", "any wrong", "coverage", "bias")


def setups(scenario: Scenario) -> dict[str, dict[str, Any]]:
    """What is played on a set, beside the default."""
    start, four = scenario.start, 4 / scenario.cap
    two: dict[str, dict[str, Any]] = {
        "default": {"rule": Optimal(start=start)},
        ANY_LOOKS: {"rule": Sequential(start=four), "trials": Trials(min=4, max=scenario.cap)},
    }
    if scenario.name not in ("aime2024", "coins"):
        return two
    return {
        **two,
        "worth 2": {"rule": Optimal(start=start, worth=2.0)},
        "worth 4": {"rule": Optimal(start=start, worth=4.0)},
        "published rule": PUBLISHED,
        "fixed N, one look": {**FIXED, "trials": Trials(min=scenario.cap, max=scenario.cap)},
    }


def tied_pairs() -> Iterator[Scenario]:
    """Two models of equal scores."""
    for name in ("exact_ties", "unequal_profiles"):
        scenario = simulated(name)
        world = scenario.world
        yield replace(scenario, world=replace(world, p=world.p[[0, -1]], models=()))
    rng = np.random.default_rng(5)
    few, crossed = rng.beta(0.5, 0.5, 12), rng.beta(0.5, 0.5, 40)
    for name, p in (("12 questions", [few, few]), ("crossed profiles", [crossed, crossed[::-1]])):
        yield Scenario(name, World(name, binary(np.array(p))))


def cells(scenario: Scenario, setup: str, row: Ended) -> tuple[object, ...]:
    return scenario.name, setup, row.cost, f"{row.called:.2f}", row.wrong, row.coverage, f"{row.bias:.2f}"


def checks_of(name: str, default: Ended, before: Ended) -> Iterator[Check]:
    """The goals of the default on a set, beside the boundary for any looks."""
    saved = default.cost / before.cost
    yield Check(f"{name}: cost over that of any looks", round(saved, 3), "< 1", saved < 1.0)
    yield at_most(f"{name}: runs with any wrong call", default.wrong, ANY_WRONG)
    if name in GOALS:
        yield at_most(f"{name}: cost", default.cost, GOALS[name])
        yield at_least(f"{name}: pairs called", default.called, FEWER * before.called)


def main() -> None:
    options = arguments(__doc__, runs=400, quick_runs=20, data=True).parse_args()
    runs, rows, checks = options.runs, list[tuple[object, ...]](), list[Check]()
    for scenario in tied_pairs():
        row = replay_all(scenario, runs, rule=Optimal())
        rows.append(cells(scenario, "two, default", row))
        checks.append(at_most(f"{scenario.name}: ties called", row.wrong, with_errors(PROMISE, runs)))
    ties = next(tied_pairs())
    rows.append(cells(ties, "two, published rule", replay_all(ties, runs, **PUBLISHED)))
    simulated_sets = ("coins",) if options.quick else ("coins", "shared_difficulty", "rubric", "many_close")
    recorded_sets = all_recorded(options.data)[: 1 if options.quick else None]
    for scenario in (*recorded_sets, *map(simulated, simulated_sets)):
        results = {name: replay_all(scenario, runs, **choices) for name, choices in setups(scenario).items()}
        rows += [cells(scenario, name, row) for name, row in results.items()]
        checks += checks_of(scenario.name, results["default"], results[ANY_LOOKS])
    publish(options, "What the default costs", f"{runs} seeded runs a row.", markdown(HEADER, rows), checks=checks)


if __name__ == "__main__":
    main()
