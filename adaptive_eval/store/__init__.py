"""The durable store: what a run has, in one directory, safe against kills, crashes and full disks."""

# ruff: noqa: I001, F403 (names that are offered, each once, by the module that has them; of events and records, all)

from adaptive_eval.store.draft import Draft as Draft
from adaptive_eval.notes import (
    parse_event as parse_event,
    events_of_kind as events_of_kind,
    count_kills as count_kills,
    events_since_start as events_since_start,
    was_waited_for as was_waited_for,
)
from adaptive_eval.notes.answers import *
from adaptive_eval.notes.batches import *
from adaptive_eval.notes.beginnings import *
from adaptive_eval.notes.grading import *
from adaptive_eval.notes.lives import *
from adaptive_eval.notes.servers import *
from adaptive_eval.notes.event import *
from adaptive_eval.storage.header import RunHeader as RunHeader
from adaptive_eval.store.reader import RunReader as RunReader
from adaptive_eval.store.records import *
from adaptive_eval.store.roster import Names as Names, Roster as Roster
from adaptive_eval.store.same_meaning import differences as differences, require_same_meaning as require_same_meaning
from adaptive_eval.store.store import OpenedStore as OpenedStore, Store as Store
from adaptive_eval.store.locate import is_held as is_held
