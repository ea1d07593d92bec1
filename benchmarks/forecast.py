"""Whether forecasts hold: how often the cost of a run lies in the interval that was forecast for it.

In each of many worlds a pilot is drawn, a forecast is made from it, and the run itself is simulated in the true world.
Where the run is raised, the pilot is itself: it ended at half of its horizon, and goes on.
Worlds differ in kind: models of random ability on questions as those of AIME, coins of the paper with questions of
their own, models within three points of each other, four categories, and subsets of the models of a recorded AIME'24
study (read from ../shared/data where it is present). Without a pilot, worlds and forecast come from the stated prior.

At `optimize: time` what is asked ahead depends on how long answers take. Without a pilot the forecast takes wrong ones
to be twice as long; the run has them so, or alike, or four times as long.

    python benchmarks/forecast.py [--quick] [--runs 100] [--json PATH]
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scenarios import RECORDED
from scipy.special import expit
from tables import Check, arguments, between, markdown, publish

from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.pace import Optimize
from adaptive_eval.config.planning import RunFacts
from adaptive_eval.core import Bench, Budget, Controller, StageBefore
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
from adaptive_eval.study.drive import drive
from adaptive_eval.study.fixed import first_outcomes
from adaptive_eval.study.pilot import GUESSED_WRONG_FACTOR, AnswerUsage
from adaptive_eval.study.scenario import Scenario, ServiceCosts
from adaptive_eval.study.simulated import simulate_run, tape_of_world
from adaptive_eval.study.worlds import WorldPrior, posterior_chances, prior_chances
from scorio.moments import FloatArray

MODELS, QUESTIONS = 5, 16
HORIZON = 24
DRAWS = 19
"""Simulated runs of a forecast: the 80% interval is from the 2nd to the 18th, that of 90% from the 1st to the 19th."""
QUANTILES = (0.05, 0.1, 0.5, 0.9, 0.95)
REAL = 1 << 30
"""The number of the real world's answers among those of simulated runs."""
SECONDS, SPREAD, SLOTS = 60.0, 0.5, 16
"""Mean of an answer, sigma of its logarithm, and requests at a time a model."""
HEADER = (
    *("worlds", "pace", "wrong answers", "pilot", "in 80%", "in 90%", "below", "above"),
    *("forecast", "80% interval", "realised"),
)


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


class Case(NamedTuple):
    """The worlds of a row, and how the run goes."""

    name: str
    kind: Kind
    pilot: int = 0
    """Its trials a question; 0: none, worlds are drawn from the stated prior."""
    optimize: Optimize = "cost"
    wrong: float = GUESSED_WRONG_FACTOR
    """How many times as long wrong answers take in the run."""
    raised: bool = False
    """The run ended at half of its horizon, and goes on."""

    @property
    def known(self) -> str:
        """What the forecast is made of, in words."""
        return f"raised from {HORIZON // 2}" if self.raised else str(self.pilot or "none")


def tried(case: Case, seed: int) -> list[float]:
    """Trials of a forecast at each of `QUANTILES`, and those of the run."""
    rng = np.random.default_rng([seed, case.pilot])
    world = case.kind(rng)
    decisions = Decisions.model_validate({"trials": {"min": 4, "max": HORIZON, "optimize": case.optimize}})
    bench = Bench(MODELS, QUESTIONS, world.weights)
    names = tuple(f"model-{number}" for number in range(MODELS))
    scenario = Scenario(bench, decisions, names, _served(world.weights, case.wrong), seed)
    if case.raised:
        scenario = _half_way(scenario, world)
    recorded = scenario.served.recorded
    if recorded is not None:
        counts = np.stack([(recorded == category).sum(axis=2) for category in range(bench.categories)], axis=-1)
    else:
        counts = rng.multinomial(case.pilot, world.chances)
    if counts.any():
        drawn = posterior_chances(counts, world.weights, DRAWS, rng)
    else:
        drawn = prior_chances(WorldPrior(), bench.models, bench.questions, world.weights, DRAWS, rng)
    plan = scenario.plan(Budget())
    served = scenario.served if counts.any() else _served(world.weights, GUESSED_WRONG_FACTOR)
    timed = plan.pace.dedicated_servers
    runs = [simulate_run(plan, chances, served, (seed, number), timed=timed) for number, chances in enumerate(drawn)]
    real = simulate_run(plan, world.chances, scenario.served, (seed, REAL), timed=timed)
    return [*np.quantile([run.trials for run in runs], QUANTILES, method="weibull").tolist(), real.trials]


