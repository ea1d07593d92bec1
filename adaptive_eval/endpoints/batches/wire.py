"""How a batch service is spoken to: a few calls, each repeated until it is answered, but for one that costs something.

What holds for requests to models holds here: no redirect is followed, no secret is shown, bodies are bounded, and a
service that wants to be left alone is, as far as that can be believed. To create a batch is asked for once: where the
answer is lost, whether there is a batch now must be found out before anything else (`supply.batches`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import orjson
from pydantic import SecretStr

from adaptive_eval.endpoints.client import raising_failures, request_headers, when_unauthorized
from adaptive_eval.endpoints.failures import (
    READ,
    Failure,
    FailureKind,
    Refusal,
    RetryDecision,
    safe_excerpt,
    signal_of_error,
)
from adaptive_eval.endpoints.parsing import parse_server_json
from adaptive_eval.endpoints.posting import httpx_timeouts
from adaptive_eval.endpoints.redaction import sent_in
from adaptive_eval.endpoints.retry_after import BelievedRetryAfter
from adaptive_eval.endpoints.server_access import ServerAccess
from adaptive_eval.endpoints.transport import MOST_BYTES
from adaptive_eval.endpoints.types import EndpointConfig, Limits, Notice, Sampling
from adaptive_eval.errors import Unavailable

T = TypeVar("T")

CALL_SECONDS = 120.0
TRANSFER_SECONDS = 3600.0
"""Requests may be many, and so may results."""
ANSWER_BYTES = 16 * 1024 * 1024
RESULT_BYTES = 1024**3
LONGEST_WAIT = 600.0
"""That refusals for want of room are waited out in one call; whoever polls asks again anyway."""
SHOWN_OF_A_WAIT = 60
CONFLICT = 409
"""What is asked for does not fit the state of a batch: to ask again changes nothing."""


class BatchWire:
    """The calls to one model's batch service."""

    def __init__(
        self,
        config: EndpointConfig,
        sampling: Sampling,
        limits: Limits,
        root: str,
        key: SecretStr | None,
        *,
        folder: Path = Path(),
        headers: Mapping[str, str] | None = None,
        key_header: str | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`headers` are those of the format; a key goes into `key_header`, or stands as a bearer's."""
        own = request_headers(config, sampling)
        self.secrets = sent_in(own, None if key is None else key.get_secret_value())
        self._unauthorized = when_unauthorized(config, own, key)
        named = {name.lower() for name in own}
        if key is not None and config.auth is None and not named & {"authorization", key_header}:
            secret = key.get_secret_value()
            own |= {key_header: secret} if key_header else {"Authorization": f"Bearer {secret}"}
        sent = {"Accept-Encoding": "identity", "User-Agent": "adaptive-eval", **(headers or {}), **own}
        self._open = partial(ServerAccess(config, folder).client, sent, ANSWER_BYTES)
        self._http = self._open()
        self._root = root
        self._limits = limits
        self._sleep = sleep
        self.notices: dict[Notice, None] = {}
        """What a reader of the results should know."""
        self.errors: dict[str, int] = {}
        """Failed calls by kind."""
        self.last_error = ""
        self._clock = asyncio.get_running_loop().time
        self._waits = BelievedRetryAfter(
            LONGEST_WAIT, self._clock, self.note, lambda text: safe_excerpt(text, self.secrets, SHOWN_OF_A_WAIT)
        )

    def note(self, notice: Notice) -> None:
        """Note something that a reader should know, once."""
        self.notices.setdefault(notice)

    async def get(self, path: str, *, whole: bool = False) -> object:
        """The answer to a question; with `whole` it may be as long as results are."""
        most, limit = (RESULT_BYTES, TRANSFER_SECONDS) if whole else (ANSWER_BYTES, CALL_SECONDS)
        return await self._repeated(lambda: self._call("GET", path, limit=limit, most=most))

    async def post(self, path: str, body: Mapping[str, object]) -> object:
        """The answer to a request that may come twice without harm."""
        return await self._repeated(lambda: self._call("POST", path, content=orjson.dumps(body)))

    async def post_once(self, path: str, body: Mapping[str, object] | bytes) -> object:
        """Post a request that must not arrive twice: repeated only if it surely has not arrived.

        It has a connection of its own: one that had been idle may break before anybody knows whether it was heard.
        """
        content = body if isinstance(body, bytes) else orjson.dumps(body)

        async def attempt() -> object:
            async with self._open() as fresh:
                try:
                    return await self._call("POST", path, content=content, limit=TRANSFER_SECONDS, http=fresh)
                except Failure as failure:
                    if failure.kind in NEVER_ARRIVED:
                        raise
                    raise MaybeCreated(failure) from None

        return await self._repeated(attempt)

    async def upload(self, path: str, name: str, content: bytes, fields: Mapping[str, str]) -> object:
        """Hand in a file."""

        async def attempt() -> object:
            files = {"file": (name, content, "application/jsonl")}
            return await self._call("POST", path, data=fields, files=files, limit=TRANSFER_SECONDS)

        return await self._repeated(attempt)

    async def lines(self, path: str) -> list[object]:
        """The values of a file of JSON lines; lines that are no JSON are passed over."""
        limit, most = TRANSFER_SECONDS, RESULT_BYTES
        body = await self._repeated(lambda: self._fetch("GET", path, limit=limit, most=most))
        return [value for line in body.split(b"\n") if (value := self._line(line)) is not None]

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    # -- one call ------------------------------------------------------------------------------------------------

    async def _repeated(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until it is answered, or has failed for as long as a model may."""
        attempts = self._limits.attempts
        persistence = RetryDecision(self._limits, attempts, attempts, LONGEST_WAIT, self._clock)

        async def once() -> T:
            try:
                return await attempt()
            except Failure as failure:
                self.errors[failure.kind.value] = self.errors.get(failure.kind.value, 0) + 1
                self.last_error = str(failure)
                failure.wait = self._waits.believed_seconds(self._root, failure.told, self._clock())
                if failure.wait:
                    await self._sleep(failure.wait)
                elif failure.kind in _PAUSED:
                    await self._sleep(PAUSE)
                raise

        try:
            result: T = await persistence.retrying(self._sleep)(once)
            return result
        except Failure as failure:
            raise Unavailable(f"its batch service at {self._root}: {failure.kind}: {failure}") from None

    async def _call(self, method: str, path: str, **options: Any) -> object:
        """Make one call and decode the reply; `options` are those of `_fetch`."""
        body = await self._fetch(method, path, **options)
        try:
            return parse_server_json(body)
        except ValueError:
            raise Failure(FailureKind.BAD_RESPONSE, "the batch service said something that is not JSON") from None

    async def _fetch(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        data: Mapping[str, str] | None = None,
        files: Mapping[str, tuple[str, bytes, str]] | None = None,
        limit: float = CALL_SECONDS,
        most: int = ANSWER_BYTES,
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
            extensions={"timeout": httpx_timeouts(limit), MOST_BYTES: most},
        )
        with raising_failures(self.secrets, limit):
            async with asyncio.timeout(limit):
                response = await http.send(request)
        self._require_success(response.status_code, response.content, response.headers)
        return response.content

    def _line(self, line: bytes) -> object:
        """Parse one line of a file; None if it is empty or no JSON."""
        if not line.strip():
            return None
        try:
            return parse_server_json(line)
        except ValueError:
            self.note(Notice("bad_result", "its batch service gives lines of results that cannot be read"))
            return None

    def _require_success(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        if 200 <= status < 300:
            return
        if status == CONFLICT:
            raise Refusal(
                status, f"HTTP {status}: {safe_excerpt(body[:READ].decode('utf-8', 'replace'), self.secrets)}"
            )
        signal = signal_of_error(
            status, body, headers, secrets=self.secrets, unauthorized=self._unauthorized
        )  # raises, but for what a prompt may be refused for
        raise Refusal(status, f"HTTP {status}: the batch service refuses a batch as a whole: {signal}")


NEVER_ARRIVED = frozenset({FailureKind.UNREACHABLE, FailureKind.RATE_LIMITED, FailureKind.OUT_OF_FILES})
"""Failures after which nothing was created."""
_PAUSED = frozenset({FailureKind.UNREACHABLE, FailureKind.TIMED_OUT, FailureKind.STALLED, FailureKind.RATE_LIMITED})
PAUSE = 1.0
"""Before the next attempt after one of these, for which a request would go elsewhere at once."""


class MaybeCreated(Exception):
    """A call that costs something has failed, and nobody knows whether it was heard."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind}: {failure}")
        self.failure = failure
