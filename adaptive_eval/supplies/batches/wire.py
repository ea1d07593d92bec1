"""Calls to a batch service, with retries, except for the call that creates a batch.

The rules for requests to models apply: no redirect is followed, no secret is shown, bodies are bounded, and a plausible
Retry-After is honoured. A batch is created with a single attempt: if the reply is lost, the caller must first find out
whether the batch exists (`calls`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import orjson

from adaptive_eval.base.errors import Unavailable
from adaptive_eval.endpoints.client import RequestHeaders, converted_failures
from adaptive_eval.endpoints.failures import MAX_READ_CHARS, Failure, FailureKind, Refusal, error_signal, safe_excerpt
from adaptive_eval.endpoints.parsing import parse_server_json
from adaptive_eval.endpoints.retry import Retries, believed_wait
from adaptive_eval.endpoints.server_access import ServerAccess
from adaptive_eval.endpoints.settings import DEFAULT
from adaptive_eval.endpoints.traffic import Traffic
from adaptive_eval.endpoints.transport import MAX_BYTES_EXTENSION, httpx_timeouts
from adaptive_eval.endpoints.types import EndpointConfig, Limits, Notice

T = TypeVar("T")

CALL_SECONDS = 120.0
TRANSFER_SECONDS = 3600.0
"""Timeout for uploads of requests and downloads of results, which may be large."""
ANSWER_BYTES = 16 * 1024 * 1024
RESULT_BYTES = 1024**3
MAX_WAIT_SECONDS = 600.0
"""Seconds for which one call waits out rate limits; polls are repeated anyway."""
CONFLICT = 409
"""Status for a request that does not fit the state of a batch; retries are useless."""


class BatchWire:
    """The calls to one model's batch service."""

    def __init__(self, config: EndpointConfig, limits: Limits, headers: RequestHeaders, folder: Path) -> None:
        self.redactor, self._unauthorized = headers.redactor, headers.unauthorized
        self._open = partial(ServerAccess(config, folder).client, headers.values)
        self._http = self._open()
        self._root = config.replicas[0]
        self._limits = limits
        self.notices: dict[Notice, None] = {}
        """Notices for readers of the results."""
        self.traffic = Traffic()
        """That of the model; failed calls are counted here."""
        self._clock = asyncio.get_running_loop().time

    def note(self, notice: Notice) -> None:
        """Add a notice for readers, once."""
        self.notices.setdefault(notice)

    async def get(self, path: str) -> object:
        """GET a path."""
        return await self._retry(lambda: self._call("GET", path))

    async def post(self, path: str, body: Mapping[str, object]) -> object:
        """POST an idempotent request."""
        return await self._retry(lambda: self._call("POST", path, content=orjson.dumps(body)))

    async def post_once(self, path: str, body: Mapping[str, object] | bytes) -> object:
        """POST a request that must not arrive twice: retried only if it has certainly not arrived.

        It uses a new connection: if an idle one breaks, it is unknown whether the request arrived.
        """
        content = body if isinstance(body, bytes) else orjson.dumps(body)

        async def attempt() -> object:
            async with self._open() as client:
                try:
                    return await self._call("POST", path, content=content, limit=TRANSFER_SECONDS, http=client)
                except Failure as failure:
                    if failure.kind in NEVER_ARRIVED:
                        raise
                    raise MaybeCreated from failure

        return await self._retry(attempt)

    async def upload(self, path: str, name: str, content: bytes, fields: Mapping[str, str]) -> object:
        """Upload a file."""

        async def attempt() -> object:
            files = {"file": (name, content, "application/jsonl")}
            return await self._call("POST", path, data=fields, files=files, limit=TRANSFER_SECONDS)

        return await self._retry(attempt)

    async def lines(self, path: str) -> list[Mapping[str, Any]]:
        """The objects with the id of a request in a file of JSON lines; other lines are skipped."""
        limit, max_bytes = TRANSFER_SECONDS, RESULT_BYTES
        body = await self._retry(lambda: self._fetch("GET", path, limit=limit, max_bytes=max_bytes))
        return [value for line in body.split(b"\n") if (value := self._line(line)) is not None]

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    # -- one call ------------------------------------------------------------------------------------------------

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry a call until it is answered, or the limits are reached."""
        retries = Retries(self._limits, MAX_WAIT_SECONDS, DEFAULT, self._clock, self.traffic)

        async def counted_attempt() -> T:
            try:
                return await attempt()
            except Failure as failure:
                self.traffic.on_failure(failure.kind, failure)
                failure.wait = believed_wait(failure, MAX_WAIT_SECONDS, DEFAULT)
                await asyncio.sleep(failure.wait or (PAUSE if failure.kind in _PAUSED else 0.0))
                raise

        try:
            result: T = await retries.retrying(asyncio.sleep)(counted_attempt)
            return result
        except Failure as failure:
            raise Unavailable(f"its batch service at {self._root}: {failure.kind}: {failure}") from None

    async def _call(self, method: str, path: str, **options: Any) -> object:
        """Make one call and decode the reply; `options` are those of `_fetch`."""
        body = await self._fetch(method, path, **options)
        try:
            return parse_server_json(body)
        except ValueError:
            raise Failure(FailureKind.BAD_RESPONSE, "the reply of the batch service is not JSON") from None

    async def _fetch(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        data: Mapping[str, str] | None = None,
        files: Mapping[str, tuple[str, bytes, str]] | None = None,
        limit: float = CALL_SECONDS,
        max_bytes: int = ANSWER_BYTES,
        http: httpx2.AsyncClient | None = None,
    ) -> bytes:
        http = http or self._http
        request = http.build_request(
            method,
            self._root + path,
            content=content,
            data=data,
            files=files,
            headers=None if content is None else {"Content-Type": "application/json"},
            extensions={"timeout": httpx_timeouts(limit), MAX_BYTES_EXTENSION: max_bytes},
        )
        with converted_failures(self.redactor, limit):
            async with asyncio.timeout(limit):
                response = await http.send(request)
        self._require_success(response.status_code, response.content, response.headers)
        return response.content

    def _line(self, line: bytes) -> Mapping[str, Any] | None:
        """Parse one line of a file; None if it names no request."""
        if not line.strip():
            return None
        try:
            value = parse_server_json(line)
        except ValueError:
            self.note(Notice("bad_result", "some lines of its batch service's results cannot be parsed"))
            return None
        return value if isinstance(value, dict) and isinstance(value.get("custom_id"), str) else None

    def _require_success(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        if 200 <= status < 300:
            return
        if status == CONFLICT:
            raise Refusal(
                status,
                f"HTTP {status}: {safe_excerpt(body[:MAX_READ_CHARS].decode('utf-8', 'replace'), self.redactor)}",
            )
        signal = error_signal(
            status, body, headers, redactor=self.redactor, unauthorized=self._unauthorized
        )  # raises unless the error could be about a single prompt
        raise Refusal(status, f"HTTP {status}: the batch service refuses a batch as a whole: {signal}")


_FULL = frozenset({FailureKind.RATE_LIMITED, FailureKind.TIER_FULL})
NEVER_ARRIVED = _FULL | {FailureKind.UNREACHABLE}
"""Failures after which nothing can have been created."""
_PAUSED = _FULL | {FailureKind.UNREACHABLE, FailureKind.TIMED_OUT, FailureKind.STALLED}
PAUSE = 1.0
"""Pause after failures after which a request to a model would go to another replica at once."""


class MaybeCreated(Exception):
    """A call that costs something has failed, and may or may not have arrived."""