def _half_way(scenario: Scenario, world: World) -> Scenario:
    """The run to be continued, which has ended at half of the horizon."""
    half = scenario.decisions.trials.model_copy(update={"max": HORIZON // 2})
    plan = replace(scenario, decisions=scenario.decisions.model_copy(update={"trials": half})).plan(Budget())
    tape = tape_of_world(plan, world.chances, scenario.served, (scenario.seed, REAL - 1))
    controller = drive(Controller(plan), tape)
    arrived = controller.arrived.sum(axis=2)
    outcomes = first_outcomes(tape, MODELS, arrived.shape[1], int(arrived.max()))
    recorded = np.where(np.arange(outcomes.shape[2]) < arrived[..., None], outcomes, -1)
    controller.forget_arrivals()  # they are among the recorded outcomes
    facts = RunFacts(before=StageBefore(controller, tuple(range(MODELS))), capped_opening=plan.has_capped_opening)
    return replace(scenario, served=scenario.served._replace(recorded=recorded), facts=facts)


def _served(weights: FloatArray, wrong: float) -> ServiceCosts:
    """Servers whose wrong answers take so many times as long; only trials are counted."""
    unknown = np.full((MODELS, len(weights)), np.nan)
    lengths = np.where(weights == weights.max(), 1.0, wrong)
    seconds = np.tile(SECONDS * lengths / lengths.mean(), (MODELS, 1))
    usage = AnswerUsage(unknown, unknown, seconds, np.full(MODELS, SPREAD))
    return ServiceCosts(usage, [[NO_COST] * len(weights)] * MODELS, [SLOTS] * MODELS)


def judged(case: Case, results: FloatArray) -> tuple[tuple[object, ...], list[Check]]:
    """A row of the table, and whether both intervals hold about as often as they say, from what was `tried`."""
    lowest, low, median, high, highest, realised = results.T
    in_80 = float(((low <= realised) & (realised <= high)).mean())
    in_90 = float(((lowest <= realised) & (realised <= highest)).mean())
    shares = in_80, in_90, float((realised < low).mean()), float((realised > high).mean())
    means = f"{median.mean():.0f}", f"{low.mean():.0f}-{high.mean():.0f}", f"{realised.mean():.0f}"
    times = f"{case.wrong:g}x as long" if case.optimize == "time" else ""
    what = f"{case.name}, {case.optimize}, wrong answers {case.wrong:g} times as long, pilot {case.known}: cost in the "
    checks = [between(f"{what}80% interval", in_80, 0.7, 0.9), between(f"{what}90% interval", in_90, 0.85, 1.0)]
    return (case.name, case.optimize, times, case.known, *shares, *means), checks


def all_cases(data: Path) -> Iterator[Case]:
    """Every row of the table; the recorded study only where it is present."""
    yield Case("aime-like", aime_like, 4)
    yield Case("aime-like", aime_like, raised=True)
    yield Case("prior", typical)
    yield Case("coins", coins, 4)
    yield Case("close models", close, 4)
    if (path := data / RECORDED["aime2024"]).exists():
        with np.load(path) as arrays:
            yield Case("recorded AIME'24", partial(recorded, shares=arrays["correct"] / arrays["count"]), 4)
    yield Case("aime-like", aime_like, 12)
    yield Case("coins", coins, 12)
    yield Case("four categories", four_categories, 4)
    yield Case("coins", coins, raised=True)
    for wrong in (1.0, 2.0, 4.0):
        yield Case("prior", typical, optimize="time", wrong=wrong)
    for name, kind in (("aime-like", aime_like), ("coins", coins)):
        yield Case(name, kind, 4, "time")
        yield Case(name, kind, optimize="time", raised=True)


def main() -> None:
    options = arguments(__doc__, runs=100, quick_runs=10, data=True).parse_args()
    rows, checks, worlds = list[tuple[object, ...]](), list[Check](), range(options.runs)
    with ProcessPoolExecutor() as pool:
        for case in islice(all_cases(options.data), 2 if options.quick else None):
            row, its_checks = judged(case, np.array(list(pool.map(partial(tried, case), worlds, chunksize=2))))
            rows.append(row)
            checks += its_checks
    about = (
        f"{options.runs} worlds a row: {MODELS} models, {QUESTIONS} questions, {HORIZON} trials a question at most, "
        f"objective ranking; {DRAWS} simulated runs a forecast. Trials are means over worlds."
    )
    publish(options, "Forecasts beside what came", about, markdown(HEADER, rows), checks=checks)


if __name__ == "__main__":
    main()
