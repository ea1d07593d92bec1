"""What the controller saves, and whether it keeps its promise: replays against known truth.

Calibration first: the cost rows count only if the rows of exact ties, near-deterministic questions and unequal profiles
hold in the same call. Recorded sets are read from ../shared/data where they are present (`--data`).

    python benchmarks/allocation.py [--quick] [--runs 200] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from bounds import clairvoyant
from scenarios import Run, Scenario, recorded, replay, simulated
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.core.anytime import Anytime
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.objectives import Best
from adaptive_eval.core.policies import Leader, Uniform, UnresolvedPairs, Weighted
from adaptive_eval.core.rules import ExpectedLoss, Intervals, ZScore
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Budget, Pace, Trials
from adaptive_eval.core.types import Cost

NO_FUTILITY = Judging(futility=None)
PUBLISHED: dict[str, Any] = {"rule": ZScore(), "policy": UnresolvedPairs(), "prior": "uniform", "judging": NO_FUTILITY}
FIXED: dict[str, Any] = {"rule": ZScore(), "policy": Uniform(), "prior": "uniform", "judging": NO_FUTILITY}
"""As usually done: everyone gets all trials, and z is looked at once, at the end."""
HEADER = (
    "set", "setup", "cost", "called", "any wrong", "pair wrong", "tie called",
    "coverage", "bias", "tau-b", "regret", "looks",
)  # fmt: skip
EXPLAINED = """\
Cost is the share of the trials of the fixed design (every model, every question, N = 80; for gpqa and
livecodebench 10).
"Any wrong" is the share of runs in which a neighbour was called in the wrong order, or an exact tie was called; "pair
wrong" and "tie called" are rates over all pairs of models. gpqa and livecodebench are drawn without replacement from
the few trials that were recorded, so that their scores end near the truth and their intervals cover more than 95%."""


@dataclass(frozen=True)
class Row:
    """One setup on one set, over seeded runs."""

    scenario: Scenario
    setup: str
    runs: tuple[Run, ...]

    def mean(self, name: str) -> float:
        return float(np.mean([getattr(run, name) for run in self.runs]))

    def share(self, name: str) -> float:
        """The share of runs in which something happened at least once."""
        return float(np.mean([getattr(run, name) > 0 for run in self.runs]))

    def pair_rate(self, name: str, tied: bool) -> float:
        """Calls of a kind among all pairs that could have had it."""
        truth = np.round(self.scenario.world.truth, 12)
        first, second = np.triu_indices(len(truth), 1)
        possible = int(((truth[first] == truth[second]) == tied).sum())
        return self.mean(name) / possible if possible else float("nan")

    @property
    def bias(self) -> float:
        """The largest mean error of a score over the models, in points."""
        return float(100.0 * np.abs(np.mean([run.errors for run in self.runs], axis=0)).max())

    def cells(self) -> tuple[object, ...]:
        return (
            self.scenario.name, self.setup, self.mean("share"), f"{self.mean('called'):.2f}", self.share("wrong"),
            self.pair_rate("pairs_wrong", False), self.pair_rate("pairs_false", True),
            self.mean("covered_share"), f"{self.bias:.2f}", self.mean("tau"),
            f"{100 * self.mean('regret'):.2f}", f"{self.mean('looks'):.0f}",
        )  # fmt: skip


class Bench:
    """Runs rows on all cores and keeps them by set and setup."""

    def __init__(self, runs: int, pool: ProcessPoolExecutor) -> None:
        self.runs, self.pool = runs, pool
        self.rows: dict[tuple[str, str], Row] = {}

    def row(self, scenario: Scenario, setup: str, **choices: Any) -> Row:
        plan = scenario.plan(**{"trials": Trials(4, scenario.cap), **choices})
        start = time.perf_counter()
        jobs = [(scenario, plan, seed) for seed in range(self.runs)]
        row = Row(scenario, setup, tuple(self.pool.map(_replay, jobs, chunksize=5)))
        self.rows[scenario.name, setup] = row
        took = time.perf_counter() - start
        print(f"{scenario.name:20s} {setup:34s} cost {row.mean('share'):.3f}  called {row.mean('called'):5.2f}  "
              f"any wrong {row.share('wrong'):.3f}  {took:4.0f} s", flush=True)  # fmt: skip
        return row


def _replay(job: tuple[Scenario, Any, int]) -> Run:
    return replay(*job)


def upper(rate: float, promise: float, runs: int) -> bool:
    """Whether a measured rate is at or below a promise, within two binomial standard errors."""
    return rate <= promise + 2.0 * float(np.sqrt(promise * (1.0 - promise) / runs))


JUDGED: dict[str, tuple[dict[str, Any], float | None]] = {
    "sequential, self prior": ({"rule": Sequential(), "prior": "self"}, 0.10),
    "sequential, uniform prior": ({"rule": Sequential(), "prior": "uniform"}, 0.10),
    "anytime, self prior": ({"rule": Anytime(), "prior": "self"}, 0.10),
    "zscore, as published": ({"rule": ZScore(), "prior": "uniform"}, None),
}
"""Rules with their promise: calls between exact ties, two-sided."""


def calibration(bench: Bench, names: Iterable[str]) -> list[Check]:
    """Every pair judged at every look to the horizon, nothing given up: the hardest case for a promise per pair."""
    checks = []
    for name in names:
        scenario = simulated(name)
        for rule, (choices, promise) in JUDGED.items():
            setup = f"{rule}, every look to the horizon"
            row = bench.row(scenario, setup, policy=AllLooks(), judging=NO_FUTILITY, **choices)
            rate = row.pair_rate("pairs_false", True)
            holds = None if promise is None else upper(rate, promise, bench.runs)
            goal = "reported as measured" if promise is None else f"<= {promise} + 2 s.e."
            checks.append(Check(f"{name}: ties called, {setup}", round(rate, 4), goal, holds))
        rate = bench.row(scenario, "default").pair_rate("pairs_false", True)
        checks.append(
            Check(f"{name}: ties called, default", round(rate, 4), "<= 0.1 + 2 s.e.", upper(rate, 0.1, bench.runs))
        )
    return checks


@dataclass(frozen=True)
class AllLooks(Weighted):
    """The default's spread for every model until the horizon, whatever was called: for calibration alone."""

    def allocate(self, view: Any) -> Any:
        everyone = np.stack([np.arange(len(view.in_play) - 1), np.arange(1, len(view.in_play))], axis=1)
        return super().allocate(replace(view, open_pairs=everyone))


