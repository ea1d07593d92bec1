"""Sequential inference: comparing models while their trials are still coming in.

`compare`, `paired` and `prior` say what is known of a pair, and what a wrong choice costs; `boundary` and `looks` when
that is enough to call it, at repeated looks; `futility` when to stop without a winner; `multiplicity` how many pairs
share one error probability. `stopping` holds the single-look helpers on published scores.

Apart from `stopping` these are kernels: arrays that broadcast, no validation.
"""

from scorio.sinf.boundary import Mixture, WangTsiatis
from scorio.sinf.compare import (
    Comparison,
    compare,
    expected_loss,
    information_fraction,
    sampled_covariance,
    sampled_variance,
    tied,
    trial_variance,
    variance_at,
)
from scorio.sinf.futility import predictive_power, smallest_delta, trials_needed
from scorio.sinf.looks import critical_at_looks, crossing_at_looks
from scorio.sinf.multiplicity import ebh, holm, holm_adjusted
from scorio.sinf.paired import (
    Coupling,
    DifferenceValues,
    PairedMoments,
    coupling,
    difference_values,
    paired_counts,
    paired_moments,
    variance_against,
)
from scorio.sinf.prior import self_centred_average_moments, self_centred_avg, self_centred_prior
from scorio.sinf.stopping import (
    ci_from_mu_sigma,
    ranking_confidence,
    should_stop,
    should_stop_top1,
    suggest_next_allocation,
)

__all__ = [
    "Comparison",
    "Coupling",
    "DifferenceValues",
    "Mixture",
    "PairedMoments",
    "WangTsiatis",
    "ci_from_mu_sigma",
    "compare",
    "coupling",
    "critical_at_looks",
    "crossing_at_looks",
    "difference_values",
    "ebh",
    "expected_loss",
    "holm",
    "holm_adjusted",
    "information_fraction",
    "paired_counts",
    "paired_moments",
    "predictive_power",
    "ranking_confidence",
    "sampled_covariance",
    "sampled_variance",
    "self_centred_average_moments",
    "self_centred_avg",
    "self_centred_prior",
    "should_stop",
    "should_stop_top1",
    "smallest_delta",
    "suggest_next_allocation",
    "tied",
    "trial_variance",
    "trials_needed",
    "variance_against",
    "variance_at",
]
