"""Types shared by the scheduler and its users."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from adaptive_eval.core.types import Look
from adaptive_eval.store import Event

BEAT_SECONDS = 2.0
"""The elapsed time of a run is stored at least this often: a kill loses no more of it."""


class Observer(Protocol):
    """Is told of looks and events as they happen; may not take long."""

    def looked(self, looks: Sequence[Look]) -> None:
        """Called when rounds were completed."""

    def happened(self, event: Event) -> None:
        """Called for each recorded event, such as a model set aside."""


class Halt(StrEnum):
    """How the user stopped a run."""

    DRAINED = "drained"
    """Requests in flight came back first."""
    AT_ONCE = "at_once"
    """Requests in flight were cancelled."""
