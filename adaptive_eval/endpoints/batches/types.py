"""What batch services have in common: the section, a batch and its results as values, and the protocol of a format.

A batch is found again by what is written into it: its key stands in its metadata, where a service keeps any, and
before the id of each of its requests (`custom_id`), which comes back with the result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal, Protocol, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from adaptive_eval.sections import Count, Seconds, Section, refuse

MARK = "adaptive_eval"
"""The key of the metadata under which a batch has its own."""
BATCHED = " (batch)"
"""Ends what stands as the replica of an answer that a batch service gave."""

Kind = Literal["openai", "anthropic", "openrouter"]
MOST_REQUESTS: Mapping[Kind, int] = {"openai": 50_000, "anthropic": 100_000, "openrouter": 5_000}
"""In a batch."""
UNKNOWN_TO_MESSAGES = frozenset(
    {"min_p", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs", "reasoning_effort"}
)
"""Settings of `sampling` that the Messages API of anthropic does not have."""
CANNOT_CANCEL: frozenset[Kind] = frozenset({"openrouter"})
"""Formats whose batches run to their end."""


def _an_address(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise refuse("must be http(s)://host[:port]/path, without a user, a password or a query", "write it like that")
    return url.rstrip("/")


class BatchConfig(Section):
    """The batch service that a model is asked through: its rounds are sent whole, and answered within a day."""

    kind: Kind
    """Whose format it speaks: openai (files of requests), anthropic (message batches), or openrouter (requests in
    one body)."""
    base_url: Annotated[str | None, AfterValidator(_an_address)] = None
    """Where the batches are; default: the `base_url` of the model, for openrouter its neighbour `/beta`."""
    price_factor: float = Field(0.5, ge=0, le=1)
    """What an answer costs in a batch, as a share of the model's `price`."""
    patience: Seconds | None = Field(None, gt=0)
    """After so long a batch is cancelled, and what it has not answered is asked for directly, at the full price;
    default: never. Not for openrouter, whose batches cannot be cancelled."""
    requests: Count | None = Field(None, ge=1)
    """Requests in a batch at most; default: what the service allows."""
    first_poll: Seconds = Field(10.0, gt=0)
    """How long after a batch was sent it is looked after for the first time; the pause then grows by half."""
    longest_poll: Seconds = Field(300.0, gt=0)
    """The longest pause between two polls."""
    expected: Seconds | None = Field(None, gt=0)
    """How long a batch is expected to take, for `plan`; default: as long as the batches of a pilot, else an hour."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.patience is not None and self.kind in CANNOT_CANCEL:
            rule = (
                f"has a patience, but batches of {self.kind} cannot be cancelled: what they answer would be paid twice"
            )
            raise refuse(rule, "remove `patience`")
        return self

    @property
    def most_requests(self) -> int:
        """How many requests a batch may have."""
        return min(self.requests or MOST_REQUESTS[self.kind], MOST_REQUESTS[self.kind])


class BatchStage(StrEnum):
    """How far a batch is."""

    RUNNING = "running"
    ENDED = "ended"
    """There are results, if not for all of its requests."""
    FAILED = "failed"
    """The batch was refused as a whole."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One request of a batch."""

    custom_id: str
    body: Mapping[str, object]
    """As it would be sent to the chat or completions API."""


@dataclass(frozen=True, slots=True)
class BatchState:
    """State of a batch, as its service gives it."""

    id: str
    stage: BatchStage
    said: str
    """The service's own word for it."""
    key: str | None = None
    """What its metadata says, where there is any."""
    total: int | None = None
    """Requests in it, where the service says so."""
    created: float | None = None
    """Seconds since 1970."""
    files: tuple[str, ...] = ()
    """Where results are."""
    inline: tuple[object, ...] = ()
    """Results that came with it."""
    reason: str = ""
    """Why it failed."""
    busy: bool = False
    """It failed since the service has too much to do: later it may be taken."""


class ResultStatus(StrEnum):
    """How a request of a batch ended."""

    RESPONSE = "response"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class BatchResult:
    """One line of the results."""

    custom_id: str
    status: ResultStatus = ResultStatus.RESPONSE
    code: int = 200
    """The status of the response, as HTTP has them."""
    payload: object = None
    """The response as the chat or completions API would give it."""
    error: Mapping[str, object] = field(default_factory=dict)
    """The body of an error."""


class BatchFormat(Protocol):
    """One service's way to take batches; what it raises is a `Failure` or a `Rejected`."""

    most_bytes: int

    def sized(self, request: BatchRequest) -> bytes:
        """The request as it is sent, so that its size is known."""

    async def create(self, key: str, requests: Sequence[bytes]) -> BatchState:
        """Hand in a batch, once: where the answer is lost, nobody knows whether it was created."""

    async def state(self, batch: str) -> BatchState:
        """How far a batch is."""

    async def listed(self, since: float) -> list[BatchState]:
        """Batches that were created since then, and perhaps earlier ones, the newest first."""

    async def cancel(self, batch: str) -> None:
        """Ask for its end; what is answered by then is among its results."""

    async def results(self, state: BatchState) -> list[BatchResult]:
        """Every result that can be read."""


def came_by_batch(replica: str) -> bool:
    """Whether an answer with this replica came from a batch service, and was paid at its price."""
    return replica.endswith(BATCHED)
