"""What faults cost in time, with default settings: the same run on a server that fails beside one that does not.

    python benchmarks/fault_cost.py [--quick] [--json PATH]

992 trials of four models, 64 requests in flight, answers of up to 32,768 tokens that take one to three seconds each,
at known times. 5% of the requests get a 500, 2% a reset in the middle, 1% never an answer; each alone, and all of them
together; and 1% never an answer with other `max_tokens`, streamed and in one piece. Runs that are compared take place
at the same time, so that whatever else the machine does slows all of them, and waiting is nearly all that they do.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import NamedTuple

from tables import Check, arguments, at_most, markdown, publish

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.report.reader import RunReader
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.faults import Faults
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import Latency, World, many_close


class Case(NamedTuple):
    """One run, and how many times as long as that without faults before it may take."""

    name: str
    faults: Faults
    max_tokens: int = 32768
    stream: bool = True
    goal: float = 1.3


HANGS = Faults(hang=0.01)
CASES = [
    Case("no faults", Faults()),
    Case("5% 500", Faults(server_error=0.05), goal=1.2),
    Case("2% resets", Faults(reset=0.02), goal=1.2),
    Case("1% hangs", HANGS, goal=1.2),
    *(Case(f"1% hangs, {tokens} tokens", HANGS, tokens) for tokens in (2048, 256)),
    Case("all of them", Faults(server_error=0.05, reset=0.02, hang=0.01)),
    Case("no faults, in one piece", Faults(), stream=False),
    *(Case(f"1% hangs, {tokens} tokens in one piece", HANGS, tokens, stream=False) for tokens in (32768, 2048, 256)),
]
IN_FLIGHT = 64


class Outcome(NamedTuple):
    """What came of one run."""

    trials: int
    seconds: float
    requests: Counter[str]


async def carry_out(world: World, trials: int, case: Case) -> Outcome:
    """One run in a process of its own, with default settings."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in question_rows(world)))
        async with SimulatedServer(world, faults=case.faults) as server:
            settings = {
                "questions": "questions.jsonl",
                "models": [{"name": name, "base_url": server.base_url, "stream": case.stream} for name in world.models],
                "sampling": {"temperature": 0.6, "max_tokens": case.max_tokens},
                "grader": "math",
                "trials": {"min": trials, "max": trials},
                "concurrency": IN_FLIGHT // len(world.models),
            }
            (folder / "run.yaml").write_text(json.dumps(settings))
            command = f"-m adaptive_eval run {folder}/run.yaml --run-dir {folder}/run --display none".split()
            began = time.monotonic()
            process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=DEVNULL, stderr=PIPE)
            _, errors = await process.communicate()
            if process.returncode not in (ExitCode.REACHED, ExitCode.SPENT):
                raise RuntimeError(f"a run ended with {process.returncode}: {errors.decode()}")
            seconds = time.monotonic() - began
            with closing(RunReader.open(folder / "run")) as reader:
                return Outcome(reader.trial_count(), seconds, server.counts)


async def measure(quick: bool) -> dict[Case, Outcome]:
    """Every run, beside those that it is compared with."""
    world, trials = (many_close(models=2, questions=12), 4) if quick else (many_close(models=4, questions=31), 8)
    world = replace(world, latency=Latency(median=1.7, sigma=0.25, wrong_factor=1.0))
    outcomes = dict[Case, Outcome]()
    for streamed in [True] if quick else [True, False]:
        cases = [case for case in CASES if case.stream is streamed]
        outcomes |= zip(cases, await asyncio.gather(*(carry_out(world, trials, case) for case in cases)), strict=True)
    return outcomes


def main() -> None:
    options = arguments(__doc__).parse_args()
    outcomes = asyncio.run(measure(options.quick))
    trials = [run.trials for run in outcomes.values()]
    checks = [Check("trials stored in each run", min(trials), str(max(trials)), min(trials) == max(trials))]
    kinds = sorted({kind for run in outcomes.values() for kind in run.requests})
    about, rows = "Requests by what the servers did with them.", list[tuple[object, ...]]()
    for case, run in outcomes.items():
        rows.append((case.name, run.trials, round(run.seconds, 1), *(run.requests[kind] for kind in kinds)))
        if case.faults == Faults():
            plain = run
        elif not options.quick:
            checks.append(at_most(f"{case.name}: times as long", run.seconds / plain.seconds, case.goal, 2))
    table = markdown(("faults", "trials", "seconds", *kinds), rows)
    publish(options, "What faults cost", __doc__, about, table, checks=checks)


if __name__ == "__main__":
    main()
