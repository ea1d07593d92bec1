"""Wall time over HTTP: runs beside a fixed number of trials, at few, some and many requests a model at a time.

    python benchmarks/wall.py [--quick] [--runs 2] [--json PATH] [--markdown PATH]

Six of the coins, every second by its score, 30 questions, 80 trials a question at most, on a simulated server over
loopback whose answers take log-normal times, 0.2 s in the median with sigma 1. A run is a process on one core, the
server has another; runs of all kinds take turns, and a seed is that of the server's answers. The fixed design is a run
whose first look is its last. Beside them the same in simulated time, where nothing but answers takes any: where the
fixed design takes more than twice as long over HTTP, the processor is what was measured, and no goal is judged.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import exp
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from scenarios import CAP, Scenario
from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.config.decisions import AllocationConfig, TrialsConfig
from adaptive_eval.config.pace import pace_of
from adaptive_eval.core import Controller, Pace, Sequential
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.rules import ZScore
from adaptive_eval.errors import ExitCode
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import Latency, World, coins
from adaptive_eval.study.timed import AnswerTimes, drive_in_time

SECOND, MODELS = 2, 6
LATENCY = Latency(median=0.2, sigma=1.0, wrong_factor=1.0)
MEAN_SECONDS = LATENCY.median * exp(LATENCY.sigma**2 / 2)
GOALS = {16: 0.9, 43: 1.0, 256: 1.3}
"""The most times the wall time of the fixed design that a run at `favour: soon` may take, by slots a model."""
FIXED: dict[str, Any] = {"trials": {"min": CAP, "max": CAP}, "stopping": {"futility": False}}
KINDS: dict[str, dict[str, Any]] = {
    "fixed N": FIXED,
    "soon": {"trials": {"favour": "soon"}},
    "time": {"trials": {"favour": "time"}},
    "balanced": {"trials": {"favour": "balanced"}},
}
QUICK = ("fixed N", "soon")
FAVOURED = {"soon": "soon", "time": "time", "balanced": "balanced"}
"""What each is in simulated time."""
STARVED = 2.0
SIMULATED_RUNS = 20
HEADER = (
    "slots a model", "favour", "simulated, s", "simulated", "wall, s", "wall", "least", "most", "trials", "busy",
    "looks", "called", "wrong",
)  # fmt: skip
EXPLAINED = """\
*simulated*, *wall* and *trials* are shares of those of the fixed design, *least* and *most* of all seeds; *busy* is the
share of all slots in which an answer was in the making. *called* are comparisons of neighbours that were called,
*wrong* those among them that were called for a model that is not better."""


class Walled(NamedTuple):
    """One run."""

    seconds: float
    trials: int
    busy: float
    looks: int
    called: int
    wrong: int


def pinned() -> list[str]:
    """What puts a run on a core of its own, where that can be done."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return ["taskset", "-c", str(cores[0])] if len(cores) > 1 and shutil.which("taskset") else []


def every_second() -> World:
    """Coins with gaps between them, with the times of this benchmark."""
    world = coins()
    chosen = np.argsort(-world.truth, kind="stable")[::SECOND][:MODELS]
    return World(world.name, world.p[chosen], world.w, LATENCY)


