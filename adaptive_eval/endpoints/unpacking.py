"""Unpacking bodies that are compressed although that was not requested, up to the size of any possible answer."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing

import httpx2

from adaptive_eval.endpoints.http1 import Header, too_long


class Unpacked(httpx2.AsyncByteStream):
    """The unpacked body of a response, read up to `most` bytes."""

    def __init__(self, response: httpx2.Response, most: int, release: Callable[[], None] = lambda: None) -> None:
        self._response = response
        self._most = most
        self._release = release

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        # httpx2 unpacks in pieces of a MiB, however small the compressed ones are
        async with aclosing(self._response.aiter_bytes()) as parts:
            async for part in parts:
                size += len(part)
                if size > self._most:
                    raise too_long()
                yield part

    async def aclose(self) -> None:
        await self._response.aclose()
        self._release()


def unpacked_response(response: httpx2.Response, most: int, release: Callable[[], None]) -> httpx2.Response:
    """The response with an unpacked body of at most `most` bytes; `release` is called when it is closed."""
    return httpx2.Response(
        response.status_code,
        headers=without_packing(response.headers.raw),
        stream=Unpacked(response, most, release),
        extensions=response.extensions,
    )


def without_packing(headers: Sequence[Header]) -> list[Header]:
    """The headers for the same response with an unpacked body."""
    return [pair for pair in headers if pair[0].lower() not in (b"content-encoding", b"content-length")]
