"""The calls of the fixed design: N trials of every question by every model, and one look at the end.

At its look, neighbours in the order of the scores differ if z is at least 1.645 (paper, section 2.9), with the standard
errors that a run itself would use: its prior, not the uniform one, whose intervals are wider than they need be. They
are computed for every N at once, so that a run that stops by itself can be compared with the smallest N that calls as
many pairs. The maximum of trials for every model calls more pairs than a run that gives up on some, so a share of its
cost says little. That smallest N is not known beforehand.
"""

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Prior, estimate
from adaptive_eval.core.tape import Tape, TrialArrays
from adaptive_eval.study.judged import EQUAL
from scorio.moments import FloatArray, IntArray
from scorio.sinf.compare import compare

Z_95 = 1.645


def fixed_calls(
    tape: Tape,
    truth: FloatArray,
    questions: int,
    max_trials: int,
    prior: Prior = "self",
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The neighbours (N, L - 1) that the fixed design tells apart after each of its first `max_trials` trials, and the
    wrong calls among these: for a model that is truly worse or equal."""
    score, variance = _estimates(first_outcomes(tape, len(truth), questions, max_trials), tape.weights, prior)
    order = np.argsort(-score, axis=1, kind="stable")
    ranked, spread, true_scores = (
        np.take_along_axis(values, order, axis=1) for values in (score, variance, truth + 0.0 * score)
    )
    called = compare(ranked[:, :-1], spread[:, :-1], ranked[:, 1:], spread[:, 1:]).z >= Z_95
    return called, called & (true_scores[:, :-1] - true_scores[:, 1:] <= EQUAL)


def first_outcomes(tape: Tape, models: int, questions: int, trials_each: int) -> IntArray:
    """The categories of the first `trials_each` trials of every model and question: (L, M, N)."""
    shape = (models, questions)
    trials = TrialArrays.from_round(np.zeros(shape, dtype=np.int64), np.full(shape, trials_each))
    return tape.categories(trials).astype(np.int64).reshape(*shape, trials_each)


def _estimates(outcomes: IntArray, weights: FloatArray, prior: Prior) -> tuple[FloatArray, FloatArray]:
    """Score and variance of every model (N, L), after each trial."""
    models, questions, max_trials = outcomes.shape
    counts = (outcomes[..., None] == np.arange(len(weights))).cumsum(axis=2)
    cells = np.moveaxis(counts, 2, 0).reshape(max_trials * models, questions, len(weights))
    estimates = estimate(cells, weights, prior, cells.sum(axis=-1))
    return estimates.score.reshape(max_trials, models), estimates.var.reshape(max_trials, models)


def smallest_fixed(curve: FloatArray, target: float) -> float | None:
    """The N, possibly fractional, at which a curve over N = 1, 2 ... first reaches `target`; None if it never does."""
    reached = np.flatnonzero(curve >= target)
    if not reached.size:
        return None
    index = int(reached[0])
    if index == 0:
        return 1.0
    before = curve[index - 1]
    return float(index + (target - before) / (curve[index] - before))
