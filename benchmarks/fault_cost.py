"""What faults cost in time, with default settings: the same run on a server that fails beside one that does not.

    python benchmarks/fault_cost.py [--quick] [--json PATH] [--markdown PATH]

Two sizes of run, with answers of up to 32,768 tokens that take some seconds each, at known times. 5% of the requests
get a 500, 2% a reset in the middle, 1% never an answer; each alone, and all of them together. Then a server that is
gone for 20 seconds: how long after it is back the first request comes. All runs take place at the same time, so that
whatever else the machine does slows all of them; waiting is nearly all that they do.
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

from adaptive_eval.errors import ExitCode
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.faults import Faults, TimeWindow
from adaptive_eval.simulate.http1 import ApiReply, ApiRequest
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import Latency, World, many_close
from adaptive_eval.store import RunReader

MIX = Faults(server_error=0.05, reset=0.02, hang=0.01)
SINGLE = {
    "5% 500": Faults(server_error=0.05),
    "2% resets": Faults(reset=0.02),
    "1% hangs": Faults(hang=0.01),
}
MIX_GOAL, SINGLE_GOAL, BACK_GOAL = 1.3, 1.2, 3.0
STORM_AT, STORM_SECONDS = 45.0, 20.0


@dataclass(frozen=True)
class Size:
    """A run: its world, and trials a question."""

    name: str
    world: World
    trials: int


def sizes(quick: bool) -> list[Size]:
    if quick:
        return [Size("96", timed(many_close(models=2, questions=12), 1.0), 4)]
    return [
        Size("992", timed(many_close(models=4, questions=31), 4.0), 8),
        Size("1,395", timed(many_close(models=3, questions=31), 4.0), 15),
    ]


def timed(world: World, seconds: float) -> World:
    return replace(world, latency=Latency(median=seconds))


class Clocked(SimulatedServer):
    """A server that remembers when it was asked for answers."""

    def __init__(self, world: World, faults: Faults) -> None:
        super().__init__(world, faults=faults)
        self.asked_at: list[float] = []
        self.back_at = 0.0
        """When it listened again, or for the first time."""

    async def listen(self) -> None:
        await super().listen()
        self.back_at = self._now()

    def _handle(self, request: ApiRequest) -> ApiReply:
        if request.path.endswith("completions"):
            self.asked_at.append(self._now())
        return super()._handle(request)


@dataclass(frozen=True)
class Outcome:
    """What came of one run."""

    trials: int
    seconds: float
    requests: Counter[str]
    asked_at: list[float]
    back_at: float


async def carry_out(size: Size, faults: Faults) -> Outcome:
    """One run in a process of its own, with default settings."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in question_rows(size.world)))
        async with Clocked(size.world, faults) as server:
            settings = {
                "questions": "questions.jsonl",
                "models": [{"name": model, "base_url": server.base_url} for model in size.world.models],
                "sampling": {"temperature": 0.6, "max_tokens": 32768},
                "grader": "math",
                "trials": {"min": min(4, size.trials), "max": size.trials},
            }
            (folder / "run.yaml").write_text(json.dumps(settings))
            command = ["-m", "adaptive_eval", "run", str(folder / "run.yaml"), "--run-dir", str(folder / "run")]
            began = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, "--display", "none", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            _, said = await process.communicate()
            if process.returncode not in (ExitCode.REACHED, ExitCode.SPENT):
                raise RuntimeError(f"a run ended with {process.returncode}: {said.decode()}")
            seconds = time.monotonic() - began
            with closing(RunReader.open(folder / "run")) as reader:
                return Outcome(reader.trial_count(), seconds, server.counts, server.asked_at, server.back_at)


async def all_at_once(quick: bool) -> dict[tuple[str, str], Outcome]:
    """Every run, side by side."""
    scenarios = {"no faults": Faults(), **SINGLE, "all of them": MIX}
    wanted = [(size, name, faults) for size in sizes(quick) for name, faults in scenarios.items()]
    if not quick:
        wanted.append((sizes(quick)[0], "gone for 20 s", Faults(down=(TimeWindow(STORM_AT, STORM_SECONDS),))))
    outcomes = await asyncio.gather(*(carry_out(size, faults) for size, _, faults in wanted))
    return {(size.name, name): outcome for (size, name, _), outcome in zip(wanted, outcomes, strict=True)}


def checks_of(outcomes: dict[tuple[str, str], Outcome], quick: bool) -> list[Check]:
    """Ratios against the run without faults, and how soon a server is asked that has come back."""
    checks = []
    for (size, name), outcome in outcomes.items():
        if name == "no faults":
            continue
        plain = outcomes[size, "no faults"]
        same = outcome.trials == plain.trials
        checks.append(Check(f"{size} trials, {name}: as many stored", outcome.trials, str(plain.trials), same))
        if name == "gone for 20 s":
            first = min(at for at in outcome.asked_at if at >= outcome.back_at) - outcome.back_at
            checks.append(
                Check(f"{name}: seconds until the first request", round(first, 2), "<= 3", first <= BACK_GOAL)
            )
            continue
        goal = MIX_GOAL if name == "all of them" else SINGLE_GOAL
        ratio = outcome.seconds / plain.seconds
        holds = None if quick else ratio <= goal
        checks.append(Check(f"{size} trials, {name}: times as long", round(ratio, 2), f"<= {goal}", holds))
    return checks


def show(outcomes: dict[tuple[str, str], Outcome], checks: list[Check]) -> str:
    """The document."""
    kinds = sorted({kind for outcome in outcomes.values() for kind in outcome.requests})
    rows = [
        (size, name, round(one.seconds, 1), *(one.requests[kind] for kind in kinds))
        for (size, name), one in outcomes.items()
    ]
    what = "requests by what the servers did with them"
    title = f"# What faults cost\n\n{(__doc__ or '').strip()}\n\nOn {machine()}; {what}."
    table = markdown(("trials", "faults", "seconds", *kinds), rows)
    return "\n\n".join([title, table, check_table(checks)]) + "\n"


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    outcomes = asyncio.run(all_at_once(options.quick))
    checks = checks_of(outcomes, options.quick)
    publish(options, show(outcomes, checks), checks)
    sys.exit(0 if all(check.holds in (True, None) for check in checks) else 1)


if __name__ == "__main__":
    main()
