"""A gate on all questions and on single benchmarks: one decision about each model.

A model passes where every gate lets it pass, and fails where one of them fails it. It is passed wrongly only where the
very gate that it should have failed lets it pass, so that a PASS has the whole error. It is failed wrongly where any of
the gates is wrong, so that a FAIL shares the error among them.
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

PASSED = 1e6
"""Beyond every |z| and every power."""


@dataclass(frozen=True, slots=True, eq=False)
class SeveralGates:
    """A rule for a gate of so many parts: what it says of changed horizons is what `rule` says.

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
        if name.startswith("_") or name in self.__slots__:  # while it is copied there is no rule yet
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
        """The rule under another horizon, by the looks of each part of the gate."""
        return replace(self, rule=self.rule.extended(looks, now, delta)) if hasattr(self.rule, "extended") else self


def _is_gate_row(evidence: Evidence) -> Any:
    return np.zeros(len(evidence.z), bool) if evidence.gate is None else evidence.gate >= 0


def rows_of_gates(evidence: Evidence) -> IndexArray:
    """(P + 1, L - 1): where the parts of a gate stand, all questions first, for each model but the baseline."""
    assert evidence.gate is not None
    return np.flatnonzero(evidence.gate >= 0).reshape(-1, evidence.models - 1)


def deciding_parts(evidence: Evidence, memory: LatchedVerdicts, ahead: PairForecast) -> IndexArray:
    """(L - 1,): the part of the gate that decides about each model, or by which it is open.

    One that has failed it decides. Else it is open by the one that is nearest to failing it, or, where none is on that
    side, by the one that is least likely to let it pass. Where all let it pass, the one with the least z tells.
    """
    rows = rows_of_gates(evidence)
    call, z = memory.call[rows], evidence.z[rows]
    power = ahead.power(rows.ravel()).reshape(rows.shape)
    worst = np.select([call < 0, call > 0, z < 0.0], [np.full(z.shape, -np.inf), PASSED + z, z - 1.0], power)
    return np.asarray(worst.argmin(axis=0))
