"""Several models on one GPU: what changing from one to the other costs, and how far rounds should run ahead there.

Simulated clock: six models share one server of 64 slots, a swap takes three minutes, and answers are log-normal with a
mean of two minutes, twice as long when wrong. Trials are served as the run asks for them, swapping whenever the model
changes; or in turn, as runs do: everything that is asked of one model, then the next, the next round beginning with the
one that is there. Beside them a fixed number of trials, model after model.

    python benchmarks/swaps.py [--quick] [--runs 24] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from scenarios import Scenario, recorded, simulated
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.config.decisions import AllocationConfig, TrialsConfig
from adaptive_eval.config.pace import pace_of
from adaptive_eval.core import Controller, Pace, Plan, Trials
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.simulate.worlds import World
from adaptive_eval.study.drive import drive
from adaptive_eval.study.judged import judge_replay
from adaptive_eval.study.servers import SimulatedHost, TrialLoad
from adaptive_eval.study.timed import AnswerTimes, drive_in_time, latency_of_mean

MODELS = 6
LOOKAHEADS = (0, 1, 2, 4, 6, 9, 12, 16, 20, 28, 40)
ELSEWHERE = (2, 6, 9, 12, 16, 20, 28)
GROWTHS = (0.2, 0.5, 1.0, 2.0)
HEADER = (
    "set", "served", "growth", "lookahead", "swaps", "hours of swaps", "hours", "trials", "cost", "looks", "right",
    "wrong",
)  # fmt: skip
OTHER_HEADER = ("set", "slots", "swap, s", "answer, s", "fixed N", "usual rounds", "default", "best", "at lookahead")

EXPLAINED = """\
*hours* are those of the whole run, in which *swaps* took *hours of swaps*. *cost* is a share of the fixed N; *right*
are comparisons of neighbours that were called for the truly better model; *wrong* is the share of runs with a call for
another. The usual rounds are those of a run whose models have servers of their own (`trials.favour: balanced`)."""
OTHERS = "Hours on other servers, over half as many runs, at the default pace of models in turn and at the best one:"


class Server(NamedTuple):
    """The server that the models share."""

    slots: int = 64
    swap_seconds: float = 180.0
    answer_seconds: float = 120.0


USUAL = Server()
OTHER_SERVERS = (
    Server(slots=256), Server(swap_seconds=30.0), Server(swap_seconds=600.0), Server(answer_seconds=20.0),
)  # fmt: skip


class InOrderOfAsks(SimulatedHost):
    """Serves trials strictly in the order in which they are asked for, and swaps whenever the model changes."""

    def __init__(self, models: Sequence[int], slots: int, swap_seconds: float) -> None:
        super().__init__(models, slots, swap_seconds)
        self._later: deque[deque[TrialLoad]] = deque()
        """What is served after that which waits for the next swap, each of one model."""

    def issue(self, load: TrialLoad, now: float) -> None:
        last = self._later[-1] if self._later else next(iter(self._waiting.values()), None)
        if last is None or (not self._later and last[-1].model == load.model):
            super().issue(load, now)
            return
        self._issued = now
        self.loads.append(load)
        if last[-1].model == load.model:
            last.append(load)
        else:
            self._later.append(deque([load]))

    def swap(self) -> None:
        super().swap()
        if self._later:
            after = self._later.popleft()
            self._waiting[after[0].model] = after


class Swapped(NamedTuple):
    """One replay, or the mean of several."""

    swaps: float
    swap_hours: float
    hours: float
    trials: float
    cost: float
    looks: float
    right: float
    wrong: float
    same_looks: float
    """Whether its looks are those of a replay in which nothing takes time."""


class Job(NamedTuple):
    """One replay to be done."""

    scenario: Scenario
    plan: Plan
    server: Server
    host: type[SimulatedHost]
    seed: int


def replay(job: Job) -> Swapped:
    """One seeded replay."""
    world, server = job.scenario.world, job.server
    models, questions, _ = world.p.shape
    latency = latency_of_mean(server.answer_seconds, world.p, world.w)
    times = AnswerTimes(latency, (models, questions), world.w, np.random.default_rng([job.seed, 1]))
    host = job.host(range(models), server.slots, server.swap_seconds)
    controller = Controller(job.plan)
    timeline = drive_in_time(controller, job.scenario.tape(job.seed), times, server.slots, shared=[host])
    untimed = drive(Controller(job.plan), job.scenario.tape(job.seed))
    found = judge_replay(job.seed, controller, world.truth)
    fixed = models * questions * job.scenario.cap
    return Swapped(
        swaps=len(timeline.swaps),
        swap_hours=len(timeline.swaps) * server.swap_seconds / 3600.0,
        hours=timeline.seconds / 3600.0,
        trials=found.trials,
        cost=found.trials / fixed,
        looks=found.looks,
        right=found.called - found.wrong,
        wrong=found.wrong > 0,
        same_looks=untimed.looks == controller.looks,
    )


class Row(NamedTuple):
    """One way of serving, at one pace."""

    served: str
    pace: Pace | None
    mean: Swapped


class Bench:
    """Replays on all cores."""

    def __init__(self, runs: int, pool: ProcessPoolExecutor) -> None:
        self.runs, self.pool = runs, pool

    def mean(
        self, scenario: Scenario, server: Server = USUAL, host: type[SimulatedHost] = SimulatedHost, **choices: Any
    ) -> Swapped:
        plan = scenario.plan(**choices)
        jobs = [Job(scenario, plan, server, host, seed) for seed in range(self.runs)]
        return Swapped(*np.mean(list(self.pool.map(replay, jobs, chunksize=2)), axis=0).tolist())

    def rows(self, scenario: Scenario, paces: Sequence[Pace]) -> Iterator[Row]:
        """As asked for, in turn at every pace, and a fixed number."""
        usual = favoured("balanced", scenario, in_turn=False)
        yield Row("as asked for", usual, self.mean(scenario, host=InOrderOfAsks, pace=usual))
        for pace in paces:
            yield Row("in turn", pace, self.mean(scenario, pace=pace))
        yield Row("fixed N", None, self.fixed(scenario))

    def fixed(self, scenario: Scenario, server: Server = USUAL) -> Swapped:
        """Everyone's maximum, model after model, and one look at its confidence."""
        return self.mean(scenario, server, trials=Trials(scenario.cap, scenario.cap), rule=Sequential(0.95, 1.0))


