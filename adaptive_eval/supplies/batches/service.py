"""Opens a model's batch service, and reads its results as answers."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import orjson

from adaptive_eval.base.errors import EndpointError
from adaptive_eval.endpoints.answers import AnswerReader, ResponseOrigin
from adaptive_eval.endpoints.batching import BATCHED, BatchKind
from adaptive_eval.endpoints.client import RequestHeaders, has_answer
from adaptive_eval.endpoints.failures import Failure, Refusal, error_status, find_error
from adaptive_eval.endpoints.parsing import Reply
from adaptive_eval.endpoints.servers import AnswerNames
from adaptive_eval.endpoints.types import Answer, EndpointConfig, Limits, Prompt, Sampling
from adaptive_eval.endpoints.wire import PATHS, BodyBuilder
from adaptive_eval.supplies.batches import anthropic
from adaptive_eval.supplies.batches.anthropic import AnthropicBatches
from adaptive_eval.supplies.batches.openai import OpenAiBatches
from adaptive_eval.supplies.batches.types import BatchResult
from adaptive_eval.supplies.batches.wire import BatchWire

CANCEL_SECONDS = 10.0
"""How long a run waits for the service to cancel a batch."""
DENIED = frozenset({401, 403})
"""Statuses that say nothing of a batch."""


class BatchService:
    """One model's batch service: encodes its requests, and reads its results."""

    def __init__(self, config: EndpointConfig, sampling: Sampling, kind: BatchKind, wire: BatchWire) -> None:
        self.wire = wire
        self.kind = kind
        self.format = AnthropicBatches(wire) if kind == "anthropic" else OpenAiBatches(wire, "/v1" + PATHS[config.api])
        self._bodies = BodyBuilder(config, sampling)
        reply_config = config if kind != "anthropic" else config.model_copy(update={"api": "chat"})
        self._reader = AnswerReader(reply_config, sampling, wire.redactor, wire.note)
        self._names = AnswerNames(config.model, wire.redactor, wire.note)
        self._replica = config.replicas[0] + BATCHED

    def encode(self, custom_id: str, prompt: Prompt, seed: int) -> bytes:
        """The request for one answer, in the service's format."""
        return self.format.encode(custom_id, self._bodies.body(prompt, range(seed, seed + 1), may_stream=False))

    async def cancel(self, batch: str) -> bool:
        """Ask the service to cancel a batch; returns whether it is over, or will be."""
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.format.cancel(batch)
        except Refusal as refusal:  # it has ended, or the service does not know it
            return refusal.status not in DENIED
        except (TimeoutError, EndpointError, Failure):
            return False
        return True

    def answer(self, result: BatchResult, prompt: Prompt, seed: int, seconds: float, attempts: int) -> Answer:
        """Convert a result into an answer; raises `Failure` or `Rejected` if it is not one."""
        origin = ResponseOrigin(self._replica, seconds, None, attempts)
        code, error = result.code, result.error
        if code == 200 and (embedded_error := find_error(result.payload)) is not None:
            code, error = error_status(embedded_error), {"error": embedded_error}
        if code == 200:
            self._names.check(result.payload)
        reply = Reply(code, {}, orjson.dumps(error), result.payload, seconds, None, has_answer(result.payload))
        (answer,) = self._reader.read(reply, prompt, range(seed, seed + 1), origin)
        return answer


def open_batches(
    config: EndpointConfig,
    sampling: Sampling,
    limits: Limits,
    kind: BatchKind,
    *,
    keys: Mapping[str, str],
    folder: Path = Path(),
) -> BatchService:
    """The batch service of one model; needs a running event loop. For `keys` and errors see `RequestHeaders`."""
    own = (anthropic.HEADERS, anthropic.KEY_HEADER) if kind == "anthropic" else ()
    return BatchService(config, sampling, kind, BatchWire(config, limits, RequestHeaders(config, keys, *own), folder))
