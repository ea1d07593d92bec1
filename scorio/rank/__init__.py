"""Rankings: by any metric, with uncertainty, and how far two of them agree.

`bayes`, `avg` and the Pass@k family rank a tensor of outcomes or a batch of `Counts` by their namesakes in
`scorio.eval`; `rank_with_uncertainty` lets models share a rank that the data cannot tell apart; `pairwise` compares
every two models; `preferences` ranks by votes between two answers (Bradley-Terry); `letter_display` says in letters who
is told apart; `compare_rankings` measures the agreement of two rankings.
"""

from scorio.rank.letters import letter_display
from scorio.rank.order import RankAgreement, Tiers, compare_rankings, pairwise, rank_scores, rank_with_uncertainty
from scorio.rank.preferences import Preferences, preferences
from scorio.rank.scored import (
    Ranked,
    auc_at_k,
    avg,
    bayes,
    g_pass_at_k,
    g_pass_at_k_tau,
    geo_spectrum_at_k,
    geo_spectrum_star_at_k,
    geom_at_k,
    geom_ds_at_k,
    maj_at_k,
    max_at_k,
    mg_pass_at_k,
    naive_pass_hat_k,
    pass_at_k,
    pass_hat_k,
    threshold_spectrum_at_k,
    unanimous_at_k,
)

__all__ = [
    "Preferences",
    "RankAgreement",
    "Ranked",
    "Tiers",
    "auc_at_k",
    "avg",
    "bayes",
    "compare_rankings",
    "g_pass_at_k",
    "g_pass_at_k_tau",
    "geo_spectrum_at_k",
    "geo_spectrum_star_at_k",
    "geom_at_k",
    "geom_ds_at_k",
    "letter_display",
    "maj_at_k",
    "max_at_k",
    "mg_pass_at_k",
    "naive_pass_hat_k",
    "pairwise",
    "pass_at_k",
    "pass_hat_k",
    "preferences",
    "rank_scores",
    "rank_with_uncertainty",
    "threshold_spectrum_at_k",
    "unanimous_at_k",
]
