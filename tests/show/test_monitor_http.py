"""The monitor's HTTP server: what it understands, what it refuses, and what a hostile client can make it hold."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patient_time import HANGS, until

from adaptive_eval.show.serve import http1
from adaptive_eval.show.serve.http1 import (
    HttpServer,
    MalformedHead,
    PageRequest,
    PageResponse,
    parse_head,
    requested_host,
)

pytestmark = pytest.mark.patient
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_a_head_is_taken_apart() -> None:
    head = b'GET /run/a%20b%2Fc/?after=3&model=&x HTTP/1.1\r\nHost: h:1\r\nIf-None-Match:  "1" \r\n\r\n'
    found = parse_head(head)
    assert found == PageRequest(
        "GET", ("run", "a b/c", ""), {"after": "3"}, {"host": "h:1", "if-none-match": '"1"'}, keeps=True
    )
    assert not parse_head(b"GET / HTTP/1.0\r\n\r\n").keeps
    assert not parse_head(b"GET / HTTP/1.1\r\nConnection: Close\r\n\r\n").keeps


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET http://evil/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\n\r\n", 400),
        (b"GET /\x00 HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: a\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: a\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
    ],
)
def test_what_is_no_request_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(MalformedHead) as refused:
        parse_head(head)
    assert refused.value.status == status


@given(st.binary(max_size=300))
def test_no_bytes_do_worse_than_to_be_refused(data: bytes) -> None:
    try:
        request = parse_head(data + b"\r\n\r\n")
    except MalformedHead:
        return
    assert not any("\r" in value or "\n" in value for value in request.headers.values())


# -- the server --------------------------------------------------------------------------------------------------------


class Counting:
    """Answers everything, and remembers what became of the streams."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = 0

    async def __call__(self, request: PageRequest) -> PageResponse:
        if request.path == ("stream",):
            return PageResponse(events=self._events())
        if request.path == ("large",):
            return PageResponse(body=b"x" * 50_000_000)
        return PageResponse(body=b"/".join(part.encode() for part in request.path))

    async def _events(self) -> AsyncGenerator[bytes, None]:
        self.begun.set()
        try:
            while True:
                yield b"data: 1\n\n"
                await asyncio.sleep(0.01)
        finally:
            self.ended += 1


@asynccontextmanager
async def serving(handler: Counting) -> AsyncIterator[tuple[HttpServer, int]]:
    server = HttpServer(handler, {"X-Ours": "always"})
    port = await server.listen("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.close()


async def exchange(port: int, data: bytes, most: int = -1) -> bytes:
    """What the server says until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        async with asyncio.timeout(HANGS):
            return await reader.read(most)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_one_connection_carries_several_requests() -> None:
    async with serving(Counting()) as (_, port):
        said = await exchange(port, HEAD.replace(b"/ ", b"/a/b ") * 2 + b"HEAD /cd HTTP/1.0\r\n\r\n")
    assert said.count(b"HTTP/1.1 200 OK") == 3 and said.count(b"X-Ours: always") == 3
    assert said.count(b"\r\n\r\na/b") == 2
    assert said.endswith(b"Content-Length: 2\r\nConnection: close\r\n\r\n"), "HEAD has no body"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", b"405 Method Not Allowed"),
        (b"PUT / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"413 "),
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b"431 Request Header Fields Too Large"),
    ],
)
async def test_refusals_say_why(data: bytes, status: bytes) -> None:
    async with serving(Counting()) as (_, port):
        said = await exchange(port, data, 2000)
    assert said.startswith(b"HTTP/1.1 " + status) and b"X-Ours: always" in said


async def test_a_head_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "HEAD_SECONDS", 0.05)
    async with serving(Counting()) as (server, port):
        assert await exchange(port, b"GET / HT") == b""
        assert await exchange(port, HEAD) != b"", "and a connection kept open for nothing is closed"
        assert not server._tasks


async def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "MAX_CONNECTIONS", 3)
    async with serving(Counting()) as (server, port):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for reader, writer in held:
            writer.write(HEAD.replace(b"/ ", b"/stream "))
            await reader.readuntil(b"data: 1\n\n")
        said = await exchange(port, b"")
        assert said.startswith(b"HTTP/1.1 503") and b"more than 3 connections" in said
        held[0][1].close()
        await until(lambda: len(server._tasks) < 3)
        assert (await exchange(port, HEAD.replace(b"1.1", b"1.0"))).startswith(b"HTTP/1.1 200")
        for _, writer in held:
            writer.close()


async def test_connections_that_say_nothing_shut_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "MAX_CONNECTIONS", 3)
    async with serving(Counting()) as (server, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(9)]
        assert (await exchange(port, HEAD.replace(b"1.1", b"1.0"))).startswith(b"HTTP/1.1 200")
        assert await silent[0][0].read() == b"", "the one that was silent for longest is closed"
        await until(lambda: len(server._tasks) <= 3)
        for _, writer in silent:
            writer.close()


@pytest.mark.parametrize(
    ("field", "host"),
    [
        ("127.0.0.1:8000", "127.0.0.1"),
        ("[::1]:8000", "::1"),
        ("LocalHost", "localhost"),
        ("127.0.0.1:8000@evil", ""),
        ("evil@127.0.0.1:8000", ""),
        ("127.0.0.1:8000/x", ""),
        ("127.0.0.1:", ""),
        ("", ""),
    ],
)
def test_a_host_is_a_name_or_a_number_and_a_port(field: str, host: str) -> None:
    assert requested_host(parse_head(f"GET / HTTP/1.1\r\nHost: {field}\r\n\r\n".encode())) == host


@pytest.mark.patient
async def test_a_client_that_takes_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "SEND_SECONDS", 0.2)
    async with serving(Counting()) as (server, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(HEAD.replace(b"/ ", b"/large "))
        await asyncio.sleep(0.1)
        assert len(server._tasks) == 1
        await asyncio.wait(server._tasks, timeout=HANGS)
        assert not server._tasks
        writer.close()


async def test_a_stream_ends_when_its_reader_has_gone() -> None:
    handler = Counting()
    async with serving(handler) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD.replace(b"/ ", b"/stream "))
        said = await reader.readuntil(b"data: 1\n\ndata: 1\n\n")
        assert b"Content-Length" not in said and b"Connection: close" in said
        writer.close()
        await asyncio.wait(server._tasks, timeout=HANGS)
        assert not server._tasks
    assert handler.ended == 1


async def test_closing_the_server_ends_what_goes_on() -> None:
    handler = Counting()
    async with serving(handler) as (_, port):
        streaming = asyncio.create_task(exchange(port, HEAD.replace(b"/ ", b"/stream ")))
        await asyncio.wait_for(handler.begun.wait(), HANGS)
    assert b"data: 1" in await streaming and handler.ended == 1
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", port)
