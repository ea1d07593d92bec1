"""Evidence on pairs, made by hand."""

import numpy as np

from adaptive_eval.core.evidence import Evidence, pair_indices


def evidence(
    models: int, z: list[float], information: list[float], sigmas: list[float] | None = None, reference: bool = False
) -> Evidence:
    """The pairs of `models` models, or each against a fixed value, with these z and information."""
    model_sigmas = np.array(sigmas or [0.03] * models)
    first, second = pair_indices(models, reference)
    both = np.append(model_sigmas, 0.0)
    sigma = np.hypot(both[first], both[second])
    finite = np.isfinite(sigma)
    at = np.array(z, dtype=float)
    return Evidence(
        models=models,
        against_reference=reference,
        first=first,
        second=second,
        difference=np.where(finite, at * np.where(finite, sigma, 0.0), 0.0),
        sigma=sigma,
        z=np.where(finite, at, 0.0),
        information=np.array(information, dtype=float),
    )
