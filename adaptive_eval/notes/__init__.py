"""Events of a run, apart from trials and looks: one class for each kind.

An event is stored as a kind and a JSON object with its fields, without those that are None by default.
"""

# ruff: noqa: F403 (every event class is exported here)

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from adaptive_eval.base.errors import StoreError
from adaptive_eval.notes import answers, batches, beginnings, grading, lives, servers
from adaptive_eval.notes.answers import *
from adaptive_eval.notes.answers import AnswersLost
from adaptive_eval.notes.batches import *
from adaptive_eval.notes.beginnings import *
from adaptive_eval.notes.event import Change as Change
from adaptive_eval.notes.event import Event as Event
from adaptive_eval.notes.event import Json as Json
from adaptive_eval.notes.grading import *
from adaptive_eval.notes.grading import TrialsRegraded
from adaptive_eval.notes.lives import *
from adaptive_eval.notes.lives import RunBegun, RunFinished, RunStopped
from adaptive_eval.notes.servers import *

EVENT_CLASSES: tuple[type[Event], ...] = tuple(
    event_class
    for subject in (lives, beginnings, servers, answers, batches, grading)
    for event_class in vars(subject).values()
    if isinstance(event_class, type) and issubclass(event_class, Event) and hasattr(event_class, "KIND")
)
"""Every event class with a kind in these modules."""
_READERS: dict[str, Callable[[], TypeAdapter[Event]]] = {
    event_class.KIND: cache(partial(TypeAdapter[Event], event_class)) for event_class in EVENT_CLASSES
}
"""Parsers by kind, each created when the first event of its kind is read."""

_NOTES_OF_SUPPLIES: tuple[type[Event], ...] = (
    AnswersLost,
    *(event_class for event_class in EVENT_CLASSES if event_class.__module__ in (batches.__name__, servers.__name__)),
)

EventT = TypeVar("EventT", bound=Event)


def parse_event(kind: str, body: object, at: float = 0.0) -> Event:
    """Convert a stored event; raises `StoreError` if its kind is unknown or a required field is missing."""
    if kind not in _READERS:
        raise StoreError(f"an event is of the kind {kind!a:.80}, which this version of adaptive-eval does not know")
    if not isinstance(body, Mapping):
        raise StoreError(f"an event of the kind {kind} is damaged: it has no fields")
    try:
        return _READERS[kind]().validate_python({**body, "at": at})
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise StoreError(f"an event of the kind {kind} is damaged: {where}: {problem['msg']}") from error


def events_of_kind(events: Sequence[Event], kind: type[EventT]) -> list[EventT]:
    """The events of one kind, in their order."""
    return [event for event in events if isinstance(event, kind)]


def count_kills(events: Sequence[Event]) -> int:
    """The number of starts that recorded no end before the next start."""
    starts_and_ends = [event for event in events if isinstance(event, RunBegun | RunFinished | RunStopped)]
    neighbours = pairwise(starts_and_ends)
    return sum(isinstance(event, RunBegun) and isinstance(next_event, RunBegun) for event, next_event in neighbours)


def events_since_start(events: Sequence[Event]) -> Sequence[Event]:
    """The events since the run was last started or resumed."""
    starts = [at for at, event in enumerate(events) if isinstance(event, RunBegun)]
    return events[max(starts, default=0) :]


def newest_command(events: Sequence[Event]) -> RunBegun | TrialsRegraded | None:
    """The newest command that has begun the run, resumed it, or graded all its answers again: what it was given holds
    at later starts."""
    commands = (
        event
        for event in reversed(events)
        if isinstance(event, RunBegun) or (isinstance(event, TrialsRegraded) and event.overrides is not None)
    )
    return next(commands, None)


def newest_turn(events: Sequence[Event]) -> Event | None:
    """The newest event that says whether the run is over; supplies may note later what they have given up."""
    return next((event for event in reversed(events) if not isinstance(event, _NOTES_OF_SUPPLIES)), None)
