"""What faults cost in time, with default settings: the same run on a server that fails beside one that does not.

    python benchmarks/fault_cost.py [--quick] [--json PATH] [--markdown PATH]

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
from dataclasses import dataclass, replace
from pathlib import Path

from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.report.reader import RunReader
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.faults import Faults
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import Latency, World, many_close

MIX = Faults(server_error=0.05, reset=0.02, hang=0.01)
SINGLE = {
    "5% 500": Faults(server_error=0.05),
    "2% resets": Faults(reset=0.02),
    "1% hangs": Faults(hang=0.01),
}
MIX_GOAL, SINGLE_GOAL = 1.3, 1.2
IN_FLIGHT = 64


@dataclass(frozen=True)
class Size:
    """A run: its world, and trials a question."""

    world: World
    trials: int


def size_of(quick: bool) -> Size:
    world, trials = (many_close(models=2, questions=12), 4) if quick else (many_close(models=4, questions=31), 8)
    return Size(replace(world, latency=Latency(median=1.7, sigma=0.25, wrong_factor=1.0)), trials)


@dataclass(frozen=True)
class Outcome:
    """What came of one run."""

    trials: int
    seconds: float
    requests: Counter[str]


async def carry_out(size: Size, faults: Faults) -> Outcome:
    """One run in a process of its own, with default settings."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in question_rows(size.world)))
        async with SimulatedServer(size.world, faults=faults) as server:
            settings = {
                "questions": "questions.jsonl",
                "models": [{"name": model, "base_url": server.base_url} for model in size.world.models],
                "sampling": {"temperature": 0.6, "max_tokens": 32768},
                "grader": "math",
                "trials": {"min": size.trials, "max": size.trials},
                "concurrency": IN_FLIGHT // len(size.world.models),
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
    scenarios = {"no faults": Faults(), **SINGLE, "all of them": MIX}
    outcomes = await asyncio.gather(*(carry_out(size_of(quick), faults) for faults in scenarios.values()))
    return dict(zip(scenarios, outcomes, strict=True))


def checks_of(outcomes: dict[str, Outcome], quick: bool) -> list[Check]:
    """Ratios against the run without faults."""
    checks, plain = [], outcomes["no faults"]
    for name, outcome in outcomes.items():
        if name == "no faults":
            continue
        same = outcome.trials == plain.trials
        checks.append(Check(f"{name}: as many trials stored", outcome.trials, str(plain.trials), same))
        goal = MIX_GOAL if name == "all of them" else SINGLE_GOAL
        ratio = outcome.seconds / plain.seconds
        holds = None if quick else ratio <= goal
        checks.append(Check(f"{name}: times as long", round(ratio, 2), f"<= {goal}", holds))
    return checks


def show(outcomes: dict[str, Outcome], checks: list[Check]) -> str:
    """The document."""
    kinds = sorted({kind for outcome in outcomes.values() for kind in outcome.requests})
    rows = [
        (name, run.trials, round(run.seconds, 1), *(run.requests[kind] for kind in kinds))
        for name, run in outcomes.items()
    ]
    what = "requests by what the servers did with them"
    title = f"# What faults cost\n\n{(__doc__ or '').strip()}\n\nOn {machine()}; {what}."
    table = markdown(("faults", "trials", "seconds", *kinds), rows)
    return "\n\n".join([title, table, check_table(checks)]) + "\n"


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    outcomes = asyncio.run(all_at_once(options.quick))
    checks = checks_of(outcomes, options.quick)
    publish(options, show(outcomes, checks), checks)
    sys.exit(0 if all(check.holds in (True, None) for check in checks) else 1)


if __name__ == "__main__":
    main()