def soundness(rows: Sequence[Row]) -> list[Check]:
    """Coverage of the intervals and bias of the scores, of the default on every set."""
    checks = []
    for row in rows:
        cover, name = row.mean("covered_share"), row.scenario.name
        checks.append(
            Check(f"{name}: coverage of the 95% intervals", round(cover, 4), "0.93-0.97", 0.93 <= cover <= 0.97)
        )
        checks.append(Check(f"{name}: largest |bias|, points", round(row.bias, 3), "< 0.3", row.bias < 0.3))
    return checks


VARIANTS: dict[str, dict[str, Any]] = {
    "futility 0.15": {"judging": Judging(futility=0.15)},
    "futility 0.45": {"judging": Judging(futility=0.45)},
    "without futility": {"judging": NO_FUTILITY},
    "equal questions": {"policy": UnresolvedPairs()},
    "rule anytime": {"rule": Anytime()},
    "equal questions, uniform prior": {"policy": UnresolvedPairs(), "prior": "uniform"},
    "every model, every round": {"policy": Uniform()},
    "rule intervals": {"rule": Intervals(), "prior": "uniform"},
    "rule zscore": {"rule": ZScore()},
    "kappa 0.1": {"rule": Sequential(kappa=0.1)},
    "kappa 0.4": {"rule": Sequential(kappa=0.4)},
    "familywise holm": {"judging": Judging(familywise=True)},
    "delta 5 points": {"judging": Judging(delta=0.05)},
    "growth 0.1": {"pace": Pace(growth=0.1)},
    "lookahead 2": {"pace": Pace(lookahead=2)},
    "growth 0.1, lookahead 2": {"pace": Pace(growth=0.1, lookahead=2)},
}
"""The default, one thing changed at a time."""


def frontier(bench: Bench, scenario: Scenario, variants: Iterable[str]) -> Row:
    """Cost against pairs called: the default, its neighbours, and what each part of it adds."""
    default = bench.row(scenario, "default")
    bench.row(scenario, "published rule", **PUBLISHED)
    bench.row(scenario, "fixed N, one look", **FIXED, trials=Trials(scenario.cap, scenario.cap))
    for variant in variants:
        bench.row(scenario, variant, **VARIANTS[variant])
    return default


