"""Sends requests and reads responses, over a session of aiohttp.

Most requests go straight to the session (`DirectPoster`). A client of httpx2 over the same session sends those that a
plug-in signs (`ClientPoster`) and those of the SDK, at up to twice the CPU. httpx2's own pool would cost far more
(`benchmarks/throughput.md`): it walks over all connections at every request.
"""

import asyncio
import io
import os
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import aiohttp
import httpx2
from aiohttp.http_exceptions import ContentEncodingError, ContentLengthError, HttpProcessingError, TransferEncodingError
from yarl import URL

from adaptive_eval.endpoints.connection import FRAMING_BYTES, Connector, StaleConnection, close_all_idle
from adaptive_eval.endpoints.failures import FailureKind
from adaptive_eval.endpoints.open_files import is_out_of_files
from adaptive_eval.endpoints.wire import MAX_BODY

CONNECT_SECONDS = 10.0
WAITING_BYTES = 64 * 1024
"""Bytes of a body that may wait for its reader; at twice as many the connection reads no more."""
FIRST_PIECES = 8
PAUSE_SECONDS = 0.1
SMALL_BYTES = 16 * 1024
"""The first pieces of a response are handed over at once, later small ones together: waking the reader costs most."""
LARGE_BYTES = 1024 * 1024
"""A request of more bytes is sent in parts."""
SWITCHING_PROTOCOLS = 101

Header = tuple[bytes, bytes]
SentHeaders = Sequence[tuple[str, str]]
_UNPACKED = frozenset({b"content-encoding", b"content-length"})
"""Headers of a response that do not hold after its body was decompressed."""
_HEADERS_OF_AIOHTTP = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")


class ExchangeError(Exception):
    """A request without a whole response; the message may have words of the server."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _too_long() -> ExchangeError:
    return _broken("the body is longer than anything an answer could need")


def _broken(what: str) -> ExchangeError:
    return ExchangeError(FailureKind.BAD_RESPONSE, f"not a valid HTTP/1.1 response: {what}")


class Incoming(NamedTuple):
    """A response: its head and its unpacked body."""

    status: int
    headers: Sequence[Header]
    body: bytes
    """The whole body, if it arrived with the head, as most answers do."""
    rest: httpx2.AsyncByteStream | None = None
    """The rest of the body otherwise; its reader must close it."""

    async def read(self) -> bytes:
        """The whole body."""
        if self.rest is None:
            return self.body
        try:
            return b"".join([part async for part in self.rest])
        finally:
            await self.rest.aclose()


class _Arriving(httpx2.AsyncByteStream):
    """A body that is still arriving, up to `most` bytes; its connection is free once it is read to the end."""

    def __init__(self, response: aiohttp.ClientResponse, most: int) -> None:
        self._response = response
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content, ended = self._response.content, asyncio.Event()
        content.on_eof(ended.set)
        size = pieces = 0
        while part := await self._next():
            size, pieces = size + len(part), pieces + 1
            if size > self._most:
                raise _too_long()
            yield part
            if pieces >= FIRST_PIECES and len(part) < SMALL_BYTES and not content.is_eof():
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_SECONDS):
                        await ended.wait()

    async def _next(self) -> bytes:
        try:
            return await self._response.content.readany()
        except _FAULTS as error:
            raise explain(error, self._response.url) from error

    async def aclose(self) -> None:
        self._response.close()


MOST_BYTES = "adaptive_eval.most_bytes"
"""Request extension that lowers the client's limit on the size of the body."""


