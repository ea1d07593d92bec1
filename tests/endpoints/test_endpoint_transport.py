"""The transport on real sockets, and servers that send hardly anything but framing."""

import asyncio
import gzip
import os
import socket
import ssl
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

import httpx2
import pytest
from endpoint_opener import EACH_CLIENT, Served, first, opened_caller
from patient_time import HANGS
from raw_servers import CHAT, Exchange, raw_server, replying
from thoroughness import in_turns

from adaptive_eval.endpoints.connection import GuardedConnection, StaleConnection
from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.transport import MAX_BYTES_EXTENSION, ExchangeError, Transport, refusal_reason
from adaptive_eval.endpoints.types import Sampling


def over_aiohttp() -> httpx2.AsyncClient:
    """A client without time limits over our transport."""
    return httpx2.AsyncClient(transport=Transport(), timeout=None)


def at_most(number: int) -> dict[str, int]:
    """The extension of a request whose response may have so many bytes."""
    return {MAX_BYTES_EXTENSION: number}


ok = replying(b"hello")


async def test_an_idle_connection_that_the_server_closed_costs_no_failure() -> None:
    async def once_per_connection(asked: Exchange) -> None:
        if asked.index % 2:
            asked.reset()
        else:
            await ok(asked)

    async with raw_server(once_per_connection) as server, over_aiohttp() as client:
        for _ in range(3):
            assert (await client.get(server.base_url)).content == b"hello"


class _Clock(asyncio.AbstractEventLoop):
    """A loop of which only the time is asked."""

    now = 0.0

    def time(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("connecting", "later", "stale"),
    [(0.02, 0.11, True), (0.02, 0.13, False), (0.3, 0.39, True), (9.0, 0.49, True), (9.0, 0.51, False)],
)
def test_only_what_breaks_once_word_comes_back_had_been_closed(connecting: float, later: float, stale: bool) -> None:
    """A server that had the request for longer may have generated something."""
    clock = _Clock()
    for requests in (1, 2):
        connection = GuardedConnection(clock)
        connection.connect_seconds = connecting
        for clock.now in [1.0] * requests:
            connection.set_response_params()
        clock.now += later
        connection.connection_lost(None)
        assert isinstance(connection.exception(), StaleConnection) is (stale and requests == 2)


async def test_a_connection_that_is_closed_without_a_word_is_told_as_that() -> None:
    async def hang_up(asked: Exchange) -> None:
        asked.close()

    async with raw_server(hang_up) as server, over_aiohttp() as client:
        with pytest.raises(ExchangeError) as failure:
            await client.post(server.base_url, content=b"hello")
    assert str(failure.value) == "the server closed the connection before it answered"


async def test_an_answer_cut_in_the_middle_is_an_error_even_on_a_used_connection() -> None:
    async def script(asked: Exchange) -> None:
        await asked.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        asked.close()

    async with raw_server(first(1, ok, script)) as server, over_aiohttp() as client:
        await client.get(server.base_url)
        with pytest.raises(ExchangeError):
            await client.get(server.base_url)
        assert len(server.seen) == 2


async def test_a_body_comes_as_it_is_sent_and_its_connection_is_used_again() -> None:
    heard = asyncio.Event()

    async def in_two_parts(asked: Exchange) -> None:
        await asked.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
        await heard.wait()
        await asked.send(b"after")

    async with raw_server(in_two_parts) as server, over_aiohttp() as client:
        for _ in range(2):
            heard.clear()
            parts: list[bytes] = []
            async with client.stream("GET", server.base_url) as response:
                async for part in response.aiter_bytes():
                    parts.append(part)
                    heard.set()
            assert parts == [b"first", b"after"]
        assert server.connections == 1


async def test_tokens_are_handed_over_together_once_a_stream_has_begun() -> None:
    sent = [b"%d " % number for number in range(50)]

    async def token_by_token(asked: Exchange) -> None:
        await asked.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % sum(map(len, sent)))
        for token in sent:
            await asked.send(token)
            await asyncio.sleep(0.02)

    async with raw_server(token_by_token) as server, over_aiohttp() as client:
        async with client.stream("GET", server.base_url) as response:
            parts = [part async for part in response.aiter_bytes()]
        assert b"".join(parts) == b"".join(sent)
        assert parts[:6] == sent[:6], "the first ones come as they are sent"
        assert len(parts) < 25, "five tokens of a tenth of a second wake the reader once"


async def test_a_body_that_is_not_read_to_its_end_takes_its_connection_with_it() -> None:
    endless = first(1, lambda asked: asked.send(b"HTTP/1.1 200 OK\r\n\r\n"), ok)
    async with raw_server(endless) as server, over_aiohttp() as client:
        async with client.stream("GET", server.base_url) as response:
            assert response.status_code == 200
        assert (await client.get(server.base_url)).content == b"hello"
        assert server.connections == 2


