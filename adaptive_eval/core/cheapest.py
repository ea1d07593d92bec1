"""The choice of the cheapest model that will do: the cheapest one shown to be at most `delta` behind every other.

Each model is compared with each other one with delta added to its score (`evidence`). A call against it *rules it out*:
it is more than delta behind. A call for it shows that it is not. In the order of their costs (of equal ones the better
first), the first model that is neither ruled out nor stuck is the candidate: stuck is one that the trials that are left
will hardly decide. The candidate is chosen once it is shown to be at most delta behind every model that is not ruled
out.

A wrong choice is a model that is behind the best by more than delta although their comparison was called for it. Any
model but the best may be that one, so that each comparison has its share of the error (`Plan.deciding_rule`). The sum
of the shares is the error of the choice, in whatever order models become candidates. In return, a model that is too
close to delta does not end the search: the next one is taken up.

Costs order the candidates, and no more. They are those of each model's first round, in which all models answer the same
questions equally often; later rounds differ in that.

Trials go to comparisons of the candidate. If it is likely to be ruled out, with z below 0 against some model, one model
is enough for that: the comparison with the least z goes on, and all others rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.types import VERDICTS, Verdict
from scorio.moments import FloatArray

if TYPE_CHECKING:
    from adaptive_eval.core.evidence import Evidence, IndexArray

BoolArray = NDArray[np.bool_]
NOBODY = -1
OPEN, OUT_OF_REACH = VERDICTS.index(Verdict.OPEN), VERDICTS.index(Verdict.OUT_OF_REACH)


class Part(StrEnum):
    """What a model is in the choice."""

    CHOSEN = "chosen"
    """The cheapest one that is shown to do."""
    CANDIDATE = "candidate"
    """The cheapest one that may do and that trials may still show to; it is not shown yet."""
    UNDECIDED = "undecided"
    """Cheaper than these; it may do as well, and the trials that are left will hardly tell."""
    RULED_OUT = "ruled_out"
    """Shown to be more than delta behind another one."""
    DEARER = "dearer"
    """It costs more, and is only compared with the candidate."""


@dataclass(frozen=True, slots=True, eq=False)
class CheapestChoice:
    """The state of the choice at a look: each model but the candidate is in one of the n = L - 1 comparisons."""

    candidate: int
    made: bool
    """Whether the candidate is shown to be at most delta behind all that are not ruled out, so that it is chosen."""
    ruled_out_by: IndexArray
    """(L,): a model that is shown to be better by more than delta; NOBODY if there is none."""
    undecided: BoolArray
    """(L,): cheaper models than the candidate that may do as well."""
    pairs: IndexArray
    """(n, 2): the comparisons, first the model that is ahead, with delta counted."""
    sides: IndexArray
    """(P,): `Evidence.deciding`."""
    verdicts: IndexArray
    """(n,): positions in VERDICTS."""
    resting: BoolArray
    """(n,): comparisons that get no trials now, even if they are open."""

    def part_of(self, model: int) -> Part:
        """What a model is in the choice."""
        if model == self.candidate:
            return Part.CHOSEN if self.made else Part.CANDIDATE
        if self.ruled_out_by[model] != NOBODY:
            return Part.RULED_OUT
        return Part.UNDECIDED if self.undecided[model] else Part.DEARER


def choose(
    evidence: Evidence, call: NDArray[np.int8], verdict: IndexArray, order: IndexArray, costs: FloatArray | None
) -> CheapestChoice:
    """The state of the choice, from the call and the verdict of each judged pair. The leader of the order is never
    ruled out."""
    models, number = evidence.models, np.arange(evidence.models)
    calls, z, verdicts = (_by_model(evidence, values) for values in (call, evidence.z, verdict))
    is_out = np.asarray((calls < 0).any(axis=1))
    is_out[order[0]] = False
    ruler = np.where(is_out, np.where(calls < 0, z, np.inf).argmin(axis=1), NOBODY)
    is_rival = ~is_out & (number[:, None] != number)
    lacks = is_rival & (calls <= 0)
    fails = lacks & (verdicts != OPEN)
    is_stuck = fails.any(axis=1) & ~(lacks & ~fails & (z < 0.0)).any(axis=1)
    cost = np.full(models, np.nan) if costs is None else costs[:, 0]
    in_play = [
        model
        for model in np.lexsort((np.argsort(order), np.nan_to_num(cost, nan=np.inf))).tolist()
        if not is_out[model]
    ]
    candidate = next((model for model in in_play if not is_stuck[model]), in_play[0])
    undecided = np.isin(number, in_play[: in_play.index(candidate)])
    others = np.flatnonzero(number != candidate)
    waits = undecided[others] & ~lacks[candidate, others]
    favoured = np.where(is_out[others] | waits, others, candidate)
    blocking = np.where(fails, z, np.inf).argmin(axis=1)
    against = np.select([is_out[others], waits], [ruler[others], blocking[others]], others)
    lead, verdict = z[favoured, against], verdicts[favoured, against]
    if fails[candidate].any():  # then it can only be ruled out
        verdict = np.where((favoured == candidate) & (verdict == OPEN) & (lead >= 0.0), OUT_OF_REACH, verdict)
    pairs, sides = np.stack([favoured, against], axis=1), np.zeros(evidence.plain_pairs, dtype=np.intp)
    sides[evidence.plain_positions(pairs)] = np.where(favoured < against, 1, 2)
    behind = np.where((favoured == candidate) & (verdict == OPEN), lead, np.inf)
    return CheapestChoice(
        candidate=candidate,
        made=not lacks[candidate].any(),
        ruled_out_by=ruler,
        undecided=undecided,
        pairs=np.where((lead >= 0.0)[:, None], pairs, pairs[:, ::-1]),
        sides=sides,
        verdicts=verdict,
        resting=(np.arange(len(others)) != behind.argmin()) & bool(behind.min() < 0.0),
    )


def _by_model(evidence: Evidence, values: NDArray[Any]) -> NDArray[Any]:
    """(L, L): of judged pairs, those in which delta is added to the model of the row; 0 on the diagonal."""
    square = np.zeros((evidence.models, evidence.models), dtype=values.dtype)
    begin = evidence.plain_pairs
    square[evidence.first[begin:], evidence.second[begin:]] = values[begin:]
    return square
