"""Every public function as a call on any input, with all that it needs besides the outcomes."""

from collections.abc import Callable
from typing import Any

import numpy as np

import scorio.eval as scorio_eval

Call = Callable[[Any], Any]
W = np.array([-0.5, 0.25, 1.0, 1.0])


def weights(k: int) -> list[float]:
    return [0.9 / k] * k


def finite_bank(k: int) -> dict[str, Call]:
    """Plain metrics of binary outcomes."""
    plain = "pass_at_k pass_hat_k g_pass_at_k mg_pass_at_k maj_at_k auc_at_k geom_at_k geom_ds_at_k max_at_k"
    calls: dict[str, Call] = {name: lambda R, n=name: getattr(scorio_eval, n)(R, k) for name in plain.split()}
    return calls | {
        "geo_spectrum_at_k": lambda R: scorio_eval.geo_spectrum_at_k(R, k, 0.3, weights(k)),
        "geo_spectrum_star_at_k": lambda R: scorio_eval.geo_spectrum_star_at_k(R, k),
        "g_pass_at_k_tau": lambda R: scorio_eval.g_pass_at_k_tau(R, k, 0.6),
        "threshold_spectrum_at_k": lambda R: scorio_eval.threshold_spectrum_at_k(R, k, weights(k)),
    }


def naive(k: int) -> dict[str, Call]:
    """Metrics that take shares as chances, and so any k."""
    return {"naive_pass_hat_k": lambda R: scorio_eval.naive_pass_hat_k(R, k)}


def posterior(k: int) -> dict[str, Call]:
    """Summaries of binary outcomes."""
    within = "pass_at_k pass_hat_k g_pass_at_k mg_pass_at_k maj_at_k auc_at_k"
    calls: dict[str, Call] = {
        name + "_ci": lambda R, n=name + "_ci": getattr(scorio_eval, n)(R, k) for name in within.split()
    }
    return calls | {"g_pass_at_k_tau_ci": lambda R: scorio_eval.g_pass_at_k_tau_ci(R, k, 0.6)} | any_draws(k)


def any_draws(k: int) -> dict[str, Call]:
    """Summaries of binary outcomes that are defined for more draws than there are trials."""
    names = "geom_at_k_ci geom_ds_at_k_ci geo_spectrum_star_at_k_ci max_at_k_ci"
    calls: dict[str, Call] = {name: lambda R, n=name: getattr(scorio_eval, n)(R, k) for name in names.split()}
    return calls | {
        "geo_spectrum_at_k_ci": lambda R: scorio_eval.geo_spectrum_at_k_ci(R, k, 0.3, weights(k)),
        "threshold_spectrum_at_k_ci": lambda R: scorio_eval.threshold_spectrum_at_k_ci(R, k, weights(k)),
    }


def scales() -> dict[str, Call]:
    """Bayes@N and avg@N of binary outcomes."""
    return {
        "bayes": scorio_eval.bayes,
        "bayes_ci": lambda R: scorio_eval.bayes_ci(R, bounds=(0.0, 1.0)),
        "avg": scorio_eval.avg,
        "avg_ci": lambda R: scorio_eval.avg_ci(R, bounds=(0.0, 1.0)),
    }


def binary(k: int) -> dict[str, Call]:
    return scales() | finite_bank(k) | naive(k) | posterior(k)
