"""Worlds that are possible after a pilot: draws from the joint posterior of the true probabilities.

The model of one experiment (`Stick`) with k_lq successes in n_lq trials of model l on question q:

    k_lq ~ Binomial(n_lq, 1/(1 + exp(-theta_lq))),   theta_lq = a_l + b_q + e_lq
    a_l ~ N(mu, A^2),   b_q ~ N(0, B^2),   e_lq ~ N(0, E^2)
    mu ~ N(0, 3^2),   A, B, E ~ half-t with 3 degrees of freedom and the scales of SCALES

Such a model is needed because the cost of a run follows from the *differences* between models. With a flat prior for
every question (Dirichlet(n + 1)), models with few trials are pulled towards one half, so that differences shrink. With
a flat prior for every model, the noise of the pilot adds to their spread, so that differences grow. Here A is learned
from the spread of the models beyond their noise, B and E from the questions, and the draws include all of their
uncertainty. A model or a question without a trial is drawn from the same A, B and E.

Drawn by Gibbs steps with Metropolis steps within: theta one by one; a, b, mu and the variances (as scale mixtures of
inverse gammas) exactly; and, because a chain would creep where E is small, shifts of a whole model and of a whole
question together with their theta. Chains run side by side, and every few sweeps each of them gives a draw.

Without a pilot, worlds are drawn from a prior for typical benchmarks and models.

On the scale of the logits, as above: theta_lq = mu + a_l + b_q + e_lq, with

    mu ~ N(0, 1)                     the level: scores between 30% and 70%, mostly
    a_l ~ N(0, A^2), A about 0.7     the models: neighbours among ten lie about two points apart
    b_q ~ N(0, B^2), B about 2.5     the questions: some are nearly always right, some nearly never
    e_lq ~ N(0, E^2), E about 1.2    what one model knows of one question beyond that

A, B and E themselves are log-normal around these medians, with standard deviation 0.5, drawn anew for every world. The
posterior draws find A, B and E of 0.8, 3.9 and 1.9 for the twelve best models of a recorded AIME'24, of 0.8, 1.4 and
2.0 for a recorded GPQA, and of 0.8, 0.1 and 1.1 for the paper's coins, which share no difficulties.

Category probabilities as independent yes-or-no questions: is it the best category? if not, the second best? ...

With the categories ordered by weight, the best first, P(category j) = x_j (1 - x_(j-1)) ... (1 - x_1): a stick that is
broken K - 1 times (Sethuraman 1994). Counts of categories are then counts of K - 1 separate experiments with successes
and trials each, so that methods for right and wrong answers work for every rubric.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from scorio.moments import FloatArray, IntArray


class Stick(NamedTuple):
    """Successes and trials (L, M) of one of the questions."""

    successes: IntArray
    trials: IntArray


def make_sticks(counts: IntArray, weights: FloatArray) -> tuple[Stick, ...]:
    """Convert counts (L, M, K) to the K - 1 experiments."""
    ordered = counts[..., _best_first(weights)]
    remaining = ordered[..., ::-1].cumsum(axis=-1)[..., ::-1]
    return tuple(Stick(ordered[..., number], remaining[..., number]) for number in range(len(weights) - 1))


def category_chances(logits: FloatArray, weights: FloatArray) -> FloatArray:
    """Category probabilities (..., K) of the logits (..., K - 1) of the sticks."""
    broken, unbroken = expit(logits), expit(-logits)
    before = np.concatenate([np.ones_like(unbroken[..., :1]), unbroken.cumprod(axis=-1)], axis=-1)
    ordered = before.copy()
    ordered[..., :-1] *= broken
    chances = np.empty_like(ordered)
    chances[..., _best_first(weights)] = ordered
    return chances


def _best_first(weights: FloatArray) -> NDArray[np.intp]:
    return np.argsort(-weights, kind="stable")


@dataclass(frozen=True, slots=True)
class WorldPrior:
    """The medians of the spreads, in logits."""

    level: float = 1.0
    ability: float = 0.7
    difficulty: float = 2.5
    taste: float = 1.2
    doubt: float = 0.5
    """Standard deviation of the logarithm of the last three."""


def prior_chances(
    prior: WorldPrior, models: int, questions: int, weights: FloatArray, draws: int, rng: np.random.Generator
) -> Iterator[FloatArray]:
    """Draw probabilities (L, M, K) of `draws` worlds."""
    for _ in range(draws):
        sticks = [_theta(prior, models, questions, rng) for _ in weights[1:]]
        yield category_chances(np.stack(sticks, axis=-1), weights)


def _theta(prior: WorldPrior, models: int, questions: int, rng: np.random.Generator) -> FloatArray:
    """Logits (L, M) of one experiment."""
    ability, difficulty, taste = (
        median * np.exp(prior.doubt * rng.standard_normal())
        for median in (prior.ability, prior.difficulty, prior.taste)
    )
    a = rng.normal(rng.normal(0.0, prior.level), ability, (models, 1))
    b = rng.normal(0.0, difficulty, questions)
    return np.asarray(a + b + rng.normal(0.0, taste, (models, questions)))


SCALES = {"ability": 0.5, "difficulty": 2.0, "taste": 1.0}
"""Scales of A, B and E: models of a benchmark lie tenths of a logit apart, its questions several."""
FREEDOM = 3.0
CENTRE_SD = 3.0
BURN_IN = 300
"""Sweeps before the first draw: from the start at the shares themselves, moments settle within a hundred."""
THINNING = 20
CHAINS = 20
MAX_CELLS = 1 << 21
"""Cells of all chains together: more would take memory."""
MAX_LOGIT = 30.0
"""Logits beyond it are certain to the last digit."""


def posterior_chances(
    counts: IntArray, weights: FloatArray, draws: int, rng: np.random.Generator
) -> Iterator[FloatArray]:
    """Draw probabilities (L, M, K) of `draws` worlds, given the pilot's counts (L, M, K)."""
    sticks = [_drawn(stick, draws, rng) for stick in make_sticks(counts, weights)]
    for logits in zip(*sticks, strict=True):
        yield category_chances(np.stack(logits, axis=-1), weights)


