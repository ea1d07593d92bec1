"""A proxy on loopback that knows one server under every name: names need no resolving, and what passes is seen."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from raw_servers import connections_of


class SmallProxy:
    """Passes everything on to one port; asks for a password where it has one."""

    def __init__(self, port: int, password: str | None) -> None:
        self.url = ""
        self.seen: list[str] = []
        """The first line of each request that came to the proxy itself."""
        self._port = port
        self._password = password

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first = head.partition(b"\r\n")[0].decode()
        self.seen.append(first)
        if self._password is not None and f"basic {self._password}".encode() not in head.lower():
            writer.write(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            await writer.drain()
            return
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            method, target, _ = first.split()
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                path = "/" + target.split("/", 3)[3]
                to_server.write(head.replace(target.encode(), path.encode(), 1))
            await asyncio.gather(_pass_on(reader, to_server), _pass_on(from_server, writer))
        finally:
            to_server.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


@asynccontextmanager
async def small_proxy(port: int, password: str | None = None) -> AsyncIterator[SmallProxy]:
    """A proxy to the server at this port of loopback."""
    proxy = SmallProxy(port, password)
    async with connections_of(proxy.serve) as listening:
        proxy.url = f"http://127.0.0.1:{listening}"
        yield proxy
