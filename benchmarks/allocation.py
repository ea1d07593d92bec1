"""What the default rule saves, and whether it keeps its promise: replays against known truth.

Exact ties first: the cost of the other rows counts only if those hold in the same call. Recorded sets are read from
../shared/data where they are present (`--data`).

    python benchmarks/allocation.py [--quick] [--runs 400] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scenarios import RECORDED_CAPS, Scenario, recorded, simulated
from stacked import Ended, replay_stacked
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.core.anytime import Anytime
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.optimal import Optimal
from adaptive_eval.core.policies import Uniform, UnresolvedPairs
from adaptive_eval.core.rules import ZScore
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Trials
from adaptive_eval.simulate.worlds import World, binary

NEVER = Judging(futility=None)
PUBLISHED: dict[str, Any] = {
    "rule": ZScore(),
    "policy": UnresolvedPairs(),
    "prior": "uniform",
    "estimator": "bayes",
    "judging": Judging(futility=None, latch=False),
}
FIXED: dict[str, Any] = {"rule": ZScore(), "policy": Uniform(), "prior": "uniform", "judging": NEVER}
"""As usually done: everyone gets all trials, and z is looked at once, at the end."""
ANY_LOOKS = "any looks"
GOALS = {"aime2024": 0.48, "coins": 0.38, "gpqa": 0.66, "livecodebench": 0.62}
"""The cost, with at most 2% fewer calls than the boundary for any looks has."""
FEWER, PROMISE, ANY_WRONG = 0.98, 0.10, 0.05
HEADER = ("set", "setup", "cost", "called", "misordered", "tie parted", "any wrong", "coverage", "bias")
EXPLAINED = """\
Cost is the share of the trials of the fixed design (every model, every question, N = 80; for gpqa and
livecodebench 10). "Misordered" is the share of runs in which a neighbour was called in the wrong order, "tie parted"
that of runs in which exactly equal neighbours were told apart; "any wrong" has one or the other. "Any looks" is the
boundary c t^(-1/4) with four trials before the first look: which decides
where nobody knows how looks will lie, as in batches. gpqa and livecodebench are drawn without replacement from the few
trials that were recorded, so that their scores end near the truth and their intervals cover more than 95%. Two exact
ties are two copies of one model, or two models with equal scores (profiles that are unequal, or crossed)."""


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
        "anytime": {"rule": Anytime(start=start)},
        "published rule": PUBLISHED,
        "fixed N, one look": {**FIXED, "trials": Trials(min=scenario.cap, max=scenario.cap)},
    }


SPACED: dict[str, dict[str, Any]] = {
    "every round": {"rule": Optimal()},
    "any looks, never given up": {"rule": Sequential(), "judging": NEVER},
}
"""How looks lie where two exact ties are played."""


def tied_pairs() -> Iterator[Scenario]:
    """Two models of equal scores."""
    for name in ("exact_ties", "near_deterministic", "unequal_profiles"):
        scenario = simulated(name)
        world = scenario.world
        yield replace(scenario, world=replace(world, p=world.p[[0, -1]], models=()))
    rng = np.random.default_rng(5)
    few, crossed = rng.beta(0.5, 0.5, 12), rng.beta(0.5, 0.5, 40)
    for name, p in (("12 questions", [few, few]), ("crossed profiles", [crossed, crossed[::-1]])):
        yield Scenario(name, World(name, binary(np.array(p))))


def ties(runs: int, *, quick: bool) -> Iterator[tuple[Ended, Check | None]]:
    """How often two exact ties are told apart."""
    for scenario in tied_pairs():
        for spaced, choices in SPACED.items():
            if quick and spaced != "every round":
                continue
            row = replay_stacked(scenario, f"two, {spaced}", runs, **choices)
            rate = float(row.parted.mean())
            allowed = PROMISE + 2.0 * float(np.sqrt(PROMISE * (1.0 - PROMISE) / runs))
            yield (
                row,
                Check(f"{scenario.name}: ties called, {spaced}", round(rate, 3), "<= 0.1 + 2 s.e.", rate <= allowed),
            )
    yield replay_stacked(next(tied_pairs()), "two, published rule", runs, **PUBLISHED), None


def on_set(scenario: Scenario, runs: int) -> Iterator[tuple[Ended, Check | None]]:
    """The default beside others, and its goals."""
    results = {name: replay_stacked(scenario, name, runs, **choices) for name, choices in setups(scenario).items()}
    yield from ((row, None) for row in results.values())
    default, before = results["default"], results[ANY_LOOKS]
    name, calls = scenario.name, float(default.called.mean())
    fewest, wrong = FEWER * float(before.called.mean()), default.wrong
    saved = round(default.cost / before.cost, 3)
    yield default, Check(f"{name}: cost over that of any looks", saved, "< 1", saved < 1.0)
    yield default, Check(f"{name}: runs with any wrong call", round(wrong, 3), f"<= {ANY_WRONG}", wrong <= ANY_WRONG)
    if name in GOALS:
        cost = default.cost
        yield default, Check(f"{name}: cost", round(cost, 3), f"<= {GOALS[name]}", cost <= GOALS[name])
        yield default, Check(f"{name}: pairs called", round(calls, 2), f">= {fewest:.2f}", calls >= fewest)


def cells(row: Ended) -> tuple[object, ...]:
    covered = float((np.abs(row.standardised) <= 1.959964).mean())
    return (
        row.scenario.name, row.setup, row.cost, f"{row.called.mean():.2f}", float(row.misordered.mean()),
        float(row.parted.mean()), row.wrong, covered, f"{row.bias:.2f}",
    )  # fmt: skip


def main() -> None:
    parser = arguments("Replays against known truth.")
    parser.add_argument("--runs", type=int, default=400)
    add_data(parser)
    options = parser.parse_args()
    runs = 20 if options.quick else options.runs
    sets = [simulated("coins")]
    if options.data.exists():
        names = ["aime2024"] if options.quick else [*RECORDED_CAPS]
        sets = [*(recorded(options.data, name) for name in names), *sets]
    if not options.quick:
        sets += [simulated(name) for name in ("shared_difficulty", "rubric", "many_close", "exact_ties")]
    rows: dict[tuple[str, str], Ended] = {}
    checks: list[Check] = []
    for results in (ties(runs, quick=options.quick), *(on_set(scenario, runs) for scenario in sets)):
        for row, check in results:
            if (row.scenario.name, row.setup) not in rows:
                print(*cells(row), flush=True)
                rows[row.scenario.name, row.setup] = row
            checks += [] if check is None else [check]
    text = "\n\n".join([
        "# Allocation: cost and promise of the default",
        EXPLAINED,
        f"{runs} seeded runs a row; a look a round, lookahead 0. Machine: {machine()}.",
        check_table(checks),
        markdown(HEADER, [cells(row) for row in rows.values()]),
    ])  # fmt: skip
    publish(options, text, checks)


if __name__ == "__main__":
    main()
