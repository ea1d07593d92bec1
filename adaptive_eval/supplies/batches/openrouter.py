"""OpenRouter's batches: all requests are in one body, and the ended batch contains the results.

A batch has at most 5,000 requests to one model; it ends within 24 hours, or expires. `endpoint` and `model` must come
before `requests`, since the service parses the body as a stream. A batch cannot be cancelled, and has no metadata.
https://openrouter.ai/docs/batch-quickstart
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import orjson

from adaptive_eval.base.errors import Rejected
from adaptive_eval.supplies.batches.openai import list_entries, parse_results, plain_state
from adaptive_eval.supplies.batches.types import BatchResult, BatchState, require_object
from adaptive_eval.supplies.batches.wire import BatchWire

_BUSY = re.compile(r"rate.?limit|too many|limit (?:was )?reached|overloaded|try again", re.IGNORECASE)
"""Reasons of a failure after which the batch may be accepted later; there are no codes."""


class OpenRouterBatches:
    """The format; the wire's root has `/batches`."""

    max_bytes = 60_000_000

    def __init__(self, wire: BatchWire, endpoint: str, model: str) -> None:
        self._wire = wire
        self._endpoint = endpoint
        self._model = model

    def encode(self, custom_id: str, body: Mapping[str, object]) -> bytes:
        """One entry of the list of requests."""
        return orjson.dumps({"custom_id": custom_id, "body": body})

    async def create(self, key: str, requests: Sequence[bytes]) -> BatchState:
        """Submit a batch with all of its requests."""
        head = orjson.dumps({"endpoint": self._endpoint, "model": self._model})
        body = b'%b,"requests":[%b]}' % (head[:-1], b",".join(requests))
        return _state(await self._wire.post_once("/batches", body))

    async def state(self, batch: str) -> BatchState:
        """The state of a batch, with its results when it has ended."""
        return _state(await self._wire.get(f"/batches/{batch}", large=True))

    async def listed(self, since: float) -> list[BatchState]:
        """The newest batches of the account."""
        return [_state(entry) for entry in list_entries(await self._wire.get("/batches?limit=100"))]

    async def cancel(self, batch: str) -> None:
        """Raise `Rejected`: the service cannot cancel a batch."""
        raise Rejected("batches of openrouter cannot be cancelled")

    async def results(self, state: BatchState) -> list[BatchResult]:
        """The results that arrived with the batch."""
        return parse_results(state.inline)


def _state(reply: object) -> BatchState:
    batch = require_object(reply, "it")
    error, results = batch.get("error"), batch.get("results")
    inline = tuple(results) if isinstance(results, list) else ()
    reason = str(error.get("message", "")) if isinstance(error, dict) else ""
    return replace(plain_state(batch), inline=inline, reason=reason, busy=_BUSY.search(reason) is not None)