PACKED = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("coding", PACKED)
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_packed_body_is_unpacked_up_to_its_bound(coding: str, at_once: bool) -> None:
    async def packed(asked: Exchange) -> None:
        body = PACKED[coding](b"x" * (1000 if asked.index == 0 else 1001))
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        await asked.send(head + body[: len(body) if at_once else 5])
        if not at_once:
            await asyncio.sleep(0.01)
            await asked.send(body[5:])

    async with raw_server(packed) as server, over_aiohttp() as client:
        assert (await client.get(server.base_url, extensions=at_most(1000))).content == b"x" * 1000
        with pytest.raises(ExchangeError, match="longer than anything"):
            await client.get(server.base_url, extensions=at_most(1000))


async def test_a_response_that_is_too_long_ends_though_more_of_it_comes() -> None:
    """Whoever reads it may come to it later than the bytes do."""
    sent = asyncio.Event()

    async def in_parts(asked: Exchange) -> None:
        await asked.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in (b"400\r\n" + b"word " * 100, b"word " * 102):
            await asyncio.sleep(0.01)
            await asked.send(part)
        await asyncio.sleep(0.01)
        sent.set()

    async with (
        raw_server(in_parts) as server,
        over_aiohttp() as client,
        client.stream("GET", server.base_url, extensions=at_most(1000)) as response,
        asyncio.timeout(60),
    ):
        await sent.wait()
        with pytest.raises(ExchangeError, match="longer than anything"):
            await response.aread()


async def test_a_bomb_is_not_unpacked() -> None:
    explode = replying(gzip.compress(bytes(200 * 2**20), 1), "Content-Encoding: gzip")
    async with raw_server(explode) as server, over_aiohttp() as client:
        tracemalloc.start()
        try:
            with pytest.raises(ExchangeError, match="longer than anything"):
                await client.get(server.base_url, extensions=at_most(4 * 2**20))
            assert tracemalloc.get_traced_memory()[1] < 32 * 2**20
        finally:
            tracemalloc.stop()


async def test_a_cancelled_request_leaves_no_connection_for_the_next() -> None:
    async def late(asked: Exchange) -> None:
        await asyncio.sleep(0.05 if asked.index == 0 else 0.0)
        await asked.reply(200, b"late" if asked.index == 0 else b"hello")

    async with raw_server(late) as server, over_aiohttp() as client:
        task = asyncio.create_task(client.get(server.base_url))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.get(server.base_url)).content == b"hello"
        assert server.connections == 2


async def test_a_server_that_speaks_out_of_turn_is_left() -> None:
    async def twice(asked: Exchange) -> None:
        await asked.reply(200, b"hello")
        if asked.index == 0:
            await asyncio.sleep(0.01)
            await asked.reply(408, b"idle")

    async with raw_server(twice) as server, over_aiohttp() as client:
        await client.get(server.base_url)
        await asyncio.sleep(0.05)
        assert (await client.get(server.base_url)).content == b"hello"
        assert server.connections == 2


async def test_a_server_that_is_not_there_is_told_in_plain_words() -> None:
    with socket.socket() as silent:  # bound and not listening: nobody else can have its port
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        async with over_aiohttp() as client:
            with pytest.raises(ExchangeError, match=f"^no connection to 127.0.0.1:{port}: Connection refused$"):
                await client.get(f"http://127.0.0.1:{port}/v1/models")


def test_each_reason_for_which_no_address_of_a_host_answers_is_told_once() -> None:
    failed = "[Errno 111] Connect call failed ('::1', 8000, 0, 0), [Errno 111] Connect call failed ('127.0.0.1', 8000)"
    assert refusal_reason(OSError(f"Multiple exceptions: {failed}")) == os.strerror(111)
    assert refusal_reason(OSError(-2, "Name or service not known")) == "Name or service not known"
    assert refusal_reason(ConnectionResetError()) == "it was closed at once"
    assert refusal_reason(ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")).endswith(
        "use http:// in its address"
    )


