"""What servers that are paid by the hour cost: for how long they are held, beside a fixed number of trials.

Simulated clock (`study.servers`), the real controller, the best models of AIME'24, the coins, and a set with more than
a hundred questions; 64 slots a model, answers log-normal with the stated mean, twice as long when wrong, alike for all
models or spread 8-fold over them. Few sequences at a time are faster, a lone one twice as fast (`GAIN`; 0 is a server
whose speed knows no load). A server is held as a run holds it, which stops it when its model is settled, or has nothing
to do until others want it again, and when what it was asked has come. Loading is in no server time, as in reports; how
often a server was started again is told beside it. Places that models share are held until the last model is done.
They are given to models as a run gives them (`study.servers`), free ones as further replicas, in the fixed design, too.
A place of a pool has memory for the next model while the last answers of one still run (`overlap: true`), unless it is
said to be drained first; others have it where that is said.

Rows of a server each that a goal is about have more runs than the others: over 40 of them chance alone moves the means
by a hundredth or two. Calls are compared over the same runs. With `--rows` each row is kept in that file as soon as it
is measured, and is not measured again; with `--kept` none is measured, and the table is of those that are there.

    python benchmarks/hours.py [--quick] [--runs 40] [--goal-runs 200] [--sets aime2024] [--favours servers]
        [--workers 1] [--rows PATH] [--kept] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scenarios import Scenario, recorded, simulated
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.config.decisions import AllocationConfig, TrialsConfig
from adaptive_eval.config.pace import pace_of
from adaptive_eval.core import Controller, Pace, Sequential
from adaptive_eval.core.judge import BoolArray, Judging
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.rules import ZScore
from adaptive_eval.core.tape import TrialArrays
from adaptive_eval.core.types import Look
from adaptive_eval.study.judged import judge_replay
from adaptive_eval.study.servers import SimulatedHost
from adaptive_eval.study.timed import AnswerTimes, ServedSpans, Timeline, drive_in_time, latency_of_mean
from scorio.moments import FloatArray, IntArray

SLOTS, GAIN = 64, 1.0
FIXED_RUNS = 4
"""A fixed design varies little."""
ALIKE = 0.1
"""Mean calls that differ by less are as many."""
Favour = Literal["cost", "balanced", "time", "servers"]
FAVOURS: tuple[Favour, ...] = ("balanced", "time", "servers")
HEADER = (
    "set", "served", "answers", "pace", "runs", "wall", "held", "trials", "looks", "swaps", "called", "wrong",
)  # fmt: skip
EXPLAINED = """\
*wall* and *held* (server time, summed over servers or places) are shares of those of the fixed design on the same
servers, *trials* of its trials, each with the standard error that *runs* leave. *called* are comparisons of neighbours
that were called, *wrong* those among them that were called for a model that is not better. *swaps* are changes of the
model at a place; of servers of their own how often one was started again, the loading of which is in no server time,
and takes none here. Two models that are up at one place for a while are each simulated as fast as alone, which a GPU
that is not busy with the last answers of one comes near to, and a busy one does not."""


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


class HeldServers:
    """When each model's server is up, as a run starts and stops them."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._rests: list[BoolArray] = []
        """After each look, whose servers go as soon as they have answered."""

    def look(self, _: Look) -> None:
        """Take a look in."""
        controller = self._controller
        wanted = controller.still_wanted() if controller.finished is None else False
        self._rests.append(controller.resting() | ~np.asarray(wanted))

    def seconds(self, timeline: Timeline) -> tuple[float, int]:
        """Server time in all, and how often a server was started again."""
        if isinstance(self._controller.plan.policy, Uniform):  # a fixed design, whose looks decide nothing
            return sum(float(served.end.max(initial=0.0)) for served in timeline.served), 0
        times = np.append(timeline.looks, timeline.seconds)
        each = [
            _held(served, times, rests) for served, rests in zip(timeline.served, np.array(self._rests).T, strict=True)
        ]
        return sum(held for held, _ in each), sum(again for _, again in each)


def _held(served: ServedSpans, times: FloatArray, rests: BoolArray) -> tuple[float, int]:
    """How long a server is up that stops, while its model rests, with the last answer; and how often it comes back.

    Nothing is issued between looks: what ends before the next one was issued before this one.
    """
    held, again, up = float(times[0]), 0, True
    for now, until, resting in zip(times[:-1], times[1:], rests, strict=True):
        begins = served.start[(served.start >= now) & (served.start < until)]
        if not up and len(begins):
            up, again, held = True, again + 1, held
        last = float(served.end[served.start < until].max(initial=0.0))
        if resting and up:
            held, up = held + min(max(last - now, 0.0), until - now), last > until
        elif up:
            held += until - now
    return held, again


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
    spread, servers = SpreadTimes(times, factors(models, setting.spread)), HeldServers(controller)
    timeline = drive_in_time(
        controller, scenario.tape(seed), spread, SLOTS, on_look=servers.look, shared=shared, gain=GAIN
    )
    found = judge_replay(seed, controller, scenario.world.truth, timeline)
    held, starts = servers.seconds(timeline)
    if setting.places:
        held, starts = timeline.seconds * setting.places, len(timeline.swaps)
    return Hours(timeline.seconds, held, found.cost, found.looks, starts, found.called, found.wrong)


