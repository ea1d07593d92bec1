"""Servers made by hand, for what a well-behaved server never does."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import orjson

from adaptive_eval.base.http_server import close_listener
from adaptive_eval.endpoints.types import Message, Prompt

Script = Callable[["Exchange"], Awaitable[None]]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
NO_PAGES: Mapping[str, Script] = {}

CHAT = Prompt(messages=(Message("user", "How much is 6 times 7?"),))
TEXT = Prompt(text="6 times 7 is")


class Exchange:
    """One request as a script sees it."""

    def __init__(self, index: int, path: str, headers: dict[str, str], raw: bytes, writer: asyncio.StreamWriter):
        self.index = index
        """How many requests for answers came before."""
        self.path = path
        self.headers = headers
        self.raw = raw
        self._writer = writer

    @property
    def body(self) -> dict[str, object]:
        return orjson.loads(self.raw)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def reply(self, status: int, content: bytes | dict[str, object], *headers: str) -> None:
        data = content if isinstance(content, bytes) else orjson.dumps(content)
        lines = [f"HTTP/1.1 {status} Some Reason", *headers, f"Content-Length: {len(data)}", "", ""]
        await self.send("\r\n".join(lines).encode() + data)

    async def answer(self, *texts: str, usage: int = 3) -> None:
        choices = [
            {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for i, text in enumerate(texts)
        ]
        await self.reply(200, {"choices": choices, "usage": {"prompt_tokens": 5, "completion_tokens": usage}})

    def reset(self) -> None:
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


class RawServer:
    """Where it listens and what it was asked."""

    def __init__(self, script: Script, health: int, pages: Mapping[str, Script]) -> None:
        self.base_url = ""
        self.seen: list[Exchange] = []
        self.connections = 0
        self.open_connections = 0
        self._script = script
        self._health = health
        self._pages = pages

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        try:
            while await self._respond(await self._read(reader, writer)):
                pass
        finally:
            self.open_connections -= 1

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        return Exchange(len(self.seen), first.split()[1], headers, raw, writer)

    async def _respond(self, exchange: Exchange) -> bool:
        """Answer, and say whether the connection stays: no idle one does, so that scripts count their own."""
        if exchange.path in self._pages:
            await self._pages[exchange.path](exchange)
        elif exchange.path == "/v1/models":
            await exchange.reply(200, {"data": [{"id": "m"}]})
        elif exchange.path in ("/health", "/metrics"):
            await exchange.reply(self._health if exchange.path == "/health" else 404, b"", "Connection: close")
            return False
        else:
            self.seen.append(exchange)
            await self._script(exchange)
        return True


async def _next_turns() -> None:
    """What the loop has begun, a connection made or closed, takes it two turns more."""
    for _ in range(2):
        await asyncio.sleep(0)


@asynccontextmanager
async def connections_of(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Listens on a port of loopback, and leaves no connection behind."""
    tasks: set[asyncio.Task[None]] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(reader, writer)

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(served(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())  # also if it is cancelled before its first step

    listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls, backlog=2048)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        await close_listener(listener)
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _next_turns()  # in which the closed connections are let go of


def replying(content: bytes | dict[str, object], *headers: str, status: int = 200) -> Script:
    """A script that always says the same."""
    return lambda asked: asked.reply(status, content, *headers)


@asynccontextmanager
async def raw_server(
    script: Script, health: int = 200, tls: ssl.SSLContext | None = None, pages: Mapping[str, Script] = NO_PAGES
) -> AsyncIterator[RawServer]:
    """A server on loopback whose answers a script writes; /health says `health`, /v1/models serves `m`.

    `pages` are written by scripts of their own, by their path; they count for nothing.
    """
    server = RawServer(script, health, pages)
    async with connections_of(server.serve, tls) as port:
        server.base_url = f"http{'s' if tls else ''}://127.0.0.1:{port}/v1"
        yield server
