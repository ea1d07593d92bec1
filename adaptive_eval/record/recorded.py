"""Recorded models: outcomes that a run has taken from an earlier run.

All outcomes of complete rounds are taken once, when the run begins, and stored with how they were asked and graded. The
earlier run may go on, change or be deleted: this run keeps its copy.

The earlier run may have stopped because of its outcomes, which does little harm (benchmarks/placing.md): a model is
asked until its comparisons are decided, which moves its score by a small part of its standard error. Outcomes of the
opening alone would have no such bias, but are too few to place most models.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
import orjson

from adaptive_eval.config.planning import PriorKnowledge
from adaptive_eval.config.run import RunConfig
from adaptive_eval.store import Event, Json, OutcomesRecorded, Roster, events_of_kind

LOGS = "imported logs"
"""Grader named for imported outcomes."""

Recorded = Mapping[str, OutcomesRecorded]
"""Recorded outcomes by model of this run."""


def stored_outcomes(config: RunConfig, events: Sequence[Event]) -> Recorded:
    """Stored outcomes of the configuration's recorded models."""
    named = {config.models[number].name for number in config.recorded}
    return {event.model: event for event in events_of_kind(events, OutcomesRecorded) if event.model in named}


def recorded_counts(recorded: Recorded, roster: Roster, categories: int) -> PriorKnowledge:
    """Outcomes with a grade (L, M, K), and number of those without one (L, M)."""
    counts = np.zeros((len(roster.models), len(roster.questions), categories), dtype=np.int64)
    ungraded = np.zeros(counts.shape[:2], dtype=np.int64)
    for name, event in recorded.items():
        model = roster.models.position(name)
        for question, key in enumerate(roster.questions):
            counts[model, question] = event.counts[key]
            ungraded[model, question] = event.ungraded.get(key, 0)
    return PriorKnowledge(counts, ungraded if ungraded.any() else None)


def outcomes_digest(counts: Mapping[str, Sequence[int]], ungraded: Mapping[str, int], meaning: Json) -> str:
    """Digest of outcomes and their meaning."""
    whole = orjson.dumps([counts, ungraded, meaning], option=orjson.OPT_SORT_KEYS)
    return blake2b(whole, digest_size=16).hexdigest()
