"""Wall time over HTTP: runs beside a fixed number of trials, at few, some and many requests a model at a time.

    python benchmarks/wall.py [--quick] [--runs 3] [--slots 16 43] [--save PATH] [--http PATH ...] [--json PATH]
        [--markdown PATH]

Six of the coins, every second by its score, 30 questions, 80 trials a question at most, on a simulated server over
loopback whose answers take log-normal times with sigma 1. Their median is 2, 4 and 8 s at 16, 43 and 256 slots a model,
so that servers, and not the processor, decide how long a run takes; shares do not depend on it. A run is a process of
its own; all runs with as many slots go beside each other, and a seed is that of the server's answers. The fixed design
is a run whose first look is its last; the default is a configuration that says nothing of its pace and has no prices.
Beside them the same in simulated time, where nothing but answers takes any, for a median of 0.2 s: where the fixed
design takes more than 1.25 times as long over HTTP as there, the processor is what was measured, and no goal is judged.
In simulated time the 12 best models of AIME'24, too, of which many are close, 12 models on the 400 questions of
LiveCodeBench, and servers that are paid for by the hour. `--slots` runs those alone over HTTP (none: `--slots` without
a number), `--save` keeps what each run came to, and `--http` takes it from there instead of running the same again.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import exp
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import wall_simulated
from scenarios import CAP, Scenario, recorded
from tables import Check, add_data, arguments, check_table, machine, markdown, publish
from wall_simulated import BESIDE, DEFAULT, HIRED, KINDS, LATENCY, Case, Ideal, Simulated, all_simulated, hired

from adaptive_eval.errors import ExitCode
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import World, coins

SECOND, MODELS = 2, 6
MEAN_OF_MEDIAN = exp(LATENCY.sigma**2 / 2)
MEDIANS = {16: 2.0, 43: 4.0, 256: 8.0}
"""Seconds of an answer over HTTP, by slots a model."""
GOALS = {16: 0.9, 43: 1.0, 256: 1.3}
"""The most times the wall time of the fixed design that a run by default may take, by slots a model."""
FIXED: dict[str, Any] = {"trials": {"min": CAP, "max": CAP}, "stopping": {"futility": False}}
OVER_HTTP: dict[str, dict[str, Any]] = {BESIDE: FIXED, "default": {}}
STARVED = 1.25
SIMULATED_RUNS = 20
MANY_SLOTS = {"aime2024": (16, 43, 64, 256), "livecodebench": (64, 256, 1024)}
"""Of recorded sets, in simulated time."""
SET = "six coins"
HEADER = (
    "slots a model", "favour", "seeds", "simulated, s", "wall, s", "time", "trials", "in vain", "busy", "looks",
    "called", "wrong",
)  # fmt: skip
EXPLAINED = """\
*time* and *trials* are shares of those of the fixed design, as is *held*, server time, where a server is released as
soon as nothing can want its model; *in vain* are those of the trials that idle slots were asked ahead and that no round
came to want, given up at the end or not; *busy* is the share of all slots in which an answer that a round wanted was in
the making. *called* are comparisons of neighbours that were called, *wrong* those among them that were called for a
model that is not better. In simulated time:"""
BY_THE_HOUR = """\
Where servers are paid for by the hour, with answers that are twice as long when wrong, and servers whose speed knows no
load (in [hours](hours.md) it does): `soon`, the default here, holds servers for less than `servers` where models are
about equally fast, and for much longer where they are not, as all models go in step; so `auto` takes `servers`."""


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


def kept(path: Path) -> Runs:
    """What an earlier call has saved."""
    found = Runs()
    for slots, kind, seed, values in sorted(json.loads(path.read_text())):
        if len(found.setdefault((slots, kind), [])) != seed:
            raise SystemExit(f"{path}: {slots} slots, {kind}: seed {seed} follows {len(found[slots, kind])} others")
        found[slots, kind].append(Walled(*values))
    return found


def keep(path: Path, runs: Runs) -> None:
    """Save it for a later call."""
    every = [(*key, seed, one) for key, found in runs.items() for seed, one in enumerate(found)]
    path.write_text(json.dumps(every) + "\n")


async def all_runs(seeds: int, every_slots: Iterable[int]) -> Runs:
    """Those with as many slots beside each other: they wait for answers most of the time."""
    world, found = every_second(), Runs()
    for slots in every_slots:
        jobs = list(product(OVER_HTTP, range(seeds)))
        runs = await asyncio.gather(*(carry_out(world, slots, kind, seed) for kind, seed in jobs))
        for (kind, _), run in zip(jobs, runs, strict=True):
            found.setdefault((slots, kind), []).append(run)
            print(slots, kind, run, file=sys.stderr, flush=True)
    return found


def shares(runs: Runs, slots: int, kind: str) -> list[float]:
    """Wall times beside those of the fixed design, by seed."""
    return [one.seconds / fixed.seconds for one, fixed in zip(runs[slots, kind], runs[slots, BESIDE], strict=True)]


def rows(runs: Runs, ideals: Simulated) -> Iterator[tuple[object, ...]]:
    """Over HTTP."""
    for (slots, kind), found in sorted(runs.items(), key=lambda one: (one[0][0], list(OVER_HTTP).index(one[0][1]))):
        wall, ideal = shares(runs, slots, kind), ideal_seconds(ideals, slots, kind)
        trials, vain = (
            fmean(value(one) for one in found) / fmean(one.trials for one in runs[slots, BESIDE])
            for value in (attrgetter("trials"), attrgetter("vain"))
        )
        yield (
            slots, kind, len(found), f"{ideal:.1f}", f"{fmean(one.seconds for one in found):.1f}", fmean(wall), trials,
            vain, fmean(one.busy for one in found), f"{fmean(one.looks for one in found):.0f}",
            f"{fmean(one.called for one in found):.1f}", f"{fmean(one.wrong for one in found):.1f}",
        )  # fmt: skip


def ideal_seconds(ideals: Simulated, slots: int, kind: str) -> float:
    """The simulated time, had answers taken as long as they did over HTTP."""
    return of_coins(ideals, slots)[kind].seconds * MEDIANS[slots] / LATENCY.median


def of_coins(ideals: Simulated, slots: int) -> Mapping[str, Ideal]:
    """What is run over HTTP as well."""
    return next(found for case, found in ideals if (case.scenario.name, case.slots) == (SET, slots))


def checks(runs: Runs, ideals: Simulated) -> Iterator[Check]:
    """The goals, by default."""
    for slots, most in GOALS.items():
        found = of_coins(ideals, slots)
        ideal = found["default"].seconds / found[BESIDE].seconds
        name = f"{slots} slots a model, default: simulated time, beside fixed N"
        yield Check(name, round(ideal, 2), f"<= {most:g}", ideal <= most)
        if (slots, "default") not in runs:
            continue
        wall = fmean(shares(runs, slots, "default"))
        took = fmean(one.seconds for one in runs[slots, BESIDE]) / ideal_seconds(ideals, slots, BESIDE)
        name = f"{slots} slots a model, default: wall time over HTTP, beside fixed N"
        yield Check(name, round(wall, 2), f"<= {most:g}", None if took > STARVED else wall <= most)
        yield Check(f"{slots} slots a model, fixed N: wall time over HTTP, beside simulated", round(took, 2), "", None)


def main() -> None:
    parser = arguments("Wall time over HTTP, beside a fixed number of trials.")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--slots", type=int, nargs="*", choices=tuple(GOALS), help="run over HTTP with these alone")
    parser.add_argument("--save", type=Path, metavar="PATH", help="keep what each run over HTTP came to")
    parser.add_argument("--http", type=Path, nargs="*", default=(), metavar="PATH", help="what earlier calls have kept")
    add_data(parser)
    options = parser.parse_args()
    runs = Runs()
    for path in options.http:
        runs |= kept(path)
    here = {slots for slots, _ in runs}
    wanted = [slots for slots in GOALS if slots not in here] if options.slots is None else options.slots
    runs |= asyncio.run(all_runs(1 if options.quick else options.runs, wanted))
    if options.save is not None:
        keep(options.save, runs)
    document(options, runs)


def document(options: argparse.Namespace, runs: Runs) -> None:
    """Simulate the same, and publish it with what was measured."""
    kinds, seeds = (tuple(OVER_HTTP), 1) if options.quick else (tuple(KINDS), SIMULATED_RUNS)
    six = Scenario(SET, every_second())
    others = []
    if options.data.exists() and not options.quick:
        others = [recorded(options.data, "aime2024"), replace(recorded(options.data, "livecodebench"), counts=None)]
    cases = [Case(six, slots) for slots in GOALS]
    cases += [Case(scenario, slots) for scenario in others for slots in MANY_SLOTS[scenario.name]]
    ideals = all_simulated(cases, kinds, seeds)
    paid = all_simulated([case for scenario in (*others[:1], six) for case in hired(scenario)], HIRED, seeds)
    found = list(checks(runs, ideals))
    text = "\n\n".join([
        "# Wall: time over HTTP",
        (__doc__ or "").partition("[--markdown PATH]\n")[2].strip(),
        f"{seeds} seeds in simulated time. Machine: {machine()}, shared with other programs.",
        check_table(found),
        EXPLAINED,
        markdown(wall_simulated.HEADER, wall_simulated.rows(ideals)),
        BY_THE_HOUR,
        markdown(wall_simulated.HEADER, wall_simulated.rows(paid)),
        "Over HTTP; *simulated* is what it took in simulated time, had answers taken as long:",
        markdown(HEADER, rows(runs, ideals)),
    ])  # fmt: skip
    publish(options, text, found)


if __name__ == "__main__":
    main()
