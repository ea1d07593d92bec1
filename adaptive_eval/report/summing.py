"""Sums over the trials of a run, for readers."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.report.records import ReplicaSums, Spending

Counts = NDArray[np.int32]


def merge_sums(earlier: Sequence[ReplicaSums], later: Sequence[ReplicaSums]) -> list[ReplicaSums]:
    """Add the sums of later trials to those of earlier ones."""
    merged = {(row.model, row.replica): row for row in earlier}
    for row in later:
        before = merged.get((row.model, row.replica))
        merged[row.model, row.replica] = row if before is None else before.and_then(row)
    return list(merged.values())


def total_spending(sums: Sequence[ReplicaSums]) -> Spending:
    """The total over all models and replicas."""
    return Spending(
        at=max((row.at for row in sums), default=0.0),
        trials=sum(row.trials for row in sums),
        tokens=sum(row.tokens for row in sums),
        usd=sum(row.usd for row in sums),
        gpu_seconds=sum(row.gpu_seconds for row in sums),
    )


def thin_out(spending: Sequence[Spending], max_count: int) -> list[Spending]:
    """Select at most `max_count` of these moments, about evenly spaced and including the last."""
    every = -(-len(spending) // max_count)
    return list(spending[::-1][:: max(every, 1)][::-1])


NO_SPENDING = Spending(0.0, 0, 0, 0.0, 0.0)
