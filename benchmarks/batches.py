"""What a ranking costs through batch services, which are paid by the answer and waited for at every look.

The real controller on recorded and simulated outcomes. A fixed design asks every model for the most trials; a run
through batches costs its trials at half of the list price, and one waits for it once a look. Calls are beside
those of `optimize: cost`, the default for hosted models that are asked directly.

    python benchmarks/batches.py [--quick] [--runs 100] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple, cast

import numpy as np
from scenarios import Scenario, at_pace, paced, recorded, simulated
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.config.pace import Optimize
from adaptive_eval.core import Controller, Pace
from adaptive_eval.endpoints.batching import BATCH_PRICE
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.judged import judge_replay

FAVOURS: tuple[Optimize, ...] = ("cost", "time")
ALIKE = 0.1
"""Mean calls that differ by less are as many."""
OTHERS = (
    ("share 0.5, opening 0.2", Pace(share=0.5, opening=16, fixed_round_time=True)),
    ("share 1.0, opening 0.3", Pace(share=1.0, opening=24, fixed_round_time=True)),
)
HEADER = ("set", "pace", "trials", "price at list", "price in batches", "looks", "called", "wrong")
EXPLAINED = """\
*trials* are a share of those of the fixed design, which is what a batched run costs beside a batched fixed design;
*price in batches* is beside the fixed design at list price. *called* are comparisons of neighbours that were called,
*wrong* those among them that were called for a model that is not better. One waits for a batch at every look."""


class Found(NamedTuple):
    """One replay, or the mean of several."""

    trials: float
    looks: float
    called: float
    wrong: float


class Row(NamedTuple):
    """A set at a pace."""

    set: str
    pace: str
    figures: Found

    def cells(self) -> tuple[object, ...]:
        figures = self.figures
        prices = figures.trials, BATCH_PRICE * figures.trials
        return (
            self.set,
            self.pace,
            figures.trials,
            *prices,
            f"{figures.looks:.1f}",
            f"{figures.called:.2f}",
            f"{figures.wrong:.2f}",
        )


def replay(job: tuple[Scenario, dict[str, Any], int]) -> Found:
    """One seeded replay."""
    scenario, choices, seed = job
    controller = drive_rounds(Controller(scenario.plan(**choices)), scenario.tape(seed))
    judged = judge_replay(seed, controller, scenario.world.truth)
    return Found(judged.cost, judged.looks, judged.called, judged.wrong)


def paces(scenario: Scenario) -> Iterator[tuple[str, dict[str, Any]]]:
    """The choices of a plan by what `trials.optimize` means, and in other shapes of rounds for batches."""
    for optimize in FAVOURS:
        yield f"`{optimize}`", paced(scenario, optimize)
    yield "`batches`", paced(scenario, "cost", batched=True)
    for name, pace in OTHERS:
        yield name, at_pace(scenario, pace)


def checks(rows: list[Row]) -> Iterator[Check]:
    """The goals of `batches`."""
    figures = {(row.set, row.pace): row.figures for row in rows}
    for name in dict.fromkeys(row.set for row in rows):
        batches, usual = figures[name, "`batches`"], figures[name, "`cost`"]
        at_list = BATCH_PRICE * batches.trials
        yield Check(f"{name}: price, beside fixed N at list price", round(at_list, 3), "<= 0.33", at_list <= 0.33)
        share = batches.trials
        yield Check(f"{name}: price, beside fixed N in batches", round(share, 3), "<= 0.66", share <= 0.66)
        fewest = usual.called - ALIKE
        yield Check(f"{name}: calls", round(batches.called, 2), f">= {fewest:.2f} (cost)", batches.called >= fewest)
        yield Check(f"{name}: looks", round(batches.looks, 1), "<= 12", batches.looks <= 12)


def main() -> None:
    parser = arguments("What a ranking costs through batch services.")
    parser.add_argument("--runs", type=int, default=100)
    add_data(parser)
    options = parser.parse_args()
    runs = 12 if options.quick else options.runs
    scenarios = [recorded(options.data, "aime2024")] if options.data.exists() else []
    start = time.perf_counter()
    rows: list[Row] = []
    with ProcessPoolExecutor() as pool:
        for scenario in (*scenarios, simulated("coins")):
            for name, choices in paces(scenario):
                jobs = [(scenario, choices, seed) for seed in range(runs)]
                mean = Found(*cast(list[float], np.mean(list(pool.map(replay, jobs)), axis=0).tolist()))
                rows.append(Row(scenario.name, name, mean))
                print(rows[-1], flush=True)
    results = list(checks(rows))
    text = "\n\n".join([
        "# Batches: what a ranking costs through batch services",
        f"{runs} seeded runs a row, batches at {BATCH_PRICE:g} of the list price. Machine: {machine()}. The whole took "
        f"{(time.perf_counter() - start) / 60:.0f} minutes.",
        check_table(results),
        EXPLAINED,
        markdown(HEADER, [row.cells() for row in rows]),
    ])  # fmt: skip
    publish(options, text, results)


if __name__ == "__main__":
    main()