def best_of(scenario: Scenario) -> Scenario:
    """Its best models."""
    world, chosen = scenario.world, np.argsort(-scenario.world.truth, kind="stable")[:MODELS]
    return Scenario(scenario.name, World(world.name, world.p[chosen], world.w))


def favoured(favour: str, scenario: Scenario, *, in_turn: bool = True) -> Pace:
    """The pace that a configuration means."""
    trials = TrialsConfig(max=scenario.cap, favour=favour)  # type: ignore[arg-type]
    return pace_of(AllocationConfig(), trials, scenario.world.p.shape[1], in_turn=in_turn)


def checks(scenario: Scenario, rows: Sequence[Row], runs: int) -> Iterator[Check]:
    """What must hold on one set."""
    name = scenario.name
    naive, fixed = rows[0].mean, rows[-1].mean
    at = {row.pace: row.mean for row in rows if row.served == "in turn"}
    usual, default = at[favoured("balanced", scenario, in_turn=False)], at[favoured("balanced", scenario)]
    pairs = (
        ("the order of asks", naive, "<= 0.4"),
        ("usual rounds in turn", usual, "<= 0.7"),
        ("a fixed N", fixed, "<= 1"),
    )
    for other, mean, goal in pairs:
        ratio = default.hours / mean.hours
        yield Check(f"{name}: hours, beside {other}", round(ratio, 3), goal, ratio <= float(goal.split()[1]))
    yield Check(f"{name}: swaps, beside the order of asks", round(default.swaps / naive.swaps, 3), "", None)
    yield Check(f"{name}: cost, share of the fixed N", round(default.cost, 3), "< 0.7", default.cost < 0.7)
    missed = fixed.right - default.right
    yield Check(f"{name}: right calls fewer than with the fixed N", round(missed, 2), "", None)
    least = min(mean.hours for mean in at.values())
    over = default.hours / least
    yield Check(f"{name}: hours, beside the best pace of all", round(over, 3), "<= 1.1", over <= 1.1)
    same = round(sum(row.mean.same_looks for row in rows) * runs)
    goal = f"all {len(rows) * runs}"
    yield Check(f"{name}: runs whose looks are those without servers", same, goal, same == len(rows) * runs)


