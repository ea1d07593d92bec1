"""From counts to each model's score and its uncertainty, and from these to the evidence on every pair.

Pairs are the upper triangle (i < j) of the models, plus, for objectives that compare a model with a fixed value, the
pairs (i, L) with a reference that has this value and no uncertainty. Positive z favours the first of the pair. Under a
gate, its own comparisons follow: each model, with `delta` added to its score, against the baseline or the reference.
For the choice of the cheapest, all pairs follow twice: with `delta` added to the first of each, and to the second.

The score of a comparison is the average a; Bayes@N is also computed, and is compared instead if the rule says so. The
sigma of a comes from the configured prior: `uniform`, or `self`, centred on the model's own category shares, which is
sharper. The information is measured by the v_q of the same variance, with all its terms: without the term for unseen
trials it would be overstated for a model with few trials, and the uniform prior's v_q cost 3 points more on AIME'24.
Outcomes given as R0 count as trials on both scales.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.settings import CHUNK_CELLS, Bench, Margin
from adaptive_eval.core.shared_trials import PairedEvidence
from scorio.moments import (
    CountArray,
    FloatArray,
    Moments,
    average_moments,
    bayes_moments,
    over_categories,
    question_moments,
)
from scorio.sinf.compare import (
    information_fraction,
    order_confidence,
    standardised,
    trial_variance,
    variance_at,
)
from scorio.sinf.paired import variance_against
from scorio.sinf.prior import fitted_by_group, self_centred_average_moments, self_centred_prior, unseen_variance

Prior = Literal["uniform", "self"]
Estimator = Literal["average", "bayes"]
"""What is compared: the averages a, or the means of Bayes@N, which shrink more for models with fewer trials."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Arrays over the models; a model without a complete round has score nan and infinite variance."""

    score: FloatArray
    var: FloatArray
    bayes: FloatArray
    bayes_var: FloatArray
    trial_var: FloatArray
    """(L, M): variance of one further trial of each question."""
    noise: FloatArray
    """sum_q g_q^2 v_q / N_q now, g the weights of the questions."""
    noise_at_horizon: FloatArray
    """The same at the horizon."""
    parts: FloatArray
    """(L, P, 4): score, variance, noise, and noise at the horizon on each benchmark that has a gate of its own."""

    @classmethod
    def nothing(cls, bench: Bench) -> "Estimates":
        """The estimates before the first round."""
        unknown = np.full(bench.models, np.nan)
        infinite = np.full(bench.models, np.inf)
        return cls(
            score=unknown,
            var=infinite,
            bayes=unknown.copy(),
            bayes_var=infinite.copy(),
            trial_var=np.ones((bench.models, bench.questions)),
            noise=infinite.copy(),
            noise_at_horizon=np.ones(bench.models),
            parts=np.tile([np.nan, np.inf, np.inf, 1.0], (bench.models, len(bench.gates), 1)),
        )

    def without(self, model: int, nothing: "Estimates") -> "Estimates":
        """The estimates with those of one model as before the first round."""
        merged = {name: getattr(self, name).copy() for name in self.__slots__}
        for name, values in merged.items():
            values[model] = getattr(nothing, name)[model]
        return Estimates(**merged)

    def sigma(self) -> FloatArray:
        return np.sqrt(self.var)

    def on(self, estimator: Estimator) -> "Estimates":
        """The estimates with this estimator's scores in place of the averages."""
        return self if estimator == "average" else replace(self, score=self.bayes, var=self.bayes_var)


def estimate(
    counts: CountArray,
    weights: FloatArray,
    prior: Prior,
    horizon: CountArray,
    *,
    bayes: bool = True,
    g: FloatArray | None = None,
    groups: NDArray[np.int64] | None = None,
) -> Estimates:
    """Estimates of models with counts (L, M, K), at least one trial of each question.

    `horizon` is N_q at the end. Without `bayes`, Bayes@N is nan. Questions have weights `g` of mean 1 (None: all
    equal), and the prior of their group (None: one group)."""
    uniform: FloatArray = counts + np.float64(1.0)
    centred = partial(self_centred_prior, w=weights)
    nu: FloatArray = counts + fitted_by_group(centred, counts, groups) if prior == "self" else uniform
    questions = question_moments(nu, weights)
    if prior == "self":
        average = self_centred_average_moments(counts, nu, weights, questions, g)
    else:
        average = average_moments(counts, nu, weights, g)
    unknown = np.full(len(counts), np.nan)
    bayes_values = bayes_moments(uniform, weights, g) if bayes else Moments(unknown, unknown)
    trials = over_categories(counts)
    v = trial_variance(nu, weights, questions)
    cautious = v + unseen_variance(trials, weights, g) if prior == "self" else v
    return Estimates(
        score=average.mean,
        var=average.var,
        bayes=bayes_values.mean,
        bayes_var=bayes_values.var,
        trial_var=v,
        noise=variance_at(cautious, trials, g),
        noise_at_horizon=variance_at(cautious, horizon, g),
        parts=np.empty((len(counts), 0, 4)),
    )


