"""The metrics: Bayes@N and avg@N on any rubric, the Pass@k family on binary outcomes, Max@k on rewards.

Every function takes a vector, an (M, N) matrix of categories or a `scorio.counts.Counts`, whose questions may have
different numbers of trials and which may hold a batch of models. Plain functions give the score, `bayes` and `avg`
with its uncertainty (an `Estimate`: mu, sigma); `_ci` functions give a `Summary`: mu, sigma, lo, hi. Both are tuples
with names. One model gives floats, a batch gives arrays. A data frame of questions by trials will do, NaN for a missing
trial.
"""

from scorio.eval._family import (
    auc_at_k,
    auc_at_k_ci,
    g_pass_at_k,
    g_pass_at_k_ci,
    g_pass_at_k_tau,
    g_pass_at_k_tau_ci,
    geo_spectrum_at_k,
    geo_spectrum_at_k_ci,
    geo_spectrum_star_at_k,
    geo_spectrum_star_at_k_ci,
    geom_at_k,
    geom_at_k_ci,
    geom_ds_at_k,
    geom_ds_at_k_ci,
    maj_at_k,
    maj_at_k_ci,
    mg_pass_at_k,
    mg_pass_at_k_ci,
    naive_pass_hat_k,
    pass_at_k,
    pass_at_k_ci,
    pass_hat_k,
    pass_hat_k_ci,
    threshold_spectrum_at_k,
    threshold_spectrum_at_k_ci,
    unanimous_at_k,
    unanimous_at_k_ci,
)
from scorio.eval._inputs import Estimate, Summary
from scorio.eval._max_reward import max_at_k, max_at_k_ci
from scorio.eval._predicted import Corrected, corrected
from scorio.eval._scales import avg, avg_ci, bayes, bayes_ci

__all__ = [
    "Corrected",
    "Estimate",
    "Summary",
    "auc_at_k",
    "auc_at_k_ci",
    "avg",
    "avg_ci",
    "bayes",
    "bayes_ci",
    "corrected",
    "g_pass_at_k",
    "g_pass_at_k_ci",
    "g_pass_at_k_tau",
    "g_pass_at_k_tau_ci",
    "geo_spectrum_at_k",
    "geo_spectrum_at_k_ci",
    "geo_spectrum_star_at_k",
    "geo_spectrum_star_at_k_ci",
    "geom_at_k",
    "geom_at_k_ci",
    "geom_ds_at_k",
    "geom_ds_at_k_ci",
    "maj_at_k",
    "maj_at_k_ci",
    "max_at_k",
    "max_at_k_ci",
    "mg_pass_at_k",
    "mg_pass_at_k_ci",
    "naive_pass_hat_k",
    "pass_at_k",
    "pass_at_k_ci",
    "pass_hat_k",
    "pass_hat_k_ci",
    "threshold_spectrum_at_k",
    "threshold_spectrum_at_k_ci",
    "unanimous_at_k",
    "unanimous_at_k_ci",
]
