"""Anthropic's message batches: requests in the format of its Messages API, results as lines.

A batch has at most 100,000 requests or 256 MB; it ends within 24 hours, or expires. Each request succeeds, fails, is
cancelled or expires separately, and only successes are paid for. Batches have no metadata, and requests no seeds: a
trial's seed is only its number, and each answer is sampled independently.
https://docs.claude.com/en/api/creating-message-batches

Requests are converted from the chat API, and responses to it, so that one reader handles all answers.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from adaptive_eval.base.json_objects import as_object, objects_in
from adaptive_eval.supplies.batches.openai import list_entries
from adaptive_eval.supplies.batches.types import (
    BatchResult,
    BatchStage,
    BatchState,
    identifier,
    parse_count,
    require_object,
    safe_word,
)
from adaptive_eval.supplies.batches.wire import BatchWire

HEADERS = {"anthropic-version": "2023-06-01"}
KEY_HEADER = "x-api-key"

_RENAMED = {"stop": "stop_sequences", "max_completion_tokens": "max_tokens"}
_OMITTED = frozenset({"seed", "n", "messages"})

_STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 500,
    "overloaded_error": 529,
}
_UNANSWERED = {"canceled": "cancelled", "expired": "expired"}


class AnthropicBatches:
    """The format; the wire's root has `/messages/batches`."""

    max_bytes = 240_000_000

    def __init__(self, wire: BatchWire) -> None:
        self._wire = wire

    def encode(self, custom_id: str, body: Mapping[str, object]) -> bytes:
        """One entry of the list of requests."""
        return orjson.dumps({"custom_id": custom_id, "params": message_params(body)})

    async def create(self, key: str, requests: Sequence[bytes]) -> BatchState:
        """Submit a batch with all of its requests."""
        return _state(await self._wire.post_once("/messages/batches", b'{"requests":[%b]}' % b",".join(requests)))

    async def state(self, batch: str) -> BatchState:
        """The state of a batch."""
        return _state(await self._wire.get(f"/messages/batches/{batch}"))

    async def listed(self, since: float) -> list[BatchState]:
        """The newest batches of the workspace, whenever they were created."""
        return [_state(entry) for entry in list_entries(await self._wire.get("/messages/batches?limit=100"))]

    async def cancel(self, batch: str) -> None:
        """Cancel the batch; requests in progress may still be finished."""
        await self._wire.post(f"/messages/batches/{batch}/cancel", {})

    async def results(self, state: BatchState) -> list[BatchResult]:
        """The lines of the results, from their standard URL: a key is sent to no other address."""
        return [_result(line) for line in await self._wire.lines(f"/messages/batches/{state.id}/results")]


def message_params(body: Mapping[str, object]) -> dict[str, object]:
    """Convert a chat API request into one to the Messages API, where system messages are separate."""
    params = {_RENAMED.get(name, name): value for name, value in body.items() if name not in _OMITTED}
    if isinstance(stop := params.get("stop_sequences"), str):
        params["stop_sequences"] = [stop]
    messages = objects_in(body.get("messages"))
    system = [str(message["content"]) for message in messages if message["role"] in ("system", "developer")]
    if system:
        params["system"] = "\n\n".join(system)
    params["messages"] = [message for message in messages if message["role"] not in ("system", "developer")]
    return params


def chat_payload(message: object) -> dict[str, object]:
    """Convert a message into a response of a chat API."""
    fields = require_object(message, "the message")
    content = fields.get("content")
    thoughts = [part.get("thinking") for part in objects_in(content) if part.get("type") == "thinking"]
    reasoning = "".join(thought for thought in thoughts if isinstance(thought, str))
    usage = as_object(fields.get("usage"))
    input_counts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    reply: dict[str, object] = {"role": "assistant", "content": content}
    if reasoning:
        reply["reasoning_content"] = reasoning
    return {
        "model": fields.get("model"),
        "choices": [{"index": 0, "message": reply, "finish_reason": fields.get("stop_reason")}],
        "usage": {
            "prompt_tokens": sum(parse_count(usage.get(name)) or 0 for name in input_counts),
            "completion_tokens": parse_count(usage.get("output_tokens")) or 0,
            "cache_read_input_tokens": usage.get("cache_read_input_tokens"),
        },
    }


def _state(reply: object) -> BatchState:
    batch = require_object(reply, "it")
    word = safe_word(batch.get("processing_status"))
    numbers = [parse_count(number) or 0 for number in as_object(batch.get("request_counts")).values()]
    return BatchState(
        id=identifier(batch.get("id"), "that of the batch"),
        stage=BatchStage.ENDED if word == "ended" else BatchStage.RUNNING,
        status=word,
        total=sum(numbers) if numbers else None,
        created=_seconds(batch.get("created_at")),
    )


def _seconds(value: object) -> float | None:
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def _result(line: Mapping[str, Any]) -> BatchResult:
    """Parse one line of the results."""
    outcome = as_object(line.get("result"))
    kind = str(outcome.get("type"))
    if kind in _UNANSWERED:
        return BatchResult(line["custom_id"], _UNANSWERED[kind])
    if kind == "succeeded" and isinstance(outcome.get("message"), dict):
        return BatchResult(line["custom_id"], payload=chat_payload(outcome["message"]))
    error = as_object(outcome.get("error"))
    inner = error.get("error", error)
    code = _STATUS_OF.get(str(as_object(inner).get("type")), 500)
    return BatchResult(line["custom_id"], code=code, error={"error": inner})
