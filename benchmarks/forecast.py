"""Whether forecasts hold: how often the cost of a run lies in the 80% interval that was forecast for it.

In each of many worlds a pilot is drawn, a forecast is made from it, and the run itself is simulated in the true world.
Worlds differ in kind: models of random ability on questions as those of AIME, coins of the paper with questions of
their own, models within three points of each other, four categories, and subsets of the models of a recorded AIME'24
study (read from ../shared/data where it is present). Without a pilot, worlds and forecast come from the stated prior.

    python benchmarks/forecast.py [--quick] [--worlds 100] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scenarios import RECORDED
from scipy.special import expit
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.core import Bench, Pace, Plan, Trials
from adaptive_eval.core.types import NO_COST
from adaptive_eval.simulate.worlds import (
    BINARY,
    COIN_CONCENTRATION,
    COIN_MEANS,
    beta_profile,
    binary,
    rubric,
    with_mean,
)
from adaptive_eval.study.pilot import AnswerUsage
from adaptive_eval.study.scenario import ServiceCosts
from adaptive_eval.study.simulated import SimulatedRun, simulate_run
from adaptive_eval.study.types import range_of
from adaptive_eval.study.worlds import WorldPrior, posterior_chances, prior_chances

MODELS, QUESTIONS = 5, 16
HORIZON = 24
DRAWS = 19
"""Simulated runs of a forecast: the 80% interval is from the 2nd to the 18th."""
REAL = 1 << 30
"""The number of the real world's answers among those of simulated runs."""
HEADER = (
    "worlds", "pilot", "in the interval", "below", "above", "forecast", "interval", "realised", "decided, forecast",
    "decided",
)  # fmt: skip

FloatArray = NDArray[np.float64]


class World(NamedTuple):
    """Probabilities (L, M, K) and the weights of the categories."""

    chances: FloatArray
    weights: FloatArray = BINARY


def aime_like(rng: np.random.Generator) -> World:
    """Questions are hard or easy for everyone, abilities random."""
    return _shared(rng, spread=3.5, taste=0.8, low=0.16, high=0.38)


def close(rng: np.random.Generator) -> World:
    """The same, within three points."""
    return _shared(rng, spread=3.0, taste=0.5, low=0.40, high=0.43)


def _shared(rng: np.random.Generator, spread: float, taste: float, low: float, high: float) -> World:
    difficulty = rng.normal(0.0, spread, QUESTIONS)
    means = rng.uniform(low, high, MODELS)
    return World(binary(np.array([with_mean(expit(rng.normal(0.0, taste, QUESTIONS) - difficulty), m) for m in means])))


def coins(rng: np.random.Generator) -> World:
    """Some of the paper's coins, two of which are an exact tie; nothing is shared between them."""
    means = rng.choice(COIN_MEANS, MODELS, replace=False)
    return World(binary(np.array([beta_profile(mean, QUESTIONS, COIN_CONCENTRATION, rng) for mean in means])))


def four_categories(rng: np.random.Generator) -> World:
    """Partial credit and invalid answers."""
    world = rubric(12, QUESTIONS, seed=int(rng.integers(1 << 30)))
    return World(world.p[rng.choice(12, MODELS, replace=False)], world.w)


def recorded(rng: np.random.Generator, shares: FloatArray) -> World:
    """Some models and questions of a recorded set, its shares as the truth."""
    models = rng.choice(len(shares), MODELS, replace=False)
    return World(binary(shares[np.ix_(models, rng.choice(shares.shape[1], QUESTIONS, replace=False))]))


def typical(rng: np.random.Generator) -> World:
    """A world of the stated prior."""
    return World(next(prior_chances(WorldPrior(), MODELS, QUESTIONS, BINARY, 1, rng)))


Kind = Callable[[np.random.Generator], World]


class Trial(NamedTuple):
    """One forecast beside what came."""

    low: float
    median: float
    high: float
    realised: float
    decided_forecast: float
    decided: float

    @property
    def holds(self) -> bool:
        return self.low <= self.realised <= self.high


