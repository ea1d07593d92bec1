"""The events of a run, from the notes and charges of its log."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adaptive_eval.machine.charges import ChargeKind
from adaptive_eval.machine.notes import event_of
from adaptive_eval.machine.records import DISCARDED, Note
from adaptive_eval.notes import AnswersLost, Event, TrialsImported, events_of_kind


class TimedNote(NamedTuple):
    """A note with its place in the log."""

    seq: int
    at: float
    note: Note


class ChargeLine(NamedTuple):
    """The charges of a model that are of one kind."""

    seq: int
    """Place of the newest."""
    at: float
    kind: ChargeKind
    what: str
    """"answer" or "verdict"."""
    model: str
    number: int
    tokens: int
    usd: float
    gpu_seconds: float
    estimated: bool


def events_of_log(notes: Sequence[TimedNote], charges: Sequence[ChargeLine], models: Mapping[int, str]) -> list[Event]:
    """All events in their order."""
    rows: list[tuple[int, Event]] = [(charge.seq, loss_of(charge)) for charge in charges if charge.model]
    # of what is discarded the charge says the same
    rows += [(seq, event_of(note, models, at)) for seq, at, note in notes if note.kind != DISCARDED]
    return [event for _, event in sorted(rows, key=lambda row: row[0])]


def loss_of(charge: ChargeLine) -> AnswersLost:
    """Charges of a model as an event."""
    is_answer, kind = charge.what == "answer", charge.kind
    return AnswersLost(
        charge.model,
        charge.number if is_answer else 0,
        charge.tokens,
        charge.usd,
        charge.gpu_seconds,
        kind is ChargeKind.KILLED,
        0 if is_answer else charge.number,
        estimated=charge.estimated or None,
        failed=kind is ChargeKind.WASTED or None,
        discarded=kind is ChargeKind.DISCARDED or None,
        at=charge.at,
    )


def has_foreign_trials(events: Sequence[Event]) -> bool:
    """Whether trials were imported whose seeds are unknown or not those of the configuration."""
    return not all(event.seeds_match for event in events_of_kind(events, TrialsImported))
