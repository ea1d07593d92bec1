"""What servers that are paid by the hour cost: for how long they are held, beside a fixed number of trials.

Simulated clock (`study.servers`), the real controller, the best models of AIME'24, the coins, and a set with more than
a hundred questions; 64 slots a model, answers log-normal with the stated mean, twice as long when wrong, alike for all
models or spread 8-fold over them. Few sequences at a time are faster, a lone one twice as fast (`GAIN`; 0 is a server
whose speed knows no load). A server is held from the start until its model has no open comparison or is at its
horizon, and what it was asked has come; places that models share are held until the last model is done. They are given
to models as a run gives them (`study.servers`), free ones as further replicas, in the fixed design, too. A place of a
pool has memory for the next model while the last answers of one still run (`overlap: true`), unless it is said to be
drained first; others have it where that is said.

    python benchmarks/hours.py [--quick] [--runs 40] [--sets aime2024] [--workers 1] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scenarios import Scenario, recorded, simulated
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.config.decisions import AllocationConfig, TrialsConfig
from adaptive_eval.config.pace import pace_of
from adaptive_eval.core import Controller, Pace, Sequential
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.rules import ZScore
from adaptive_eval.core.tape import TrialArrays
from adaptive_eval.study.judged import judge_replay, open_models
from adaptive_eval.study.servers import SimulatedHost
from adaptive_eval.study.timed import AnswerTimes, Timeline, drive_in_time, latency_of_mean
from scorio.moments import FloatArray, IntArray

SLOTS, GAIN = 64, 1.0
FIXED_RUNS = 4
"""A fixed design varies little."""
ALIKE = 0.1
"""Mean calls that differ by less are as many."""
Favour = Literal["cost", "balanced", "time", "servers"]
FAVOURS: tuple[Favour, ...] = ("balanced", "time", "servers")
HEADER = (
    "set", "served", "answers", "pace", "wall", "held", "trials", "looks", "swaps", "called", "wrong",
)  # fmt: skip
EXPLAINED = """\
*wall* and *held* (server time, summed over servers or places) are shares of those of the fixed design on the same
servers, *trials* of its trials. *called* are comparisons of neighbours that were called, *wrong* those among them that
were called for a model that is not better. Two models that are up at one place for a while are each simulated as fast
as alone, which a GPU that is not busy with the last answers of one comes near to, and a busy one does not."""


class Setting(NamedTuple):
    """The servers that a row is about."""

    name: str
    spread: float = 1.0
    """Times as long as those of the fastest model the answers of the slowest take."""
    answer: float = 30.0
    places: int = 0
    """0: a server for each model."""
    swap: float = 0.0
    overlap: bool = False
    """A place has memory for the next model while the last answers of one still run."""
    goal: float = 1.0
    most_wall: float | None = None


OWN = "a server each"
SETTINGS = (
    Setting(OWN, goal=0.75),
    Setting(OWN, spread=8.0, goal=0.85),
    Setting("pool of 4 places, swaps of 5 s", places=4, swap=5.0, overlap=True, goal=0.75, most_wall=0.80),
    Setting("pool of 4 places, swaps of 5 s", 8.0, places=4, swap=5.0, overlap=True, goal=0.75, most_wall=0.80),
    Setting("the same, drained before a swap", places=4, swap=5.0),
    Setting("one place, swaps of 5 s", places=1, swap=5.0, goal=0.75),
    Setting("one place, swaps of 5 s", 8.0, places=1, swap=5.0, goal=0.75),
    Setting("one place, swaps of 180 s", answer=120.0, places=1, swap=180.0, goal=0.80),
    Setting("the same, with memory for two", answer=120.0, places=1, swap=180.0, overlap=True),
)


class Hours(NamedTuple):
    """One replay, or the mean of several."""

    wall: float
    held: float
    trials: float
    looks: float
    swaps: float
    called: float
    wrong: float


class SpreadTimes:
    """Answers of some models take longer than those of others."""

    def __init__(self, times: AnswerTimes, factors: FloatArray) -> None:
        self._times, self._factors = times, factors

    def seconds(self, trials: TrialArrays, categories: IntArray) -> FloatArray:
        return np.asarray(self._times.seconds(trials, categories) * self._factors[trials.model])


def factors(models: int, spread: float) -> FloatArray:
    """Times as long as the mean, evenly in their logarithms, in an order that is not that of the models."""
    found = np.exp(np.linspace(-0.5, 0.5, models) * np.log(spread))
    np.random.default_rng(0).shuffle(found)
    return np.asarray(found / found.mean())


def held(controller: Controller, timeline: Timeline) -> FloatArray:
    """(L,): until when the server of each model is held: nothing can want it any more, and all has come."""
    own = np.array([served.end.max(initial=0.0) for served in timeline.served])
    if isinstance(controller.plan.policy, Uniform):  # a fixed design, whose looks decide nothing
        return own
    bench, opened = controller.plan.bench, open_models(controller.looks)
    times = np.append(timeline.looks, timeline.seconds)
    last = [int(np.flatnonzero(column).max(initial=0)) for column in opened.T]
    full = controller.trials >= controller.plan.trials.max * bench.questions
    return np.where(full, own, np.maximum(own, times[last]))


def replay(job: tuple[Scenario, Setting, dict[str, Any], int]) -> Hours:
    """One seeded replay."""
    scenario, setting, choices, seed = job
    models, questions, _ = scenario.world.p.shape
    latency = latency_of_mean(setting.answer, scenario.world.p, scenario.world.w)
    times = AnswerTimes(latency, (models, questions), scenario.world.w, np.random.default_rng([seed, 1]))
    shared = []
    if setting.places:
        host = partial(SimulatedHost, places=setting.places, gain=GAIN, overlap=setting.overlap)
        shared = [host(range(models), SLOTS, setting.swap)]
    controller = Controller(scenario.plan(**choices))
    spread = SpreadTimes(times, factors(models, setting.spread))
    timeline = drive_in_time(controller, scenario.tape(seed), spread, SLOTS, shared=shared, gain=GAIN)
    found = judge_replay(seed, controller, scenario.world.truth, timeline)
    server_time = timeline.seconds * setting.places if setting.places else float(held(controller, timeline).sum())
    swaps, calls = len(timeline.swaps), (found.called, found.wrong)
    return Hours(timeline.seconds, server_time, found.cost, found.looks, swaps, *calls)


FIXED = {"rule": ZScore(1e9), "judging": Judging(futility=None), "policy": Uniform()}


def paced(scenario: Scenario, favour: Favour, setting: Setting) -> dict[str, Any]:
    """What a configuration means that favours this."""
    trials = TrialsConfig(max=scenario.cap, favour=favour)
    questions = scenario.world.p.shape[1]
    pace = pace_of(AllocationConfig(), trials, questions, in_turn=setting.places > 0)
    return {"pace": pace, "rule": Sequential(start=max(trials.min, pace.opening) / scenario.cap)}


class Bench:
    """Replays on all cores."""

    def __init__(self, runs: int, pool: ProcessPoolExecutor) -> None:
        self.runs, self.pool = runs, pool

    def mean(self, scenario: Scenario, setting: Setting, choices: dict[str, Any], runs: int) -> Hours:
        jobs = [(scenario, setting, choices, seed) for seed in range(runs)]
        return Hours(*np.mean(list(self.pool.map(replay, jobs)), axis=0).tolist())

    def rows(self, scenario: Scenario, setting: Setting, favours: Sequence[Favour]) -> Iterator["Row"]:
        never = {**FIXED, "pace": Pace(lookahead=scenario.cap)}
        fixed = self.mean(scenario, setting, never, min(self.runs, FIXED_RUNS))
        for favour in favours:
            found = self.mean(scenario, setting, paced(scenario, favour, setting), self.runs)
            shares = found._replace(wall=found.wall / fixed.wall, held=found.held / fixed.held)
            row = Row(scenario.name, setting, favour, shares)
            print(row, flush=True)
            yield row


class Row(NamedTuple):
    """A set on servers at a pace, beside the fixed design."""

    set: str
    setting: Setting
    favour: Favour
    found: Hours

    def cells(self) -> tuple[object, ...]:
        setting, found = self.setting, self.found
        answers = f"{setting.answer:g} s, " + ("alike" if setting.spread == 1.0 else f"spread {setting.spread:g}-fold")
        return (
            self.set, setting.name, answers, self.favour, found.wall, found.held, found.trials, f"{found.looks:.0f}",
            f"{found.swaps:.0f}", f"{found.called:.2f}", f"{found.wrong:.2f}",
        )  # fmt: skip


def checks(rows: Sequence[Row]) -> Iterator[Check]:
    """The goals of `servers`, and that it calls no fewer than `balanced` does with a server each."""
    usual = {row.set: row.found.called for row in rows if row.favour == "balanced" and row.setting == SETTINGS[0]}
    for row in rows:
        setting, found, least = row.setting, row.found, usual[row.set]
        name = f"{row.set}, {setting.name}, {'alike' if setting.spread == 1.0 else 'spread'}"
        if row.favour == "cost":
            goal = "<= 0.52" if row.set == "aime2024" else ""
            holds = found.trials <= 0.52 if goal else None
            yield Check(f"{row.set}: trials at favour cost", round(found.trials, 3), goal, holds)
        if row.favour != "servers":
            continue
        aimed = setting.goal < 1.0
        goal, holds = (f"<= {setting.goal}", found.held <= setting.goal) if aimed else ("", None)
        yield Check(f"{name}: held, beside fixed N", round(found.held, 3), goal, holds)
        if (most := setting.most_wall) is not None:
            yield Check(f"{name}: wall time, beside fixed N", round(found.wall, 3), f"<= {most}", found.wall <= most)
        fewer = found.called >= least - ALIKE
        yield Check(f"{name}: calls", round(found.called, 2), f">= {least:.2f} (balanced)", fewer)


def _recorded(folder: Path, quick: bool) -> Iterator[Scenario]:
    """AIME'24, and a set with 400 questions, of which each model has no more than 20 trials."""
    yield recorded(folder, "aime2024")
    if not quick:
        yield replace(recorded(folder, "livecodebench", cap=20), counts=None)


