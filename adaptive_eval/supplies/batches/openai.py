"""OpenAI's batches: a file of requests is uploaded, a batch is created from it, and its results are files, too.

50,000 requests and 200 MB a batch at most; done within 24 hours, or it expires; answers given by then are in its
results and are paid for. Failed requests are in a separate file, in the order of failure.
https://platform.openai.com/docs/api-reference/batch
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import orjson

from adaptive_eval.supplies.batches.types import (
    MARK,
    BatchResult,
    BatchStage,
    BatchState,
    bad,
    identifier,
    parse_count,
    parse_time,
    require_object,
    safe_word,
)
from adaptive_eval.supplies.batches.wire import BatchWire

_STAGES = {
    "completed": BatchStage.ENDED,
    "expired": BatchStage.ENDED,
    "cancelled": BatchStage.ENDED,
    "failed": BatchStage.FAILED,
}
_UNANSWERED = {"batch_expired": "expired", "batch_cancelled": "cancelled"}
_BUSY = frozenset({"token_limit_exceeded", "rate_limit_exceeded", "request_limit_exceeded"})
"""Codes of a batch that failed because too much of the account is already waiting."""
PAGE = 100
PAGES = 5
"""Most pages of the list that are read, newest first."""


class OpenAiBatches:
    """The format; the wire's root has `/files` and `/batches`."""

    most_bytes = 190_000_000

    def __init__(self, wire: BatchWire, endpoint: str) -> None:
        """`endpoint` is the API that each request is for, such as /v1/chat/completions."""
        self._wire = wire
        self._endpoint = endpoint

    def encode(self, custom_id: str, body: Mapping[str, object]) -> bytes:
        """A request as a line of the file to upload."""
        line = {"custom_id": custom_id, "method": "POST", "url": self._endpoint, "body": body}
        return orjson.dumps(line) + b"\n"

    async def create(self, key: str, requests: Sequence[bytes]) -> BatchState:
        """Upload the file, which costs nothing, and create a batch from it."""
        uploaded = await self._wire.upload("/files", f"{key}.jsonl", b"".join(requests), {"purpose": "batch"})
        file = identifier(require_object(uploaded, "the uploaded file").get("id"), "that of the uploaded file")
        body = {"input_file_id": file, "endpoint": self._endpoint, "completion_window": "24h", "metadata": {MARK: key}}
        return parse_state(await self._wire.post_once("/batches", body))

    async def state(self, batch: str) -> BatchState:
        return parse_state(await self._wire.get(f"/batches/{batch}"))

    async def listed(self, since: float) -> list[BatchState]:
        """The newest batches of the account."""
        found: list[BatchState] = []
        after = ""
        for _ in range(PAGES):
            page = require_object(await self._wire.get(f"/batches?limit={PAGE}{after}"), "the list")
            states = [parse_state(one) for one in list_entries(page)]
            found += states
            if not page.get("has_more") or not states or (states[-1].created or since) < since:
                break
            after = f"&after={states[-1].id}"
        return found

    async def cancel(self, batch: str) -> None:
        """Ask for the end of a batch, which arrives within ten minutes."""
        await self._wire.post(f"/batches/{batch}/cancel", {})

    async def results(self, state: BatchState) -> list[BatchResult]:
        """The results of a batch, from its files of answers and of errors."""
        files = [await self._wire.lines(f"/files/{file}/content") for file in state.files]
        return parse_results(line for lines in files for line in lines)


def list_entries(page: object) -> Sequence[object]:
    """The entries of a page of a list."""
    data = require_object(page, "the list").get("data")
    if not isinstance(data, list):
        raise bad("the list has no data")
    return data


def plain_state(batch: Mapping[str, object]) -> BatchState:
    """The state in a batch object, from the fields that OpenRouter has as well."""
    word, counts = safe_word(batch.get("status")), batch.get("request_counts")
    return BatchState(
        id=identifier(batch.get("id"), "that of the batch"),
        stage=_STAGES.get(word, BatchStage.RUNNING),
        said=word,
        total=parse_count(counts.get("total")) if isinstance(counts, dict) else None,
        created=parse_time(batch.get("created_at")),
    )


def parse_state(said: object) -> BatchState:
    """The state in a batch object."""
    batch = require_object(said, "it")
    marks = batch.get("metadata")
    key = marks.get(MARK) if isinstance(marks, dict) else None
    named = (batch.get("output_file_id"), batch.get("error_file_id"))
    files = tuple(identifier(file, "that of a file of results") for file in named if file)
    reason, busy = _trouble(batch)
    key = key if isinstance(key, str) else None
    return replace(plain_state(batch), key=key, files=files, reason=reason, busy=busy)


def _trouble(batch: object) -> tuple[str, bool]:
    """Why the batch failed as a whole, and whether it may be accepted later."""
    told = require_object(batch, "it").get("errors")
    data = told.get("data") if isinstance(told, dict) else None
    errors = [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []
    reason = "; ".join(str(one.get("message") or one.get("code")) for one in errors[:3])
    return reason, any(one.get("code") in _BUSY for one in errors)


def parse_results(lines: Iterable[object]) -> list[BatchResult]:
    """The results that name a request."""
    return [result for line in lines if (result := parse_result(line)) is not None]


def parse_result(line: object) -> BatchResult | None:
    """Parse one line of a file of results; None if it names no request."""
    if not isinstance(line, dict) or not isinstance(line.get("custom_id"), str):
        return None
    custom_id, response, told = line["custom_id"], line.get("response"), line.get("error")
    if isinstance(response, dict) and response.get("status_code") is not None:
        status, body = parse_count(response["status_code"]) or 500, response.get("body")
        if status == 200:
            return BatchResult(custom_id, payload=body)
        return BatchResult(custom_id, code=status, error=body if isinstance(body, dict) else {})
    error = told if isinstance(told, dict) else {}
    code = str(error.get("code"))
    if code in _UNANSWERED:
        return BatchResult(custom_id, _UNANSWERED[code])
    status = int(code) if code.isdecimal() and 400 <= int(code) < 600 else 500
    return BatchResult(custom_id, code=status, error={"error": error})
