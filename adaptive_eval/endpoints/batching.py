"""The kinds of batch services, and the mark and price of the answers that came from one."""

from collections.abc import Mapping
from typing import Literal

BATCHED = " (batch)"
"""Suffix of the `replica` of an answer from a batch service."""

BatchKind = Literal["openai", "anthropic"]
MAX_REQUESTS: Mapping[BatchKind, int] = {"openai": 50_000, "anthropic": 100_000}
"""Most requests in a batch."""
BATCH_PRICE = 0.5
"""Price of an answer in a batch, as a share of the direct price."""
UNKNOWN_TO_MESSAGES = frozenset({"min_p", "logprobs"})
"""Settings of `sampling` that the Messages API of anthropic does not have."""


def came_by_batch(replica: str) -> bool:
    """Whether an answer with this replica came from a batch service, at its price."""
    return replica.endswith(BATCHED)
