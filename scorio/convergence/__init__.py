"""How many trials a ranking needs (paper, sections 2.7 and 3.3, appendices F.1 and G).

study = Study.of(R, metric=Metric.of(scorio.eval.pass_at_k, k=4))         # R is an (L, M, N) tensor
found = convergence_at_n(study, replicates=100_000, rng=np.random.default_rng(0))
found.pmf, found.cdf, found.never, found.worst
curve = tau_curve(study, replicates=10_000, rng=np.random.default_rng(0))
"""

from scorio.convergence.scoring import Progress
from scorio.convergence.stability import (
    NEVER,
    Convergence,
    TauCurve,
    Trajectory,
    convergence_at_n,
    convergence_of_subsets,
    tau_curve,
    tau_of_tensors,
    trajectory,
)
from scorio.convergence.study import BAYES, Metric, Study

__all__ = [
    "BAYES",
    "NEVER",
    "Convergence",
    "Metric",
    "Progress",
    "Study",
    "TauCurve",
    "Trajectory",
    "convergence_at_n",
    "convergence_of_subsets",
    "tau_curve",
    "tau_of_tensors",
    "trajectory",
]
