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
    return coupling(questions, *(np.array([own[place] for place in both], dtype=float) for own in (first, second)))


def told(found: Coupling) -> str:
    """A variance with its standard error; nothing where it is not known."""
    return f"{found.variance:.2f} +- {found.sigma:.2f}" if np.isfinite(found.variance) else ""