class Transport(httpx2.AsyncBaseTransport):
    """Sends requests to any server, or through one proxy; the caller limits how many are in flight.

    Of a request's time-outs it applies `connect` alone.
    """

    def __init__(
        self,
        tls: Callable[[], ssl.SSLContext] = httpx2.create_ssl_context,
        max_body: int = MAX_BODY,
        proxy: URL | None = None,
    ) -> None:
        self.proxy = proxy
        self._tls = tls  # created at the first https URL, since reading a trust store takes time
        self._max_body = max_body
        self._opened: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send an httpx2 request."""
        url = URL(str(request.url), encoded=True)
        most = request.extensions.get(MOST_BYTES, self._max_body)
        connect = request.extensions.get("timeout", {}).get("connect")
        came = await self.exchange(request.method, url, sent_headers(request), await request.aread(), most, connect)
        if came.rest is None:
            return httpx2.Response(came.status, headers=came.headers, content=came.body)
        return httpx2.Response(came.status, headers=came.headers, stream=came.rest)

    async def exchange(
        self, method: str, url: URL, headers: SentHeaders, content: bytes, most: int, connect: float | None
    ) -> Incoming:
        """Send a request, after at most `connect` seconds; the body of the response may have `most` bytes."""
        response = await self._send(method, url, headers, content, connect)
        try:
            if response.status == SWITCHING_PROTOCOLS:
                raise _broken("it switches to another protocol, which was not asked for")
            if (response.content_length or 0) > most:
                raise _too_long()
            packed = "Content-Encoding" in response.headers
            kept = [one for one in response.raw_headers if not packed or one[0].lower() not in _UNPACKED]
            if not response.content.is_eof():
                return Incoming(response.status, kept, b"", _Arriving(response, most))
            body = response.content.read_nowait()
            if len(body) > most:
                raise _too_long()
            return Incoming(response.status, kept, body)
        except _FAULTS as error:
            response.close()
            raise explain(error, url) from error
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
                    data=(content if len(content) <= LARGE_BYTES else io.BytesIO(content)) or None,
                    allow_redirects=False,
                    proxy=self.proxy,
                    ssl=self._tls() if url.scheme == "https" else True,
                    timeout=aiohttp.ClientTimeout(total=None, connect=connect),
                )
            except StaleConnection:
                continue  # the server has closed it before it could read the request
            except _FAULTS as error:
                raise explain(error, url, connect) from error

    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=Connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=_HEADERS_OF_AIOHTTP,
                trust_env=False,  # True would also read ~/.netrc
                read_bufsize=WAITING_BYTES,
                max_line_size=FRAMING_BYTES,
                max_field_size=FRAMING_BYTES,  # a policy or cookie of a gateway may be long
            )
        return self._opened

    async def aclose(self) -> None:
        """Close every connection."""
        if self._opened is not None:
            await self._opened.close()


def sent_headers(request: httpx2.Request) -> SentHeaders:
    """The headers of an httpx2 request, without those that follow from its body."""
    named = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw)
    return [pair for pair in named if pair[0].lower() not in ("content-length", "transfer-encoding")]


# -- failures ----------------------------------------------------------------------------------------------------

_FAULTS = (aiohttp.ClientError, HttpProcessingError, OSError, UnicodeError, RuntimeError)
"""What aiohttp raises; a UnicodeError for a host that can have no address, a RuntimeError where uvloop or a body finds
its connection closed."""
_CUT = (ContentLengthError, TransferEncodingError)
"""What a connection is said to have lost that ended in the middle of a body."""


def explain(error: Exception, url: URL, connect: float | None = None) -> ExchangeError:
    """The failure that an error of aiohttp means, in plain words."""
    host, port = getattr(error, "host", url.host), getattr(error, "port", url.port)
    if is_out_of_files(error):
        close_all_idle()
        there = f"no connection to {host}:{port}"
        return ExchangeError(FailureKind.OUT_OF_FILES, f"{there}: this machine has no open file left for it")
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ExchangeError(FailureKind.UNREACHABLE, f"no connection to {host}:{port} within {connect:g} s")
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ClientSSLError, aiohttp.InvalidURL, UnicodeError)):
        reason = refusal_reason(getattr(error, "os_error", error))
        shown = f"no connection to {host}:{port}: {reason}"
        hint = _certificate_hint(error)
        return ExchangeError(FailureKind.UNREACHABLE, shown if hint is None else f"{hint} ({shown})")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ExchangeError(FailureKind.UNREACHABLE, f"the proxy refuses to connect: HTTP {error.status}")
    if isinstance(error, (aiohttp.ClientResponseError, HttpProcessingError)):
        return _broken(" ".join(error.message.rstrip(" ^").split()))
    if isinstance(error, aiohttp.ClientPayloadError) and isinstance(error.__cause__, ContentEncodingError):
        return _broken("its body cannot be decompressed")
    if isinstance(error, aiohttp.ClientPayloadError) and not isinstance(error.__cause__, _CUT):
        return _broken("its body is malformed")
    why = f" ({error})" if isinstance(error, OSError) and error.errno else ""
    return ExchangeError(FailureKind.RESET, f"the server closed the connection before it answered{why}")


def refusal_reason(error: BaseException) -> str:
    """The system's reason for a failed connection, without asyncio's description of the call and the address."""
    codes = dict.fromkeys(re.findall(r"\[Errno (\d+)\] Connect call failed", str(error)))
    said = ", ".join(os.strerror(int(code)) for code in codes) or re.sub(r"\[Errno -?\d+\] ", "", str(error))
    return said or "it was closed at once"  # such as by a server of http that is asked by https


OTHER_NAMES = frozenset({62, 64})
"""OpenSSL's messages for a certificate of another host or address."""


