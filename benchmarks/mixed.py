"""For how long servers are held that a run starts beside models that it asks through batch services.

Half of the models have a server of the run's own (64 slots, answers of 30 s in the mean), the others a batch service
that takes an hour, whatever the size of a batch. The real controller in simulated time; beside the fixed design, whose
servers each stop when their own trials are done.

    python benchmarks/mixed.py [--quick] [--runs 20] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from answer_times import AnswerTimes, latency_of_mean
from hours import FIXED, GAIN, SLOTS
from scenarios import Scenario, paced, recorded, simulated
from shared_engine import SharedEngine
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.core import Controller, Pace
from adaptive_eval.core.tape import TrialArrays
from adaptive_eval.study.judged import judge_replay
from adaptive_eval.study.servers import SimulatedHost
from adaptive_eval.study.timed import ServedSpans, drive_in_time
from scorio.moments import FloatArray, IntArray

ANSWER, BATCH, START = 30.0, 3600.0, 120.0
"""Seconds of an answer, of a batch, and until a server is there again."""
FAVOURS = ("answers", "time", "batches")
HEADER = (
    "set", "pace", "trials of own", "trials in batches", "looks", "hours", "held through", "held", "with loading",
    "called", "wrong",
)  # fmt: skip
EXPLAINED = """\
*trials* are shares of those of the fixed design; *hours* is the time of the run. Server time is a share of that of the
fixed design: *held through* where a server is up until its model's last answer, *held* as runs stop servers while only
a batch is waited for, *with loading* with two minutes for each further start as well. *called* are comparisons of
neighbours that were called, *wrong* those among them that were called for a model that is not better."""


class Mixed(NamedTuple):
    """One replay, or the mean of several."""

    own: float
    batched: float
    looks: float
    hours: float
    through: float
    held: float
    loading: float
    called: float
    wrong: float


class TimesOfMixed:
    """Answers of batched models come with their batch."""

    def __init__(self, times: AnswerTimes, batched: IntArray) -> None:
        self._times, self._batched = times, batched

    def __call__(self, trials: TrialArrays, categories: IntArray) -> FloatArray:
        own = self._times(trials, categories)
        return np.where(np.isin(trials.model, self._batched), BATCH, own)


def replay(job: tuple[Scenario, str | None, int]) -> Mixed:
    """One seeded replay; without a pace that of the fixed design, of whose servers none waits for anybody."""
    scenario, favour, seed = job
    models, questions, _ = scenario.world.p.shape
    batched = np.sort(np.random.default_rng(1).permutation(models)[: models // 2])
    own = np.setdiff1d(np.arange(models), batched)
    latency = latency_of_mean(ANSWER, scenario.world.p, scenario.world.w)
    times = AnswerTimes(latency, (models, questions), scenario.world.w, np.random.default_rng([seed, 1]))
    controller = Controller(scenario.plan(**choices_of(scenario, favour)))
    slots = [models * questions * scenario.cap if model in batched else SLOTS for model in range(models)]
    hosts = [SimulatedHost((model,), width, engine=partial(SharedEngine, GAIN)) for model, width in enumerate(slots)]
    timeline = drive_in_time(controller, scenario.tape(seed), TimesOfMixed(times, batched), slots, shared=hosts)
    through = sum(float(timeline.served[model].end.max()) for model in own)
    batches = [timeline.served[model] for model in batched]
    held = through - sum(_stopped_seconds(timeline.served[model], batches) for model in own)
    again = sum(_starts(timeline.served[model].start, timeline.served[model].end) for model in own)
    trials, found = controller.trials / (scenario.cap * questions), judge_replay(seed, controller, scenario.world.truth)
    return Mixed(
        float(trials[own].mean()), float(trials[batched].mean()), len(timeline.looks), timeline.seconds / 3600.0,
        through, held, held + START * again, found.called, found.wrong,
    )  # fmt: skip


def choices_of(scenario: Scenario, favour: str | None) -> dict[str, Any]:
    """What a configuration means that favours this; without, the fixed design, all of which is asked at once."""
    if favour is None:
        return {**FIXED, "pace": Pace(lookahead=scenario.cap)}
    return paced(scenario, "time" if favour == "time" else "answers", batched=favour == "batches")


def _starts(begins: FloatArray, ends: FloatArray) -> int:
    """How often a server is started again: after every gap that is longer than a start."""
    order = np.argsort(begins, kind="stable")
    return int(np.sum(begins[order][1:] - np.maximum.accumulate(ends[order])[:-1] > START))


def _stopped_seconds(own: ServedSpans, batches: Sequence[ServedSpans]) -> float:
    """Seconds of all gaps between answers that are longer than a start, in which a batch is under way."""
    order = np.argsort(own.start, kind="stable")
    since, until = np.maximum.accumulate(own.end[order])[:-1], own.start[order][1:]
    long = until - since > START
    taken, back = (np.concatenate(times) for times in zip(*batches, strict=True))
    return sum(
        float(to - at)
        for at, to in zip(since[long], until[long], strict=True)
        if np.any((taken < to) & (back > at + START))
    )


class Row(NamedTuple):
    """A set at a pace, beside the fixed design."""

    set: str
    pace: str
    found: Mixed

    def cells(self) -> tuple[object, ...]:
        found = self.found
        each = (f"{value:.3f}" for value in (found.own, found.batched))
        shares = (f"{value:.3f}" for value in (found.through, found.held, found.loading))
        looks = f"{found.looks:.1f}", f"{found.hours:.1f}"
        return self.set, self.pace, *each, *looks, *shares, f"{found.called:.2f}", f"{found.wrong:.2f}"


def measured(pool: ProcessPoolExecutor, scenario: Scenario, favour: str | None, runs: int) -> FloatArray:
    """The mean of each figure of `Mixed`."""
    each = list(pool.map(replay, [(scenario, favour, seed) for seed in range(runs)]))
    return np.asarray(np.mean(each, axis=0))


def rows_of(pool: ProcessPoolExecutor, scenario: Scenario, runs: int) -> Iterator[Row]:
    """One for each pace."""
    fixed = Mixed(*measured(pool, scenario, None, 2).tolist()).through
    for favour in FAVOURS:
        found = Mixed(*measured(pool, scenario, favour, runs).tolist())
        held = {name: getattr(found, name) / fixed for name in ("through", "held", "loading")}
        row = Row(scenario.name, favour, found._replace(**held))
        print(*row.cells(), flush=True)
        yield row


def main() -> None:
    parser = arguments("For how long servers are held beside batches.")
    parser.add_argument("--runs", type=int, default=20)
    add_data(parser)
    options = parser.parse_args()
    runs = 2 if options.quick else options.runs
    scenarios = [recorded(options.data, "aime2024")] if options.data.exists() else []
    with ProcessPoolExecutor(1 if options.quick else None) as pool:
        rows = [row for one in (*scenarios, simulated("coins")) for row in rows_of(pool, one, runs)]
    chosen = [row for row in rows if row.pace == "batches"]
    found = [
        Check(f"{row.set}: held, beside fixed N", round(row.found.held, 3), "<= 0.75", row.found.held <= 0.75)
        for row in chosen
    ]
    text = "\n\n".join([
        "# Mixed: servers of one's own beside batch services",
        f"{runs} seeded runs a row, {SLOTS} slots a model. Machine: {machine()}.",
        check_table(found),
        EXPLAINED,
        markdown(HEADER, [row.cells() for row in rows]),
    ])  # fmt: skip
    publish(options, text, found)


if __name__ == "__main__":
    main()
