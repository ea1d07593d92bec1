"""Wall time over HTTP: runs beside a fixed number of trials, at few, some and many requests a model at a time.

    python benchmarks/wall.py [--quick] [--runs 3] [--json PATH] [--markdown PATH]

Six of the coins, every second by its score, 30 questions, 80 trials a question at most, on a simulated server over
loopback whose answers take log-normal times with sigma 1. Their median is 2, 4 and 8 s at 16, 43 and 256 slots a model,
so that servers, and not the processor, decide how long a run takes; shares do not depend on it. A run is a process of
its own; all runs with as many slots go beside each other, and a seed is that of the server's answers. The fixed design
is a run whose first look is its last; the default is a configuration that says nothing of its pace and has no prices.
Beside them the same in simulated time, where nothing but answers takes any, for a median of 0.2 s: where the fixed
design takes more than 1.25 times as long over HTTP as there, the processor is what was measured, and no goal is judged.
In simulated time the 12 best models of AIME'24, too, of which many are close.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import exp
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from scenarios import CAP, Scenario, recorded
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.config.decisions import AllocationConfig, TrialsConfig
from adaptive_eval.config.pace import Favour, pace_of
from adaptive_eval.core import Controller, Pace, Sequential
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.rules import ZScore
from adaptive_eval.errors import ExitCode
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import Latency, World, coins
from adaptive_eval.study.judged import judge_replay
from adaptive_eval.study.timed import AnswerTimes, drive_in_time

SECOND, MODELS = 2, 6
LATENCY = Latency(median=0.2, sigma=1.0, wrong_factor=1.0)
MEAN_OF_MEDIAN = exp(LATENCY.sigma**2 / 2)
MEDIANS = {16: 2.0, 43: 4.0, 256: 8.0}
"""Seconds of an answer over HTTP, by slots a model."""
GOALS = {16: 0.9, 43: 1.0, 256: 1.3}
"""The most times the wall time of the fixed design that a run by default may take, by slots a model."""
FIXED: dict[str, Any] = {"trials": {"min": CAP, "max": CAP}, "stopping": {"futility": False}}
DEFAULT: Favour = "soon"
"""What `trials.favour: auto` takes here; a run over HTTP that says something else is an error."""
OVER_HTTP: dict[str, dict[str, Any]] = {"fixed N": FIXED, "default": {}}
KINDS: dict[str, Favour | None] = {
    "fixed N": None,
    "default": DEFAULT,
    "time": "time",
    "balanced": "balanced",
    "cost": "cost",
}
STARVED = 1.25
SIMULATED_RUNS = 8
SET = "six coins"
IDEAL_HEADER = (
    "set", "slots a model", "favour", "seconds", "time", "trials", "in vain", "looks", "called", "wrong",
)  # fmt: skip
HEADER = (
    "slots a model", "favour", "simulated, s", "wall, s", "time", "trials", "in vain", "busy", "looks", "called",
    "wrong",
)  # fmt: skip
EXPLAINED = """\
*time* and *trials* are shares of those of the fixed design; *in vain* are those of the trials that idle slots were
asked ahead and that no round came to want, given up at the end or not; *busy* is the share of all slots in which an
answer of another one was in the making. *called* are comparisons of neighbours that were called, *wrong* those among
them that were called for a model that is not better. In simulated time:"""


class Walled(NamedTuple):
    """One run."""

    seconds: float
    trials: int
    """All that servers were asked for."""
    vain: int
    busy: float
    looks: int
    called: int
    wrong: int


def every_second() -> World:
    """Coins with gaps between them, with the times of this benchmark."""
    world = coins()
    chosen = np.argsort(-world.truth, kind="stable")[::SECOND][:MODELS]
    return World(world.name, world.p[chosen], world.w, LATENCY)


async def carry_out(world: World, slots: int, kind: str, seed: int) -> Walled:
    """One run in a process of its own, with default settings but for those of its kind."""
    world = replace(world, latency=replace(LATENCY, median=MEDIANS[slots]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in question_rows(world)))
        async with SimulatedServer(world, seed=seed) as server:
            settings = {
                "questions": "questions.jsonl",
                "models": [{"name": model, "base_url": server.base_url} for model in world.models],
                "sampling": {"temperature": 0.6, "max_tokens": 32768},
                "concurrency": slots,
                "grader": "numeric",
                **OVER_HTTP[kind],
            }
            (folder / "run.yaml").write_text(json.dumps(settings))
            command = ["-m", "adaptive_eval", "run", str(folder / "run.yaml"), "--run-dir", str(folder / "run")]
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, "--display", "none",
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
            _, said = await process.communicate()
        stored = folder / "run" / "results.json"
        results = json.loads(stored.read_text()) if stored.exists() else {"models": []}
        if process.returncode not in (ExitCode.REACHED, ExitCode.SPENT):
            why = {one["set_aside"] for one in results["models"]}
            raise RuntimeError(f"a run ended with {process.returncode}: {why or said.decode()}")
        if kind == "default" and results["decisions"]["trials"]["favour"] != DEFAULT:
            raise RuntimeError(f"the default is {results['decisions']['trials']['favour']}")
        return judged(world, slots, results)


def judged(world: World, slots: int, results: Any) -> Walled:
    """What came of a run, by the truth."""
    seconds, wanted = float(results["run"]["active_seconds"]), sum(one["trials"] for one in results["models"])
    vain = sum(row["answers"] for row in results["cost"]["beside"] if row["what"] == "unwanted")
    truth = dict(zip(world.models, world.truth.tolist(), strict=True))
    called = [pair for pair in results["pairs"] if pair["verdict"] == "resolved"]
    wrong = sum(truth[pair["better"]] <= truth[pair["worse"]] for pair in called)
    busy = wanted * MEDIANS[slots] * MEAN_OF_MEDIAN / (slots * len(world.models) * seconds)
    return Walled(seconds, wanted + vain, vain, busy, len(results["looks"]), len(called), wrong)


Runs = dict[tuple[int, str], list[Walled]]


async def all_runs(seeds: int) -> Runs:
    """Those with as many slots beside each other: they wait for answers most of the time."""
    world, found = every_second(), Runs()
    for slots in GOALS:
        jobs = list(product(OVER_HTTP, range(seeds)))
        runs = await asyncio.gather(*(carry_out(world, slots, kind, seed) for kind, seed in jobs))
        for (kind, _), run in zip(jobs, runs, strict=True):
            found.setdefault((slots, kind), []).append(run)
            print(slots, kind, run, file=sys.stderr, flush=True)
    return found


class Ideal(NamedTuple):
    """One run in simulated time, or the mean of several."""

    seconds: float
    trials: float
    """All that servers were asked for."""
    vain: float
    looks: float
    called: float
    wrong: float


def simulated(scenario: Scenario, slots: int, kind: str, seed: int) -> Ideal:
    """The run where nothing but its answers takes any time."""
    world, favour = scenario.world, KINDS[kind]
    if favour is None:
        never = {"rule": ZScore(1e9), "judging": Judging(futility=None), "policy": Uniform()}
        choices: dict[str, Any] = {"pace": Pace(lookahead=CAP), **never}
    else:
        trials = TrialsConfig(max=CAP, favour=favour)
        pace = pace_of(AllocationConfig(), trials, len(world.questions))
        choices = {"pace": pace, "rule": Sequential(start=max(trials.min, pace.opening) / CAP)}
    times = AnswerTimes(LATENCY, world.p.shape[:2], world.w, np.random.default_rng([seed, 1]))
    controller = Controller(scenario.plan(**choices))
    timeline = drive_in_time(controller, scenario.tape(seed), times, slots)
    found = judge_replay(seed, controller, world.truth)
    vain = 0 if timeline.unwanted is None else int(timeline.unwanted.sum())
    return Ideal(timeline.seconds, found.trials + vain, vain, found.looks, found.called, found.wrong)


Simulated = Mapping[tuple[str, int, str], Ideal]


def all_simulated(scenarios: Iterable[Scenario], kinds: Sequence[str], seeds: int) -> Simulated:
    """Means, by set, slots and kind."""
    found = {}
    for scenario, slots, kind in product(scenarios, GOALS, kinds):
        runs = [simulated(scenario, slots, kind, seed) for seed in range(seeds)]
        found[scenario.name, slots, kind] = Ideal(*np.mean(runs, axis=0).tolist())
        print(scenario.name, slots, kind, found[scenario.name, slots, kind], file=sys.stderr, flush=True)
    return found


def shares(runs: Runs, slots: int, kind: str) -> list[float]:
    """Wall times beside those of the fixed design, by seed."""
    return [one.seconds / fixed.seconds for one, fixed in zip(runs[slots, kind], runs[slots, "fixed N"], strict=True)]


def rows(runs: Runs, ideals: Simulated) -> Iterator[tuple[object, ...]]:
    """Over HTTP."""
    for (slots, kind), found in runs.items():
        wall, ideal = shares(runs, slots, kind), ideal_seconds(ideals, slots, kind)
        trials, vain = (
            fmean(value(one) for one in found) / fmean(one.trials for one in runs[slots, "fixed N"])
            for value in (attrgetter("trials"), attrgetter("vain"))
        )
        yield (
            slots, kind, f"{ideal:.1f}", f"{fmean(one.seconds for one in found):.1f}", fmean(wall), trials, vain,
            fmean(one.busy for one in found), f"{fmean(one.looks for one in found):.0f}",
            f"{fmean(one.called for one in found):.1f}", f"{fmean(one.wrong for one in found):.1f}",
        )  # fmt: skip


def ideal_rows(ideals: Simulated) -> Iterator[tuple[object, ...]]:
    """In simulated time."""
    for (name, slots, kind), found in ideals.items():
        fixed = ideals[name, slots, "fixed N"]
        yield (
            name, slots, kind, f"{found.seconds:.1f}", found.seconds / fixed.seconds, found.trials / fixed.trials,
            found.vain / fixed.trials, f"{found.looks:.0f}", f"{found.called:.2f}", f"{found.wrong:.2f}",
        )  # fmt: skip


def ideal_seconds(ideals: Simulated, slots: int, kind: str) -> float:
    """The simulated time, had answers taken as long as they did over HTTP."""
    return ideals[SET, slots, kind].seconds * MEDIANS[slots] / LATENCY.median


def checks(runs: Runs, ideals: Simulated) -> Iterator[Check]:
    """The goals, by default."""
    for slots, most in GOALS.items():
        ideal = ideals[SET, slots, "default"].seconds / ideals[SET, slots, "fixed N"].seconds
        name = f"{slots} slots a model, default: simulated time, beside fixed N"
        yield Check(name, round(ideal, 2), f"<= {most:g}", ideal <= most)
        wall = fmean(shares(runs, slots, "default"))
        took = fmean(one.seconds for one in runs[slots, "fixed N"]) / ideal_seconds(ideals, slots, "fixed N")
        name = f"{slots} slots a model, default: wall time over HTTP, beside fixed N"
        yield Check(name, round(wall, 2), f"<= {most:g}", None if took > STARVED else wall <= most)
        yield Check(f"{slots} slots a model, fixed N: wall time over HTTP, beside simulated", round(took, 2), "", None)


def main() -> None:
    parser = arguments("Wall time over HTTP, beside a fixed number of trials.")
    parser.add_argument("--runs", type=int, default=3)
    add_data(parser)
    options = parser.parse_args()
    begun = time.perf_counter()
    runs = asyncio.run(all_runs(1 if options.quick else options.runs))
    document(options, runs, begun)


def document(options: argparse.Namespace, runs: Runs, begun: float) -> None:
    """Simulate the same, and publish it with what was measured."""
    kinds, seeds = (tuple(OVER_HTTP), 1) if options.quick else (tuple(KINDS), SIMULATED_RUNS)
    scenarios = [Scenario(SET, every_second())]
    if options.data.exists() and not options.quick:
        scenarios.append(recorded(options.data, "aime2024"))
    ideals = all_simulated(scenarios, kinds, seeds)
    found = list(checks(runs, ideals))
    text = "\n\n".join([
        "# Wall: time over HTTP",
        (__doc__ or "").partition("PATH]\n")[2].strip(),
        f"{len(runs[16, 'default'])} seeds over HTTP, {seeds} in simulated time. Machine: {machine()}. The whole took "
        f"{(time.perf_counter() - begun) / 60:.0f} minutes, while {os.getloadavg()[2]:.0f} processes of all programs "
        "together wanted to run.",
        check_table(found),
        EXPLAINED,
        markdown(IDEAL_HEADER, ideal_rows(ideals)),
        "Over HTTP:",
        markdown(HEADER, rows(runs, ideals)),
    ])  # fmt: skip
    publish(options, text, found)


if __name__ == "__main__":
    main()
