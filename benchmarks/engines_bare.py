"""The bare loop of `engines.py`: requests over so many connections, and nothing else.

    python engines_bare.py URL CONNECTIONS < BODIES    # one JSON body a line

Prints the seconds from the first request to the last answer; every connection is open before.
"""

import asyncio
import sys
import time
from collections.abc import Iterator

import aiohttp
import orjson


async def ask(session: aiohttp.ClientSession, url: str, bodies: Iterator[bytes]) -> None:
    headers = {"Content-Type": "application/json"}
    for body in bodies:
        async with session.post(f"{url}/chat/completions", data=body, headers=headers) as response:
            answer = orjson.loads(await response.read())
        assert answer["choices"], answer


async def main(url: str, connections: int) -> None:
    first, *bodies = sys.stdin.buffer.read().splitlines()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        await asyncio.gather(*(ask(session, url, iter([first])) for _ in range(connections)))
        waiting, begun = iter(bodies), time.perf_counter()
        await asyncio.gather(*(ask(session, url, waiting) for _ in range(connections)))
        print(time.perf_counter() - begun)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
