"""What the pace `time` costs on servers that are paid for by the hour, beside a fixed number of trials and `cost`.

*wall*, *held* (with its standard error) and *asked* are shares of those of the fixed design on the same servers, and
*over `cost`* is what is asked in what `optimize: cost` asks in the same worlds. The last two columns compare
`optimize: time` with the smallest fixed design that calls as many pairs. Last but two is what `cost` holds.

Simulated clock (`study.servers`), the real controller, the best models of AIME'24 and the coins. Answers are log-normal
and twice as long when wrong. Sequences on a server share it as on a GPU: a lone one is 2.5 times as fast as one of 64,
and 7 times as fast as one of 256. A server is held from its first answer
to its last; one that would idle for longer than its start takes is stopped, and each start is paid. Places that models
share are held until the last model is done. All that was asked is counted, and everybody waits for it.

    python benchmarks/hours.py [--quick] [--runs 40] [--json PATH]
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from answer_times import AnswerTimes, latency_of_mean
from as_many_calls import find
from scenarios import CAP, RECORDED, Scenario, paced, recorded, simulated
from shared_engine import SharedEngine
from tables import Check, arguments, at_most, markdown, publish

from adaptive_eval.config.pace import Optimize
from adaptive_eval.core import Budget, Controller, Pace, Trials
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.rules import ZScore
from adaptive_eval.core.tape import TrialArrays
from adaptive_eval.simulate.worlds import World, shared_difficulty
from adaptive_eval.study.judged import judge_replay
from adaptive_eval.study.servers import SimulatedHost
from adaptive_eval.study.timed import drive_in_time
from scorio.moments import FloatArray, IntArray

SLOTS, GAIN = 64, 1.5
"""Requests at a time, and how much faster a lone one is; that grows as the slots do."""
MEAN, START = 120.0, 60.0
"""Seconds of an answer, and of the start of a server."""
FIXED: dict[str, Any] = {
    "rule": ZScore(1e9),
    "judging": Judging(futility=None),
    "policy": Uniform(),
    "pace": Pace(lookahead=CAP),
}
"""All trials are there at once."""
HEADER = (
    *("served", "tail", "slots", "wall", "held", "asked", "over `cost`", "called"),
    *("held, `cost`", "wall, smallest", "held, smallest"),
)


class Setting(NamedTuple):
    """The servers and the answers that a row is about, with goals for `held`."""

    served: str = "a server each, alike"
    sigma: float = 1.0
    cut: float = 8.0
    slots: int = SLOTS
    spread: float = 1.0
    places: int = 0
    goal: float | None = None
    asked: float | None = None
    """Goal for what is asked, beside `cost`."""

    @property
    def tail(self) -> str:
        """In words."""
        return f"{self.sigma:g}, " + ("not cut" if np.isinf(self.cut) else f"cut at {self.cut:g}")


SPREAD, POOL, ONE = "a server each, spread", "pool of 4, 5 s", "one place, 5 s"
SHARED = "all models on one server"
SETTINGS = (
    Setting(sigma=0.5, cut=np.inf),
    Setting(goal=0.60, asked=1.15),
    Setting(SPREAD, spread=8.0, goal=0.70),
    Setting(cut=32.0, goal=0.70),
    Setting(SPREAD, cut=32.0, spread=8.0, goal=0.80),
    Setting(cut=np.inf, goal=0.85),
    Setting(SPREAD, cut=np.inf, spread=8.0, goal=0.95),
    Setting(slots=16),
    Setting(slots=256, goal=0.75, asked=1.4),
    Setting(SPREAD, slots=256, spread=8.0, goal=0.80),
    Setting(POOL, places=4, goal=0.60),
    Setting(POOL, places=4, cut=np.inf, goal=0.80),
    Setting(ONE, places=1, goal=0.60),
    Setting(ONE, places=1, cut=np.inf, goal=0.75),
)


PACES: tuple[Optimize, ...] = ("cost", "time")
CAPS = (6000, 12_000, 16_000)
"""Caps on trials under which both paces are compared."""


class Hours(NamedTuple):
    """One replay, or the mean of several."""

    wall: float
    held: float
    asked: float
    called: float


def factors(models: int, spread: float) -> FloatArray:
    """Times as long as the mean, evenly in their logarithms, in an order that is not that of the models."""
    values = np.exp(np.linspace(-0.5, 0.5, models) * np.log(spread))
    np.random.default_rng(0).shuffle(values)
    return np.asarray(values / values.mean())


def replay(scenario: Scenario, setting: Setting, choices: dict[str, Any], seed: int) -> Hours:
    """One seeded replay."""
    models, questions, _ = scenario.world.p.shape
    latency = latency_of_mean(MEAN, scenario.world.p, scenario.world.w, sigma=setting.sigma)
    times = AnswerTimes(latency, (models, questions), scenario.world.w, np.random.default_rng([seed, 1]))
    longest, slower = latency.median * setting.cut, factors(models, setting.spread)

    def seconds(trials: TrialArrays, categories: IntArray) -> FloatArray:
        return np.asarray(np.minimum(times(trials, categories), longest) * slower[trials.model])

    slots, engine = setting.slots, partial(SharedEngine, GAIN * setting.slots / SLOTS)
    if setting.places:
        hosts = [SimulatedHost(range(models), slots, 5.0, places=setting.places, engine=engine)]
    elif setting.served == SHARED:
        hosts = [SimulatedHost(range(models), slots, engine=engine)]
    else:
        hosts = [SimulatedHost((model,), slots, engine=engine) for model in range(models)]
    controller = Controller(scenario.plan(**choices))
    timeline = drive_in_time(controller, scenario.tape(seed), seconds, slots, shared=hosts)
    judged = judge_replay(seed, controller, scenario.world.truth)
    held = sum(served.held_seconds(START, np.inf, parks=timeline.parks) for served in timeline.served)
    if len(hosts) == 1:
        held = timeline.seconds * max(setting.places, 1)
    asked = sum(len(served.start) for served in timeline.served) / (models * questions * scenario.cap)
    return Hours(timeline.seconds, held, asked, judged.called)


class Shares(NamedTuple):
    """Both paces in some worlds, their times as shares of those of the fixed design there."""

    answers: Hours
    time: Hours
    error: float
    """Standard error of what `time` holds."""
    smallest: FloatArray
    """Wall and held of `time`, as shares of those of the smallest fixed design with as many calls."""


def capped(scenario: Scenario, cap: int, runs: int) -> tuple[str, ...]:
    """Comparisons called, trials asked and wall hours of both paces under a cap on trials, a server each."""
    cells, (models, questions, _) = list[str](), scenario.world.p.shape
    for optimize in PACES:
        choices = {**paced(scenario, optimize), "budget": Budget(trials=cap)}
        mean = Hours(*np.mean([replay(scenario, SETTINGS[1], choices, seed) for seed in range(runs)], axis=0).tolist())
        asked = mean.asked * scenario.cap * models * questions
        cells.append(f"{mean.called:.2f}, {asked:,.0f}, {mean.wall / 3600:.1f}")
    return f"{cap:,}", *cells


def shares(scenario: Scenario, setting: Setting, runs: int, smallest: int) -> Shares:
    """The means over the first worlds; `smallest` is the number of trials of the smallest fixed design."""
    few = {**FIXED, "trials": Trials(min=min(scenario.trials.min, smallest), max=smallest)}
    ratios: dict[Optimize, list[FloatArray]] = {optimize: [] for optimize in PACES}
    for seed in range(runs):
        fixed, small = (np.array(replay(scenario, setting, design, seed))[:2] for design in (FIXED, few))
        for optimize, rows in ratios.items():
            row = np.array(replay(scenario, setting, paced(scenario, optimize), seed))
            rows.append(np.concatenate([row[:2] / fixed, row[2:], row[:2] / small]))
    answers, time = (np.mean(rows, axis=0).tolist() for rows in ratios.values())
    error = float(np.std(ratios["time"], axis=0)[1] / np.sqrt(max(runs - 1, 1)))
    return Shares(Hours(*answers[:-2]), Hours(*time[:-2]), error, np.array(time[-2:]))


def checks_of(setting: Setting, measured: Shares) -> Iterator[Check]:
    """What was to be shown, by this setting."""
    answers, time = measured.answers, measured.time
    what = f"{setting.served}, {setting.tail}, {setting.slots} slots"
    if setting.goal is not None:
        yield at_most(f"{what}: held", time.held, setting.goal)
    if setting.asked is not None:
        yield at_most(f"{what}: asked beside answers", time.asked / answers.asked, setting.asked)


ONE_SERVER = Setting(SHARED)
GPU_MODELS = (0, 1, 3, 5, 6, 8)
"""Those of the runs on a real GPU (`gpu.md`), by their places among AIME'24's best."""


def on_one_server(data: Path) -> Iterator[Scenario]:
    """The worlds of the runs on a real GPU: six models on one server."""
    if (data / RECORDED["aime2024"]).exists():
        best = recorded(data, "aime2024").world.p[list(GPU_MODELS)]
        yield Scenario("six models of AIME'24", World("aime2024", best))
    yield Scenario("six simulated models", shared_difficulty(len(GPU_MODELS)))


def smallest_design(scenario: Scenario, draws: int) -> int:
    """Trials of the smallest fixed design that calls as many pairs as a run."""
    with ProcessPoolExecutor() as pool:
        number = find(scenario, draws, pool).number
    return scenario.cap if number is None else ceil(number)


def main() -> None:
    options = arguments(__doc__, runs=40, quick_runs=1, data=True).parse_args()
    has_records = (options.data / RECORDED["aime2024"]).exists()
    scenario = recorded(options.data, "aime2024") if has_records else simulated("coins")
    runs, draws = options.runs, 20 if options.quick else 400
    smallest, one_server = smallest_design(scenario, draws), list[tuple[object, ...]]()
    for world in on_one_server(options.data):
        trials = smallest_design(world, draws)
        _, time, error, beside = shares(world, ONE_SERVER, runs, trials)
        figures = f"{time.asked:.3f}", f"{time.called:.2f}", f"{time.held:.3f} ± {error:.3f}"
        one_server.append((world.name, *figures, trials, f"{beside[1]:.2f}"))
    rows, checks = list[tuple[object, ...]](), list[Check]()
    for setting in SETTINGS[1:2] if options.quick else SETTINGS:
        measured = shares(scenario, setting, runs, smallest)
        checks += checks_of(setting, measured)
        answers, time, error, beside = measured
        held = f"{time.wall:.3f}", f"{time.held:.3f} ± {error:.3f}"
        asked = f"{time.asked:.3f}", f"{time.asked / answers.asked:.2f}", f"{time.called:.2f}"
        others = f"{answers.held:.2f}", *(f"{share:.2f}" for share in beside)
        rows.append((setting.served, setting.tail, setting.slots, *held, *asked, *others))
    caps = [capped(scenario, cap, runs) for cap in (CAPS[:1] if options.quick else CAPS)]
    publish(
        options,
        "Hours of servers",
        __doc__,
        f"{scenario.name}; {runs} runs, the smallest fixed design has {smallest} trials a question.",
        markdown(HEADER, rows),
        f"`optimize: cost` asks {answers.asked:.3f} and calls {answers.called:.2f}, whatever the servers are.",
        "Under a cap on trials: comparisons called, trials, hours.",
        markdown(("cap", "`cost`", "`time`"), caps),
        "All models on one server.",
        markdown(("world", "asked", "called", "held", "trials, smallest", "held, smallest"), one_server),
        checks=checks,
    )


if __name__ == "__main__":
    main()
