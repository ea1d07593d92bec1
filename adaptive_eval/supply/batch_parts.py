"""Values of a model's batches: a request that waits, the reason why it has no answer, and one batch."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from adaptive_eval.endpoints.batches.types import BatchResult
from adaptive_eval.endpoints.types import Answer, Prompt
from adaptive_eval.store import BatchEnded
from adaptive_eval.store.pending import PendingBatch


class NoBatchAnswer(NamedTuple):
    """Why a request of a batch has no answer."""

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
    """A request that waits for its answer."""

    id: str
    prompt: Prompt
    seed: int
    attempt: int
    outcome: "asyncio.Future[Answer | NoBatchAnswer]"

    def fail(self, error: Exception) -> None:
        """Have the request fail, unless it has its answer."""
        if not self.outcome.done():
            self.outcome.set_exception(error)


@dataclass(eq=False, slots=True)
class CarriedBatch:
    """One batch, from when it is handed in to the last answer that is stored."""

    record: PendingBatch
    """The batch as the events of the run have it."""
    ids: set[str]
    """Ids of the requests without a result yet."""
    bodies: Sequence[bytes] = ()
    """The requests, until the service has taken them; empty for a batch of an earlier start."""
    waiting: dict[str, AwaitedAnswer] = field(default_factory=dict)
    early: dict[str, BatchResult] = field(default_factory=dict)
    """Results that nobody has asked for since this start."""
    owed: set[str] = field(default_factory=set)
    """Ids of answers that are not stored yet."""
    collected: BatchEnded | None = None
    """The event to record when all its answers are stored."""
    handed_in: asyncio.Event = field(default_factory=asyncio.Event)


def trial_id(prompt: Prompt, seed: int) -> str:
    """The id of a request, made of what it asks, so that a later start finds it again."""
    asked = prompt.text if prompt.messages is None else [(one.role, one.content) for one in prompt.messages]
    return f"{blake2b(repr(asked).encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}-{seed}"


def variants(name: str) -> list[str]:
    """Ids for the first and for further requests that are the same in every way."""
    return [name, *(f"{name}-{number}" for number in range(2, MOST_ALIKE + 1))]


MOST_ALIKE = 64
"""Questions with the same prompt and seed that may be asked at a time."""