async def carry_out(world: World, slots: int, choices: dict[str, Any], seed: int) -> Walled:
    """One run in a process of its own, with default settings but for the choices."""
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
                **choices,
            }
            (folder / "run.yaml").write_text(json.dumps(settings))
            command = ["-m", "adaptive_eval", "run", str(folder / "run.yaml"), "--run-dir", str(folder / "run")]
            process = await asyncio.create_subprocess_exec(
                *pinned(), sys.executable, *command, "--display", "none",
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
            _, said = await process.communicate()
        if process.returncode not in (ExitCode.REACHED, ExitCode.SPENT):
            raise RuntimeError(f"a run ended with {process.returncode}: {said.decode()}")
        return judged(world, slots, json.loads((folder / "run" / "results.json").read_text()))


def judged(world: World, slots: int, results: Any) -> Walled:
    """What came of a run, by the truth."""
    seconds, trials = float(results["run"]["active_seconds"]), sum(one["trials"] for one in results["models"])
    truth = dict(zip(world.models, world.truth.tolist(), strict=True))
    called = [pair for pair in results["pairs"] if pair["verdict"] == "resolved"]
    wrong = sum(truth[pair["better"]] <= truth[pair["worse"]] for pair in called)
    busy = trials * MEAN_SECONDS / (slots * len(world.models) * seconds)
    return Walled(seconds, trials, busy, len(results["looks"]), len(called), wrong)


Runs = dict[tuple[int, str], list[Walled]]


async def all_runs(kinds: Sequence[str], seeds: int) -> Runs:
    """One run after the other, those of all kinds in turn."""
    world, found = every_second(), Runs()
    for slots in GOALS:
        for seed in range(seeds):
            for kind in kinds:
                run = await carry_out(world, slots, KINDS[kind], seed)
                found.setdefault((slots, kind), []).append(run)
                print(slots, kind, run, file=sys.stderr, flush=True)
    return found


def simulated_seconds(world: World, slots: int, kind: str, seed: int) -> float:
    """How long the run takes where nothing but its answers takes any time."""
    if kind == "fixed N":
        never = {"rule": ZScore(1e9), "judging": Judging(futility=None), "policy": Uniform()}
        choices: dict[str, Any] = {"pace": Pace(lookahead=CAP), **never}
    else:
        trials = TrialsConfig(max=CAP, favour=FAVOURED[kind])  # type: ignore[arg-type]
        pace = pace_of(AllocationConfig(), trials, len(world.questions))
        choices = {"pace": pace, "rule": Sequential(start=max(trials.min, pace.opening) / CAP)}
    scenario = Scenario("wall", world)
    times = AnswerTimes(LATENCY, world.p.shape[:2], world.w, np.random.default_rng([seed, 1]))
    return drive_in_time(Controller(scenario.plan(**choices)), scenario.tape(seed), times, slots).seconds


def all_simulated(kinds: Iterable[str]) -> dict[tuple[int, str], float]:
    """Mean seconds, by slots and kind."""
    world = every_second()
    return {
        (slots, kind): fmean(simulated_seconds(world, slots, kind, seed) for seed in range(SIMULATED_RUNS))
        for slots in GOALS
        for kind in kinds
    }


def shares(runs: Runs, slots: int, kind: str) -> list[float]:
    """Wall times beside those of the fixed design, by seed."""
    return [one.seconds / fixed.seconds for one, fixed in zip(runs[slots, kind], runs[slots, "fixed N"], strict=True)]


Simulated = Mapping[tuple[int, str], float]


def rows(runs: Runs, simulated: Simulated) -> Iterator[tuple[object, ...]]:
    for (slots, kind), found in runs.items():
        wall = shares(runs, slots, kind)
        trials = fmean(one.trials for one in found) / fmean(one.trials for one in runs[slots, "fixed N"])
        ideal, seconds = simulated[slots, kind], fmean(one.seconds for one in found)
        yield (
            slots, kind, f"{ideal:.1f}", ideal / simulated[slots, "fixed N"], f"{seconds:.1f}", fmean(wall), min(wall),
            max(wall), trials, fmean(one.busy for one in found), f"{fmean(one.looks for one in found):.0f}",
            f"{fmean(one.called for one in found):.1f}", f"{fmean(one.wrong for one in found):.1f}",
        )  # fmt: skip


def checks(runs: Runs, simulated: Simulated) -> Iterator[Check]:
    """The goals, at `favour: soon`."""
    for slots, most in GOALS.items():
        wall = fmean(shares(runs, slots, "soon"))
        slowed = fmean(one.seconds for one in runs[slots, "fixed N"]) / simulated[slots, "fixed N"]
        name = f"{slots} slots a model, soon: wall time, beside fixed N"
        yield Check(name, round(wall, 2), f"<= {most:g}", wall <= most if slowed <= STARVED else None)
        ideal = simulated[slots, "soon"] / simulated[slots, "fixed N"]
        yield Check(f"{slots} slots a model, soon: the same in simulated time", round(ideal, 2), "", None)


def main() -> None:
    parser = arguments("Wall time over HTTP, beside a fixed number of trials.")
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    begun = time.perf_counter()
    kinds = QUICK if options.quick else tuple(KINDS)
    runs = asyncio.run(all_runs(kinds, 1 if options.quick else options.runs))
    document(options, runs, (time.perf_counter() - begun) / 60)


def document(options: argparse.Namespace, runs: Runs, minutes: float) -> None:
    """Publish what was measured."""
    simulated = all_simulated({kind for _, kind in runs})
    found = list(checks(runs, simulated))
    text = "\n\n".join([
        "# Wall: time over HTTP",
        (__doc__ or "").partition("PATH]\n")[2].strip(),
        f"{len(runs[16, 'soon'])} seeds. Machine: {machine()}. The whole took {minutes:.0f} minutes, "
        f"while {os.getloadavg()[2]:.0f} processes of all programs together wanted to run.",
        check_table(found),
        EXPLAINED,
        markdown(HEADER, rows(runs, simulated)),
    ])  # fmt: skip
    publish(options, text, found)


if __name__ == "__main__":
    main()