# -- what is and what is no response -----------------------------------------------------------------------------

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A:  b \r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
WHOLE = [
    (LENGTH, 200, b"hello", 1),
    (CHUNKED + b"3\r\nhel\r\n2;ext=1\r\nlo\r\n0\r\nTrailer: x\r\n\r\n", 200, b"hello", 1),
    (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + LENGTH, 200, b"hello", 1),
    (b"HTTP/1.1 200 OK\r\nX-Policy: " + b"x" * 20_000 + b"\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", 1),
    (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", 1),
    (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", 500, b"", 1),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", 2),
    (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", 2),
    (LENGTH + LENGTH.replace(b"hello", b"other"), 200, b"hello", 2),
    (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n" + LENGTH.replace(b"hello", b"other"), 200, b"hello", 2),
]


@pytest.mark.parametrize("data, status, body, connections", WHOLE)
@pytest.mark.parametrize("cut", [0, 30, -4])
async def test_a_response_is_the_same_however_it_is_cut(
    data: bytes, status: int, body: bytes, connections: int, cut: int
) -> None:
    async def script(asked: Exchange) -> None:
        for part in (data[:cut], data[cut:]):
            await asked.send(part)
            await asyncio.sleep(0.01)

    async with raw_server(script) as server, over_aiohttp() as client:
        for _ in range(2):
            response = await client.post(server.base_url, content=b"hello")
            assert (response.status_code, response.content) == (status, body)
        assert server.connections >= connections


@pytest.mark.parametrize(
    "data",
    [
        b"220 mail.example ESMTP\r\n",
        b"\x16\x03\x01\x02\x00",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
        CHUNKED + b"xyz\r\n",
        CHUNKED + b"-1\r\n",
        CHUNKED + b"2\r\nabc\r\n",
        CHUNKED + b"1;" + b"x" * 140_000,
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_what_is_no_response_is_refused_though_the_connection_stays(data: bytes, at_once: bool) -> None:
    async def script(asked: Exchange) -> None:
        head, end, body = data.partition(b"\r\n\r\n") if not at_once else (data, b"", b"")
        await asked.send(head + end)
        await asyncio.sleep(0.01)
        await asked.send(body)
        await asyncio.Event().wait()

    async with raw_server(script) as server, over_aiohttp() as client, asyncio.timeout(HANGS):
        with pytest.raises(ExchangeError) as failure:
            await client.post(server.base_url, content=b"hello")
        assert failure.value.kind is FailureKind.BAD_RESPONSE
        assert str(failure.value).startswith("not a valid HTTP/1.1 response: ")


BODY = {"model": "m", "messages": [{"role": "user", "content": "How much is 6 times 7?"}]}
HEAD = b"HTTP/1.1 200 OK\r\n"
ENDLESS = {
    "chunks": (CHUNKED, b"1\r\n \r\n"),
    "extensions of chunks": (CHUNKED + b"1;", b"x"),
    "trailers": (CHUNKED + b"1\r\n \r\n0\r\n", b"A: b\r\n"),
    "headers": (HEAD, b"A: b\r\n"),
    "a header": (HEAD + b"A: ", b"x"),
    "interim responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}
SENT_BYTES = 8 * 1024 * 1024
MOST_BYTES = 1024 * 1024
"""What a refused response may have sent: what is read at once, and what waits in the sockets of both sides."""


def flood(kind: str, sent: list[int]) -> Callable[[Exchange], Awaitable[None]]:
    """A script that goes on and on, and notes how much of each response it was able to send."""
    begin, again = ENDLESS[kind]
    piece = again * (32 * 1024 // len(again))

    async def script(asked: Exchange) -> None:
        transport = asked._writer.transport
        transport.set_write_buffer_limits(high=len(piece))
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        number = len(sent)
        sent.append(0)
        with suppress(ConnectionError):
            await asked.send(begin)
            while sent[number] < SENT_BYTES:
                await asked.send(piece)
                sent[number] += len(piece)
        await asyncio.Event().wait()  # a server that says no more, and leaves the connection open

    return script


@pytest.mark.parametrize(("kind", "client"), in_turns(ENDLESS, EACH_CLIENT))
async def test_what_is_all_framing_is_refused_before_much_of_it_is_read(client: str, kind: str) -> None:
    sent: list[int] = []
    async with raw_server(flood(kind, sent)) as server:
        asking = opened_caller(server.base_url, client, Sampling(timeout=20.0))
        with pytest.raises(Failure) as caught:
            await asking.ask(server.base_url, BODY)
        assert caught.value.kind is FailureKind.BAD_RESPONSE, caught.value
        assert "not a valid HTTP/1.1 response" in str(caught.value)
        await asking.close()
    assert 0 < sent[0] < MOST_BYTES


async def test_a_body_of_many_small_chunks_is_read(served: Served) -> None:
    """A token at a time, or a letter of a short answer."""

    async def letters(asked: Exchange) -> None:
        text = b'{"choices": [{"index": 0, "message": {"content": "%s"}, "finish_reason": "stop"}]}' % (b"4" * 5000)
        await asked.send(CHUNKED + b"".join(b"1\r\n%c\r\n" % letter for letter in text) + b"0\r\nA: b\r\n\r\n")

    async with served(letters) as (_, model):
        for _ in range(2):
            (answer,) = await model.sample(CHAT, range(1))
            assert answer.text == "4" * 5000
        assert model.stats.retries == 0
