"""The HTTP server of pages: what it understands, what it refuses, and what a hostile client can make it hold."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patient_time import HANGS, until

from adaptive_eval.base import http_server
from adaptive_eval.base.http_server import (
    HttpRequest,
    HttpResponse,
    HttpServer,
    MalformedRequest,
    page_server,
    parse_head,
)

pytestmark = pytest.mark.patient
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_a_head_is_taken_apart() -> None:
    head = b'GET /run/a%20b%2Fc/?after=3&model=&x HTTP/1.1\r\nHost: h:1\r\nIf-None-Match:  "1" \r\n\r\n'
    found = parse_head(head)
    assert (found.method, found.keeps, found.body) == ("GET", True, b"")
    assert found.path == "/run/a%20b%2Fc/" and found.parts == ("run", "a b/c", "")
    assert found.query == {"after": "3"} and found.headers == {"host": "h:1", "if-none-match": '"1"'}
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
    ],
)
def test_what_is_no_request_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(MalformedRequest) as refused:
        parse_head(head)
    assert refused.value.status == status


@given(st.binary(max_size=300))
def test_no_bytes_do_worse_than_to_be_refused(data: bytes) -> None:
    try:
        request = parse_head(data + b"\r\n\r\n")
    except MalformedRequest:
        return
    assert not any("\r" in value or "\n" in value for value in request.headers.values())


# -- the server --------------------------------------------------------------------------------------------------------


async def answer(request: HttpRequest) -> HttpResponse:
    """A page for everything; one path never answers, and one has more to say than a system buffers."""
    if request.parts == ("slow",):
        await asyncio.Event().wait()
    if request.parts == ("large",):
        return HttpResponse(body=b"x" * 50_000_000)
    return HttpResponse(body=b"/".join(part.encode() for part in request.parts))


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[HttpServer, int]]:
    server = page_server(answer, {"X-Ours": "always"})
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
    async with serving() as (_, port):
        said = await exchange(port, HEAD.replace(b"/ ", b"/a/b ") * 2 + b"HEAD /cd HTTP/1.0\r\n\r\n")
    assert said.count(b"HTTP/1.1 200 OK") == 3 and said.count(b"X-Ours: always") == 3
    assert said.count(b"\r\n\r\na/b") == 2
    assert said.endswith(b"Content-Length: 2\r\nConnection: close\r\n\r\n"), "HEAD has no body"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", b"405 Method Not Allowed"),
        (b"PUT / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"413 "),
        (b"PUT / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", b"400 "),
        (b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", b"413 "),
        (b"\x16\x03\x01\x02\x00\x01", b"400 "),  # a client that speaks TLS
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b"431 Request Header Fields Too Large"),
    ],
)
async def test_refusals_say_why(data: bytes, status: bytes) -> None:
    async with serving() as (_, port):
        said = await exchange(port, data, 2000)
    assert said.startswith(b"HTTP/1.1 " + status) and b"X-Ours: always" in said


@pytest.mark.patient
async def test_a_head_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.05)
    async with serving() as (server, port):
        assert await exchange(port, b"GET / HT") == b""
        assert await exchange(port, HEAD) != b"", "and a connection kept open for nothing is closed"
        assert not server._tasks


async def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 3)
    async with serving() as (server, port):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in held:
            writer.write(HEAD.replace(b"/ ", b"/slow "))
        await until(lambda: len(server._tasks) == 3 and not server._silent)
        said = await exchange(port, b"")
        assert said.startswith(b"HTTP/1.1 503") and b"more than 3 connections" in said
        held[0][1].close()
        await until(lambda: len(server._tasks) < 3)
        assert (await exchange(port, HEAD.replace(b"1.1", b"1.0"))).startswith(b"HTTP/1.1 200")
        for _, writer in held:
            writer.close()


async def test_connections_that_say_nothing_shut_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 3)
    async with serving() as (server, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(9)]
        assert (await exchange(port, HEAD.replace(b"1.1", b"1.0"))).startswith(b"HTTP/1.1 200")
        assert await silent[0][0].read() == b"", "the one that was silent for longest is closed"
        await until(lambda: len(server._tasks) <= 3)
        for _, writer in silent:
            writer.close()


async def test_a_burst_of_silent_connections_shuts_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 3)
    async with serving() as (server, port):
        # blocking, so that the server accepts all of them in one turn of the loop
        burst = [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
        burst[-1].sendall(HEAD)
        reader, writer = await asyncio.open_connection(sock=burst[-1])
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        await until(lambda: len(server._tasks) <= 3)
        writer.close()
        for one in burst[:-1]:
            one.close()


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
    assert parse_head(f"GET / HTTP/1.1\r\nHost: {field}\r\n\r\n".encode()).host == host


@pytest.mark.patient
async def test_a_client_that_takes_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "SEND_SECONDS", 0.2)
    async with serving() as (server, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(HEAD.replace(b"/ ", b"/large "))
        await asyncio.sleep(0.1)
        assert len(server._tasks) == 1
        await asyncio.wait(server._tasks, timeout=HANGS)
        assert not server._tasks
        writer.close()


async def test_work_for_a_client_that_has_gone_is_cancelled() -> None:
    async with serving() as (server, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD.replace(b"/ ", b"/slow "))
        await until(lambda: server._tasks and not server._silent)
        writer.close()
        await until(lambda: not server._tasks)


async def test_closing_the_server_ends_what_goes_on() -> None:
    async with serving() as (server, port):
        waiting = asyncio.create_task(exchange(port, HEAD.replace(b"/ ", b"/slow ")))
        await until(lambda: server._tasks and not server._silent)
    assert await waiting == b""
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", port)
