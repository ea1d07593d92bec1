"""Arrival order: what judging answers as they come would do to the scores where wrong answers take longer.

Simulated clock, 64 slots a model, log-normal answers of 30 s on average that take three times as long when wrong.
Rounds are judged when their last answer has come; beside them, for demonstration, a run that judges whatever has
arrived after every so many answers, and stops at once: what is in flight then is dropped, and most of it is wrong.

    python benchmarks/arrival.py [--quick] [--runs 300] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import heapq
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scenarios import Scenario, recorded, simulated
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.core import Ask, Controller, Pace, Plan
from adaptive_eval.core.evidence import Estimates, update
from adaptive_eval.core.judge import LatchedVerdicts
from adaptive_eval.core.look import JudgedLook, Supply, judge_look
from adaptive_eval.study.drive import drive
from adaptive_eval.study.timed import AnswerTimes, drive_in_time, latency_of_mean

SLOTS, MEAN_SECONDS, WRONG_FACTOR = 64, 30.0, 3.0
PACES = {"rounds, lookahead 2": Pace(0.0, 2), "rounds, lookahead 12": Pace(0.0, 12)}
"""Of `trials.favour: balanced` and `time`, with 30 questions."""
ENOUGH = 200
"""With fewer runs a bias below its goal could not be told from noise."""
HEADER = ("set", "judged", "largest bias", "its s.e.", "mean bias", "cost", "any wrong", "looks as without times")


class Run(NamedTuple):
    """One replay."""

    errors: NDArray[np.float64]
    """Each model's score less the true one."""
    cost: float
    wrong: bool
    same_looks: bool
    """Whether its looks are those of a replay in which no answer takes time."""


