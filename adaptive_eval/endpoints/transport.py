"""Sends requests and reads responses, over a session of aiohttp.

Most requests go straight to the session. A client of httpx2 over the same session sends those that a plug-in signs
(`post_through`) and those of the SDK, at up to twice the CPU. httpx2's own pool would cost far more
(`benchmarks/throughput.md`): it walks over all connections at every request.
"""

import asyncio
import errno
import io
import os
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

import aiohttp
import httpx2
from aiohttp.http_exceptions import ContentEncodingError, ContentLengthError, HttpProcessingError, TransferEncodingError
from yarl import URL

from adaptive_eval.endpoints.connection import MAX_FRAMING_BYTES, PARSE_CHUNK_BYTES, Connector, StaleConnection
from adaptive_eval.endpoints.failures import FailureKind
from adaptive_eval.endpoints.wire import MAX_BODY

CONNECT_SECONDS = 10.0
FIRST_PIECES = 8
PAUSE_SECONDS = 0.1
"""The first chunks of a response are passed on at once, later small ones together: waking the reader costs most."""

Header = tuple[bytes, bytes]
SentHeaders = Sequence[tuple[str, str]]
_COMPRESSION_HEADERS = frozenset({b"content-encoding", b"content-length"})
"""Headers of a response that no longer hold after its body was decompressed."""
_HEADERS_OF_AIOHTTP = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")


class ExchangeError(Exception):
    """A request without a complete response; the message may contain text from the server."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _too_long() -> ExchangeError:
    return _invalid_response("the body is longer than anything an answer could need")


def _invalid_response(problem: str) -> ExchangeError:
    return ExchangeError(FailureKind.BAD_RESPONSE, f"not a valid HTTP/1.1 response: {problem}")


class Incoming(NamedTuple):
    """A response: its head and its unpacked body."""

    status: int
    headers: Sequence[Header]
    body: bytes
    """The whole body, if it arrived with the head, as most answers do."""
    stream: httpx2.AsyncByteStream | None = None
    """The remaining body otherwise; its reader must close it."""

    async def read(self) -> bytes:
        """The whole body."""
        if self.stream is None:
            return self.body
        try:
            return b"".join([chunk async for chunk in self.stream])
        finally:
            await self.stream.aclose()


class _BodyStream(httpx2.AsyncByteStream):
    """A body that is still arriving, up to `max_bytes` bytes; its connection is free once it is read to the end."""

    def __init__(self, response: aiohttp.ClientResponse, max_bytes: int) -> None:
        self._response = response
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content, finished = self._response.content, asyncio.Event()
        content.on_eof(finished.set)
        size = pieces = 0
        while chunk := await self._next():
            size, pieces = size + len(chunk), pieces + 1
            if size > self._max_bytes:
                raise _too_long()
            yield chunk
            if pieces >= FIRST_PIECES and len(chunk) < PARSE_CHUNK_BYTES and not content.is_eof():
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_SECONDS):
                        await finished.wait()

    async def _next(self) -> bytes:
        try:
            return await self._response.content.readany()
        except _TRANSPORT_ERRORS as error:
            raise translate_error(error, self._response.url) from error

    async def aclose(self) -> None:
        self._response.close()


MAX_BYTES_EXTENSION = "adaptive_eval.most_bytes"
"""Request extension that lowers the client's limit on the size of the body."""