def _certificate_hint(error: aiohttp.ClientError | Exception) -> str | None:
    """What to do about an untrusted certificate; None for any other error."""
    cause = getattr(error, "certificate_error", None)
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return None
    if cause.verify_code in OTHER_NAMES:
        return "its certificate is of another host: use a name in base_url that the certificate has"
    return (
        "its certificate is not trusted: name a file with that of its issuer, or with its own, as ca_file of this model"
    )


# -- requests that differ only in their bodies -------------------------------------------------------------------


def httpx_timeouts(limit: float) -> dict[str, float | None]:
    """httpx timeouts of one request, so that a failed connection is reported before a missing answer."""
    return {"connect": min(CONNECT_SECONDS, limit / 2), "read": None, "write": None, "pool": None}


class DirectPoster:
    """Sends request bodies without a client of httpx2."""

    def __init__(self, transport: Transport, request: httpx2.Request, limit: float) -> None:
        """`request` is a sample of those to be sent; each may take `limit` seconds."""
        self._transport = transport
        self._url = URL(str(request.url), encoded=True)
        self._headers = sent_headers(request)
        self._connect = httpx_timeouts(limit)["connect"]

    def post(self, content: bytes, most: int) -> Awaitable[Incoming]:
        """Send a body; at most `most` bytes of the response are read."""
        return self._transport.exchange("POST", self._url, self._headers, content, most, self._connect)


class ClientPoster:
    """Sends request bodies through a client of httpx2."""

    def __init__(self, client: httpx2.AsyncClient, request: httpx2.Request, limit: float) -> None:
        """`request` is a sample of those to be sent; each may take `limit` seconds."""
        self._client = client
        self._like = request
        self._timeout = httpx_timeouts(limit)

    async def post(self, content: bytes, most: int) -> Incoming:
        """Build a request that differs only in its body, and send it."""
        like = self._like
        headers = [pair for pair in like.headers.raw if pair[0].lower() != b"content-length"]
        extensions = {"timeout": self._timeout, MOST_BYTES: most}
        request = httpx2.Request(like.method, like.url, headers=headers, content=content, extensions=extensions)
        return incoming_response(await self._client.send(request, stream=True))


Poster = DirectPoster | ClientPoster
"""Sends request bodies to one URL, of whose responses at most so many bytes are read."""


def incoming_response(response: httpx2.Response) -> Incoming:
    """A client's response over our transport."""
    whole = response.is_stream_consumed
    rest = None if whole else response.stream
    assert rest is None or isinstance(rest, httpx2.AsyncByteStream)
    return Incoming(response.status_code, response.headers.raw, response.content if whole else b"", rest)
