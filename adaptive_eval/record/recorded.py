"""Recorded models: the outcomes that a run keeps of an earlier run.

All outcomes of complete rounds are taken, once, when the run begins, and written down with how they were asked and
graded. The earlier run may go on, change or be deleted: what was taken stays.

That the earlier run may have ended by what it saw does no harm to speak of (benchmarks/placing.md): a model is asked
until its comparisons are decided, which moves its score by a small part of its standard error. The opening alone is
free of that, and with so few outcomes hardly anybody is placed.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
import orjson

from adaptive_eval.config.planning import KnownBefore
from adaptive_eval.config.run import RunConfig
from adaptive_eval.store import Event, Json, OutcomesRecorded, Roster, events_of_kind

LOGS = "imported logs"
"""Name of the grader of imported outcomes."""

Recorded = Mapping[str, OutcomesRecorded]
"""Recorded outcomes by model of this run."""


def kept_outcomes(config: RunConfig, events: Sequence[Event]) -> Recorded:
    """The stored outcomes of the recorded models that the configuration names."""
    named = {model.name for model in config.models if model.recorded is not None}
    return {event.model: event for event in events_of_kind(events, OutcomesRecorded) if event.model in named}


def recorded_counts(recorded: Recorded, roster: Roster, categories: int) -> KnownBefore:
    """(L, M, K) and (L, M): outcomes with and without a grade."""
    counts = np.zeros((len(roster.models), len(roster.questions), categories), dtype=np.int64)
    ungraded = np.zeros(counts.shape[:2], dtype=np.int64)
    for name, event in recorded.items():
        model = roster.models.position_of(name)
        for question, key in enumerate(roster.questions):
            counts[model, question] = event.counts[key]
            ungraded[model, question] = event.ungraded.get(key, 0)
    return KnownBefore(counts, ungraded if ungraded.any() else None)


def outcomes_digest(counts: Mapping[str, Sequence[int]], ungraded: Mapping[str, int], meaning: Json) -> str:
    """A digest of outcomes and their meaning."""
    whole = orjson.dumps([counts, ungraded, meaning], option=orjson.OPT_SORT_KEYS)
    return blake2b(whole, digest_size=16).hexdigest()
