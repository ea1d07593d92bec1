"""Events of servers and batches as notes of the log, which has numbers of models in place of their names."""

from collections.abc import Callable

from adaptive_eval.run.records import Note
from adaptive_eval.store import Event

OnEvent = Callable[[Event], None]
"""Records an event."""


def note_of(event: Event, model: int | None) -> Note:
    """The note of an event about a model, or about none."""
    return Note(event.kind, model, {name: value for name, value in event.body().items() if name != "model"})
