"""A server whose responses are next to nothing but framing: it is refused early, and others are asked as before."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from endpoint_opener import EACH_CLIENT, Opener, opened_caller
from raw_servers import CHAT, Exchange, raw_server
from thoroughness import in_turns

from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.types import Sampling

BODY = {"model": "m", "messages": [{"role": "user", "content": "How much is 6 times 7?"}]}
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
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


async def test_a_body_of_many_small_chunks_is_read(endpoint: Opener) -> None:
    """A token at a time, or a letter of a short answer."""

    async def letters(asked: Exchange) -> None:
        text = b'{"choices": [{"index": 0, "message": {"content": "%s"}, "finish_reason": "stop"}]}' % (b"4" * 5000)
        await asked.send(CHUNKED + b"".join(b"1\r\n%c\r\n" % letter for letter in text) + b"0\r\nA: b\r\n\r\n")

    async with raw_server(letters) as server:
        model = endpoint(server.base_url)
        for _ in range(2):
            (answer,) = await model.sample(CHAT, range(1))
            assert answer.text == "4" * 5000
        assert model.stats.retries == 0
