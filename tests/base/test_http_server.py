"""The HTTP server of pages over real sockets: what it refuses, and its limits under hostile clients."""

import asyncio
import logging
import math
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from patient_time import HANGS, until

from adaptive_eval.base import http_server
from adaptive_eval.base.http_server import MAX_CONNECTIONS, PageServer

pytestmark = pytest.mark.patient


def head(*lines: bytes) -> bytes:
    return b"\r\n".join([*lines, b"", b""])


HEAD = head(b"GET / HTTP/1.1", b"Host: localhost")
SLOW, LARGE = (HEAD.replace(b"/ ", path + b" ") for path in (b"/slow", b"/large"))
LAST = head(b"GET / HTTP/1.1", b"Host: localhost", b"Connection: close")
PAGE = bytes(50_000_000)
"""More than a system buffers."""


class Asked:
    """A server, its port, and the requests that are being answered."""

    def __init__(self) -> None:
        self.server = PageServer(self._answer, {"X-Ours": "always"})
        self.port = 0
        self.slow = 0

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        """Answer any path; one path never answers, and one sends more than a system buffers."""
        if request.path == "/fails":
            raise KeyError("a mistake of the program")
        if request.path == "/slow":
            self.slow += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.slow -= 1
        return web.Response(body=PAGE if request.path == "/large" else request.path.encode())

    @property
    def unsent(self) -> list[int]:
        """Bytes waiting in this process for clients to read them."""
        transports = [connection.transport for connection in self.server.connections]
        return [transport.get_write_buffer_size() for transport in transports if transport is not None]


@asynccontextmanager
async def serving() -> AsyncIterator[Asked]:
    asked = Asked()
    asked.port = await asked.server.listen("127.0.0.1", 0)
    try:
        yield asked
    finally:
        await asked.server.close()


