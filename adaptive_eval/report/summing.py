"""Sums over the trials of a run, for readers."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.roster import Names, Roster
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


Row = tuple[Any, ...]
CHUNK_ROWS = 8192
NO_SPENDING = Spending(0.0, 0, 0, 0.0, 0.0)


def count_cells(cells: Iterable[Row]) -> Counts:
    """Counts[model, question, category] of rows (model id, question id, category, trials); indices are ids minus 1."""
    counts: Counts = np.zeros((0, 0, 1), dtype=np.int32)
    rows = iter(cells)
    while chunk := list(islice(rows, CHUNK_ROWS)):
        *places, trials = np.array(chunk, dtype=np.int64).T
        places[:2] = [column - 1 for column in places[:2]]
        room = [max(have, int(column.max()) + 1) for have, column in zip(counts.shape, places, strict=True)]
        if room != list(counts.shape):
            counts = np.pad(counts, [(0, wide - have) for have, wide in zip(counts.shape, room, strict=True)])
        np.add.at(counts, tuple(places), trials.astype(np.int32))
    return counts


def align_with_roster(
    counts: Counts, models: Mapping[str, int], questions: Mapping[str, int], roster: Roster, categories: int
) -> Counts:
    """Convert counts by id to the positions of a roster; models and questions that it lacks are dropped."""
    aligned = np.zeros((len(roster.models), len(roster.questions), categories), dtype=np.int32)
    shared = min(categories, counts.shape[2])
    (to_model, model), (to_question, question) = (
        _places(names, numbers, size)
        for names, numbers, size in zip(roster, (models, questions), counts.shape, strict=False)
    )
    for to, row in zip(to_model, model, strict=True):  # one by one, to avoid a second copy of all counts
        aligned[to, to_question, :shared] = counts[row, question, :shared]
    return aligned


def _places(names: Names, numbers: Mapping[str, int], size: int) -> tuple[list[int], list[int]]:
    """The positions of these names in the roster, and their indices in the counts."""
    pairs = [(at, numbers[name] - 1) for at, name in enumerate(names) if numbers.get(name, size + 1) <= size]
    return [at for at, _ in pairs], [place for _, place in pairs]
