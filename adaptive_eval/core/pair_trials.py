"""What trials of either model are worth to a pair: the model with fewer trials limits how much is known of both."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Estimates, Evidence, IndexArray, side
from scorio.moments import FloatArray

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class AvailableTrials:
    """Trials still available: those of each model before its horizon, and those that the budget would pay for."""

    trials: NDArray[np.int64]
    """(L,): trials each model has had."""
    remaining: NDArray[np.int64]
    """(L,): trials until its horizon."""
    affordable: float
    set_aside: BoolArray
    prior_outcomes: NDArray[np.int64]
    """(L,): outcomes of each model known beforehand (R0)."""
    recorded: BoolArray
    """(L,): models that are never asked."""
    reserved: NDArray[np.int64]
    """(L,): trials of each model in rounds that no look has seen; the budget pays for them already."""
    void: BoolArray
    """(L,): models, among those set aside, whose answers are no samples, so that nothing is decided about them."""
    costs: FloatArray | None = None
    """(L, 2): mean cost of each model's answers in its first round, with its standard error; nan before it. None if the
    objective is not about costs."""


def _pairs_of(evidence: Evidence) -> IndexArray:
    return np.stack([evidence.first, evidence.second], axis=1)


def lowerable(estimates: Estimates, evidence: Evidence, recorded: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """For each pair, the share of sum_q v_q / N_q that no trial can lower, and the shares (P, 2) of both models in the
    rest.

    The first is due to recorded models: 0 if both are asked, 1 if neither is. It is also 0 if one is, and the pair is
    judged trial by trial: then each trial of the other model lowers all of it."""
    is_fixed = np.append(recorded, True)  # the reference is known exactly
    pairs = _pairs_of(evidence)
    reference = 0.0 if evidence.against_reference else None
    noise = np.stack([side(estimates, reference, members, evidence.gate).noise for members in pairs.T], axis=1)
    sampled, tiny = np.where(is_fixed[pairs], 0.0, noise), np.finfo(float).tiny
    with np.errstate(invalid="ignore"):
        fixed = 1.0 - sampled.sum(axis=1) / np.maximum(noise.sum(axis=1), tiny)
        balance = sampled / np.maximum(sampled.sum(axis=1, keepdims=True), tiny)
    both = is_fixed[pairs].all(axis=1)
    by_trial = np.zeros(len(pairs), bool) if evidence.paired is None else evidence.paired
    fixed = np.where(both, 1.0, np.where(np.isfinite(fixed) & ~by_trial & is_fixed[pairs].any(axis=1), fixed, 0.0))
    return fixed, np.where(np.isfinite(balance), balance, 0.5)


class PairTrials(NamedTuple):
    """Trials of both models of some pairs (n, 2), and how much each lowers what trials can lower of their variance.

    A model that is not asked has those of the other, and lowers nothing. If a pair is judged trial by trial, the
    number of the model with fewer trials counts."""

    trials: FloatArray
    """All that are known, with `before`."""
    before: FloatArray
    """Those known beforehand (R0)."""
    balance: FloatArray
    is_one_sided: BoolArray
    """One of the two is not asked."""

    @classmethod
    def of(cls, available: AvailableTrials, evidence: Evidence, balance: FloatArray) -> "PairTrials":
        """Of the pairs of this evidence."""
        pairs, paired = _pairs_of(evidence), evidence.paired
        unasked = np.append(available.recorded, True)[pairs]
        outcomes = np.where(available.recorded, 0, available.trials + available.prior_outcomes)
        both = (np.append(known, 0)[pairs].astype(np.float64) for known in (outcomes, available.prior_outcomes))
        trials, prior = (np.where(unasked, known[:, ::-1], known) for known in both)
        if paired is not None:
            fewer = trials <= trials.min(axis=1, keepdims=True)
            balance = np.where(paired[:, None], fewer / fewer.sum(axis=1, keepdims=True), balance)
        return cls(trials, prior, balance, np.asarray(unasked.any(axis=1)))

    def times_with(self, more: FloatArray | float) -> FloatArray:
        """The multiple of today's trials that so many more are worth, half of them for each model."""
        each = np.where(self.is_one_sided, 1.0, 0.5) * more
        with np.errstate(divide="ignore", invalid="ignore"):
            times = 1.0 / (self.balance * self.trials / (self.trials + each[:, None])).sum(axis=1)
        return np.asarray(np.where(self.trials.min(axis=1) > 0, times, np.inf))

    def needed_for(self, times: FloatArray) -> FloatArray:
        """The trials of each model, without R0, that are worth this multiple of today's. If more trials of the model
        with fewer suffice, these are its trials. Below 1 it is that multiple of their mean."""
        least = self.trials[:, 0] <= self.trials[:, 1]
        of_fewer, prior_of_fewer = (np.where(least, side[:, 0], side[:, 1]) for side in (self.balance, self.before))
        both = times * (self.balance * self.trials).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            alone = of_fewer * self.trials.min(axis=1) / (1.0 / times - (1.0 - of_fewer))
        is_alone = both < self.trials.max(axis=1)
        more = np.where(is_alone, alone - prior_of_fewer, both - self.before.min(axis=1))
        fewer = times * self.trials.mean(axis=1) - self.before.mean(axis=1)
        return np.asarray(np.maximum(np.where(times > 1.0, more, fewer), 0.0))


def trials_for(information: FloatArray, fixed: FloatArray) -> FloatArray:
    """The multiple of today's trials that gives this multiple of the information; infinite if none does."""
    variance_left = 1.0 / np.maximum(information, np.finfo(float).tiny) - fixed
    with np.errstate(divide="ignore", invalid="ignore"):
        times = (1.0 - fixed) / np.maximum(variance_left, 0.0)
    return np.where(fixed == 0.0, information, np.where(variance_left > 0.0, times, np.inf))


def information_from(trials: FloatArray, fixed: FloatArray) -> FloatArray:
    """The multiple of today's information that this multiple of the trials gives."""
    with np.errstate(divide="ignore"):
        grown = 1.0 / ((1.0 - fixed) / trials + fixed)
    return np.where(fixed == 0.0, trials, grown)
