"""Records that follow from the log and are written to it: looks, and notes of which there is one for each cause.

While the log is replayed these are only collected. At its end they are compared with what the log has, and the
difference is written.
"""

from collections.abc import Callable
from json import dumps

from adaptive_eval.machine.records import (
    ALARM,
    BEGUN,
    CORE_SET_ASIDE,
    DISCARDED,
    LOOKS_RETAKEN,
    SETTLED,
    Json,
    LooksForgotten,
    LookTaken,
    Note,
)

NoteId = tuple[str, int | None, str]
"""Identity of a note that follows from the log: kind, model, and the fault of an alarm."""


class DerivedRecords:
    """Looks and notes that follow from the log."""

    def __init__(self, write: Callable[..., None]) -> None:
        """`write` writes records at the end of the log, all or none."""
        self._write = write
        self.collected: list[LookTaken | Note] = []
        """Looks and notes that follow from the log, while it is replayed."""
        self._is_replayed = False
        self._stored_looks: dict[int, Json] = {}
        """Looks that the log has, by number."""
        self._stored_notes: set[NoteId] = set()
        """Notes that the log has, or that are being written."""
        self._emitted: set[NoteId] = set()
        """Notes that this machine has emitted, in this stage if they are no alarms."""

    # -- the log is replayed -------------------------------------------------------------------------------------

    def restore_look(self, look: LookTaken) -> None:
        """The log has this look."""
        self._stored_looks[look.number] = look.body

    def restore_note(self, note: Note) -> None:
        """The log has this note."""
        if note.kind in (CORE_SET_ASIDE, SETTLED, ALARM):
            self._stored_notes.add(_note_id(note))
        elif note.kind in BEGUN:  # each start says which models the core goes on without
            self._stored_notes = {note_id for note_id in self._stored_notes if note_id[0] != CORE_SET_ASIDE}
        elif note.kind == DISCARDED and note.model is not None:
            self._stored_notes = {note_id for note_id in self._stored_notes if note_id[:2] != (ALARM, note.model)}

    def begin_stage(self) -> None:
        """The settings change here: models are set aside, and settled, anew."""
        stored = self._stored_notes
        self.collected = [
            record for record in self.collected if isinstance(record, LookTaken) or _note_id(record) not in stored
        ]
        self._stored_notes = {note_id for note_id in stored if note_id[0] == ALARM}
        self._emitted = {note_id for note_id in self._emitted if note_id[0] == ALARM}

    def write_owed(self, first_look: int, *, is_explained: bool) -> None:
        """The log is replayed: write what was collected and is not in it, or differs.

        `first_look`: earlier ones are not taken again; `is_explained`: a note says why looks differ."""
        self._is_replayed = True
        owed, self.collected = self.collected, []
        looks = {record.number: record for record in owed if isinstance(record, LookTaken)}
        stored = self._stored_looks
        numbers = [number for number in stored if number >= first_look]
        differs = min((n for n in numbers if n not in looks or not _is_same(looks[n].body, stored[n])), default=None)
        if differs is not None:
            again = [look for number, look in looks.items() if number >= differs]
            self._write(LooksForgotten(differs), *again)
            if not is_explained:
                self._write(Note(LOOKS_RETAKEN, None, {"looks": max(numbers) + 1}))
        for number, look in looks.items():
            if number not in stored and (differs is None or number < differs):
                self._write(look)
        for record in owed:
            if isinstance(record, Note):
                self.write_once(record)
        stored.clear()

    # -- it follows ----------------------------------------------------------------------------------------------

    def emit(self, record: LookTaken | Note) -> None:
        """Write a look or note unless the log has it; collect it while the log is replayed. A note is emitted once."""
        if isinstance(record, Note):
            if (note_id := _note_id(record)) in self._emitted:
                return
            self._emitted.add(note_id)
        if not self._is_replayed:
            self.collected.append(record)
        elif isinstance(record, LookTaken) or not self.has(record):
            self._write(record)

    def write_once(self, note: Note) -> None:
        """Write a note unless the log has it."""
        if not self.has(note):
            self._stored_notes.add(_note_id(note))
            self._write(note)

    def has(self, note: Note) -> bool:
        """Whether the log has a note of this kind about this model."""
        return _note_id(note) in self._stored_notes


def _note_id(note: Note) -> NoteId:
    return note.kind, note.model, str(note.body.get("fault", ""))


def _is_same(look: Json, stored: Json) -> bool:
    """Whether two looks are the same; some of their numbers are nan."""
    return dumps(look, sort_keys=True) == dumps(stored, sort_keys=True)