FIXED = {"rule": ZScore(1e9), "judging": Judging(futility=None), "policy": Uniform()}


def paced(scenario: Scenario, favour: Favour, setting: Setting) -> dict[str, Any]:
    """What a configuration means that favours this."""
    trials = TrialsConfig(max=scenario.cap, favour=favour)
    questions = scenario.world.p.shape[1]
    pace = pace_of(AllocationConfig(), trials, questions, in_turn=setting.places > 0)
    return {"pace": pace, "rule": Sequential(start=pace.first_round(trials.min, scenario.cap) / scenario.cap)}


class Row(NamedTuple):
    """A set on servers at a pace, beside the fixed design."""

    set: str
    setting: Setting
    favour: Favour
    runs: int
    found: Hours
    errors: Hours
    """The standard errors of the means."""
    calls: tuple[float, ...] = ()
    """Of each run."""

    @property
    def key(self) -> str:
        """What is measured, in words."""
        return f"{self.set}, {self.setting.name}, {_answers(self.setting)}, {self.favour}"

    def cells(self) -> tuple[object, ...]:
        found, errors = self.found, self.errors
        shares = (
            f"{share:.3f}" if np.isnan(error) else f"{share:.3f} +- {error:.3f}"
            for share, error in zip(found[:3], errors[:3], strict=True)
        )
        return (
            self.set, self.setting.name, _answers(self.setting), self.favour, self.runs, *shares,
            f"{found.looks:.0f}", f"{found.swaps:.0f}", f"{found.called:.2f}", f"{found.wrong:.2f}",
        )  # fmt: skip


def _answers(setting: Setting) -> str:
    return f"{setting.answer:g} s, " + ("alike" if setting.spread == 1.0 else f"spread {setting.spread:g}-fold")


