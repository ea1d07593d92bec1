"""How far two models go together on the trials that both have, which share their seeds."""

from collections.abc import Mapping

import numpy as np

from scorio.sinf import Coupling, coupling

Values = Mapping[tuple[int, int], float]
"""What a model's answers are worth, by question and trial."""


def compared(first: Values, second: Values) -> Coupling:
    """The variance of their difference in that of independent models; not a number where all answers are alike."""
    both = sorted(first.keys() & second.keys())
    questions = np.array([question for question, _ in both], dtype=int)
    return coupling(
        questions, *(np.array([values[place] for place in both], dtype=float) for values in (first, second))
    )


def variance_text(result: Coupling) -> str:
    """A variance with its standard error; nothing where it is not known."""
    return f"{result.variance:.2f} +- {result.sigma:.2f}" if np.isfinite(result.variance) else ""