class Transport(httpx2.AsyncBaseTransport):
    """Sends requests to any server, or through one proxy; the caller limits how many are in flight.

    Of a request's time-outs it applies `connect` alone.
    """

    def __init__(self, tls: Callable[[], ssl.SSLContext] = httpx2.create_ssl_context, proxy: URL | None = None) -> None:
        self.proxy = proxy
        self._tls = tls  # created at the first https URL, since reading a trust store takes time
        self._client_session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send an httpx2 request."""
        url = URL(str(request.url), encoded=True)
        max_bytes = request.extensions.get(MAX_BYTES_EXTENSION, MAX_BODY)
        connect = request.extensions.get("timeout", {}).get("connect")
        response = await self.exchange(
            request.method, url, sent_headers(request), await request.aread(), max_bytes, connect
        )
        if response.stream is None:
            return httpx2.Response(response.status, headers=response.headers, content=response.body)
        return httpx2.Response(response.status, headers=response.headers, stream=response.stream)

    async def connect(self, url: URL) -> None:
        """Connect to a server, and close the connection; raises `OSError` if that is refused."""
        tls = self._tls() if url.scheme == "https" else None
        _, writer = await asyncio.open_connection(url.host, url.port, ssl=tls)
        writer.close()

    async def exchange(
        self, method: str, url: URL, headers: SentHeaders, content: bytes, max_bytes: int, connect: float | None
    ) -> Incoming:
        """Send a request, after at most `connect` seconds; the body of the response may have `max_bytes` bytes."""
        response = await self._send(method, url, headers, content, connect)
        try:
            if response.status == HTTPStatus.SWITCHING_PROTOCOLS:
                raise _invalid_response("it switches to another protocol, which was not asked for")
            if (response.content_length or 0) > max_bytes:
                raise _too_long()
            is_compressed = "Content-Encoding" in response.headers
            raw_headers = [
                header
                for header in response.raw_headers
                if not is_compressed or header[0].lower() not in _COMPRESSION_HEADERS
            ]
            if not response.content.is_eof():
                return Incoming(response.status, raw_headers, b"", _BodyStream(response, max_bytes))
            body = response.content.read_nowait()
            if len(body) > max_bytes:
                raise _too_long()
            return Incoming(response.status, raw_headers, body)
        except _TRANSPORT_ERRORS as error:
            response.close()
            raise translate_error(error, url) from error
        except BaseException:
            response.close()
            raise

    async def _send(
        self, method: str, url: URL, headers: SentHeaders, content: bytes, connect: float | None
    ) -> aiohttp.ClientResponse:
        while True:
            try:
                return await self._session().request(
                    method,
                    url,
                    headers=headers,
                    # aiohttp sends a large body in parts only if it is a file
                    data=(content if len(content) <= 2**20 else io.BytesIO(content)) or None,
                    allow_redirects=False,
                    proxy=self.proxy,
                    ssl=self._tls() if url.scheme == "https" else True,
                    timeout=aiohttp.ClientTimeout(total=None, connect=connect),
                )
            except StaleConnection:
                continue  # the server has closed it before it could read the request
            except _TRANSPORT_ERRORS as error:
                raise translate_error(error, url, connect) from error

    def _session(self) -> aiohttp.ClientSession:
        if self._client_session is None:
            self._client_session = aiohttp.ClientSession(
                connector=Connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=_HEADERS_OF_AIOHTTP,
                trust_env=False,  # True would also read ~/.netrc
                max_line_size=MAX_FRAMING_BYTES,
                max_field_size=MAX_FRAMING_BYTES,  # a policy or cookie of a gateway may be long
            )
        return self._client_session

    async def aclose(self) -> None:
        """Close every connection."""
        if self._client_session is not None:
            await self._client_session.close()


def sent_headers(request: httpx2.Request) -> SentHeaders:
    """The headers of an httpx2 request, without those that follow from its body."""
    headers = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw)
    return [pair for pair in headers if pair[0].lower() not in ("content-length", "transfer-encoding")]


# -- failures ----------------------------------------------------------------------------------------------------

_TRANSPORT_ERRORS = (aiohttp.ClientError, HttpProcessingError, OSError, UnicodeError, RuntimeError)
"""Exceptions of aiohttp; UnicodeError for a host that cannot have an address, RuntimeError if uvloop or a body finds
its connection closed."""
_TRUNCATION_ERRORS = (ContentLengthError, TransferEncodingError)
"""Causes of a payload error when a connection ended in the middle of a body."""


def translate_error(error: Exception, url: URL, connect: float | None = None) -> ExchangeError:
    """Translate an error of aiohttp into a failure with a plain message."""
    host, port = getattr(error, "host", url.host), getattr(error, "port", url.port)
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return ExchangeError(FailureKind.RATE_LIMITED, "this machine has no open file left for a connection")
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ExchangeError(FailureKind.UNREACHABLE, f"no connection to {host}:{port} within {connect:g} s")
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ClientSSLError, aiohttp.InvalidURL, UnicodeError)):
        reason = refusal_reason(getattr(error, "os_error", getattr(error, "certificate_error", error)))
        return ExchangeError(FailureKind.UNREACHABLE, f"no connection to {host}:{port}: {reason}")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ExchangeError(FailureKind.UNREACHABLE, f"the proxy refuses to connect: HTTP {error.status}")
    if isinstance(error, (aiohttp.ClientResponseError, HttpProcessingError)):
        return _invalid_response(" ".join(error.message.rstrip(" ^").split()))
    if isinstance(error, aiohttp.ClientPayloadError) and isinstance(error.__cause__, ContentEncodingError):
        return _invalid_response("its body cannot be decompressed")
    if isinstance(error, aiohttp.ClientPayloadError) and not isinstance(error.__cause__, _TRUNCATION_ERRORS):
        return _invalid_response("its body is malformed")
    detail = f" ({error})" if isinstance(error, OSError) and error.errno else ""
    return ExchangeError(FailureKind.RESET, f"the server closed the connection before it answered{detail}")


def refusal_reason(error: BaseException) -> str:
    """The system's reason for a failed connection, without asyncio's description of the call and the address."""
    if "WRONG_VERSION_NUMBER" in str(error):
        return "it answers without TLS: use http:// in its address"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{OTHER_HOST if error.verify_code in OTHER_HOST_CODES else NOT_TRUSTED} ({error})"
    codes = dict.fromkeys(re.findall(r"\[Errno (\d+)\] Connect call failed", str(error)))
    reason = ", ".join(os.strerror(int(code)) for code in codes) or re.sub(r"\[Errno -?\d+\] ", "", str(error))
    return reason or "it was closed at once"  # for example an http server that is called by https


OTHER_HOST_CODES = frozenset({62, 64})
"""OpenSSL's error codes for a certificate of another host or address."""
OTHER_HOST = "its certificate is for another host: use a name in base_url that the certificate contains"
NOT_TRUSTED = (
    "its certificate is not trusted: set SSL_CERT_FILE to a file with the certificate or that of its issuer, besides "
    "those of other servers"
)


