"""The error that ended a run, kept in its store: whoever looks at the run later has not seen the terminal."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from adaptive_eval.errors import AdaptiveEvalError, StoreError, headline
from adaptive_eval.run.exit_codes import ExitCode, exit_code_of
from adaptive_eval.store import Batch, Event, EventKind, Store


class Mishap(NamedTuple):
    """An error that ended a run."""

    reason: str
    exit_code: ExitCode

    @property
    def headline(self) -> str:
        """The reason in one line."""
        return headline(self.reason)


def note_mishap(store: Store, error: Exception) -> None:
    """Store that this error ended the run, where the store can still be written.

    What is raised on purpose says nothing secret and is told whole, but for where the run lies; of any other error only
    the kind is kept, since nobody knows what its text holds.
    """
    kind = type(error).__name__
    text = str(error) if isinstance(error, AdaptiveEvalError) else f"an error that was not foreseen ({kind})"
    here = store.directory  # "." has no name, and says nothing
    reason = text.replace(str(here), here.name) if here.name else text
    body = {"error": kind, "reason": reason, "exit_code": int(exit_code_of(error))}
    with suppress(StoreError):
        store.commit(Batch(events=[Event(EventKind.STOPPED, body)]))


def mishap_of(events: Sequence[Event]) -> Mishap | None:
    """The error that ended a run, None where none did or the run has been resumed since."""
    if not events or events[-1].kind is not EventKind.STOPPED or "error" not in events[-1].body:
        return None
    body = events[-1].body
    return Mishap(str(body["reason"]), ExitCode(int(str(body["exit_code"]))))