class ByArrival:
    """Judges what has arrived after every M answers a model in play, and drops what is in flight of models it closes.

    It shares its estimates, rule and verdicts with the controller, and differs in nothing but when it looks at what.
    """

    def __init__(self, plan: Plan, slots: int) -> None:
        bench = plan.bench
        self.plan, self._slots = plan, slots
        self.counts = np.zeros((bench.models, bench.questions, bench.categories), dtype=np.int32)
        self._estimates = Estimates.nothing(bench)
        self._memory = LatchedVerdicts.blank(bench.models * (bench.models - 1) // 2)
        self.standing: JudgedLook | None = None
        self.in_play = np.ones(bench.models, dtype=bool)

    def run(self, category: Callable[[Ask], int], seconds: Callable[[Ask, int], float]) -> None:
        """Keep every slot of the models in play full until no comparison is open."""
        trials = [self._trials(model) for model in range(self.plan.bench.models)]
        pending: list[tuple[float, Ask, int]] = []

        def send(now: float, model: int) -> None:
            ask = next(trials[model], None)
            if ask is not None:
                came = category(ask)
                heapq.heappush(pending, (now + seconds(ask, came), ask, came))

        for model in range(self.plan.bench.models):
            for _ in range(self._slots):
                send(0.0, model)
        arrived = 0
        while pending and self.in_play.any():
            now, ask, came = heapq.heappop(pending)
            if not self.in_play[ask.model]:
                continue
            self.counts[ask.model, ask.question, came] += 1
            arrived += 1
            send(now, ask.model)
            if arrived >= self.plan.bench.questions * self.in_play.sum():
                arrived = 0
                self._look()
        if self.in_play.any():
            self._look()

    def _trials(self, model: int) -> Iterator[Ask]:
        """Every question once, and again, up to the horizon."""
        for trial in range(self.plan.trials.max):
            for question in range(self.plan.bench.questions):
                yield Ask(model, question, trial, trial)

    def _look(self) -> None:
        """As the controller's look, on whatever is there once every question of everyone has been answered."""
        plan, bench = self.plan, self.plan.bench
        held = self.counts.sum(axis=(1, 2), dtype=np.int64)
        if self.counts.sum(axis=2).min() == 0 or held.min() < plan.trials.min * bench.questions:
            return
        rows = np.flatnonzero(self.in_play)
        self._estimates = update(self._estimates, rows, self.counts, bench, plan.prior, plan.trials.max)
        left = plan.trials.max * bench.questions - held
        nobody = np.zeros(bench.models, dtype=bool)
        supply = Supply(held, left, float("inf"), nobody, np.zeros_like(held), nobody)
        standing = judge_look(self._estimates, self._memory, plan.objective, plan.deciding_rule, plan.judging, supply)
        self.standing, self._memory = standing, standing.memory
        self.in_play = np.isin(np.arange(bench.models), standing.open_pairs())


def timed(scenario: Scenario, seed: int) -> AnswerTimes:
    """The time of every trial of one seed."""
    world = scenario.world
    latency = latency_of_mean(MEAN_SECONDS, world.p, world.w, wrong_factor=WRONG_FACTOR)
    return AnswerTimes(latency, world.p.shape[:2], world.w, np.random.default_rng([seed, 1]))


def by_rounds(job: tuple[Scenario, Pace, int]) -> Run:
    """One replay whose rounds are judged when they are complete."""
    scenario, pace, seed = job
    plan = scenario.plan(pace=pace)
    controller = Controller(plan)
    drive_in_time(controller, scenario.tape(seed), timed(scenario, seed), SLOTS)
    untimed = drive(Controller(plan), scenario.tape(seed))
    return judged(scenario, controller.standing, controller.trials.sum(), untimed.looks == controller.looks)


def by_arrival(job: tuple[Scenario, int]) -> Run:
    """One replay that judges what has arrived."""
    scenario, seed = job
    tape, times = scenario.tape(seed), timed(scenario, seed)
    run = ByArrival(scenario.plan(), SLOTS)
    run.run(lambda ask: tape.category(ask.model, ask.question, ask.trial), times.of)
    return judged(scenario, run.standing, run.counts.sum(), False)


def judged(scenario: Scenario, standing: JudgedLook | None, trials: float, same_looks: bool) -> Run:
    """One replay, judged by the truth."""
    assert standing is not None
    truth, evidence, call = scenario.world.truth, standing.evidence, standing.memory.call
    at = evidence.positions(standing.pairs)
    sign = np.sign(np.round(truth[evidence.first] - truth[evidence.second], 12))
    today = np.sign(evidence.z)
    wrong = (call[at] != 0) & (call[at] == today[at]) & (call[at] != sign[at])
    models, questions, _ = scenario.world.p.shape
    cost = float(trials) / (models * questions * scenario.cap)
    return Run(standing.estimates.score - truth, cost, bool(wrong.any()), same_looks)


class Row(NamedTuple):
    """One way of judging on one set."""

    scenario: str
    judged: str
    runs: tuple[Run, ...]

    @property
    def bias(self) -> NDArray[np.float64]:
        """Of each model, in points."""
        return np.asarray(100.0 * np.mean([run.errors for run in self.runs], axis=0))

    @property
    def largest(self) -> int:
        return int(np.abs(self.bias).argmax())

    @property
    def standard_error(self) -> float:
        """Of the largest bias."""
        errors = np.array([run.errors[self.largest] for run in self.runs])
        return float(100.0 * errors.std(ddof=1) / np.sqrt(len(errors)))

    def cells(self) -> tuple[object, ...]:
        same = sum(run.same_looks for run in self.runs)
        return (
            self.scenario, self.judged, f"{self.bias[self.largest]:+.2f}", f"{self.standard_error:.2f}",
            f"{self.bias.mean():+.2f}", float(np.mean([run.cost for run in self.runs])),
            float(np.mean([run.wrong for run in self.runs])), f"{same} of {len(self.runs)}" if same else "",
        )  # fmt: skip


def checks(row: Row) -> Iterator[Check]:
    """Rounds must be unbiased; what arrival does is for show."""
    name, largest = f"{row.scenario}: largest |bias| in points, {row.judged}", float(np.abs(row.bias).max())
    if row.judged == "by arrival":
        yield Check(name, round(largest, 3), "a demonstration", None)
        return
    enough = len(row.runs) >= ENOUGH
    goal = "< 0.3" if enough else f"< 0.3 over {ENOUGH} runs or more"
    yield Check(name, round(largest, 3), goal, largest < 0.3 if enough else None)
    same = sum(run.same_looks for run in row.runs)
    goal = f"all {len(row.runs)}"
    yield Check(
        f"{row.scenario}: runs with the looks of one without times, {row.judged}", same, goal, same == len(row.runs)
    )


def rows(scenario: Scenario, runs: int, pool: ProcessPoolExecutor) -> Iterator[Row]:
    """Every way of judging on one set."""
    for name, pace in PACES.items():
        yield Row(
            scenario.name, name, tuple(pool.map(by_rounds, [(scenario, pace, s) for s in range(runs)], chunksize=8))
        )
    yield Row(
        scenario.name, "by arrival", tuple(pool.map(by_arrival, [(scenario, s) for s in range(runs)], chunksize=8))
    )


def main() -> None:
    parser = arguments("What judging answers as they come would do.")
    parser.add_argument("--runs", type=int, default=300)
    add_data(parser)
    options = parser.parse_args()
    runs = 12 if options.quick else options.runs
    scenarios = [recorded(options.data, "aime2024")] if options.data.exists() else []
    start = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        found = [row for scenario in (*scenarios, simulated("coins")) for row in rows(scenario, runs, pool)]
    results = [check for row in found for check in checks(row)]
    text = "\n\n".join([
        "# Arrival: what judging answers as they come would do",
        f"{runs} seeded runs a row, {SLOTS} slots a model, answers of {MEAN_SECONDS:g} s on average, wrong ones "
        f"{WRONG_FACTOR:g} times as long. Biases are in points of a hundred. Machine: {machine()}. "
        f"The whole took {(time.perf_counter() - start) / 60:.0f} minutes.",
        check_table(results),
        markdown(HEADER, [row.cells() for row in found]),
    ])  # fmt: skip
    publish(options, text, results)


if __name__ == "__main__":
    main()
