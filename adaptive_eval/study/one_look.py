"""The fixed design as it is usually run: N trials of every question by every model, and one look at the end.

At that look, neighbours in the order of the scores differ if z is at least 1.645 (paper, section 2.9). Its calls are
computed for every N at once, so that a run that stops by itself can be compared with the smallest N that calls as many
pairs, not only with one that calls more.
"""

from typing import NamedTuple

import numpy as np

from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.tape import Tape, TrialArrays
from adaptive_eval.study.judged import EQUAL
from scorio.moments import FloatArray, IntArray
from scorio.rank.order import pair_signs, tau_b
from scorio.sinf.compare import compare

Z = 1.645


class OneLook(NamedTuple):
    """Calls and errors of one draw after N = 1, 2 ... trials of every question by every model, as arrays over N."""

    called: FloatArray
    """Number of neighbours that are told apart."""
    wrong: FloatArray
    """Number of calls for a model that is truly worse or equal."""
    any_wrong: FloatArray
    """1 if there is any wrong call."""
    ties: FloatArray
    """Number of wrong calls between equals."""
    tau_b: FloatArray
    """Kendall's tau-b of the scores with the true ones; nan if these are all equal."""


def evaluate_one_look(
    tape: Tape, truth: FloatArray, questions: int, most: int, z: float = Z, g: FloatArray | None = None
) -> OneLook:
    """The fixed design on a tape, after each of its first `most` trials; a call takes `z`, questions weigh `g`."""
    score, variance = _estimates(_drawn(tape, len(truth), questions, most), tape.weights, g)
    order = np.argsort(-score, axis=1, kind="stable")
    ranked, spread, true = (np.take_along_axis(one, order, axis=1) for one in (score, variance, truth + 0.0 * score))
    called = compare(ranked[:, :-1], spread[:, :-1], ranked[:, 1:], spread[:, 1:]).z >= z
    ahead = true[:, :-1] - true[:, 1:]
    wrong = called & (ahead <= EQUAL)
    ties = called & (np.abs(ahead) <= EQUAL)
    taus = np.asarray(tau_b(pair_signs(score, EQUAL), pair_signs(truth, EQUAL)))
    return OneLook(
        called=called.sum(axis=1).astype(float),
        wrong=wrong.sum(axis=1).astype(float),
        any_wrong=wrong.any(axis=1).astype(float),
        ties=ties.sum(axis=1).astype(float),
        tau_b=taus,
    )


def _drawn(tape: Tape, models: int, questions: int, most: int) -> IntArray:
    """The first `most` outcomes of every cell: (L, M, N)."""
    shape = (models, questions)
    trials = TrialArrays.from_round(np.zeros(shape, dtype=np.int64), np.full(shape, most))
    return tape.categories(trials).astype(np.int64).reshape(*shape, most)


def _estimates(outcomes: IntArray, weights: FloatArray, g: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Score and variance of every model (N, L), after each trial, under the uniform prior."""
    models, questions, most = outcomes.shape
    counts = (outcomes[..., None] == np.arange(len(weights))).cumsum(axis=2)
    cells = np.moveaxis(counts, 2, 0).reshape(most * models, questions, len(weights))
    found = estimate(cells, weights, "uniform", cells.sum(axis=-1), g=g)
    return found.score.reshape(most, models), found.var.reshape(most, models)


def smallest_fixed(curve: FloatArray, wanted: float) -> float | None:
    """The N, possibly fractional, at which a curve over N = 1, 2 ... first reaches `wanted`; None if it never does."""
    reached = np.flatnonzero(curve >= wanted)
    if not reached.size:
        return None
    after = int(reached[0])
    if after == 0:
        return 1.0
    before = curve[after - 1]
    return float(after + (wanted - before) / (curve[after] - before))