def main() -> None:
    parser = arguments("For how long servers are held.")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--sets", nargs="*", help="these sets alone")
    parser.add_argument("--workers", type=int, help="processes at a time")
    add_data(parser)
    options = parser.parse_args()
    runs = 4 if options.quick else options.runs
    scenarios = list(_recorded(options.data, options.quick)) if options.data.exists() else []
    start = time.perf_counter()
    rows: list[Row] = []
    chosen = [one for one in (*scenarios, simulated("coins")) if options.sets is None or one.name in options.sets]
    with ProcessPoolExecutor(options.workers) as pool:
        bench = Bench(runs, pool)
        for scenario in chosen:
            for setting in SETTINGS:
                favours: tuple[Favour, ...] = ("balanced", "servers") if options.quick else FAVOURS
                rows += bench.rows(scenario, setting, ("cost", *favours) if setting == SETTINGS[0] else favours)
    found = list(checks(rows))
    text = "\n\n".join([
        "# Hours: how long servers are held",
        f"{runs} seeded runs a row, {SLOTS} slots a model, a lone sequence {1 + GAIN:g} times as fast. "
        f"Machine: {machine()}. The whole took {(time.perf_counter() - start) / 60:.0f} minutes.",
        check_table(found),
        EXPLAINED,
        markdown(HEADER, [row.cells() for row in rows]),
    ])  # fmt: skip
    publish(options, text, found)


if __name__ == "__main__":
    main()