def table(sets: Sequence[tuple[Scenario, Sequence[Row]]]) -> str:
    """Every row."""
    cells = [
        (
            scenario.name, row.served, "" if row.pace is None else f"{row.pace.growth:g}",
            "" if row.pace is None else row.pace.lookahead, f"{mean.swaps:.1f}", f"{mean.swap_hours:.2f}",
            f"{mean.hours:.2f}", f"{mean.trials:.0f}", mean.cost, f"{mean.looks:.0f}", f"{mean.right:.2f}", mean.wrong,
        )
        for scenario, rows in sets
        for row in rows
        for mean in (row.mean,)
    ]  # fmt: skip
    return markdown(HEADER, cells)


def elsewhere(bench: Bench, scenario: Scenario, server: Server) -> tuple[object, ...]:
    """Hours on another server: with a fixed number, at the usual pace, at the default one, and at the best."""
    hours = {ahead: bench.mean(scenario, server, pace=Pace(0.0, ahead)).hours for ahead in ELSEWHERE}
    best = min(hours, key=hours.__getitem__)
    usual, default = (favoured("balanced", scenario, in_turn=in_turn).lookahead for in_turn in (False, True))
    fixed = bench.fixed(scenario, server).hours
    shown = (f"{value:.2f}" for value in (fixed, hours[usual], hours[default], hours[best]))
    return (scenario.name, server.slots, f"{server.swap_seconds:g}", f"{server.answer_seconds:g}", *shown, best)


def main() -> None:
    parser = arguments("What it costs to serve several models on one GPU.")
    parser.add_argument("--runs", type=int, default=24)
    add_data(parser)
    options = parser.parse_args()
    runs = 4 if options.quick else options.runs
    paces = [Pace(0.0, ahead) for ahead in ((2, 6, 12, 20) if options.quick else LOOKAHEADS)]
    paces += [Pace(growth, 0) for growth in ((0.5,) if options.quick else GROWTHS)]
    found = [recorded(options.data, "aime2024")] if options.data.exists() else []
    scenarios = [best_of(scenario) for scenario in (*found, simulated("coins"))]
    start = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        bench = Bench(runs, pool)
        sets = [(scenario, list(bench.rows(scenario, paces))) for scenario in scenarios]
        servers = () if options.quick else OTHER_SERVERS
        fewer = Bench(runs // 2, pool)
        others = [elsewhere(fewer, scenario, server) for server in servers for scenario in scenarios]
    results = [check for scenario, rows in sets for check in checks(scenario, rows, runs)]
    text = "\n\n".join([
        "# Swaps: several models on one GPU",
        f"{runs} seeded runs a row, {MODELS} models in turn on {USUAL.slots} slots, swaps of {USUAL.swap_seconds:g} s, "
        f"answers of {USUAL.answer_seconds:g} s on average. Machine: {machine()}. "
        f"The whole took {(time.perf_counter() - start) / 60:.0f} minutes.",
        check_table(results),
        EXPLAINED,
        table(sets),
        *([OTHERS, markdown(OTHER_HEADER, others)] if others else []),
    ])  # fmt: skip
    publish(options, text, results)


if __name__ == "__main__":
    main()