def _drawn(stick: Stick, draws: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Draws of theta (L, M)."""
    chains = min(CHAINS, draws, max(MAX_CELLS // stick.trials.size, 1))
    sampler = Sampler(stick, chains, rng)
    for _ in range(BURN_IN):
        sampler.sweep()
    for draw in range(draws):
        if draw and draw % chains == 0:
            for _ in range(THINNING):
                sampler.sweep()
        yield sampler.theta[draw % chains].copy()


def _draw_variance(
    var: FloatArray, scale: float, squares: FloatArray, number: int, rng: np.random.Generator
) -> FloatArray:
    """A^2, B^2 or E^2 of each chain given its last value and the squares of `number` normal deviations; half-t prior:
    var | x ~ IG(nu/2, nu/x), x ~ IG(1/2, 1/scale^2)."""
    mixing = (FREEDOM / var + 1.0 / scale**2) / rng.gamma((FREEDOM + 1.0) / 2.0, size=var.shape)
    return np.asarray((FREEDOM / mixing + squares / 2.0) / rng.gamma((FREEDOM + number) / 2.0, size=var.shape))


class Sampler:
    """Chains (C) of all unknowns of one experiment, side by side."""

    def __init__(self, stick: Stick, chains: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._k, self._n = stick.successes.astype(float), stick.trials.astype(float)
        share = (self._k + 0.5) / (self._n + 1.0)
        self._noise = self._n * share * (1.0 - share)
        """About the information of each cell, which sets the steps of its theta."""
        has_trials = self._n > 0.0
        start = np.where(has_trials, logit(share), 0.0)
        centre = float(start[has_trials].mean()) if has_trials.any() else 0.0
        start = np.where(has_trials, start, centre)
        self.theta = np.repeat(start[None], chains, axis=0) + 0.1 * rng.standard_normal((chains, *start.shape))
        self.a = self.theta.mean(axis=2)
        self.mu = self.a.mean(axis=1)
        self.b = (self.theta - self.a[:, :, None]).mean(axis=1)
        self.ability, self.difficulty, self.taste = (np.full(chains, scale**2) for scale in SCALES.values())

    def sweep(self) -> None:
        """Draw all unknowns anew, once."""
        self._step_theta()
        self._step_theta()
        self._draw_effects()
        self.a = self._shift(self.a, self.mu[:, None], self.ability, across=2)
        self.b = self._shift(self.b, 0.0, self.difficulty, across=1)
        self._draw_spreads()

    def _log_likelihood(self, theta: FloatArray) -> FloatArray:
        """k theta - n ln(1 + e^theta), by cell."""
        return np.asarray(self._k * theta - self._n * np.logaddexp(0.0, theta))

    def _step_theta(self) -> None:
        taste = self.taste[:, None, None]
        mean = self.a[:, :, None] + self.b[:, None, :]
        step = 2.4 / np.sqrt(self._noise + 1.0 / taste) * self._rng.standard_normal(self.theta.shape)
        proposal = np.clip(self.theta + step, -MAX_LOGIT, MAX_LOGIT)
        gain = self._log_likelihood(proposal) - self._log_likelihood(self.theta)
        gain -= (np.square(proposal - mean) - np.square(self.theta - mean)) / (2.0 * taste)
        self.theta = np.where(self._accepted(gain), proposal, self.theta)

    def _draw_effects(self) -> None:
        """a, b and mu given theta: normal means."""
        models, questions = self._n.shape
        taste, ability, difficulty = self.taste[:, None], self.ability[:, None], self.difficulty[:, None]
        precision = questions / taste + 1.0 / ability
        pull = (self.theta - self.b[:, None, :]).sum(axis=2) / taste + self.mu[:, None] / ability
        self.a = self._normal(pull, precision)
        precision = models / taste + 1.0 / difficulty
        self.b = self._normal((self.theta - self.a[:, :, None]).sum(axis=1) / taste, precision)
        self.mu = self._normal(self.a.sum(axis=1) / self.ability, models / self.ability + CENTRE_SD**-2)

    def _shift(self, effects: FloatArray, centre: FloatArray | float, var: FloatArray, across: int) -> FloatArray:
        """Each of these effects together with all theta it is in, which lie along the axis `across`: only the
        likelihood and the prior of the effect change."""
        width = 2.4 / np.sqrt(self._noise.sum(axis=across - 1) + 1.0 / var[:, None])
        shift = width * self._rng.standard_normal(effects.shape)
        proposal = self.theta + np.expand_dims(shift, across)
        gain = (self._log_likelihood(proposal) - self._log_likelihood(self.theta)).sum(axis=across)
        off = effects - centre
        gain -= (np.square(off + shift) - np.square(off)) / (2.0 * var[:, None])
        moved = np.where(self._accepted(gain), shift, 0.0)
        self.theta = self.theta + np.expand_dims(moved, across)
        return effects + moved

    def _draw_spreads(self) -> None:
        models, questions = self._n.shape
        off = np.square(self.a - self.mu[:, None]).sum(axis=1)
        self.ability = _draw_variance(self.ability, SCALES["ability"], off, models, self._rng)
        off = np.square(self.b).sum(axis=1)
        self.difficulty = _draw_variance(self.difficulty, SCALES["difficulty"], off, questions, self._rng)
        off = np.square(self.theta - self.a[:, :, None] - self.b[:, None, :]).sum(axis=(1, 2))
        self.taste = _draw_variance(self.taste, SCALES["taste"], off, models * questions, self._rng)

    def _normal(self, pull: FloatArray, precision: FloatArray) -> FloatArray:
        """Normal draws of mean pull/precision and variance 1/precision."""
        return np.asarray(pull / precision + self._rng.standard_normal(pull.shape) / np.sqrt(precision))

    def _accepted(self, gain: FloatArray) -> NDArray[np.bool_]:
        return np.asarray(-self._rng.standard_exponential(gain.shape) < gain)
