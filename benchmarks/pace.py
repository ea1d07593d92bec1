"""Endpoint idle time: how full servers are kept, and what it costs in trials, over growth and lookahead.

A round is issued whole and judged when its last answer has come, so with few questions a server idles while the last
answers are awaited. Rounds can grow, and further rounds can run ahead of the look; both issue trials that the look
would have spared. Simulated clock: 64 slots a model, log-normal answers of 30 s on average that take twice as long
when wrong; the same answers and times at every pace.

    python benchmarks/pace.py [--quick] [--runs 24] [--json PATH] [--markdown PATH] [--figure PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scatter import Panel, Series, scatter
from scenarios import Scenario, recorded, simulated
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.config.decisions import AllocationConfig, TrialsConfig
from adaptive_eval.config.pace import pace_of
from adaptive_eval.core import Controller, Look, Pace, Plan
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.rules import ZScore
from adaptive_eval.study.judged import judge_replay, open_models, slot_use
from adaptive_eval.study.timed import AnswerTimes, drive_in_time, latency_of_mean

SLOTS, MEAN_SECONDS = 64, 30.0
GROWTHS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
LOOKAHEADS = (0, 1, 2, 3)
DEEPER = (4, 5, 6, 8, 10, 12)
QUICK = (Pace(), Pace(0.0, 2), Pace(0.0, 12), Pace(0.1, 0), Pace(0.1, 1), Pace(0.3, 2))
HEADER = (
    "set", "growth", "lookahead", "slowest busy", "all open busy", "cost", "above plain", "too late", "minutes",
    "looks", "called", "wrong",
)  # fmt: skip

EXPLAINED = """\
*slowest busy*: of the open model whose answers take longest, for which all others wait; *all open busy*: of all models
that are still compared. *cost* is a share of the fixed N; *above plain* compares with growth 0 and lookahead 0;
*too late* are the trials that were in flight when a look closed the last comparison of their model."""


class Paced(NamedTuple):
    """One replay at one pace."""

    slowest: float
    open: float
    cost: float
    late: float
    """Trials of a model that came after a look had closed its last comparison, as a share of the fixed cost."""
    minutes: float
    looks: float
    called: float
    wrong: float


class Row(NamedTuple):
    """The mean over seeded runs at one pace."""

    pace: Pace
    mean: Paced


def replay(job: tuple[Scenario, Plan, int]) -> Paced:
    """One seeded replay."""
    scenario, plan, seed = job
    world = scenario.world
    latency = latency_of_mean(MEAN_SECONDS, world.p, world.w)
    models, questions, _ = world.p.shape
    times = AnswerTimes(latency, (models, questions), world.w, np.random.default_rng([seed, 1]))
    controller = Controller(plan)
    timeline = drive_in_time(controller, scenario.tape(seed), times, SLOTS)
    found, use = judge_replay(seed, controller, world.truth, timeline), slot_use(timeline, controller.looks)
    late = too_late(controller.looks) / (models * questions * plan.trials.max)
    return Paced(use.slowest, use.open, found.cost, late, found.minutes, found.looks, found.called, found.wrong > 0)


def too_late(looks: Sequence[Look]) -> int:
    """Trials that were in flight when a look closed the last comparison of their model."""
    came = np.diff([look.trials for look in looks], axis=0, prepend=0)
    return int(came[~open_models(looks)].sum())


class Bench:
    """Replays on all cores."""

    def __init__(self, runs: int, pool: ProcessPoolExecutor) -> None:
        self.runs, self.pool = runs, pool

    def mean(self, scenario: Scenario, **choices: Any) -> Paced:
        plan = scenario.plan(**choices)
        jobs = [(scenario, plan, seed) for seed in range(self.runs)]
        return Paced(*np.mean(list(self.pool.map(replay, jobs, chunksize=4)), axis=0).tolist())

    def row(self, scenario: Scenario, pace: Pace) -> Row:
        start = time.perf_counter()
        row = Row(pace, self.mean(scenario, pace=pace))
        print(f"{scenario.name:10s} growth {pace.growth:4.2f} lookahead {pace.lookahead:2d}  cost {row.mean.cost:.3f}  "
              f"busy {row.mean.slowest:.3f}  {time.perf_counter() - start:3.0f} s", flush=True)  # fmt: skip
        return row

    def fixed(self, scenario: Scenario) -> Paced:
        """Everyone's maximum issued at once, and one look."""
        never = {"rule": ZScore(1e9), "judging": Judging(futility=None), "policy": Uniform()}
        return self.mean(scenario, pace=Pace(lookahead=scenario.cap), **never)


def knee(rows: Sequence[Row], end: Row) -> Row:
    """Of the paces from the plain one to `end`, that with the least sum of cost and time, as shares of their ranges."""
    plain = rows[0].mean

    def lost(row: Row) -> float:
        dearer = (row.mean.cost - plain.cost) / (end.mean.cost - plain.cost)
        slower = (row.mean.minutes - end.mean.minutes) / (plain.minutes - end.mean.minutes)
        return dearer + slower

    return min((row for row in rows if row.pace.lookahead <= end.pace.lookahead), key=lost)


def dominated(row: Row, rows: Sequence[Row]) -> bool:
    """Whether another pace costs less and takes less time."""
    return any(other.mean.cost < row.mean.cost and other.mean.minutes < row.mean.minutes for other in rows)


