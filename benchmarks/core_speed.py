"""How fast the decision core is, and how much memory it takes.

    python benchmarks/core_speed.py [--quick] [--json PATH] [--markdown PATH]

Replays of 11 coins, 30 questions and 80 trials, tables of boundaries included, which are built once a process; and runs
of 200 models on few and on 10,000 questions, asked in chunks as the scheduler does, every outcome with its cost. CPU
time is that of `ask`, `tell` and their looks: making up the answers is not counted. Each measurement has a process of
its own.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import multiprocessing
import re
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.special import expit
from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.core import Bench, Controller, Cost, Outcome, Plan, Trials
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.tape import Tape
from adaptive_eval.simulate.worlds import coins
from adaptive_eval.study.drive import drive

SEED = 1
CHUNK = 4096
BINARY = np.array([0.0, 1.0])
COSTS = tuple(Cost(tokens, 1e-5 * tokens, 0.02 * tokens) for tokens in range(200, 264))
Returned = TypeVar("Returned")


class Measured(NamedTuple):
    """One run."""

    trials: int
    looks: int
    cpu: float
    wall: float
    slowest_look: float
    """CPU seconds of the slowest call that took a look."""
    memory: float
    """Peak of the process, MiB."""

    @property
    def per_trial(self) -> float:
        """CPU microseconds."""
        return 1e6 * self.cpu / self.trials


def replayed(plan: Plan) -> Measured:
    """A replay of the coins from a standing start, its tape included."""
    cpu, wall = time.process_time(), time.perf_counter()
    controller = drive(Controller(plan), tape_of_coins())
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Measured(int(controller.trials.sum()), len(controller.looks), cpu, wall, 0.0, peak_memory())


def restored(plan: Plan) -> Measured:
    """The same, taken up from the outcomes of an earlier run."""
    tape = tape_of_coins()
    first = Controller(plan)
    told: list[Outcome] = []
    while first.finished is None:
        outcomes = [Outcome(*ask[:3], tape.category(*ask[:3]), COSTS[ask.trial % 64]) for ask in first.ask(CHUNK)]
        told += outcomes
        first.tell(outcomes)
    cpu, wall = time.process_time(), time.perf_counter()
    again = Controller(plan)
    again.restore(told)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Measured(int(again.trials.sum()), len(again.looks), cpu, wall, 0.0, peak_memory())


def tape_of_coins() -> Tape:
    world = coins()
    return Tape.from_chances(world.p, world.w, np.random.default_rng(SEED))


def large(models: int, questions: int, fewest: int, looks: int) -> Measured:
    """The default plan on many models, up to a number of looks."""
    rng = np.random.default_rng(SEED)
    difficulty, ability = rng.normal(0.0, 3.5, questions), np.linspace(-1.0, 1.0, models)
    p = np.stack([expit(able - difficulty).astype(np.float32) for able in ability])
    controller = Controller(Plan(Bench(models, questions, BINARY, COSTS[-1:] * models), trials=Trials(fewest, 80)))
    started, cpu, slowest = time.perf_counter(), 0.0, 0.0
    while controller.finished is None and len(controller.looks) < looks:
        before = time.process_time()
        asks = controller.ask(CHUNK)
        asked = time.process_time()
        right = rng.random(len(asks)) < p[[ask.model for ask in asks], [ask.question for ask in asks]]
        outcomes = [
            Outcome(*ask[:3], category, COSTS[ask.trial % 64])
            for ask, category in zip(asks, right.astype(int).tolist(), strict=True)
        ]
        answered = time.process_time()
        found = controller.tell(outcomes)
        told = time.process_time()
        cpu += (told - answered) + (asked - before)
        slowest = max(slowest, told - answered if found else 0.0)
    wall = time.perf_counter() - started
    return Measured(int(controller.trials.sum()), len(controller.looks), cpu, wall, slowest, peak_memory())


def peak_memory() -> float:
    """Of this process and this program, in MiB: what `getrusage` says may be inherited from the parent."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def apart(work: Callable[..., Returned], *given: object) -> Returned:
    """The result of work in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *given).result()


def measure(quick: bool) -> dict[str, Measured]:
    """All runs by their names; the checks know their order."""
    bench = Bench(11, 30, BINARY)
    uniform = Plan(bench, policy=Uniform(), judging=Judging(futility=None))
    fewest, looks = (1, 1) if quick else (4, 4)
    return {
        "11 x 30, uniform to the horizon": apart(replayed, uniform),
        "11 x 30, the default plan": apart(replayed, Plan(bench)),
        "11 x 30, uniform, restored": apart(restored, uniform),
        "200 x 30, the default plan": apart(large, 200, 30, 4, 1000),
        f"200 x 10,000, from {fewest} trials a question": apart(large, 200, 10_000, fewest, looks),
    }


def checks_of(everything: Measured, default: Measured, _: Measured, wide: Measured, huge: Measured) -> list[Check]:
    """The figures that have goals."""
    return [
        Check("outcomes of the replay to the horizon", everything.trials, "26400", everything.trials == 26_400),
        Check("CPU seconds of the replay to the horizon", everything.cpu, "< 1.5", everything.cpu < 1.5),
        Check("CPU seconds of the replay by the default plan", default.cpu, "< 1.5", default.cpu < 1.5),
        Check("CPU us / trial, 200 models, 10,000 questions", huge.per_trial, "< 20", huge.per_trial < 20.0),
        Check("CPU seconds of its slowest look", huge.slowest_look, "<= 0.5", huge.slowest_look <= 0.5),
        Check("peak memory of that process, MiB", huge.memory, "< 300", huge.memory < 300.0),
        Check("CPU us / trial, 200 models, 30 questions", wide.per_trial, "< 20", wide.per_trial < 20.0),
    ]


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    runs = measure(options.quick)
    checks = checks_of(*runs.values())
    header = ("run", "trials", "looks", "CPU s", "wall s", "CPU us / trial", "slowest look, CPU s", "peak MiB")
    rows = [
        [name, run.trials, run.looks, run.cpu, run.wall, run.per_trial, run.slowest_look or "", f"{run.memory:.0f}"]
        for name, run in runs.items()
    ]
    report = "\n\n".join(
        [
            f"# Speed of the decision core\n\nOn {machine()}; one process at a time, one thread each.\n"
            "Wall time includes the making up of answers, CPU time does not.",
            markdown(header, rows),
            check_table(checks),
        ]
    )
    publish(options, report, checks)


if __name__ == "__main__":
    main()
