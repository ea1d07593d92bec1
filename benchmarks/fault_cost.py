"""What faults cost in time, with default settings: the same run on a server that fails beside one that does not.

    python benchmarks/fault_cost.py [--quick] [--json PATH]

992 trials of four models, 64 requests in flight, answers of up to 32,768 tokens that take one to three seconds each,
at known times. 5% of the requests get a 500, 2% a reset in the middle, 1% never an answer; each alone, and all of them
together. All runs take place at the same time, so that whatever else the machine does slows all of them, and waiting is
nearly all that they do.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tables import Check, arguments, at_most, markdown, publish

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.report.reader import RunReader
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.faults import Faults
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import Latency, World, many_close

KINDS = {
    "no faults": Faults(),
    "5% 500": Faults(server_error=0.05),
    "2% resets": Faults(reset=0.02),
    "1% hangs": Faults(hang=0.01),
    "all of them": Faults(server_error=0.05, reset=0.02, hang=0.01),
}
MIX_GOAL, SINGLE_GOAL = 1.3, 1.2
IN_FLIGHT = 64


class Outcome(NamedTuple):
    """What came of one run."""

    trials: int
    seconds: float
    requests: Counter[str]


async def carry_out(world: World, trials: int, faults: Faults) -> Outcome:
    """One run in a process of its own, with default settings."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in question_rows(world)))
        async with SimulatedServer(world, faults=faults) as server:
            settings = {
                "questions": "questions.jsonl",
                "models": [{"name": model, "base_url": server.base_url} for model in world.models],
                "sampling": {"temperature": 0.6, "max_tokens": 32768},
                "grader": "math",
                "trials": {"min": trials, "max": trials},
                "concurrency": IN_FLIGHT // len(world.models),
            }
            (folder / "run.yaml").write_text(json.dumps(settings))
            command = ["-m", "adaptive_eval", "run", str(folder / "run.yaml"), "--run-dir", str(folder / "run")]
            began = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, "--display", "none", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            _, errors = await process.communicate()
            if process.returncode not in (ExitCode.REACHED, ExitCode.SPENT):
                raise RuntimeError(f"a run ended with {process.returncode}: {errors.decode()}")
            seconds = time.monotonic() - began
            with closing(RunReader.open(folder / "run")) as reader:
                return Outcome(reader.trial_count(), seconds, server.counts)


async def all_at_once(quick: bool) -> dict[str, Outcome]:
    """Every run, side by side."""
    world, trials = (many_close(models=2, questions=12), 4) if quick else (many_close(models=4, questions=31), 8)
    world = replace(world, latency=Latency(median=1.7, sigma=0.25, wrong_factor=1.0))
    outcomes = await asyncio.gather(*(carry_out(world, trials, faults) for faults in KINDS.values()))
    return dict(zip(KINDS, outcomes, strict=True))


def main() -> None:
    options = arguments(__doc__).parse_args()
    outcomes = asyncio.run(all_at_once(options.quick))
    checks, plain = list[Check](), outcomes["no faults"]
    for name, run in list(outcomes.items())[1:]:
        same = run.trials == plain.trials
        checks.append(Check(f"{name}: as many trials stored", run.trials, str(plain.trials), same))
        if not options.quick:
            goal = MIX_GOAL if name == "all of them" else SINGLE_GOAL
            checks.append(at_most(f"{name}: times as long", run.seconds / plain.seconds, goal, 2))
    kinds = sorted({kind for run in outcomes.values() for kind in run.requests})
    rows = [
        (name, run.trials, round(run.seconds, 1), *(run.requests[kind] for kind in kinds))
        for name, run in outcomes.items()
    ]
    about = "Requests by what the servers did with them."
    table = markdown(("faults", "trials", "seconds", *kinds), rows)
    publish(options, "What faults cost", __doc__, about, table, checks=checks)


if __name__ == "__main__":
    main()
