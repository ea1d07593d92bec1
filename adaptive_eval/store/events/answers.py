"""What becomes of answers, beside being stored: lost, not wanted, all alike, kept in place, had from batch services."""

from dataclasses import dataclass
from typing import ClassVar

from adaptive_eval.store.events.event import Event


@dataclass(frozen=True, slots=True)
class AnswersLost(Event):
    """Answers that were asked for and lost, and what they count as: the most that they may have cost."""

    KIND: ClassVar[str] = "answers_lost"
    model: str
    answers: int = 0
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0
    killed: bool = False
    """Whether they were in flight when an earlier start ended."""
    verdicts: int = 0
    """A judge's replies on answers that are there, which were lost in their place."""


@dataclass(frozen=True, slots=True)
class AnswersUnwanted(Event):
    """Answers that idle slots were asked for ahead, and that no round had come to want when the run ended."""

    KIND: ClassVar[str] = "unwanted"
    model: str
    answers: int = 0
    came: int = 0
    """How many of the answers came; the others were given up on their way, and nobody knows what they have cost."""
    tokens: int = 0
    """This and what follows: of those that came."""
    usd: float = 0.0
    gpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class AlarmRaised(Event):
    """After the opening: all answers of a model have something in common that should not be."""

    KIND: ClassVar[str] = "alarm"
    model: str
    fault: str = ""
    """A `AnswerFault`."""
    text: str = ""
    example: str | None = None
    """One of these answers."""

    @property
    def words(self) -> str:
        """The text with its example."""
        return self.text if self.example is None else f"{self.text} ({self.example})"


@dataclass(frozen=True, slots=True)
class AnswersKept(Event):
    """Texts that were to leave the ledger stay in it, since their place cannot be written; it is tried again."""

    KIND: ClassVar[str] = "answers_kept"
    reason: str


@dataclass(frozen=True, slots=True)
class BatchPlanned(Event):
    """A batch of requests will be handed in to a provider's batch service: nothing was sent yet."""

    KIND: ClassVar[str] = "batch_planned"
    model: str
    key: str
    """Of our own; it stands in the batch, by which that is found again."""
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
    """What the service calls it."""
    size: int = 0
    """Requests in it."""
    since: float = 0.0
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class BatchCancelled(Event):
    """A batch took longer than there was patience: what it does not have is asked for directly."""

    KIND: ClassVar[str] = "batch_cancelled"
    model: str
    key: str


@dataclass(frozen=True, slots=True)
class BatchEnded(Event):
    """Every answer of it that came is stored."""

    KIND: ClassVar[str] = "batch_ended"
    model: str
    key: str
    said: str = ""
    """The service's word for its end."""
    came: int = 0
    missing: int = 0
    """To be asked for again."""
    lost: int = 0
    """How many of the missing ones may have been generated and paid for."""
