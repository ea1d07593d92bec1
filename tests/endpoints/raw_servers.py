"""Servers made by hand, for what a well-behaved server never does."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count

import orjson

from adaptive_eval.endpoints.types import Message, Prompt

Script = Callable[["Exchange"], Awaitable[None]]
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

    def __init__(self) -> None:
        self.base_url = ""
        self.seen: list[Exchange] = []
        self.connections = 0


@asynccontextmanager
async def raw_server(
    script: Script, health: int = 200, tls: ssl.SSLContext | None = None, pages: Mapping[str, Script] = NO_PAGES
) -> AsyncIterator[RawServer]:
    """A server on loopback whose answers a script writes; /health says `health`, /v1/models serves `m`.

    `pages` are written by scripts of their own, by their path; they count for nothing.
    """
    server = RawServer()
    serial = count()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.strip().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                raw = await reader.readexactly(int(headers.get("content-length", 0)))
                path = first.split()[1]
                exchange = Exchange(-1, path, headers, raw, writer)
                if path == "/health" and path not in pages:
                    # no idle connection stays behind, so that scripts count connections of their own
                    await exchange.reply(health, b"", "Connection: close")
                    return
                if path in pages:
                    await pages[path](exchange)
                elif path == "/metrics":
                    await exchange.reply(404, b"", "Connection: close")
                    return
                elif path == "/v1/models":
                    await exchange.reply(200, {"data": [{"id": "m"}]})
                else:
                    exchange.index = next(serial)
                    server.seen.append(exchange)
                    await script(exchange)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    server.base_url = f"http{'s' if tls else ''}://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # the closed connections are let go of in the next turns of the loop
        await asyncio.sleep(0)
        await asyncio.sleep(0)
