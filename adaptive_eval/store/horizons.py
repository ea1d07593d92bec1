"""What the record of a run says of its horizons: `trials.max` may be changed after looks were taken.

The record is the event that is stored with a changed configuration, in the same transaction; it says how many looks
there were. Events of earlier versions do not: these took all looks anew under the new horizon.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from adaptive_eval.store.records import Event, EventKind

PATH = "trials.max"


class Changed(NamedTuple):
    """One change of the horizon, as it is recorded; `looks` is None where that is not known."""

    was: int
    now: int
    looks: int | None
    at: float


def changed_horizons(events: Sequence[Event]) -> Iterator[Changed]:
    """Every change of the horizon after the first look."""
    for event in events:
        if event.kind is not EventKind.CONFIGURED:
            continue
        looks = event.body.get("looks")
        for change in _changes(event.body):
            numbers = change.get("was"), change.get("now")
            if change.get("path") == PATH and all(isinstance(one, int) and one >= 1 for one in numbers) and looks != 0:
                was, now = map(int, map(str, numbers))
                yield Changed(was, now, looks if isinstance(looks, int) else None, event.at)


def _changes(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    changes = body.get("changes")
    return [one for one in changes if isinstance(one, Mapping)] if isinstance(changes, list) else []