def _estimate_parts(
    counts: CountArray, bench: Bench, prior: Prior, further: CountArray, prior_trials: CountArray
) -> FloatArray:
    """`Estimates.parts` of models with counts (n, M, K).

    At its horizon, a benchmark's questions have their share of all `further` trials by question weight, besides the
    `prior_trials`: so all benchmarks reach it together.
    """
    g = np.ones(bench.questions) if bench.question_weights is None else bench.question_weights
    parts = []
    for label, _ in bench.gates:
        in_benchmark = bench.benchmark_of == label
        horizon = (further * g + prior_trials)[..., in_benchmark]
        estimates = estimate(counts[:, in_benchmark], bench.weights, prior, horizon, bayes=False)
        parts.append(np.stack([estimates.score, estimates.var, estimates.noise, estimates.noise_at_horizon], axis=-1))
    return np.stack(parts, axis=1)


def update(
    old: Estimates,
    rows: NDArray[np.intp],
    counts: CountArray,
    bench: Bench,
    prior: Prior,
    max_trials: int,
) -> Estimates:
    """`old`, with the estimates of the models `rows` recomputed from the tally `counts` of all models plus R0."""
    merged = {name: getattr(old, name).copy() for name in old.__slots__}
    g, groups = bench.question_weights, bench.benchmark_of
    chunk_size = max(CHUNK_CELLS // (bench.questions * bench.categories), 1)
    for start in range(0, len(rows), chunk_size):
        part = rows[start : start + chunk_size]
        part_counts, further, prior_trials = counts[part], np.array(max_trials), np.array(0)
        if bench.prior_counts is not None:
            part_counts = part_counts + bench.prior_counts[part]
            further = np.where(bench.asked[part], further, 0)[:, None]
            prior_trials = bench.prior_counts[part].sum(axis=-1)
        new = estimate(part_counts, bench.weights, prior, further + prior_trials, g=g, groups=groups)
        if bench.gates:
            new = replace(new, parts=_estimate_parts(part_counts, bench, prior, further, prior_trials))
        for name, values in merged.items():
            values[part] = getattr(new, name)
    return Estimates(**merged)


IndexArray = NDArray[np.intp]
AT_HORIZON = 1.0 - 1e-9
"""Information from which on a pair counts as having reached the horizon."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Arrays over the pairs of models, or of each model with the reference, followed by those of a gate: on all
    questions, then on each benchmark that has a gate of its own.
    """

    models: int
    against_reference: bool
    first: IndexArray
    second: IndexArray
    difference: FloatArray
    sigma: FloatArray
    z: FloatArray
    information: FloatArray
    margin: Margin | None = None
    paired: NDArray[np.bool_] | None = None
    """Which of all judged pairs are judged by trials with the same seeds; None: none."""
    gate: IndexArray | None = None
    """For each pair under a gate of several parts: 0 on all questions, p on the p-th benchmark, -1 without margin."""
    deciding: IndexArray | None = None
    """(L - 1,): the part of the gate that decides about each model, or keeps it open; None: all questions.

    For the choice of the cheapest (P,): 0 where a pair is judged without delta, 1 or 2 where delta is added to the
    model with the lower or the higher number; None: nowhere."""
    unknown: FloatArray | None = None
    """If scores are judged without comparison: how far unknown grades could move each from the middle of what they
    allow; None: not at all."""
    skew: FloatArray | None = None
    """Of scores that are compared with a fixed value (`skew_about`), or under a gate; None: of none."""

    def positions(self, pairs: IndexArray) -> IndexArray:
        """Positions at which pairs (n, 2) of models are judged, in either order; under a gate, on the deciding part."""
        plain = self.plain_positions(pairs)
        if self.margin is None:
            return plain
        if self.margin.baseline is None:
            return plain if self.deciding is None else np.asarray(plain + self.plain_pairs * self.deciding[plain])
        baseline = self.margin.baseline
        other = pairs.sum(axis=1) - baseline
        number = other - (other > baseline)
        if self.deciding is not None:
            number = number + (self.models - 1) * np.append(self.deciding, 0)[number]
        gated = self.plain_pairs + number
        return np.asarray(np.where((pairs == baseline).any(axis=1), gated, plain))

    def plain_positions(self, pairs: IndexArray) -> IndexArray:
        """Positions of pairs (n, 2) of models among all pairs, ignoring gates."""
        if self.against_reference:
            return pairs[:, 0]
        low, high = pairs.min(axis=1), pairs.max(axis=1)
        return np.asarray(low * (2 * self.models - low - 1) // 2 + (high - low - 1))

    def at_positions(self, at: IndexArray) -> "Evidence":
        """Evidence on the pairs at these positions alone, for a rule that judges each pair by itself."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "deciding"}
        chosen: dict[str, Any] = {name: each[at] for name, each in values.items() if isinstance(each, np.ndarray)}
        return replace(self, **chosen)

    @property
    def rho(self) -> FloatArray:
        """The confidence in each order."""
        return order_confidence(self.z)

    @property
    def plain_pairs(self) -> int:
        """Number of pairs without a margin; they come first."""
        return self.models if self.against_reference else self.models * (self.models - 1) // 2


@lru_cache(maxsize=8)
def pair_indices(models: int, reference: bool) -> tuple[IndexArray, IndexArray]:
    """Indices of all pairs of models, or of the pairs (model, reference)."""
    if reference:
        return np.arange(models), np.full(models, models)
    first, second = np.triu_indices(models, k=1)
    return first, second


class Side(NamedTuple):
    """Estimates of one model of each pair."""

    score: FloatArray
    var: FloatArray
    noise: FloatArray
    noise_at_horizon: FloatArray


def judged_pairs(models: int, reference: bool, margin: Margin | None) -> tuple[IndexArray, IndexArray]:
    """Indices of all pairs that are judged."""
    first, second = pair_indices(models, reference)
    if margin is None:
        return first, second
    if margin.baseline is None:
        return np.concatenate([first, first, second]), np.concatenate([second, second, first])
    others = np.tile(margin.judged(models), 1 + len(margin.parts))
    return np.append(first, others), np.append(second, np.full(len(others), margin.baseline))


def _gate_margins(margin: Margin | None, models: int, pairs: int) -> tuple[FloatArray, IndexArray | None]:
    """The lead that the first of each pair is given; for a gate of several parts also the part that it is of, or -1."""
    lead = np.zeros(pairs)
    if margin is None:
        return lead, None
    if margin.baseline is None:
        lead[pairs // 3 :] = margin.delta
        return lead, None
    judged = len(margin.judged(models))
    deltas = np.repeat([margin.delta, *margin.parts], judged)
    lead[pairs - len(deltas) :] = deltas
    parts = np.repeat(np.arange(1 + len(margin.parts)), judged)
    return lead, np.append(np.full(pairs - len(deltas), -1), parts) if margin.parts else None


def skew_about(values: FloatArray, ends: tuple[float, float]) -> FloatArray:
    """kappa_3 / (3 sigma^4) of a trial with two grades, at the `ends` of the scale, and a mean of each of these values;
    0 beyond the ends."""
    low, high = ends
    share = (values - low) / (high - low)
    inside = (share > 0.0) & (share < 1.0)
    share = np.where(inside, share, 0.5)
    return np.asarray((1.0 - 2.0 * share) / (3.0 * share * (1.0 - share) * (high - low)))


def _skew_of_differences(first: Side, second: Side, lead: FloatArray, ends: tuple[float, float]) -> FloatArray:
    """The same of each difference, if both scores, the first with its lead, are their mean by precision: the skewness
    of the two cancels as far as they have the same variance."""
    with np.errstate(invalid="ignore"):
        share = first.var / (first.var + second.var)
        mean = share * second.score + (1.0 - share) * (first.score + lead)
    return np.asarray(share**2 * skew_about(mean - lead, ends) - (1.0 - share) ** 2 * skew_about(mean, ends))


def counted_z(difference: FloatArray, sigma: FloatArray, skew: FloatArray | None) -> FloatArray:
    """The z of each difference, as far as it counts; 0 of none, and where nothing is known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = counted_difference(difference, skew) / sigma
    return np.where(np.isfinite(sigma) & (difference != 0.0), z, 0.0)


def counted_difference(difference: FloatArray, skew: FloatArray | None) -> FloatArray:
    """The part of a difference that z counts: near an end of the scale, a score that errs towards it also has too small
    a variance. Johnson's correction for skewness (1978), only where it takes something off."""
    return difference if skew is None else difference * (1.0 + np.minimum(skew * difference, 0.0))


def weigh_evidence(
    estimates: Estimates,
    reference: float | None = None,
    margin: Margin | None = None,
    other: Estimates | None = None,
    paired: PairedEvidence | None = None,
    ends: tuple[float, float] | None = None,
) -> Evidence:
    """Evidence on all pairs, or on each model against the value `reference`, and on a gate's comparisons.

    `other` has the estimates of the second of each pair, if they differ. `paired` has the pairs judged by trials with
    the same seeds. `ends` of the scale: the skewness of scores near them counts against a reference, and in
    a gate."""
    models = len(estimates.score)
    first, second = judged_pairs(models, reference is not None, margin)
    lead, gate = _gate_margins(margin, models, len(first))
    first_side = side(estimates, reference, first, gate)
    second_side = side(estimates if other is None else other, reference, second, gate)
    apart = standardised(first_side.score + lead, first_side.var, second_side.score, second_side.var)
    difference, sigma, z = apart
    noise, noise_at_horizon = (
        first_side.noise + second_side.noise,
        first_side.noise_at_horizon + second_side.noise_at_horizon,
    )
    if paired is not None:
        chosen, moments, values = paired
        by_trial = standardised(moments.mean + lead, variance_against(moments, lead, values), 0.0, 0.0)
        difference, sigma, z = (np.where(chosen, *both) for both in zip(by_trial, apart, strict=True))
        noise = np.where(chosen, moments.noise, noise)
        noise_at_horizon = np.where(chosen, moments.noise_at_horizon, noise_at_horizon)
    is_known, skew = np.isfinite(sigma), None
    if ends is not None and (reference is not None or (margin is not None and margin.baseline is not None)):
        skew = _skew_of_differences(first_side, second_side, lead, ends)
        skew = skew if paired is None else np.where(paired.chosen, 0.0, skew)
        z = counted_z(difference, sigma, skew)
    return Evidence(
        models=models,
        against_reference=reference is not None,
        first=first,
        second=second,
        difference=np.where(is_known, difference, 0.0),
        sigma=sigma,
        z=np.where(is_known, z, 0.0),
        information=information_fraction(noise_at_horizon, np.maximum(noise, np.finfo(float).tiny)),
        margin=margin,
        paired=None if paired is None else paired.chosen,
        gate=gate,
        skew=skew,
    )


def side(estimates: Estimates, reference: float | None, members: IndexArray, gate: IndexArray | None) -> Side:
    """Estimates of one side of each pair; the reference, number L, is known, and a gate's part covers its benchmark."""
    columns = np.stack([estimates.score, estimates.var, estimates.noise, estimates.noise_at_horizon])
    if gate is not None:
        by_part = np.concatenate([columns.T[:, None], estimates.parts], axis=1)
        return Side(*by_part[members, np.maximum(gate, 0)].T)
    if reference is not None:
        columns = np.append(columns, [[reference], [0.0], [0.0], [0.0]], axis=1)
    return Side(*columns[:, members])


def cautious(scenarios: Sequence[Evidence]) -> Evidence:
    """The first evidence, with z replaced by the value closest to 0 that all agree on the sign of, or 0, and with what
    unknown grades could move."""
    if len(scenarios) == 1:
        return scenarios[0]
    z = np.stack([scenario.z for scenario in scenarios])
    agree = np.all(np.sign(z) == np.sign(z[0]), axis=0)
    nearest = np.where(agree, np.sign(z[0]) * np.abs(z).min(axis=0), 0.0)
    return replace(scenarios[0], z=nearest, unknown=scenarios[-1].unknown)
