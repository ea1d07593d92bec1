"""The durable store: what a run has, in one directory, safe against kills, crashes and full disks."""

from adaptive_eval.store.database import is_held
from adaptive_eval.store.draft import Draft
from adaptive_eval.store.reader import RunReader
from adaptive_eval.store.records import (
    Batch,
    Event,
    EventKind,
    Json,
    Regrade,
    ReplicaTraffic,
    RunHeader,
    Spending,
    StoredLook,
    StoredOutcome,
    Sums,
    TrialKey,
    TrialPlace,
    TrialRecord,
    TrialUse,
    answer_digest,
)
from adaptive_eval.store.store import Change, Opened, Store, differences, require_same_meaning

__all__ = [
    "Batch",
    "Change",
    "Draft",
    "Event",
    "EventKind",
    "Json",
    "Opened",
    "Regrade",
    "ReplicaTraffic",
    "RunHeader",
    "RunReader",
    "Spending",
    "Store",
    "StoredLook",
    "StoredOutcome",
    "Sums",
    "TrialKey",
    "TrialPlace",
    "TrialRecord",
    "TrialUse",
    "answer_digest",
    "differences",
    "is_held",
    "require_same_meaning",
]