def goals(bench: Bench, aime: Scenario | None) -> list[Check]:
    """The figures that were set as goals."""
    checks = []
    for name, cost, called in (("aime2024", 0.54, 5.0), ("coins", 0.45, 5.9)):
        row = bench.rows.get((name, "default"))
        if row is None:
            continue
        checks += [
            Check(f"{name}: cost of the default", round(row.mean("share"), 3), f"<= {cost}", row.mean("share") <= cost),
            Check(f"{name}: pairs called", round(row.mean("called"), 2), f">= {called}", row.mean("called") >= called),
            Check(
                f"{name}: runs with a wrong call", round(row.share("wrong"), 3), "<= 0.05", row.share("wrong") <= 0.05
            ),
        ]
    if aime is not None:
        row = bench.row(aime, "best, expected loss", objective=Best(), rule=ExpectedLoss(), policy=Leader())
        cost, regret = row.mean("share"), 100.0 * row.mean("regret")
        checks += [
            Check("best of 12, AIME'24: cost", round(cost, 3), "<= 0.10", cost <= 0.10),
            Check("best of 12, AIME'24: mean regret, points", round(regret, 3), "<= 0.25", regret <= 0.25),
        ]
    ties = simulated("exact_ties")
    row = bench.row(ties, "familywise holm", judging=Judging(familywise=True))
    wrong, cost = row.share("pairs_false"), row.mean("share")
    checks += [
        Check("12 exact ties, holm: runs with any call", round(wrong, 3), "<= 0.05", upper(wrong, 0.05, bench.runs)),
        Check("12 exact ties, holm: cost", round(cost, 3), "< 0.35", cost < 0.35),
    ]
    row = bench.row(ties, "delta 5 points", judging=Judging(delta=0.05))
    tied = row.mean("tied") / 11
    checks.append(Check("12 exact ties, delta 5 points: neighbours certified", round(tied, 3), "reported", None))
    return checks


def prices(bench: Bench, aime: Scenario) -> list[Check]:
    """Every second model costs eight times as much: trials counted in USD against trials counted as all alike."""
    costs = tuple(Cost(usd=0.08 if model % 2 else 0.01) for model in range(len(aime.world.truth)))
    dear = replace(aime, costs=costs)
    alike = bench.row(dear, "prices 1:8, sizes alike")
    told = bench.row(dear, "prices 1:8, sizes by price", budget=Budget(usd=1e9))
    ratio = told.mean("usd") / alike.mean("usd")
    called = told.mean("called") - alike.mean("called")
    return [
        Check("prices 1:8: USD, sizes by price over sizes alike", round(ratio, 3), "< 1", ratio < 1.0),
        Check("prices 1:8: pairs called more", round(called, 2), "reported", None),
    ]


def main() -> None:
    parser = arguments("Replays against known truth.")
    parser.add_argument("--runs", type=int, default=200)
    add_data(parser)
    options = parser.parse_args()
    runs = 20 if options.quick else options.runs
    aime = recorded(options.data, "aime2024") if options.data.exists() else None
    start = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        bench = Bench(runs, pool)
        names = ("exact_ties",) if options.quick else ("exact_ties", "near_deterministic", "unequal_profiles")
        checks = calibration(bench, names)
        sets = [scenario for scenario in (aime, simulated("coins")) if scenario is not None]
        few = () if options.quick else tuple(VARIANTS)[:5]
        defaults = [
            frontier(bench, scenario, few if scenario is not aime or options.quick else VARIANTS) for scenario in sets
        ]
        if not options.quick:
            defaults += [
                bench.row(simulated(name), "default") for name in ("shared_difficulty", "rubric", "many_close")
            ]
            if aime is not None:
                defaults.append(bench.row(recorded(options.data, "gpqa", cap=10), "default"))
                defaults.append(bench.row(recorded(options.data, "livecodebench", cap=10), "default"))
            checks += soundness(defaults)
            checks += prices(bench, aime) if aime is not None else []
        checks += goals(bench, None if options.quick else aime)
    bounds = [(scenario.name, *clairvoyant(scenario)) for scenario in sets]
    text = "\n\n".join([
        "# Allocation: cost and promise of the controller",
        EXPLAINED,
        f"{runs} seeded runs a row, one look a round, lookahead 0 unless said. Machine: {machine()}. "
        f"The whole took {(time.perf_counter() - start) / 60:.0f} minutes.",
        check_table(checks),
        markdown(HEADER, [row.cells() for row in bench.rows.values()]),
        markdown(("set", "clairvoyant cost", "decidable pairs"), bounds),
    ])  # fmt: skip
    publish(options, text, checks)


if __name__ == "__main__":
    main()