def tried(kind: Kind, pilot: int, seed: int) -> Trial:
    """A forecast from `pilot` trials a question (0: from the prior), and the run."""
    rng = np.random.default_rng([seed, pilot])
    world = kind(rng)
    bench = Bench(MODELS, QUESTIONS, world.weights)
    plan = Plan(bench, trials=Trials(4, HORIZON), pace=Pace(lookahead=2))
    if pilot:
        drawn = posterior_chances(rng.multinomial(pilot, world.chances), world.weights, DRAWS, rng)
    else:
        drawn = prior_chances(WorldPrior(), bench.models, bench.questions, world.weights, DRAWS, rng)
    served = _unknown(bench)
    runs = [simulate_run(plan, chances, served, (seed, number)) for number, chances in enumerate(drawn)]
    real = simulate_run(plan, world.chances, served, (seed, REAL))
    trials = range_of([run.trials for run in runs])
    return Trial(trials.low, trials.median, trials.high, real.trials, _decided(runs), _decided([real]))


def _decided(runs: Sequence[SimulatedRun]) -> float:
    return float(np.mean([run.decided for run in runs]))


def _unknown(bench: Bench) -> ServiceCosts:
    """Servers of which nothing is known: trials are all that is counted."""
    nothing = np.full((bench.models, bench.categories), np.nan)
    usage = AnswerUsage(nothing, nothing, nothing, np.zeros(bench.models))
    return ServiceCosts(usage, [[NO_COST] * bench.categories] * bench.models, [64] * bench.models)


class Row(NamedTuple):
    """One kind of worlds and one size of pilot."""

    name: str
    pilot: int
    trials: tuple[Trial, ...]

    @property
    def coverage(self) -> float:
        return float(np.mean([one.holds for one in self.trials]))

    def cells(self) -> tuple[object, ...]:
        low, median, high, realised, decided_forecast, decided = np.mean(self.trials, axis=0)
        below = float(np.mean([one.realised < one.low for one in self.trials]))
        above = float(np.mean([one.realised > one.high for one in self.trials]))
        return (self.name, self.pilot or "none", self.coverage, below, above, f"{median:.0f}", f"{low:.0f}-{high:.0f}",
                f"{realised:.0f}", decided_forecast, decided)  # fmt: skip


def measure(name: str, kind: Kind, pilot: int, worlds: int, pool: ProcessPoolExecutor) -> Row:
    """Many worlds."""
    start = time.perf_counter()
    row = Row(name, pilot, tuple(pool.map(partial(tried, kind, pilot), range(worlds), chunksize=2)))
    took = time.perf_counter() - start
    print(f"{name:16s} pilot {pilot:2d}  {row.coverage:.2f} in the interval  {took:4.0f} s", flush=True)
    return row


def _recorded(data: Path) -> Iterator[tuple[str, Kind, int]]:
    """The recorded study, where it is present."""
    path = data / RECORDED["aime2024"]
    if path.exists():
        with np.load(path) as arrays:
            yield "recorded AIME'24", partial(recorded, shares=arrays["correct"] / arrays["count"]), 4


def check(row: Row) -> Check:
    what = f"{row.name}, {f'pilot of {row.pilot} trials a question' if row.pilot else 'no pilot'}"
    goal = f"0.70-0.90 of {len(row.trials)}"
    return Check(f"{what}: realised cost in the 80% interval", round(row.coverage, 3), goal, 0.7 <= row.coverage <= 0.9)


def main() -> None:
    parser = arguments("Forecasts beside what comes.")
    parser.add_argument("--worlds", type=int, default=100)
    add_data(parser)
    options = parser.parse_args()
    cases: list[tuple[str, Kind, int]] = [("aime-like", aime_like, 4), ("prior", typical, 0)]
    if not options.quick:
        cases += [("coins", coins, 4), ("close models", close, 4), *_recorded(options.data)]
        cases += [("aime-like", aime_like, 12), ("coins", coins, 12), ("four categories", four_categories, 4)]
    worlds = 10 if options.quick else options.worlds
    start = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        rows = list(starmap(partial(measure, worlds=worlds, pool=pool), cases))
    checks = [check(row) for row in rows]
    text = "\n\n".join([
        "# Forecasts beside what came",
        f"{worlds} worlds a row: {MODELS} models, {QUESTIONS} questions, {HORIZON} trials a question at most, "
        f"objective ranking; {DRAWS} simulated runs a forecast. Trials and decided comparisons are means over worlds. "
        f"Machine: {machine()}. The whole took {(time.perf_counter() - start) / 60:.0f} minutes.",
        check_table(checks),
        markdown(HEADER, [row.cells() for row in rows]),
    ])  # fmt: skip
    publish(options, text, checks)


if __name__ == "__main__":
    main()
