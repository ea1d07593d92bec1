"""The forecast 80% interval contains the cost of a run in 70-90% of 100 worlds."""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import pytest
from scipy.special import expit

from adaptive_eval.core import Bench, Pace, Plan, Trials
from adaptive_eval.core.types import NO_COST
from adaptive_eval.simulate.worlds import BINARY, COIN_CONCENTRATION, COIN_MEANS, beta_profile, binary, with_mean
from adaptive_eval.study.pilot import AnswerUsage
from adaptive_eval.study.scenario import ServiceCosts
from adaptive_eval.study.simulated import simulate_run
from adaptive_eval.study.types import median_range
from adaptive_eval.study.worlds import WorldPrior, posterior_chances, prior_chances
from scorio.moments import FloatArray

MODELS, QUESTIONS, HORIZON = 4, 16, 24
WORLDS, DRAWS = 100, 19
REAL = 1 << 30
"""The number of the real world's answers among those of simulated runs."""

PLAN = Plan(Bench(MODELS, QUESTIONS, BINARY), trials=Trials(min=4, max=HORIZON), pace=Pace(lookahead=2))
UNKNOWN = np.full((MODELS, 2), np.nan)
SERVED = ServiceCosts(
    AnswerUsage(UNKNOWN, UNKNOWN, UNKNOWN, np.zeros(MODELS)), [[NO_COST, NO_COST]] * MODELS, slots=[64] * MODELS
)

Kind = Callable[[np.random.Generator], FloatArray]


def shared_difficulty(rng: np.random.Generator, spread: float, taste: float, low: float, high: float) -> FloatArray:
    """Questions that are hard or easy for everyone, and models of random ability."""
    difficulty = rng.normal(0.0, spread, QUESTIONS)
    means = rng.uniform(low, high, MODELS)
    return binary(np.array([with_mean(expit(rng.normal(0.0, taste, QUESTIONS) - difficulty), mean) for mean in means]))


def coins(rng: np.random.Generator) -> FloatArray:
    """Some of the paper's coins, two of them exactly tied, with nothing shared between questions."""
    means = rng.choice(COIN_MEANS, MODELS, replace=False)
    return binary(np.array([beta_profile(mean, QUESTIONS, COIN_CONCENTRATION, rng) for mean in means]))


def typical(rng: np.random.Generator) -> FloatArray:
    """A world drawn from the stated prior."""
    return next(prior_chances(WorldPrior(), MODELS, QUESTIONS, BINARY, 1, rng))


AIME_LIKE = partial(shared_difficulty, spread=3.5, taste=0.8, low=0.16, high=0.38)
CLOSE = partial(shared_difficulty, spread=3.0, taste=0.5, low=0.40, high=0.43)
CASES: dict[str, tuple[Kind, int]] = {
    "AIME-like, 4 trials": (AIME_LIKE, 4),
    "AIME-like, 12 trials": (AIME_LIKE, 12),
    "coins, 4 trials": (coins, 4),
    "close models, 4 trials": (CLOSE, 4),
    "the prior, no pilot": (typical, 0),
}


def forecast_from(chances: FloatArray, pilot: int, rng: np.random.Generator) -> Iterable[FloatArray]:
    """Worlds as a forecast draws them, from a pilot with this many trials a question, or without a pilot."""
    if pilot == 0:
        return prior_chances(WorldPrior(), MODELS, QUESTIONS, BINARY, DRAWS, rng)
    return posterior_chances(rng.multinomial(pilot, chances), BINARY, DRAWS, rng)


@pytest.mark.release
@pytest.mark.parametrize(("kind", "pilot"), CASES.values(), ids=CASES.keys())
def test_the_cost_lies_in_the_interval(kind: Kind, pilot: int) -> None:
    held = 0
    for seed in range(WORLDS):
        rng = np.random.default_rng([seed, pilot])
        chances = kind(rng)
        drawn = forecast_from(chances, pilot, rng)
        forecast = median_range(
            [simulate_run(PLAN, world, SERVED, (seed, number)).trials for number, world in enumerate(drawn)]
        )
        held += forecast.low <= simulate_run(PLAN, chances, SERVED, (seed, REAL)).trials <= forecast.high
    assert 0.7 <= held / WORLDS <= 0.9