# -- requests through httpx2 -------------------------------------------------------------------------------------


def httpx_timeouts(limit: float) -> dict[str, float | None]:
    """httpx timeouts of one request, so that a failed connection is reported before a missing answer."""
    return {"connect": min(CONNECT_SECONDS, limit / 2), "read": None, "write": None, "pool": None}


Post = Callable[[bytes, int], Awaitable[Incoming]]
"""Sends a body to one URL; reads at most this many bytes of the response."""


async def post_through(
    client: httpx2.AsyncClient, url: str, headers: httpx2.Headers, limit: float, content: bytes, max_bytes: int
) -> Incoming:
    """Send a body through a client of httpx2; the request may take `limit` seconds."""
    extensions = {"timeout": httpx_timeouts(limit), MAX_BYTES_EXTENSION: max_bytes}
    request = httpx2.Request("POST", url, headers=headers, content=content, extensions=extensions)
    return incoming_response(await client.send(request, stream=True))


def incoming_response(response: httpx2.Response) -> Incoming:
    """A client's response over our transport."""
    is_read = response.is_stream_consumed
    stream = None if is_read else response.stream
    assert stream is None or isinstance(stream, httpx2.AsyncByteStream)
    return Incoming(response.status_code, response.headers.raw, response.content if is_read else b"", stream)
