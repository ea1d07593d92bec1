"""Sums over the trials of a run, for readers."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.roster import Names, Roster
from adaptive_eval.report.records import ReplicaSums, Spending

Counts = NDArray[np.int32]


def merge_sums(known: Sequence[ReplicaSums], later: Sequence[ReplicaSums]) -> list[ReplicaSums]:
    """Add the sums of later trials to those of earlier ones."""
    found = {(one.model, one.replica): one for one in known}
    for one in later:
        before = found.get((one.model, one.replica))
        found[one.model, one.replica] = one if before is None else before.and_then(one)
    return list(found.values())


def total_spending(sums: Sequence[ReplicaSums]) -> Spending:
    """The total over all models and replicas."""
    return Spending(
        at=max((one.at for one in sums), default=0.0),
        trials=sum(one.trials for one in sums),
        tokens=sum(one.tokens for one in sums),
        usd=sum(one.usd for one in sums),
        gpu_seconds=sum(one.gpu_seconds for one in sums),
    )


def thin_out(spending: Sequence[Spending], most: int) -> list[Spending]:
    """Select at most `most` of these moments, about evenly spaced and including the last."""
    every = -(-len(spending) // most)
    return list(spending[::-1][:: max(every, 1)][::-1])


Row = tuple[Any, ...]
AT_ONCE = 8192
NOTHING = Spending(0.0, 0, 0, 0.0, 0.0)


def count_cells(cells: Iterable[Row]) -> Counts:
    """Counts[model, question, category] of rows (model id, question id, category, trials); indices are ids minus 1."""
    counts: Counts = np.zeros((0, 0, 1), dtype=np.int32)
    rows = iter(cells)
    while some := list(islice(rows, AT_ONCE)):
        *places, trials = np.array(some, dtype=np.int64).T
        places[:2] = [one - 1 for one in places[:2]]
        room = [max(have, int(one.max()) + 1) for have, one in zip(counts.shape, places, strict=True)]
        if room != list(counts.shape):
            counts = np.pad(counts, [(0, wide - have) for have, wide in zip(counts.shape, room, strict=True)])
        np.add.at(counts, tuple(places), trials.astype(np.int32))
    return counts


def align_with_roster(
    counts: Counts, models: Mapping[str, int], questions: Mapping[str, int], roster: Roster, categories: int
) -> Counts:
    """Convert counts by id to the positions of a roster; models and questions that it lacks are dropped."""
    found = np.zeros((len(roster.models), len(roster.questions), categories), dtype=np.int32)
    known = min(categories, counts.shape[2])
    (to_model, model), (to_question, question) = (
        _places(names, numbers, size)
        for names, numbers, size in zip(roster, (models, questions), counts.shape, strict=False)
    )
    for to, row in zip(to_model, model, strict=True):  # one by one, to avoid a second copy of all counts
        found[to, to_question, :known] = counts[row, question, :known]
    return found


def _places(names: Names, numbers: Mapping[str, int], size: int) -> tuple[list[int], list[int]]:
    """The positions of these names in the roster, and their indices in the counts."""
    pairs = [(at, numbers[name] - 1) for at, name in enumerate(names) if numbers.get(name, size + 1) <= size]
    return [at for at, _ in pairs], [place for _, place in pairs]
