"""Wall time over HTTP of real runs at both paces beside the fixed design, and whether all that was asked is stored.

Five models within thirteen points on 30 questions, up to 80 trials, a simulated server each with so many slots. Lengths
of answers are log-normal with sigma 1, cut at 8 medians, twice as long where they are wrong; few at a time are answered
no faster. Each run is a process of its own, one at a time; the three runs of a seed get the same answers. What was
asked is counted by the servers.

    python benchmarks/wall.py [--quick] [--seeds 3] [--json PATH] [--markdown PATH]
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.core.types import Verdict
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results_file import read_results
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import COIN_CONCENTRATION, Latency, World, beta_profile, binary

MEANS = (0.50, 0.53, 0.55, 0.59, 0.63)
DESIGNS = ("fixed", "cost", "time")
GOALS = {16: 0.60, 43: 0.50, 256: 0.70}
"""Wall time of `time` as a share of that of the fixed design, by slots."""
MEDIANS = {16: 0.3, 43: 0.45, 256: 0.8}
"""Seconds: long enough for two cores to be idle for most of the time."""
HEADER = ("slots", "median, s", "design", "wall, s", "share", "asked", "asked, not stored", "calls", "CPU")
EXPLAINED = """\
*wall* is from the start of the process to its end, *share* that of the fixed design's: means over {seeds} seeds (in
brackets the least and the most). *asked* are answers that the servers were asked for, by their own count; of these *not
stored* are in no run. *calls* are comparisons of neighbours (of 4) that were called. *CPU* is the share of all cores
that the run and its servers took. {machine}; other work was done on it beside, at a load of up to {load:.0f}."""


class Ran(NamedTuple):
    """One run."""

    wall: float
    asked: int
    stored: int
    calls: int
    cpu: float


def world(median: float) -> World:
    """Models that are close to each other."""
    rng = np.random.default_rng(11)
    chances = np.array([beta_profile(mean, 30, COIN_CONCENTRATION, rng) for mean in MEANS])
    return World("close", binary(chances), latency=Latency(median, 1.0, 2.0, 8.0))


async def run(design: str, slots: int, median: float, cap: int, seed: int) -> Ran:
    """One real run against servers of its own."""
    close = world(median)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in question_rows(close)))
        async with AsyncExitStack() as exits:
            servers = {
                model: await exits.enter_async_context(SimulatedServer(close, seed=seed, max_num_seqs=slots))
                for model in close.models
            }
            settings = {
                "questions": "questions.jsonl",
                "models": [{"name": model, "base_url": server.base_url} for model, server in servers.items()],
                "grader": "math",
                "seed": seed,
                "trials": {"min": cap, "optimize": "time"} if design == "fixed" else {"optimize": design},
                "concurrency": slots,
            }
            settings["trials"] |= {"max": cap}  # type: ignore[operator]
            (folder / "run.yaml").write_text(json.dumps(settings))
            command = ("-m", "adaptive_eval", "run", str(folder / "run.yaml"), "--run-dir", str(folder / "run"))
            before, began = os.times(), time.monotonic()
            process = await asyncio.create_subprocess_exec(sys.executable, *command, "--display", "none")
            if await process.wait() not in (ExitCode.REACHED, ExitCode.SPENT):
                raise RuntimeError(f"a run ended with {process.returncode}")
            wall, after = time.monotonic() - began, os.times()
            asked = sum(server.counts["answered"] for server in servers.values())
        results = read_results(folder / "run")
        with closing(RunReader.open(folder / "run")) as reader:
            stored = reader.trial_count()
    assert results is not None
    calls = sum(pair.verdict == Verdict.RESOLVED.value for pair in results.pairs)
    cpu = sum(after[:4]) - sum(before[:4])
    return Ran(wall, asked, stored, calls, cpu / wall / (os.cpu_count() or 1))


def checks(slots: int, by_design: dict[str, list[Ran]], quick: bool) -> Iterator[Check]:
    """What was to be shown."""
    share = float(
        np.mean([ended.wall / fixed.wall for ended, fixed in zip(by_design["time"], by_design["fixed"], strict=True)])
    )
    holds = None if quick else share <= GOALS[slots]
    yield Check(f"{slots} slots: wall of `time`", round(share, 2), f"<= {GOALS[slots]:.2f}", holds)
    calls, fewest = (sum(ended.calls for ended in by_design[design]) for design in ("time", "cost"))
    yield Check(f"{slots} slots: calls of `time`", calls, f">= {fewest}, of `cost`", calls >= fewest)
    lost = sum(ended.asked - ended.stored for runs in by_design.values() for ended in runs)
    yield Check(f"{slots} slots: answers asked and not stored", lost, "0", lost == 0)


def rows(slots: int, median: float, by_design: dict[str, list[Ran]]) -> Iterator[tuple[object, ...]]:
    """A row for each design."""
    for design, ran in by_design.items():
        shares = [ended.wall / fixed.wall for ended, fixed in zip(ran, by_design["fixed"], strict=True)]
        share = f"{np.mean(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})"
        mean, lost = Ran(*np.mean(ran, axis=0).tolist()), sum(ended.asked - ended.stored for ended in ran)
        took = slots, f"{median:g}", design, f"{mean.wall:.0f}", share
        yield *took, f"{mean.asked:.0f}", lost, f"{mean.calls:.1f}", f"{mean.cpu:.0%}"


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    seeds, cap = (1, 8) if options.quick else (options.seeds, 80)
    table, results, load = list[tuple[object, ...]](), list[Check](), 0.0
    for slots, median in ((16, 0.1),) if options.quick else MEDIANS.items():
        by_design: dict[str, list[Ran]] = {design: [] for design in DESIGNS}
        for seed in range(seeds):
            for design, ran in by_design.items():
                load = max(load, os.getloadavg()[0])
                ran.append(asyncio.run(run(design, slots, median, cap, seed)))
                print(slots, seed, design, ran[-1], flush=True)
        table += rows(slots, median, by_design)
        results += checks(slots, by_design, options.quick)
    about = EXPLAINED.format(seeds=seeds, machine=f"Machine: {machine()}", load=load)
    parts = ["# Wall time over HTTP", (__doc__ or "").strip(), about, markdown(HEADER, table), check_table(results)]
    publish(options, "\n\n".join(parts), results)


if __name__ == "__main__":
    main()