def favoured(favour: str, scenario: Scenario) -> Pace:
    """The pace that a configuration means."""
    trials = TrialsConfig(max=scenario.cap, favour=favour)  # type: ignore[arg-type]
    return pace_of(AllocationConfig(), trials, scenario.world.p.shape[1])


def checks(scenario: Scenario, rows: Sequence[Row], fixed: Paced) -> Iterator[Check]:
    """What the three favours must hold on one set, and what they cost."""
    name, at = scenario.name, {row.pace: row.mean for row in rows}
    plain, middle, fast = (at[favoured(favour, scenario)] for favour in ("cost", "balanced", "time"))
    busy, times = fast.slowest, fast.minutes / fixed.minutes
    yield Check(f"{name}: busy slots of the slowest open model, favour time", round(busy, 3), ">= 0.85", busy >= 0.85)
    yield Check(f"{name}: minutes at favour time, beside a fixed N", round(times, 3), "<= 1.2", times <= 1.2)
    for favour, mean in (("balanced", middle), ("time", fast)):
        extra, speed = mean.cost - plain.cost, plain.minutes / mean.minutes
        yield Check(f"{name}: cost of favour {favour} above favour cost", round(extra, 3), "", None)
        yield Check(f"{name}: times as fast as favour cost, favour {favour}", round(speed, 3), "", None)


def frontier(scenario: Scenario, rows: Sequence[Row]) -> Iterator[Check]:
    """Where the knee lies on one set, and what growth is good for."""
    straight = [row for row in rows if row.pace.growth == 0.0]
    grown = [row for row in rows if row.pace.growth > 0.0]
    chosen, end = (favoured(favour, scenario).lookahead for favour in ("balanced", "time"))
    best = knee(straight, next(row for row in straight if row.pace.lookahead == end)).pace.lookahead
    goal = f"{chosen} +- 1 (favour balanced)"
    yield Check(f"{scenario.name}: lookahead at the knee", best, goal, abs(best - chosen) <= 1)
    worse = f"{sum(dominated(row, straight) for row in grown)} of {len(grown)}"
    yield Check(f"{scenario.name}: growing paces that one without growth beats in both", worse, "", None)


def table(sets: Sequence[tuple[Scenario, Sequence[Row], Paced]]) -> str:
    """All rows; the reference of a fixed N comes last in each set."""
    cells: list[tuple[object, ...]] = []
    for scenario, rows, fixed in sets:
        plain = rows[0].mean.cost
        for pace, mean in rows:
            cells.append((
                scenario.name, f"{pace.growth:g}", pace.lookahead, mean.slowest, mean.open, mean.cost,
                f"{mean.cost - plain:+.3f}", mean.late, f"{mean.minutes:.1f}", f"{mean.looks:.0f}",
                f"{mean.called:.2f}", mean.wrong,
            ))  # fmt: skip
        cells.append((scenario.name, "fixed N", "", "", "", fixed.cost, "", "", f"{fixed.minutes:.1f}", "", "", ""))
    return markdown(HEADER, cells)


def figure(sets: Sequence[tuple[Scenario, Sequence[Row], Paced]]) -> str:
    """Cost over time: a line for each growth, a point for each lookahead."""
    panels = []
    for scenario, rows, fixed in sets:
        series = [
            Series(
                f"growth {growth:g}",
                tuple((row.mean.minutes, row.mean.cost) for row in rows if row.pace.growth == growth),
            )
            for growth in dict.fromkeys(row.pace.growth for row in rows)
        ]
        panels.append(Panel(scenario.name, (*series, Series("fixed N", ((fixed.minutes, fixed.cost),)))))
    return scatter(panels, "minutes", "cost, share of fixed N")


def main() -> None:
    parser = arguments("How full servers are kept, and what it costs.")
    parser.add_argument("--runs", type=int, default=24)
    add_data(parser)
    parser.add_argument("--figure", type=Path, metavar="PATH", help="draw cost over time as an SVG")
    options = parser.parse_args()
    runs = 6 if options.quick else options.runs
    paces = list(QUICK) if options.quick else [Pace(*pair) for pair in product(GROWTHS, LOOKAHEADS)]
    if not options.quick:
        paces[len(LOOKAHEADS) : len(LOOKAHEADS)] = [Pace(0.0, lookahead) for lookahead in DEEPER]
    scenarios = [recorded(options.data, "aime2024")] if options.data.exists() else []
    start = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        bench = Bench(runs, pool)
        sets = [
            (scenario, [bench.row(scenario, pace) for pace in paces], bench.fixed(scenario))
            for scenario in (*scenarios, simulated("coins"))
        ]
    found = [check for one in sets for check in checks(*one)]
    if not options.quick:
        found += [check for scenario, rows, _ in sets for check in frontier(scenario, rows)]
    text = "\n\n".join([
        "# Pace: full servers against trials spared",
        f"{runs} seeded runs a row, {SLOTS} slots a model, answers of {MEAN_SECONDS:g} s on average. "
        f"Machine: {machine()}. The whole took {(time.perf_counter() - start) / 60:.0f} minutes.",
        check_table(found),
        EXPLAINED,
        table(sets),
    ])  # fmt: skip
    publish(options, text, found)
    if options.figure:
        options.figure.write_text(figure(sets))


if __name__ == "__main__":
    main()
