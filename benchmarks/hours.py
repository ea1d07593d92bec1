"""What the pace `time` costs on servers that are paid for by the hour, beside a fixed number of trials and `cost`.

Simulated clock (`study.servers`), the real controller, the best models of AIME'24 and the coins. Answers are log-normal
and twice as long when wrong. Sequences on a server share it as on a GPU: a lone one is 2.5 times as fast as one of 64,
and 7 times as fast as one of 256. A server is held from its first answer
to its last; one that would idle for longer than its start takes is stopped, and each start is paid. Places that models
share are held until the last model is done. All that was asked is counted, and everybody waits for it.

    python benchmarks/hours.py [--quick] [--runs 40] [--json PATH] [--markdown PATH]
    python benchmarks/hours.py --caps 6000 12000
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from answer_times import AnswerTimes, latency_of_mean
from as_many_calls import find
from scenarios import CAP, Scenario, paced, recorded, simulated
from shared_engine import SharedEngine
from tables import Check, add_data, arguments, machine, markdown, publish

from adaptive_eval.config.pace import Optimize
from adaptive_eval.core import Budget, Controller, Pace, Trials
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.rules import ZScore
from adaptive_eval.core.tape import TrialArrays
from adaptive_eval.simulate.worlds import World, binary, shared_difficulty
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
    "served", "tail", "slots", "wall", "held", "goal", "asked", "over `cost`", "goal", "called", "held, `cost`",
    "wall, smallest", "held, smallest",
)  # fmt: skip
EXPLAINED = """\
For what share of the fixed design's time are servers held by a run at `optimize: time`? Simulated clock,
{scenario}, answers log-normal and twice as long when wrong, starts of a minute included; means of {runs} runs,
the same worlds in each row. *Slots* are requests at a time a model. *Tail*: sigma of the logarithm of an answer's
length, and at how many medians it is cut. *Spread*: the slowest model takes 8 times as long as the fastest.

