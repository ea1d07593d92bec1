"""How much of the servers' slots a run kept busy while their models were still being compared."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.types import Look, Verdict
from adaptive_eval.replay.timed import Timeline


class SlotUse(NamedTuple):
    """Shares of slot-seconds that were busy while models were open."""

    slowest: float
    """Of the open model whose answers take longest, for which all others wait."""
    open: float
    """Of all open models together."""


def slot_use(timeline: Timeline, looks: Sequence[Look]) -> SlotUse:
    """Over the times between looks; a model is open in one if the look before it left one of its comparisons open."""
    edges = np.concatenate([[0.0], timeline.looks])
    busy = np.stack([np.diff(one.busy_until(edges)) for one in timeline.served], axis=1)
    offered = np.diff(edges)[:, None] * timeline.slots
    opened = open_models(looks)
    went_on = opened.any(axis=1)
    length = np.array([(one.end - one.start).mean() if len(one.end) else 0.0 for one in timeline.served])
    slowest = np.where(opened, length, -1.0).argmax(axis=1)
    at_slowest = np.arange(len(busy))[went_on], slowest[went_on]
    return SlotUse(
        slowest=float(busy[at_slowest].sum() / offered[at_slowest].sum()),
        open=float(busy[opened].sum() / offered[opened].sum()),
    )


def open_models(looks: Sequence[Look]) -> NDArray[np.bool_]:
    """(n, L): who was open before each of n looks, as the look before it has left them; before the first, everyone."""
    opened = np.zeros((len(looks), len(looks[0].order)), dtype=bool)
    opened[0] = True
    for index, look in enumerate(looks[:-1]):
        for pair in look.comparisons:
            if pair.verdict is Verdict.OPEN:
                opened[index + 1, pair.better] = True
                if pair.worse is not None:
                    opened[index + 1, pair.worse] = True
    return opened
