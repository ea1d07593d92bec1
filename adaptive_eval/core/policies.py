"""Policies: which trials to issue next.

A policy is one method that turns a `View` of the run into trials per model and question. It decides first which models
get trials (all, or those in open comparisons), then how a model's trials are spread over
its questions (evenly, or by how uncertain the question is for the *other* models: weights from a model's own outcomes
would bias its score and break the promise of the rule).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.entries import Entry
from adaptive_eval.core.settings import CHUNK_CELLS
from scorio.moments import FloatArray, IntArray, weighted

if TYPE_CHECKING:
    from adaptive_eval.core.evidence import IndexArray


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A policy's view of the run: committed rounds only, independent of arrivals."""

    open_pairs: IndexArray
    """(n, 2), the model placed higher first; a fixed reference has number L."""
    power: FloatArray
    """(n,): the chance of each open pair to be settled by the horizon."""
    order: IndexArray
    """Models from best to worst."""
    in_play: NDArray[np.bool_]
    """Models that were not set aside."""
    issued: IntArray
    """(L, M): trials issued so far."""
    trial_var: FloatArray
    """(L, M): variance of one further trial."""
    sizes: IntArray
    """(L,): the most trials that each model may get in this round; 0 where it was set aside."""
    question_weights: FloatArray | None = None
    """(M,): weights of the questions in the score, with mean 1; None: alike."""


class Policy(Protocol):
    """Chooses the next round."""

    def allocate(self, view: View) -> IntArray:
        """Further trials (L, M) of each model and question, at most `view.sizes` of each model."""


def asks_only_open(policy: Policy) -> bool:
    """Whether a policy declares, by `only_open = True`, that it asks only models in open comparisons; the servers of
    all others can then be released."""
    return bool(getattr(policy, "only_open", False))


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every model and every question while any comparison is open: the fixed-N baseline."""

    def allocate(self, view: View) -> IntArray:
        models = view.in_play if len(view.open_pairs) else np.zeros_like(view.in_play)
        return _spread_all(view, models, np.ones_like(view.trial_var))


UNIFORM: Entry[Policy] = Entry(
    name="uniform",
    make=Uniform,
    summary="the same fixed number of answers from every model",
    description="Every model gets the same number of trials",
)


@dataclass(frozen=True, slots=True)
class UnresolvedPairs:
    """Only the models of open pairs, all questions alike."""

    only_open: ClassVar[bool] = True

    def allocate(self, view: View) -> IntArray:
        weights = self.weights(view.trial_var, view.question_weights)
        return _spread_all(view, _members(view, view.open_pairs), weights)

    def weights(self, trial_var: FloatArray, g: FloatArray | None = None) -> FloatArray:
        """Relative trials of each question."""
        return np.ones_like(trial_var)


UNRESOLVED_PAIRS: Entry[Policy] = Entry(
    name="unresolved_pairs",
    make=UnresolvedPairs,
    summary="models in an open pair, all questions alike",
    description="Further trials go to models in an open comparison, on all questions alike",
)


@dataclass(frozen=True, slots=True)
class Weighted(UnresolvedPairs):
    """Only the models of open pairs, with questions weighted by their uncertainty for the other models."""

    def weights(self, trial_var: FloatArray, g: FloatArray | None = None) -> FloatArray:
        return question_weights(trial_var, g)


WEIGHTED: Entry[Policy] = Entry(
    name="weighted",
    make=Weighted,
    summary="models in an open pair; more on questions whose answers differ",
    description="Further trials go to models in an open comparison, more to questions on which answers differ",
)


BUILT_IN = (Uniform, UnresolvedPairs)


SHRINK = 0.25
"""How far the weights of questions are drawn to their mean."""


def question_weights(trial_var: FloatArray, g: FloatArray | None = None) -> FloatArray:
    """Relative trials per question (L, M), mean 1 for each model: the others' root mean variance, tempered.

    weight_q = (1 - SHRINK) sd_q / mean(sd) + SHRINK, where sd_q^2 averages v_q over the other models.
    Times g_q, the weight of the question in the score: Neyman's allocation is n_q proportional to g_q sd_q.
    """
    if trial_var.shape[-2] == 1:
        return weighted(np.ones_like(trial_var), g)
    weights = _sums_of_others(trial_var)
    np.sqrt(weights, out=weights)  # in place from here on: models times questions may be large
    weights *= (1.0 - SHRINK) / weights.mean(axis=-1, keepdims=True)
    weights += SHRINK
    weights = weighted(weights, g)
    weights /= weights.mean(axis=-1, keepdims=True)
    return weights


def _sums_of_others(values: FloatArray) -> FloatArray:
    """Sums over all rows but the own one. That is never added: subtracting it again would leave its rounding error.

    Row by row, since `cumsum` takes six times as long on long rows.
    """
    sums = np.zeros_like(values)
    rows = values.shape[-2]
    for row in range(1, rows):
        np.add(sums[..., row - 1, :], values[..., row - 1, :], out=sums[..., row, :])
    after = np.zeros_like(values[..., 0, :])
    for row in range(rows - 2, -1, -1):
        after += values[..., row + 1, :]
        sums[..., row, :] += after
    return sums


def spread(issued: IntArray, weights: FloatArray, size: IntArray | int) -> IntArray:
    """`size` further trials of each model (...) over its questions (..., M), so that totals come closest to the
    weights; ties go to the first.

    A question that is ahead of its share gets none. What the others lack is scaled to `size`, rounded by largest
    remainder.
    """
    sizes = np.asarray(size)[..., None]
    target = weights / weights.sum(axis=-1, keepdims=True) * (issued.sum(axis=-1, keepdims=True) + sizes)
    missing = np.maximum(target - issued, 0.0)
    shares = missing * (sizes / missing.sum(axis=-1, keepdims=True))
    trials = shares.astype(np.int64)
    remainder = sizes - trials.sum(axis=-1, keepdims=True)
    return np.asarray(trials + _largest(shares - trials, remainder))


def _largest(values: FloatArray, number: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mask of the `number` (..., 1) largest of each row (..., M), the first ones among equals."""
    last = values.shape[-1] - 1
    ascending = np.sort(values, axis=-1)  # values, since sorting their order takes seven times as long
    threshold = np.take_along_axis(ascending, np.clip(last + 1 - number, 0, last), axis=-1)
    largest = np.asarray(values >= threshold)
    has_ties = largest.sum(axis=-1) != number[..., 0]
    if has_ties.any():
        equal = (values == threshold)[has_ties]
        above = largest[has_ties] & ~equal
        room = number[has_ties] - above.sum(axis=-1, keepdims=True)
        largest[has_ties] = above | (equal & (np.cumsum(equal, axis=-1) <= room))
    return largest


def _members(view: View, pairs: IndexArray) -> NDArray[np.bool_]:
    """The models of these pairs that may still get trials."""
    models = len(view.in_play)
    member = np.zeros(models + 1, dtype=bool)
    member[pairs.ravel()] = True
    return member[:models] & view.in_play


def _spread_all(view: View, models: NDArray[np.bool_], weights: FloatArray) -> IntArray:
    plan = np.zeros_like(view.issued)
    served = np.flatnonzero(models & (view.sizes > 0))
    chunk_size = max(CHUNK_CELLS // plan.shape[1], 1)
    for start in range(0, len(served), chunk_size):  # in parts: all models with many questions take much memory
        chunk = served[start : start + chunk_size]
        plan[chunk] = spread(view.issued[chunk], weights[chunk], view.sizes[chunk])
    return plan
