"""Mean agreement with the gold ranking as trials are added (paper, Fig. 1 and 4)."""

from typing import NamedTuple

import numpy as np

from scorio.convergence.replicates import Progress, bootstrap
from scorio.convergence.study import Study
from scorio.moments import FloatArray, IntArray
from scorio.rank.agreement import pair_signs, tau_b


class TauCurve(NamedTuple):
    """Mean Kendall's tau-b against the gold ranking."""

    trials: IntArray
    """The numbers of trials, one per step."""
    tau: FloatArray


def tau_curve(
    study: Study,
    replicates: int,
    rng: np.random.Generator,
    resample: str = "columns",
    progress: Progress | None = None,
) -> TauCurve:
    """Mean tau-b over bootstrap replicates at each number of trials.

    A ranking that ties all models agrees with nothing: its tau, which is undefined, counts as 0.
    """
    gold = pair_signs(-np.asarray(study.gold, dtype=float))
    if not gold.any():
        raise ValueError("gold must order at least two models, got a tie of them all: tau is undefined")
    total = np.zeros(study.steps.size)
    for chunk in bootstrap(study, replicates, rng, resample, progress):
        total += np.nan_to_num(tau_b(pair_signs(chunk.scores, chunk.tolerance), gold)).sum(axis=0)
    return TauCurve(study.steps, total / replicates)
