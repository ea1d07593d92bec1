"""Notes of the log and events of `adaptive_eval.notes`: the same facts, with models by number or by name."""

from collections.abc import Mapping, Sequence

from adaptive_eval.machine.records import CORE_SET_ASIDE, SET_ASIDE, Note
from adaptive_eval.notes import parse_event
from adaptive_eval.notes.event import Event


def note_of(event: Event, numbers: Mapping[str, int]) -> Note:
    """An event as it goes into the log; `numbers`: the number of each model."""
    body = event.body()
    name = body.pop("model", None)
    return Note(event.kind, None if name is None else numbers.get(str(name)), body)


def event_of(note: Note, models: Sequence[str] | Mapping[int, str], at: float = 0.0) -> Event:
    """The event of a note that was stored at this time; `models`: names by number."""
    kind, body = SET_ASIDE if note.kind == CORE_SET_ASIDE else note.kind, {"model": "", **note.body}
    if note.model is not None:
        body["model"] = models[note.model]
    if (waited := note.body.get("waited_for")) is not None:
        body["waited_for"] = [models[number] for number in waited]
    return parse_event(kind, body, at)
