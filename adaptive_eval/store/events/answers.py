"""Events of answers: lost, suspicious, kept in the ledger, or requested from batch services."""

from dataclasses import dataclass
from typing import ClassVar

from adaptive_eval.store.events.event import Event, optional_field


@dataclass(frozen=True, slots=True)
class AnswersLost(Event):
    """Answers that were requested and lost, with the most that they may have cost, which is what caps count."""

    KIND: ClassVar[str] = "answers_lost"
    model: str
    answers: int = 0
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0
    killed: bool = False
    """Whether they were in flight when an earlier start ended."""
    verdicts: int = 0
    """Replies of a judge that were lost, not the answers themselves."""
    estimated: bool | None = optional_field()
    """Whether no cap counts them: their cost is that of as many stored answers of the model."""


@dataclass(frozen=True, slots=True)
class AlarmRaised(Event):
    """After the opening, all answers of a model share a suspicious trait."""

    KIND: ClassVar[str] = "alarm"
    model: str
    fault: str = ""
    """An `AnswerFault`."""
    text: str = ""
    example: str | None = None
    """One of these answers."""

    @property
    def description(self) -> str:
        """The text with its example."""
        return self.text if self.example is None else f"{self.text} ({self.example})"


@dataclass(frozen=True, slots=True)
class AnswersKept(Event):
    """Texts stay in the ledger, since the place for their segment cannot be written; it is tried again."""

    KIND: ClassVar[str] = "answers_kept"
    reason: str


@dataclass(frozen=True, slots=True)
class BatchPlanned(Event):
    """A batch of requests is about to be submitted to a provider's batch service."""

    KIND: ClassVar[str] = "batch_planned"
    model: str
    key: str
    """Our own key, sent with the batch so that it can be found again."""
    requests: tuple[str, ...] = ()
    """The ids of its requests."""
    planned: float = 0.0
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class BatchTaken(Event):
    """The batch service has accepted a batch."""

    KIND: ClassVar[str] = "batch_taken"
    model: str
    key: str
    batch: str = ""
    """The service's id of the batch."""
    size: int = 0
    """Requests in it."""
    since: float = 0.0
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class BatchCancelled(Event):
    """A batch took too long: its missing answers are requested directly."""

    KIND: ClassVar[str] = "batch_cancelled"
    model: str
    key: str


@dataclass(frozen=True, slots=True)
class BatchEnded(Event):
    """A batch has ended, and all answers that came are stored."""

    KIND: ClassVar[str] = "batch_ended"
    model: str
    key: str
    said: str = ""
    """The final status that the service reported."""
    came: int = 0
    missing: int = 0
    """Answers to be requested again."""
    lost: int = 0
    """How many of the missing ones may have been generated and paid for."""
