"""Simulated batch services in the formats of OpenAI and Anthropic, in addition to the chat API.

A batch passes through its service's states within `seconds`, and then has the chat API's answer for each request.
`BatchHabits` defines faults, which depend on a request and its number of repetitions, never on its answer.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from adaptive_eval.simulate.answering import hashed_integers
from adaptive_eval.simulate.faults import BatchHabits
from adaptive_eval.simulate.replies import ApiReply, json_reply, whole_reply

Complete = Callable[[str, bytes], tuple[int, dict[str, Any]]]
"""Returns status and body of the chat API, given the path and the request."""

CHAT = "/v1/chat/completions"
ENDED = frozenset({"completed", "expired", "cancelled", "failed"})
ISO = "%Y-%m-%dT%H:%M:%S+00:00"
_JSON_LINES = "application/jsonl"
_ROUTES = re.compile(
    r"/(?P<kind>v1/messages|v1)/(?P<what>batches|files)"
    r"(?:/(?P<id>[\w-]+)(?:/(?P<part>content|results|cancel))?)?"
)


@dataclass
class SimulatedBatch:
    """A batch as it was submitted."""

    id: str
    kind: str
    requests: list[dict[str, Any]]
    endpoint: str
    created: float
    metadata: dict[str, Any]
    expires: bool
    fails: bool
    cancelled: float | None = None
    lines: list[dict[str, Any]] | None = None
    """The results, once it has ended."""


class BatchApi:
    """The batch endpoints of a simulated server; `now` returns the seconds since it started."""

    def __init__(self, habits: BatchHabits, complete: Complete, now: Callable[[], float]) -> None:
        self._habits = habits
        self._complete = complete
        self._now = now
        self._batches: dict[str, SimulatedBatch] = {}
        self._files: dict[str, bytes] = {}
        self._seen: Counter[str] = Counter()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._counts: Counter[str] = Counter()

    def handle(self, method: str, path: str, body: bytes) -> ApiReply | None:
        """The reply to a request about batches; None for any other request."""
        match = _ROUTES.fullmatch(path)
        if match is None:
            return None
        call = (method, path)
        self._calls[call] += 1
        create = method == "POST" and match["id"] is None and match["what"] == "batches"
        if not create and self._habits.meets("broken", *call, self._calls[call]):
            return json_reply(_error("the batch service stumbled", "server_error"), 500)
        try:
            if create:
                return self._create(match["kind"], body)
            if match["what"] == "files":
                return self._file(method, match["id"], body)
            return self._reply(match["kind"], match["id"], match["part"])
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            return json_reply(_error(f"this is no such request: {error!r}", "invalid_request_error"), 400)

    @property
    def counts(self) -> Counter[str]:
        """Numbers of batches and requests by state: created, answered, cancelled, expired or failed."""
        for batch in self._batches.values():
            if (word := self._word(batch)) in ENDED:
                self._result_lines(batch, word)
        return self._counts

    def _reply(self, kind: str, name: str | None, part: str | None) -> ApiReply:
        if name is None:
            data = [self._batch_status(batch) for batch in reversed(self._batches.values()) if batch.kind == kind]
            return json_reply({"object": "list", "data": data, "has_more": False})
        if name not in self._batches:
            return json_reply(_error(f"no batch has the id {name}", "not_found_error"), 404)
        batch = self._batches[name]
        if part == "cancel":
            if self._word(batch) in ENDED:
                return json_reply(_error("the batch has ended", "invalid_request_error"), 409)
            batch.cancelled = self._now()
        if part == "results":
            if (word := self._word(batch)) not in ENDED:
                return json_reply(_error("the batch has not ended", "not_found_error"), 404)
            body = b"".join(orjson.dumps(line) + b"\n" for line in self._result_lines(batch, word))
            return whole_reply(body, kind=_JSON_LINES)
        return json_reply(self._batch_status(batch))

    # -- creating -------------------------------------------------------------------------------------------------

    def _create(self, kind: str, raw: bytes) -> ApiReply:
        serial = self._seen["created"]
        self._seen["created"] += 1
        if self._habits.meets("refused", serial):
            self._counts["refused"] += 1
            return json_reply(_error("too many batches", "rate_limit_error"), 429, {"Retry-After": "0.01"})
        body = orjson.loads(raw)
        batch = self._batches[f"batch_{serial}"] = SimulatedBatch(
            id=f"batch_{serial}",
            kind=kind,
            requests=self._requests(kind, body),
            endpoint=str(body.get("endpoint", CHAT)),
            created=self._now(),
            metadata=body.get("metadata") or {},
            expires=self._habits.meets("expired", serial),
            fails=self._habits.meets("failed", serial),
        )
        self._counts["created"] += 1
        if self._habits.meets("lost", serial):
            self._counts["lost"] += 1
            return ApiReply((), reset_after=0.0)
        return json_reply(self._batch_status(batch))

    def _requests(self, kind: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The requests, each with a custom_id and a body for the chat API."""
        if kind == "v1/messages":
            return [
                {"custom_id": request["custom_id"], "body": _chat_body(request["params"])}
                for request in body["requests"]
            ]
        if body["completion_window"] != "24h":
            raise ValueError("completion_window must be 24h")
        return [orjson.loads(line) for line in self._files[body["input_file_id"]].splitlines()]

    def _file(self, method: str, name: str | None, body: bytes) -> ApiReply:
        if method == "POST":
            boundary, _, multipart = body.partition(b"\r\n")
            parts = (part.partition(b"\r\n\r\n") for part in (b"\r\n" + multipart).split(b"\r\n" + boundary))
            contents = [content.removesuffix(b"\r\n") for head, _, content in parts if b"filename=" in head]
            name = f"file-{len(self._files)}"
            (self._files[name],) = contents
            return json_reply({"id": name, "object": "file", "purpose": "batch"})
        if name is None or name not in self._files:
            return json_reply(_error("no such file", "not_found_error"), 404)
        return whole_reply(self._files[name], kind=_JSON_LINES)

    def _created(self, batch: SimulatedBatch) -> float:
        """Seconds since 1970."""
        return time.time() - self._now() + batch.created

    # -- states and results -----------------------------------------------------------------------------------------

    def _word(self, batch: SimulatedBatch) -> str:
        """The state of a batch in OpenAI's words."""
        age, duration = self._now() - batch.created, self._habits.seconds
        if batch.cancelled is not None:
            return "cancelled"
        if batch.fails and batch.kind != "v1/messages":
            return "failed"
        if age < duration:
            return "validating" if age < 0.1 * duration else "in_progress" if age < 0.9 * duration else "finalizing"
        return "expired" if batch.expires else "completed"

    def _batch_status(self, batch: SimulatedBatch) -> dict[str, Any]:
        word = self._word(batch)
        lines = self._result_lines(batch, word) if word in ENDED else []
        total, failed = len(batch.requests), sum(not _succeeded(line) for line in lines)
        if batch.kind == "v1/messages":
            return self._message_batch_status(batch, word, lines)
        status: dict[str, Any] = {
            "id": batch.id,
            "object": "batch",
            "endpoint": batch.endpoint,
            "status": word,
            "created_at": round(self._created(batch)),
            "request_counts": {"total": total, "completed": len(lines) - failed, "failed": failed},
        }
        queue_error = {"code": "token_limit_exceeded", "message": "Enqueued token limit reached", "line": None}
        if word == "failed":
            status["errors"] = {"object": "list", "data": [queue_error]}
        files = self._output(batch, lines) if word in ENDED else {}
        return status | {"metadata": batch.metadata} | files

    def _message_batch_status(self, batch: SimulatedBatch, word: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
        # including requests missing in the results
        outcomes = {request["custom_id"]: "succeeded" for request in batch.requests}
        outcomes |= {line["custom_id"]: line["result"]["type"] for line in lines if line["custom_id"] in outcomes}
        kinds = Counter(outcomes.values()) if word in ENDED else Counter(processing=len(outcomes))
        counts = {name: kinds[name] for name in ("processing", "succeeded", "errored", "canceled", "expired")}
        created = datetime.fromtimestamp(self._created(batch), UTC).strftime(ISO)
        status = "ended" if word in ENDED else "in_progress"
        reply = {"id": batch.id, "type": "message_batch", "processing_status": status, "created_at": created}
        return reply | {"request_counts": counts}

    def _output(self, batch: SimulatedBatch, lines: list[dict[str, Any]]) -> dict[str, str]:
        """The files of results that are not empty."""
        files: dict[str, str] = {}
        for name, good in (("output_file_id", True), ("error_file_id", False)):
            content = b"".join(orjson.dumps(line) + b"\n" for line in lines if _succeeded(line) == good)
            if content:
                files[name] = f"{batch.id}-{name}"
                self._files[files[name]] = content
        return files

    def _result_lines(self, batch: SimulatedBatch, word: str) -> list[dict[str, Any]]:
        """The results in arbitrary order, generated once."""
        if batch.lines is None:
            batch.lines = [] if word == "failed" else list(self._make_result_lines(batch, word))
            batch.lines.sort(key=lambda line: hashed_integers(1, "order", line["custom_id"])[0])
            self._counts[word] += 1
        return batch.lines

    def _make_result_lines(self, batch: SimulatedBatch, word: str) -> Iterator[dict[str, Any]]:
        age = (self._now() - batch.created) / max(self._habits.seconds, 1e-9)
        share = {"completed": 1.0, "expired": 0.5}.get(word, min(age, 0.9))
        answered = round(share * len(batch.requests))
        for number, request in enumerate(batch.requests):
            if number < answered:
                yield from self._answer_request(batch, request["custom_id"], request["body"])
            else:
                yield _unanswered(batch.kind, request["custom_id"], word)

    def _answer_request(self, batch: SimulatedBatch, custom_id: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        raw = orjson.dumps(body)
        request_key = raw.decode()
        self._seen[request_key] += 1
        times = self._seen[request_key]
        if self._habits.meets("left_out", request_key, times):
            self._counts["left out"] += 1
            return
        if self._habits.meets("errored", request_key, times):
            status, answer = 500, _error("the engine stumbled", "api_error")
        else:
            status, answer = self._complete(batch.endpoint, raw)
        self._counts["answered" if status == 200 else "errored"] += 1
        line = _line(batch.kind, custom_id, status, answer)
        yield line
        if self._habits.meets("doubled", request_key, times):
            yield line
        if self._habits.meets("strange", request_key, times):
            yield line | {"custom_id": f"nobody-{hashed_integers(1, request_key)[0] % 1000}"}


def _line(kind: str, custom_id: str, status: int, answer: dict[str, Any]) -> dict[str, Any]:
    if kind != "v1/messages":
        return {"custom_id": custom_id, "response": {"status_code": status, "body": answer}, "error": None}
    if status == 200:
        return {"custom_id": custom_id, "result": {"type": "succeeded", "message": _message(answer)}}
    error_type = "invalid_request_error" if status < 500 else "api_error"
    inner = {"type": error_type, "message": answer["error"]["message"]}
    return {"custom_id": custom_id, "result": {"type": "errored", "error": {"type": "error", "error": inner}}}


def _unanswered(kind: str, custom_id: str, word: str) -> dict[str, Any]:
    if kind == "v1/messages":
        return {"custom_id": custom_id, "result": {"type": "expired" if word == "expired" else "canceled"}}
    error = {"code": f"batch_{word}", "message": "This request could not be executed before the batch ended."}
    return {"custom_id": custom_id, "response": None, "error": error}


def _succeeded(line: dict[str, Any]) -> bool:
    if "result" in line:
        return bool(line["result"]["type"] == "succeeded")
    return line["response"] is not None and line["response"]["status_code"] == 200


_STOPS = {"stop": "end_turn", "length": "max_tokens"}


def _message(answer: dict[str, Any]) -> dict[str, Any]:
    """Convert a chat completion into a message."""
    (choice,) = answer["choices"]
    usage = answer["usage"]
    return {
        "type": "message",
        "role": "assistant",
        "model": answer["model"],
        "content": [{"type": "text", "text": choice["message"]["content"]}],
        "stop_reason": _STOPS.get(choice["finish_reason"], choice["finish_reason"]),
        "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]},
    }


def _chat_body(params: dict[str, Any]) -> dict[str, Any]:
    """Convert a request to the Messages API into one to the chat API."""
    if "seed" in params or not isinstance(params["max_tokens"], int):
        raise ValueError("params must have max_tokens and no seed")
    messages = list(params["messages"])
    if "system" in params:
        messages.insert(0, {"role": "system", "content": params["system"]})
    chat_params = {
        name: value for name, value in params.items() if name not in ("system", "stop_sequences", "messages")
    }
    stop = {"stop": params["stop_sequences"]} if "stop_sequences" in params else {}
    return chat_params | stop | {"messages": messages}


def _error(message: str, kind: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": kind}}