class KeptRows:
    """Rows that were measured before, by what they are about, and the file that has them, if there is one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self._rows: dict[str, dict[str, Any]] = {row["key"]: row for row in map(json.loads, lines)}

    def find(self, row: Row) -> Row | None:
        """The row as it was measured with so many runs, or more."""
        kept = self._rows.get(row.key)
        if kept is None or kept["runs"] < row.runs:
            return None
        row = row._replace(runs=kept["runs"])
        return row._replace(
            found=Hours(*kept["found"]),
            errors=Hours(*(np.nan if error is None else error for error in kept["errors"])),
            calls=tuple(kept["calls"]),
        )

    def add(self, row: Row) -> None:
        """Keep a row."""
        if self._path is not None:
            kept = {"key": row.key, "runs": row.runs, "found": row.found, "errors": row.errors, "calls": row.calls}
            with self._path.open("a") as file:
                file.write(json.dumps(kept) + "\n")


class Bench:
    """Replays on all cores."""

    def __init__(self, runs: int, goal_runs: int, pool: ProcessPoolExecutor | None, kept: KeptRows) -> None:
        """`pool`: who measures what is not kept; None for nobody."""
        self.runs, self.goal_runs, self.pool, self.kept = runs, goal_runs, pool, kept

    def measured(self, scenario: Scenario, setting: Setting, choices: dict[str, Any], runs: int) -> FloatArray:
        """(runs, figures): those of `Hours`."""
        assert self.pool is not None
        return np.array(list(self.pool.map(replay, [(scenario, setting, choices, seed) for seed in range(runs)])))

    def rows(self, scenario: Scenario, setting: Setting, favours: Sequence[Favour]) -> Iterator[Row]:
        """One for each pace."""
        nothing = Hours(*[np.nan] * len(Hours._fields))
        asked = [
            Row(scenario.name, setting, favour, self._runs(setting, favour), nothing, nothing) for favour in favours
        ]
        found = {row: kept for row in asked if (kept := self.kept.find(row)) is not None}
        missing = [row for row in asked if row not in found] if self.pool is not None else []
        scale = self._fixed(scenario, setting) if missing else np.ones(len(nothing))
        for row in missing:
            shares = self.measured(scenario, setting, paced(scenario, row.favour, setting), row.runs) / scale
            errors = shares.std(axis=0, ddof=1) / np.sqrt(row.runs)
            means, calls = Hours(*shares.mean(axis=0).tolist()), shares[:, Hours._fields.index("called")]
            found[row] = row._replace(found=means, errors=Hours(*errors.tolist()), calls=tuple(calls.tolist()))
            self.kept.add(found[row])
            print(*found[row].cells(), flush=True)
        yield from (found[row] for row in asked if row in found)

    def _runs(self, setting: Setting, favour: Favour) -> int:
        judged = setting.name == OWN and favour != "time" and (favour == "servers" or setting == SETTINGS[0])
        return self.goal_runs if judged else self.runs

    def _fixed(self, scenario: Scenario, setting: Setting) -> FloatArray:
        """What figures are shares of: wall time and server time of the fixed design, and 1 for the others."""
        never = {**FIXED, "pace": Pace(lookahead=scenario.cap)}
        wall, held = self.measured(scenario, setting, never, min(self.runs, FIXED_RUNS)).mean(axis=0)[:2]
        return np.array(Hours(wall, held, *[1.0] * (len(Hours._fields) - 2)))


def checks(rows: Sequence[Row]) -> Iterator[Check]:
    """The goals of `servers`, and that it calls no fewer than `balanced` does with a server each."""
    usual = {row.set: row.calls for row in rows if row.favour == "balanced" and row.setting == SETTINGS[0]}
    for row in rows:
        setting, found = row.setting, row.found
        name = f"{row.set}, {setting.name}, {'alike' if setting.spread == 1.0 else 'spread'}"
        if row.favour == "cost":
            goal = "0.52, no worse" if row.set == "aime2024" else ""
            holds = round(found.trials, 2) <= 0.52 if goal else None
            yield Check(f"{row.set}: trials at favour cost", round(found.trials, 3), goal, holds)
        if row.favour != "servers":
            continue
        aimed = setting.goal < 1.0
        goal, holds = (f"<= {setting.goal}", found.held <= setting.goal) if aimed else ("", None)
        yield Check(f"{name}: held, beside fixed N", round(found.held, 3), goal, holds)
        if (most := setting.most_wall) is not None:
            yield Check(f"{name}: wall time, beside fixed N", round(found.wall, 3), f"<= {most}", found.wall <= most)
        if row.set in usual:
            common = min(len(row.calls), len(usual[row.set]))
            called, least = (float(np.mean(calls[:common])) for calls in (row.calls, usual[row.set]))
            yield Check(f"{name}: calls", round(called, 2), f">= {least:.2f} (balanced)", called >= least - ALIKE)


def _recorded(folder: Path, quick: bool) -> Iterator[Scenario]:
    """AIME'24, and a set with 400 questions, of which each model has no more than 20 trials."""
    yield recorded(folder, "aime2024")
    if not quick:
        yield replace(recorded(folder, "livecodebench", cap=20), counts=None)


def main() -> None:
    parser = arguments("For how long servers are held.")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--goal-runs", type=int, default=200)
    parser.add_argument("--sets", nargs="*", help="these sets alone")
    parser.add_argument("--favours", nargs="*", default=["cost", *FAVOURS], help="these paces alone")
    parser.add_argument("--kept", action="store_true", help="measure nothing: show the rows that are kept")
    parser.add_argument("--workers", type=int, help="processes at a time")
    parser.add_argument("--rows", type=Path, metavar="PATH", help="where measured rows are kept, and found again")
    add_data(parser)
    options = parser.parse_args()
    runs, goal_runs = (4, 4) if options.quick else (options.runs, options.goal_runs)
    scenarios = list(_recorded(options.data, options.quick)) if options.data.exists() else []
    rows: list[Row] = []
    chosen = [one for one in (*scenarios, simulated("coins")) if options.sets is None or one.name in options.sets]
    favours: list[Favour] = ["balanced", "servers"] if options.quick else options.favours
    with nullcontext() if options.kept else ProcessPoolExecutor(options.workers) as pool:
        bench = Bench(runs, goal_runs, pool, KeptRows(options.rows))
        for scenario, setting in product(chosen, SETTINGS):
            asked = [favour for favour in favours if favour != "cost" or setting == SETTINGS[0]]
            rows += bench.rows(scenario, setting, asked)
    found = list(checks(rows))
    text = "\n\n".join([
        "# Hours: how long servers are held",
        f"{SLOTS} slots a model, a lone sequence {1 + GAIN:g} times as fast, seeds from 0 on. Machine: {machine()}.",
        check_table(found),
        EXPLAINED,
        markdown(HEADER, [row.cells() for row in rows]),
    ])  # fmt: skip
    publish(options, text, found)


if __name__ == "__main__":
    main()
