"""A gate on all questions and on single benchmarks: one decision about each model.

A model passes if every gate passes it, and fails if any gate fails it. It passes wrongly only if the very gate that it
should have failed passes it, so a PASS may use the whole error. It fails wrongly if any one of the gates is wrong, so a
FAIL shares the error among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_eval.core.rules import Correctable, Rule, judges_by_pair
from scorio.moments import FloatArray

if TYPE_CHECKING:  # as in `rules`
    from adaptive_eval.core.evidence import Evidence, IndexArray
    from adaptive_eval.core.judge import LatchedVerdicts, PairForecast

SENTINEL = 1e6
"""Greater than every |z| and every power."""


@dataclass(frozen=True, slots=True, eq=False)
class SeveralGates:
    """A rule for a gate of several parts; what concerns changed horizons is delegated to `rule`.

    Examples:
        >>> from adaptive_eval.core.gates import SeveralGates
        >>> from adaptive_eval.core.sequential import Sequential
        >>> rule = SeveralGates(Sequential(0.95), gates=3)
        >>> round(rule.rule.critical, 2), round(rule.failing.critical, 2)
        (2.11, 2.53)
    """

    rule: Correctable
    gates: int

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in self.__slots__:  # no rule is set yet while this is being copied
            raise AttributeError(name)
        return getattr(self.rule, name)

    @property
    def confidence(self) -> float:
        return self.rule.confidence

    @property
    def by_pair(self) -> bool:
        return judges_by_pair(self.rule)

    @property
    def failing(self) -> Correctable:
        """The rule for a FAIL."""
        return self.rule.at_level((1.0 - self.rule.confidence) / self.gates)

    def boundary(self, evidence: Evidence) -> FloatArray:
        passing = self.rule.boundary(evidence)
        fails = _is_gate_row(evidence) & (evidence.z < 0.0)
        return np.where(fails, self.failing.boundary(evidence), passing) if fails.any() else passing

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        p = self.rule.p_value(evidence, sign)
        return p if sign > 0 else np.where(_is_gate_row(evidence), np.minimum(self.gates * p, 1.0), p)

    def at_level(self, alpha: float) -> SeveralGates:
        return replace(self, rule=self.rule.at_level(alpha))

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> Rule:
        """The rule under another horizon, from the looks of each part of the gate."""
        return replace(self, rule=self.rule.extended(looks, now, delta)) if hasattr(self.rule, "extended") else self


def _is_gate_row(evidence: Evidence) -> Any:
    return np.zeros(len(evidence.z), bool) if evidence.gate is None else evidence.gate >= 0


def rows_of_gates(evidence: Evidence) -> IndexArray:
    """(P + 1, L - 1): positions of the parts of a gate, all questions first, for each model but the baseline."""
    assert evidence.gate is not None
    return np.flatnonzero(evidence.gate >= 0).reshape(-1, evidence.models - 1)


def deciding_parts(evidence: Evidence, memory: LatchedVerdicts, ahead: PairForecast) -> IndexArray:
    """(L - 1,): the part of the gate that decides about each model, or keeps it open.

    A part that the model has failed decides. Otherwise it is the part nearest to failing it, or, if none has z below 0,
    the one least likely to pass it. If all parts have passed it, it is the one with the least z.
    """
    rows = rows_of_gates(evidence)
    call, z = memory.call[rows], evidence.z[rows]
    power = ahead.power(rows.ravel()).reshape(rows.shape)
    worst = np.select([call < 0, call > 0, z < 0.0], [np.full(z.shape, -np.inf), SENTINEL + z, z - 1.0], power)
    return np.asarray(worst.argmin(axis=0))
