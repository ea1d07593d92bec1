"""For how long a simulated run holds its servers: those that it starts are stopped while it waits for a batch.

A run stops them at once where it knows how long a batch takes (`supply.idle_servers`), and what it takes to start
them again is in no server time.
"""

from collections.abc import Sequence

import numpy as np

from adaptive_eval.study.scenario import ServiceCosts
from adaptive_eval.study.timed import ServedSpans, Timeline


def held_seconds(timeline: Timeline, served: ServiceCosts) -> tuple[float, ...]:
    """Seconds until the last answer of each model, without those for which its servers are stopped."""
    held = [float(one.end.max(initial=0.0)) for one in timeline.served]
    batches = [timeline.served[model] for model in served.batched]
    for models in served.stopped_for_batches if batches else ():
        gone = _stopped_seconds([timeline.served[model] for model in models], batches, served.start_seconds)
        for model in models:
            held[model] = max(held[model] - gone, 0.0)
    return tuple(held)


def _stopped_seconds(own: Sequence[ServedSpans], batches: Sequence[ServedSpans], start: float) -> float:
    """Seconds of all gaps between answers of these that are longer than a start, in which a batch is under way."""
    begins, ends = (np.concatenate(times) for times in zip(*own, strict=True))
    order = np.argsort(begins, kind="stable")
    since, until = np.maximum.accumulate(ends[order])[:-1], begins[order][1:]
    long = until - since > start
    taken, back = (np.concatenate(times) for times in zip(*batches, strict=True))
    return sum(
        float(to - at)
        for at, to in zip(since[long], until[long], strict=True)
        if np.any((taken < to) & (back > at + start))
    )
