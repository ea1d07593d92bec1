"""The configuration of a model's batch service, and the mark of the answers that came from it."""

from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from adaptive_eval.base.sections import Seconds, Section, config_error

BATCHED = " (batch)"
"""Suffix of the `replica` of an answer from a batch service."""

Kind = Literal["openai", "anthropic"]
MAX_REQUESTS: Mapping[Kind, int] = {"openai": 50_000, "anthropic": 100_000}
"""Most requests in a batch."""
UNKNOWN_TO_MESSAGES = frozenset({"min_p", "logprobs", "reasoning_effort"})
"""Settings of `sampling` that the Messages API of anthropic does not have."""


def _an_address(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise config_error(
            "must be http(s)://host[:port]/path, without a user, a password or a query", "write it like that"
        )
    return url.rstrip("/")


class BatchConfig(Section):
    """A batch service for requests to a model: each round is one batch, answered within a day."""

    kind: Kind
    """API of the service: openai (files of requests) or anthropic (message batches)."""
    base_url: Annotated[str | None, AfterValidator(_an_address)] = None
    """API root of the service; default: the model's `base_url`."""
    price_factor: float = Field(0.5, ge=0, le=1)
    """Price of an answer in a batch, as a share of the model's `price`."""
    cancel_after: Seconds | None = Field(None, gt=0)
    """Age at which a batch is cancelled, and its unanswered requests are sent directly, at the full price; default:
    never."""

    @property
    def max_requests(self) -> int:
        """How many requests a batch may have."""
        return MAX_REQUESTS[self.kind]


def came_by_batch(replica: str) -> bool:
    """Whether an answer with this replica came from a batch service, at its price."""
    return replica.endswith(BATCHED)