*wall*, *held* (with its standard error) and *asked* are shares of those of the fixed design on the same servers, and
*over `cost`* is what is asked in what `optimize: cost` asks in the same worlds. *called* are comparisons of
neighbours that were called. Last but two is what `cost` holds. The last two columns compare `optimize: time` with
the smallest fixed design that calls as many pairs, {smallest} trials a question ([as_many_calls](as_many_calls.md)),
which nobody knows beforehand. {machine}."""


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


CAPPED = ("called", "asked", "wall")
OVER_ANSWERS = 1.05
"""Goal for what `time` holds in what `cost` holds, with few models and many questions."""
FEW_HEADER = ("tail", "slots", "held, `cost`", "held, `time`", "`time` over `cost`", "called")


class Hours(NamedTuple):
    """One replay, or the mean of several."""

    wall: float
    held: float
    asked: float
    called: float
    wrong: float


class SpreadTimes:
    """Answers of some models take longer than those of others; none takes longer than the cut."""

    def __init__(self, times: AnswerTimes, factors: FloatArray, longest: float = np.inf) -> None:
        self._times, self._factors, self._longest = times, factors, longest

    def __call__(self, trials: TrialArrays, categories: IntArray) -> FloatArray:
        """How long each answer takes."""
        seconds = np.minimum(self._times(trials, categories), self._longest)
        return np.asarray(seconds * self._factors[trials.model])


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
    spread = SpreadTimes(times, factors(models, setting.spread), latency.median * setting.cut)
    slots, engine = setting.slots, partial(SharedEngine, GAIN * setting.slots / SLOTS)
    if setting.places:
        hosts = [SimulatedHost(range(models), slots, 5.0, places=setting.places, engine=engine)]
    elif setting.served == SHARED:
        hosts = [SimulatedHost(range(models), slots, engine=engine)]
    else:
        hosts = [SimulatedHost((model,), slots, engine=engine) for model in range(models)]
    controller = Controller(scenario.plan(**choices))
    timeline = drive_in_time(controller, scenario.tape(seed), spread, slots, shared=hosts)
    judged = judge_replay(seed, controller, scenario.world.truth)
    hours = sum(served.held_seconds(START, np.inf, parks=timeline.parks) for served in timeline.served)
    if setting.places or setting.served == SHARED:
        hours = timeline.seconds * max(setting.places, 1)
    asked = sum(len(served.start) for served in timeline.served) / (models * questions * scenario.cap)
    return Hours(timeline.seconds, hours, asked, judged.called, judged.wrong)


class Shares(NamedTuple):
    """Both paces in some worlds, their times as shares of those of the fixed design there."""

    answers: Hours
    time: Hours
    error: float
    """Standard error of what `time` holds."""
    smallest: FloatArray
    """Wall and held of `time`, as shares of those of the smallest fixed design with as many calls."""


def capped(scenario: Scenario, caps: list[int], runs: int) -> str:
    """Comparisons called, trials asked and wall hours of both paces under caps on trials, a server each."""
    rows = list[tuple[str, ...]]()
    all_trials = scenario.cap * scenario.world.p.shape[0] * scenario.world.p.shape[1]
    for cap in caps:
        cells = list[str]()
        for optimize in ("cost", "time"):
            choices = {**paced(scenario, optimize), "budget": Budget(trials=cap)}
            ran = [replay(scenario, SETTINGS[1], choices, seed) for seed in range(runs)]
            called, asked, wall = (float(np.mean([getattr(run, of) for run in ran])) for of in CAPPED)
            cells.append(f"{called:.2f}, {asked * all_trials:,.0f}, {wall / 3600:.1f}")
        rows.append((f"{cap:,}", *cells))
        print(*rows[-1], flush=True)
    return markdown(("cap", "`cost`", "`time`"), rows)


def shares(scenario: Scenario, setting: Setting, runs: int, smallest: int) -> Shares:
    """The means over the first worlds; `smallest` is the number of trials of the smallest fixed design."""
    ratios: dict[Optimize, list[FloatArray]] = {"cost": [], "time": []}
    small, few = list[Hours](), Trials(min=min(scenario.trials.min, smallest), max=smallest)
    for seed in range(runs):
        fixed = replay(scenario, setting, FIXED, seed)
        small.append(replay(scenario, setting, {**FIXED, "trials": few}, seed))
        for optimize in ratios:
            row = np.array(replay(scenario, setting, paced(scenario, optimize), seed))
            beside = row[:2] / (small[-1].wall, small[-1].held)
            row[:2] /= (fixed.wall, fixed.held)
            ratios[optimize].append(np.concatenate([row, beside]))
    answers, time = (np.mean(rows, axis=0).tolist() for rows in ratios.values())
    error = float(np.std(ratios["time"], axis=0)[1] / np.sqrt(max(runs - 1, 1)))
    width = len(Hours._fields)
    return Shares(Hours(*answers[:width]), Hours(*time[:width]), error, np.array(time[width:]))


def checks(setting: Setting, measured: Shares) -> Iterator[Check]:
    """What was to be shown, by this setting."""
    answers, time = measured.answers, measured.time
    what = f"{setting.served}, {setting.tail}, {setting.slots} slots"
    if setting.goal is not None:
        yield Check(f"{what}: held", round(time.held, 3), f"<= {setting.goal}", time.held <= setting.goal)
    if setting.asked is not None:
        times = time.asked / answers.asked
        yield Check(f"{what}: asked beside answers", round(times, 3), f"<= {setting.asked}", times <= setting.asked)


def met(value: float, goal: float | None) -> str:
    """A goal, and whether it is met."""
    return "" if goal is None else f"{goal:g}: {'yes' if value <= goal else 'no'}"


FEW = "three models, 500 questions"


def few_models(seed: int = 5) -> Scenario:
    """Three models 6 and 9 points apart on 500 questions of all difficulties, at most 8 trials of each."""
    rng = np.random.default_rng(seed)
    skill = rng.normal(0.4, 1.2, 500) + np.array([[0.35], [0.0], [-0.45]]) + rng.normal(0.0, 0.5, (3, 500))
    return Scenario(FEW, World(FEW, binary(1.0 / (1.0 + np.exp(-skill)))), cap=8)


def few_rows(runs: int) -> Iterator[tuple[tuple[object, ...], Check]]:
    """What both paces hold and ask with few models and many questions, as shares of the fixed design."""
    scenario = few_models()
    for cut in (8.0, 32.0):
        for slots in (16, 64, 256):
            setting = Setting(cut=cut, slots=slots)
            fixed, answers, time = (
                np.mean([replay(scenario, setting, choices, seed) for seed in range(runs)], axis=0)
                for choices in (
                    {**FIXED, "trials": scenario.trials}, paced(scenario, "cost"), paced(scenario, "time")
                )
            )  # fmt: skip
            held, over = (ratios[1] / fixed[1] for ratios in (answers, time)), time[1] / answers[1]
            title = f"{FEW}, {setting.tail}, {slots} slots: held over `cost`"
            yield (
                (setting.tail, slots, *(f"{share:.3f}" for share in held), f"{over:.2f}", f"{time[3]:.2f}"),
                Check(title, round(over, 3), f"<= {OVER_ANSWERS}", bool(over <= OVER_ANSWERS)),
            )


ONE_SERVER = Setting(SHARED)
ONE_SERVER_HEADER = ("world", "asked", "called", "held", "trials, smallest", "held, smallest")
GPU_MODELS = (0, 1, 3, 5, 6, 8)
"""Those of the runs on a real GPU (`gpu.md`), by their places among AIME'24's best."""


def on_one_server(data: Path) -> Iterator[Scenario]:
    """The worlds of the runs on a real GPU: six models on one server."""
    if (data / "aime2024_counts.npz").exists():
        best = recorded(data, "aime2024").world.p[list(GPU_MODELS)]
        yield Scenario("six models of AIME'24", World("aime2024", best))
    yield Scenario("six simulated models", shared_difficulty(len(GPU_MODELS)))


def one_server_rows(
    scenarios: Iterable[Scenario], runs: int, draws: int, pool: ProcessPoolExecutor
) -> Iterator[tuple[object, ...]]:
    """What `time` holds of one server for six models, as a share of the fixed design of 80 and of the smallest."""
    for scenario in scenarios:
        number = find(scenario, draws, pool).number
        smallest = scenario.cap if number is None else ceil(number)
        measured = shares(scenario, ONE_SERVER, runs, smallest)
        time = measured.time
        held = f"{time.held:.3f} ± {measured.error:.3f}"
        yield scenario.name, f"{time.asked:.3f}", f"{time.called:.2f}", held, smallest, f"{measured.smallest[1]:.2f}"


def main() -> None:
    parser = arguments("Server time and wall time of the paces.")
    add_data(parser)
    parser.add_argument("--runs", type=int, default=40, help="seeds of each row")
    parser.add_argument("--caps", type=int, nargs="+", metavar="TRIALS", help="only try runs under caps on trials")
    options = parser.parse_args()
    has_records = (options.data / "aime2024_counts.npz").exists()
    scenario = recorded(options.data, "aime2024") if has_records else simulated("coins")
    if options.caps:
        print(capped(scenario, options.caps, options.runs))
        return
    settings, runs = (SETTINGS[1:2], 1) if options.quick else (SETTINGS, options.runs)
    draws = 20 if options.quick else 400
    with ProcessPoolExecutor() as pool:
        number = find(scenario, draws, pool).number
        one_server = list(one_server_rows(on_one_server(options.data), runs, draws, pool))
    smallest = scenario.cap if number is None else ceil(number)
    rows, results = list[tuple[object, ...]](), list[Check]()
    for setting in settings:
        measured = shares(scenario, setting, runs, smallest)
        results += checks(setting, measured)
        answers, time, error = measured.answers, measured.time, measured.error
        rows.append((
            setting.served, setting.tail, setting.slots, f"{time.wall:.3f}", f"{time.held:.3f} ± {error:.3f}",
            met(time.held, setting.goal), f"{time.asked:.3f}", f"{time.asked / answers.asked:.2f}",
            met(time.asked / answers.asked, setting.asked), f"{time.called:.2f}", f"{answers.held:.2f}",
            *(f"{share:.2f}" for share in measured.smallest),
        ))  # fmt: skip
        print(*rows[-1], flush=True)
    few = list(few_rows(2 if options.quick else runs))
    results += [check for _, check in few]
    beside = f"`optimize: cost` asks {answers.asked:.3f} and calls {answers.called:.2f}, whatever the servers are."
    name = "AIME'24's twelve best" if has_records else "the coins"
    explained = EXPLAINED.format(scenario=name, runs=runs, smallest=smallest, machine=f"Machine: {machine()}")
    parts = (
        "# Hours of servers", explained, markdown(HEADER, rows), beside, f"## {FEW.capitalize()}",
        "At most 8 trials per question, a server for each model; shares of what the fixed design of 8 holds.",
        markdown(FEW_HEADER, [row for row, _ in few]),
        f"## {SHARED.capitalize()}", "The worlds of [gpu](gpu.md).", markdown(ONE_SERVER_HEADER, one_server),
    )  # fmt: skip
    publish(options, "\n\n".join(parts), results)


if __name__ == "__main__":
    main()
