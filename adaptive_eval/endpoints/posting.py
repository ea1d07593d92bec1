"""Sends request bodies to one URL: the constant part of requests is prepared once.

Most servers are reached without httpx2: the bytes of a request go straight to our own connections
(`SlotTransport.exchange`), since httpx2's objects and client cost more CPU than all the rest of a request (see the
table in `transport`). Only if a proxy leads to the URL, or a plug-in signs requests, does its client send them.
Connections, limits, unpacking and errors are the same either way.
"""

from collections.abc import AsyncIterator, Awaitable
from typing import Protocol

import httpx2

from adaptive_eval.endpoints.transport import (
    CONNECT_SECONDS,
    MOST_BYTES,
    Incoming,
    SlotTransport,
    request_head,
    url_origin,
)


class Poster(Protocol):
    """Sends request bodies to one URL."""

    def post(self, content: bytes, most: int) -> Awaitable[Incoming]:
        """Send a body; at most `most` bytes of the response are read. Raises `httpx2.HTTPError`."""


class DirectPoster:
    """Sends request bodies over connections of our own."""

    def __init__(self, transport: SlotTransport, request: httpx2.Request, limit: float) -> None:
        """`request` is a sample of those to be sent; each may take `limit` seconds."""
        self._transport = transport
        self._origin = url_origin(request.url)
        self._head = request_head(request, without=b"content-length")
        self._connect = httpx_timeouts(limit)["connect"]

    def post(self, content: bytes, most: int) -> Awaitable[Incoming]:
        """Send a body after the constant head."""
        payload = b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(content), content)
        return self._transport.exchange(self._origin, payload, most, self._connect)


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


class _Rest(httpx2.AsyncByteStream):
    """The body of a client's response."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.aiter_raw()  # the transport has unpacked it

    async def aclose(self) -> None:
        await self._response.aclose()


def incoming_response(response: httpx2.Response) -> Incoming:
    """A client's response, over any of our transports."""
    whole = response.is_stream_consumed
    rest = None if whole else _Rest(response)
    return Incoming(response.status_code, response.headers.raw, response.content if whole else b"", rest)


def httpx_timeouts(limit: float) -> dict[str, float | None]:
    """httpx timeouts of one request, so that a failed connection is reported before a missing answer."""
    return {"connect": min(CONNECT_SECONDS, limit / 2), "read": None, "write": None, "pool": None}
