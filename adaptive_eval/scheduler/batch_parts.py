"""The pieces of a model's rounds as batches: who waits for an answer, what is missing, and one batch while it lasts."""

import asyncio
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, Protocol

from adaptive_eval.endpoints.batches.types import BatchResult
from adaptive_eval.endpoints.types import Answer, Prompt
from adaptive_eval.store import BatchEnded, Event


class Journal(Protocol):
    """Where it is written down what was handed in."""

    def note(self, event: Event) -> None:
        """Record an event."""
        ...

    async def safe(self) -> None:
        """Wait until what was recorded by now is on disk."""
        ...


class NoBatchAnswer(NamedTuple):
    """A request of a batch has no answer."""

    why: str
    lost: bool = False
    """It may have been generated, and paid for."""
    refused: bool = False
    """Asked for once more, it is believed."""
    pause: bool = False
    """The service has too much to do."""
    excused: bool = False
    """It says nothing of the request."""
    direct: bool = False
    """There is no more patience with batches."""


@dataclass(eq=False, slots=True)
class AwaitedAnswer:
    """Somebody waits for one answer."""

    id: str
    prompt: Prompt
    seed: int
    attempt: int
    outcome: "asyncio.Future[Answer | NoBatchAnswer]"


@dataclass(eq=False, slots=True)
class CarriedBatch:
    """One batch, from the first request that is gathered to the last answer that is stored."""

    key: str
    planned: float
    ids: set[str] = field(default_factory=set)
    """Of requests whose fate is not known yet."""
    stored: set[str] = field(default_factory=set)
    """Of requests whose answers earlier starts have stored."""
    waiting: dict[str, AwaitedAnswer] = field(default_factory=dict)
    requests: list[bytes] = field(default_factory=list)
    """As they are handed in; empty for a batch of an earlier start."""
    number: int = 0
    """Of requests that it was handed in with."""
    size: int = 0
    """Bytes of `requests`."""
    batch: str | None = None
    """What the service calls it."""
    since: float = 0.0
    cancelled: bool = False
    early: dict[str, BatchResult] = field(default_factory=dict)
    """Results that nobody has asked for since this start."""
    owed: set[str] = field(default_factory=set)
    """Answers that were given and are not stored yet."""
    collected: BatchEnded | None = None
    """What will be written down when all is stored."""
    handed_in: asyncio.Event = field(default_factory=asyncio.Event)


def trial_id(prompt: Prompt, seed: int) -> str:
    """What a request is called: by what is asked, so that a later start finds it again."""
    asked = prompt.text if prompt.messages is None else [(one.role, one.content) for one in prompt.messages]
    return f"{blake2b(repr(asked).encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}-{seed}"


def variants(name: str) -> list[str]:
    """Names for the first and for further requests that are the same in every way."""
    return [name, *(f"{name}-{number}" for number in range(2, MOST_ALIKE + 1))]


MOST_ALIKE = 64
"""Questions with the same prompt and seed that may be asked at a time."""


def fail_asked(asked: AwaitedAnswer, error: Exception) -> None:
    """Who waits hears of an error."""
    if not asked.outcome.done():
        asked.outcome.set_exception(error)
