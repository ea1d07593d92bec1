"""The bare loop of `engines.py`: requests over so many connections, and nothing else.

    python engines_bare.py URL CONNECTIONS < BODIES    # one JSON body a line

Ends when every body has its answer, or at SIGTERM, and prints when each answer was there, in seconds since 1970.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import aiohttp
import orjson


async def ask(session: aiohttp.ClientSession, url: str, bodies: Iterator[bytes], times: list[float]) -> None:
    headers = {"Content-Type": "application/json"}
    for body in bodies:
        async with session.post(f"{url}/chat/completions", data=body, headers=headers) as response:
            answer = orjson.loads(await response.read())
        assert answer["choices"], answer
        times.append(time.time())


async def main(url: str, connections: int) -> None:
    bodies = iter(sys.stdin.buffer.read().splitlines())
    times: list[float] = []
    loop = asyncio.get_running_loop()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        asking = asyncio.gather(*(ask(session, url, bodies, times) for _ in range(connections)))
        loop.add_signal_handler(signal.SIGTERM, asking.cancel)
        with suppress(asyncio.CancelledError):
            await asking
    print("\n".join(map(str, times)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
