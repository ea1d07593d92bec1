"""Evidence on pairs, built by hand for the tests."""

import numpy as np

from adaptive_eval.core import Evidence
from adaptive_eval.testing.rules import made_evidence


def evidence(
    models: int, z: list[float], information: list[float], sigmas: list[float] | None = None, reference: bool = False
) -> Evidence:
    """The pairs of `models` models, or each against a fixed value, with these z and information."""
    values = (np.array(numbers, dtype=float) for numbers in (z, information, sigmas or [0.03] * models))
    return made_evidence(models, reference, *values)
