"""When a server is ready, and what it says it is."""

import asyncio
from contextlib import suppress

import httpx
import orjson

from adaptive_eval.errors import LaunchFailed

POLL_SECONDS = 0.25
PROBE_SECONDS = 10.0
VERSION_SECONDS = 10.0
ABOUT = (("/version", "version"), ("/props", "build_info"))
"""Where vLLM and llama-server tell their versions."""
LONGEST_VERSION = 100
MOST_BYTES = 2**20
"""Of an answer that may have a version in it, such as llama-server's with a whole chat template."""


async def wait_until_ready(root: str, path: str, ended: "asyncio.Future[str]", seconds: float) -> None:
    """Wait until GET `path` says 200; raises `LaunchFailed` when the server ends before, or takes too long."""
    said = "it did not answer"
    try:
        async with asyncio.timeout(seconds), _client(root) as client:
            while not ended.done():
                with suppress(httpx.HTTPError):
                    # whatever else it answers is not read: it might have no end
                    async with client.stream("GET", path) as answer:
                        status = answer.status_code
                    if status == 200:
                        return
                    said = f"its {path} said HTTP {status}"
                    if 300 <= status < 400 or status in (404, 405):  # redirects are not followed
                        mend = "set launch.health to a path that answers 200 when it is ready, such as /v1/models"
                        raise LaunchFailed(f"has no health check: {said}; {mend}")
                await asyncio.wait([ended], timeout=POLL_SECONDS)
    except TimeoutError:
        mend = "raise launch.timeout if that is too short"
        raise LaunchFailed(f"was not ready within {seconds:g} s: {said}; {mend}") from None
    raise LaunchFailed(f"{ended.result()} before it was ready")


async def version_of(root: str) -> str | None:
    """The version of the server, where it tells one."""
    with suppress(TimeoutError):  # a path that is unknown to a server may give anything, even a stream without end
        async with asyncio.timeout(VERSION_SECONDS), _client(root) as client:
            for path, key in ABOUT:
                with suppress(httpx.HTTPError, ValueError):
                    told = orjson.loads(await _beginning(client, path))
                    if isinstance(told, dict) and isinstance(told.get(key), str):
                        return str(told[key])[:LONGEST_VERSION]
    return None


async def _beginning(client: httpx.AsyncClient, path: str) -> bytes:
    """What the server answers, as much of it as is worth reading."""
    found = b""
    async with client.stream("GET", path) as answer:
        async for part in answer.aiter_raw():
            found += part
            if len(found) > MOST_BYTES:
                break
    return found


def _client(root: str) -> httpx.AsyncClient:
    plain = {"Accept-Encoding": "identity"}
    return httpx.AsyncClient(base_url=root, timeout=PROBE_SECONDS, trust_env=False, headers=plain)
