"""The run itself: taken up, changed, stopped, finished."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from adaptive_eval.core.types import Reason
from adaptive_eval.errors import ExitCode
from adaptive_eval.store.events.event import Change, Event, where_known


@dataclass(frozen=True, slots=True)
class RunBegun(Event):
    """A process took the run up: to begin it, or to go on with it."""

    trials: int = 0
    """Stored by then."""
    pid: int | None = where_known()
    host: str | None = where_known()
    version: str | None = where_known()
    """Of adaptive-eval."""
    longest_prompts: Mapping[str, int] | None = where_known()
    """Bytes by model: what hard caps have reserved, so that who reads the run need not render a prompt."""
    arguments: tuple[str, ...] | None = where_known()
    """Those of `adaptive-eval run` that go on with it, as they were typed."""


@dataclass(frozen=True, slots=True)
class RunStarted(RunBegun):
    """The run was begun, by its first start."""

    KIND: ClassVar[str] = "started"


@dataclass(frozen=True, slots=True)
class RunResumed(RunBegun):
    """A later start took the run up."""

    KIND: ClassVar[str] = "resumed"


@dataclass(frozen=True, slots=True)
class SettingsChanged(Event):
    """A resume changed settings, after so many trials and looks."""

    KIND: ClassVar[str] = "configured"
    trials: int = 0
    looks: int = 0
    changes: tuple[Change, ...] = ()

    def body(self) -> dict[str, object]:
        # not super(): a class with slots is made anew by its decorator
        return {**Event.body(self), "changes": [change._asdict() for change in self.changes]}


@dataclass(frozen=True, slots=True)
class LooksRetaken(Event):
    """A resume took looks on other rounds of the stored answers than an earlier start did."""

    KIND: ClassVar[str] = "looks_retaken"
    looks: int = 0
    """How many looks the earlier start had taken."""


@dataclass(frozen=True, slots=True)
class RunStopped(Event):
    """The run ended before it was finished: by the user, or by an error."""

    KIND: ClassVar[str] = "stopped"
    error: str | None = where_known()
    """Its kind."""
    reason: str | None = where_known()
    exit_code: ExitCode | None = where_known()
    waited_for: tuple[str, ...] | None = where_known()
    """Models of which all that was asked in this start and before has come."""


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """The run has come to its end."""

    KIND: ClassVar[str] = "finished"
    reason: Reason
    waited_for: tuple[str, ...] | None = where_known()
    """Models of which all that was asked in every start has come: answers ahead of the last look enter their scores."""
