"""What the scheduler is given, and what it tells."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from adaptive_eval.core.types import Look
from adaptive_eval.store import Event

BEAT_SECONDS = 2.0
"""The time of a run is stored at least so often: a kill loses no more of it."""


class Observer(Protocol):
    """Hears what happens while it happens; may not take long."""

    def looked(self, looks: Sequence[Look]) -> None:
        """Rounds were completed."""

    def happened(self, event: Event) -> None:
        """A model was set aside, or the run was stopped."""


class Halt(StrEnum):
    """How the user stopped a run."""

    DRAINED = "drained"
    """What was in flight came back first."""
    AT_ONCE = "at_once"
    """What was in flight was cancelled."""
