"""Sharing one error probability among all comparisons of an objective.

A fixed set of pairs goes through Holm's procedure over its one-sided hypotheses, on p-values that are minima over the
looks so far; where the data choose the pairs, Bonferroni's divisor counts the mistakes that could be made (see
`objectives`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.objectives import Objective
from adaptive_eval.core.rules import Correctable, Rule
from scorio.moments import FloatArray
from scorio.sinf.multiplicity import holm


class Shared(NamedTuple):
    """The rule at the error level that this look has reached, and the sign of each call (0: none)."""

    rule: Rule
    called: NDArray[np.int8]


def share(
    p_first: FloatArray, p_second: FloatArray, evidence: Evidence, objective: Objective, rule: Correctable
) -> Shared:
    """One look's familywise calls, from the least p-values so far (one-sided, for each of a pair)."""
    family = objective.family(evidence.models)
    if isinstance(family, int):
        level = among(family, rule)
        called = np.abs(evidence.z) >= level.boundary(evidence)
        return Shared(level, np.where(called, np.sign(evidence.z), 0).astype(np.int8))
    members = evidence.positions(family)
    p = np.concatenate([p_first[members], p_second[members]])
    significant = holm(p, 1.0 - rule.confidence)
    signs = np.zeros(len(evidence.z), np.int8)
    signs[members] = significant[: len(members)].astype(np.int8) - significant[len(members) :].astype(np.int8)
    return Shared(among(len(p) - int(significant.sum()), rule), signs)


def first_call(objective: Objective, models: int, rule: Correctable) -> Rule:
    """The rule at the error level of the first call."""
    family = objective.family(models)
    return among(family if isinstance(family, int) else 2 * len(family), rule)


def among(hypotheses: int, rule: Correctable) -> Rule:
    """The rule at an equal share of its error probability for so many one-sided hypotheses."""
    return rule.at_level((1.0 - rule.confidence) / max(hypotheses, 1))