async def exchange(port: int, data: bytes) -> bytes:
    """The bytes that the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        async with asyncio.timeout(HANGS):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_one_connection_carries_several_requests() -> None:
    async with serving() as asked:
        reply = await exchange(asked.port, HEAD.replace(b"/ ", b"/a/b ") * 2 + b"HEAD /cd HTTP/1.0\r\n\r\n")
    assert reply.count(b" 200 OK") == 3 and reply.count(b"X-Ours: always") == reply.count(b"Server: adaptive-eval") == 3
    assert reply.count(b"\r\n\r\n/a/b") == 2
    last = reply.rpartition(b"HTTP/1.0")[2]
    assert last.endswith(b"\r\n\r\n") and b"Content-Length: 3" in last, "HEAD has no body"


async def test_a_program_error_is_logged_and_its_text_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as asked:
        reply = await exchange(asked.port, HEAD.replace(b"/ ", b"/fails "))
    assert b" 500 " in reply and b"X-Ours: always" in reply and b"mistake" not in reply
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (head(b"POST / HTTP/1.1", b"Host: a", b"Connection: close"), 405),
        (head(b"PUT / HTTP/1.1", b"Host: a", b"Connection: close"), 405),
        (head(b"GET / HTTP/1.1", b"Host: a", b"Content-Length: 3") + b"abc", 413),
        (head(b"GET / HTTP/1.1", b"Host: a", b"Content-Length: 99999999"), 413),
        (head(b"GET / HTTP/1.1", b"Host: a", b"Transfer-Encoding: chunked") + b"3\r\nabc\r\n", 413),
        (head(b"GET / HTTP/1.1", b"Host: a", b"Content-Length: " + b"9" * 5000), 400),
        (head(b"GET / HTTP/1.1", b"Host: a", b"Content-Length: 1", b"Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01", 400),  # a client that speaks TLS
        (head(b"nonsense"), 400),
        (head(b"GET / HTTP/7", b"Host: a"), 400),
        (head(b"get / HTTP/1.1", b"Host: a"), 400),
        (head(b"GET /\x00 HTTP/1.1", b"Host: a"), 400),
        (head(b"GET / HTTP/1.1"), 400),
        (head(b"GET / HTTP/1.1", b"Host: a", b"no colon"), 400),
        (head(b"GET / HTTP/1.1", b"Host : a"), 400),
        (head(b"GET / HTTP/1.1", b"Host: a", b" folded"), 400),
        (head(b"GET / HTTP/1.1", b"X: a\nHost: b"), 400),
        (head(b"GET / HTTP/1.1", b"Host: a", b"Host: b"), 400),
        (head(b"GET /" + b"x" * 20_000 + b" HTTP/1.1", b"Host: a"), 431),
        (head(b"GET / HTTP/1.1", b"Host: a", b"X: " + b"x" * 20_000), 431),
        (head(b"GET / HTTP/1.1", b"Host: a", *(b"X%d: x" % n for n in range(5000))), 400),
    ],
)
async def test_refusals_say_why_and_disconnect(data: bytes, status: int, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as asked:
        reply = await exchange(asked.port, data)
        assert (await exchange(asked.port, LAST)).startswith(b"HTTP/1.1 200")
    headers, _, why = reply.partition(b"\r\n\r\n")
    assert int(headers.split()[1]) == status and why.strip()
    assert b"X-Ours: always" in headers and b"Server: adaptive-eval" in headers and b"text/plain" in headers
    assert not caplog.records, "a client's mistakes are not told to the user"


# -- clients that take and never give back -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "limit"),
    [(b"", MAX_CONNECTIONS), (HEAD[:-9], MAX_CONNECTIONS), (SLOW, MAX_CONNECTIONS), (LARGE, 16)],
    ids=["nothing", "half", "never_answered", "unread"],
)
async def test_however_many_clients_hold_on_the_next_one_is_answered(
    sent: bytes, limit: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """None of them times out: they are closed only to make room for the next one."""
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", limit)
    monkeypatch.setattr(http_server, "HEAD_SECONDS", math.inf)
    monkeypatch.setattr(http_server, "SEND_SECONDS", 1e9)
    async with serving() as asked:
        held = [await asyncio.open_connection("127.0.0.1", asked.port, limit=1) for _ in range(limit)]
        for _, writer in held:
            writer.write(sent)
        if sent == SLOW:
            await until(lambda: asked.slow == limit)
        if sent == LARGE:
            await until(lambda: sum(map(bool, asked.unsent)) == limit)
            assert max(asked.unsent) <= 3 * http_server.PIECE, "little is kept for who takes nothing"
        for _ in range(3):
            assert (await exchange(asked.port, LAST)).startswith(b"HTTP/1.1 200")
        await until(lambda: len(asked.server.connections) < limit)
        assert len(asked.server.connections) >= limit - 3, "no more are ended than there must be"
        for _, writer in held:
            writer.transport.abort()
        await until(lambda: not asked.server.connections)
    assert not caplog.records


async def test_the_connection_whose_last_request_is_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 3)
    async with serving() as asked:
        held = [await asyncio.open_connection("127.0.0.1", asked.port) for _ in range(3)]
        first, second, third = (reader for reader, _ in held)
        held[0][1].write(HEAD)
        assert (await first.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        assert (await exchange(asked.port, LAST)).startswith(b"HTTP/1.1 200")
        assert await second.read() == b"", "it is closed"
        held[2][1].write(LAST)
        assert (await third.read()).startswith(b"HTTP/1.1 200")
        held[0][1].write(LAST)
        assert (await first.read()).count(b"HTTP/1.1 200") == 1
        for _, writer in held:
            writer.close()


async def test_a_burst_of_silent_connections_shuts_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 3)
    async with serving() as asked:
        # blocking, so that the server accepts all of them in one turn of the loop
        burst = [socket.create_connection(("127.0.0.1", asked.port)) for _ in range(10)]
        burst[-1].sendall(LAST)
        reader, writer = await asyncio.open_connection(sock=burst[-1])
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        await until(lambda: len(asked.server.connections) <= 3)
        writer.close()
        for connection in burst[:-1]:
            connection.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", HEAD], ids=["nothing", "half", "idle"])
async def test_a_connection_without_a_request_is_closed(sent: bytes) -> None:
    async with serving() as asked:
        begun = asyncio.get_running_loop().time()
        reply = await exchange(asked.port, sent)
        assert bool(reply) == (sent == HEAD)
        assert asyncio.get_running_loop().time() - begun == pytest.approx(http_server.HEAD_SECONDS, rel=0.1)
        assert not asked.server.connections


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    async with serving() as asked:
        _, writer = await asyncio.open_connection("127.0.0.1", asked.port, limit=1)
        writer.write(LARGE)
        await until(lambda: any(asked.unsent))
        assert max(asked.unsent) <= 3 * http_server.PIECE
        await asyncio.sleep(0.9 * http_server.SEND_SECONDS)
        assert asked.server.connections
        await asyncio.sleep(0.2 * http_server.SEND_SECONDS)
        assert not asked.server.connections
        writer.close()


async def test_a_slow_client_that_keeps_reading_gets_everything() -> None:
    async with serving() as asked:
        reader, writer = await asyncio.open_connection("127.0.0.1", asked.port)
        begun = asyncio.get_running_loop().time()
        writer.write(LARGE.replace(b"1.1", b"1.0"))
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(10):
            await reader.readexactly(len(PAGE) // 10)
            await asyncio.sleep(http_server.SEND_SECONDS / 2)
        assert await reader.read() == b""
        assert asyncio.get_running_loop().time() - begun > 4 * http_server.SEND_SECONDS
        writer.close()


async def test_work_for_a_client_that_has_gone_is_cancelled() -> None:
    async with serving() as asked:
        _, writer = await asyncio.open_connection("127.0.0.1", asked.port)
        writer.write(SLOW)
        await until(lambda: asked.slow)
        writer.close()
        await until(lambda: not asked.slow and not asked.server.connections)


async def test_closing_the_server_ends_running_requests_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as asked:
        _, idle = await asyncio.open_connection("127.0.0.1", asked.port)
        _, unread = await asyncio.open_connection("127.0.0.1", asked.port, limit=1)
        unread.write(LARGE)
        waiting = asyncio.create_task(exchange(asked.port, SLOW))
        await until(lambda: asked.slow and any(asked.unsent))
        begun = asyncio.get_running_loop().time()
        await asked.server.close()
        assert asyncio.get_running_loop().time() - begun < 1.0 and not asked.slow
        assert await waiting == b""
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection("127.0.0.1", asked.port)
        idle.close()
        unread.transport.abort()
        asked.port = await asked.server.listen("127.0.0.1", 0)
    assert not caplog.records
