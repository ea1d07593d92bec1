"""The processes of `throughput.py`: a fast server with one reply, and one client under a closed loop of requests.

    python throughput_worker.py serve PORT DELAY [FILE]     # DELAY seconds to every reply; none before there is FILE
    python throughput_worker.py load CLIENT URL IN_FLIGHT REQUESTS

A client prints {"seconds", "cpu", "mib"}: wall time and CPU time of all its requests, and its largest memory.
"""

import asyncio
import itertools
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

TEXT = "First we write down what is given, then we see what follows from it. " * 7
REPLY = (
    '{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":'
    '{"role":"assistant","content":"Take %09d. ' + TEXT + 'So the answer is \\\\boxed{42}."},"finish_reason":"stop"}],'
    '"usage":{"prompt_tokens":50,"completion_tokens":120,"total_tokens":170}}'
)
LENGTH = len((REPLY % 0).encode())
HEAD = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {LENGTH}\r\n\r\n"
WHOLE = HEAD + REPLY
MODELS = b'{"object":"list","data":[{"id":"m","object":"model"}]}'
OTHER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(MODELS), MODELS)

SAMPLING = {"temperature": 0.6, "top_p": 0.95, "max_tokens": 32768}
PROMPT = "[q17] Which integer is meant? Please reason step by step. " + "One more line of the question. " * 8


class OneReply(asyncio.Protocol):
    """Reads as little of a request as it must."""

    delay = 0.0
    held: list[Callable[[], None]] | None = None
    """Replies that wait for the file; None: there is none to wait for."""
    serial = itertools.count()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport
        self.buffer = b""
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].partition(b"\r\n")[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            self.buffer = self.buffer[end + 4 + length :]
            if head.startswith(b"get"):
                self.transport.write(OTHER)
            elif self.held is not None:
                self.held.append(partial(self.transport.write, (WHOLE % next(self.serial)).encode()))
            elif self.delay:
                self.loop.call_later(self.delay, self.transport.write, (WHOLE % next(self.serial)).encode())
            else:
                self.transport.write((WHOLE % next(self.serial)).encode())


async def serve(port: int, delay: float, file: Path | None = None) -> None:
    OneReply.delay, OneReply.held = delay, None if file is None else []
    listener = await asyncio.get_running_loop().create_server(OneReply, "127.0.0.1", port, backlog=4096)
    while file is not None and not file.exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.05)
    held, OneReply.held = OneReply.held or (), None
    for reply in held:
        reply()
    await listener.serve_forever()


# -- clients -----------------------------------------------------------------------------------------------------

Ask = Callable[[int], Awaitable[object]]


def body(seed: int) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "seed": seed, **SAMPLING}


async def aiohttp_client(url: str, stack: AsyncExitStack) -> Ask:
    import aiohttp
    import orjson

    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    opened = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout)
    session = await stack.enter_async_context(opened)

    async def ask(seed: int) -> object:
        headers = {"Content-Type": "application/json"}
        async with session.post(url + "/chat/completions", data=orjson.dumps(body(seed)), headers=headers) as response:
            return orjson.loads(await response.read())

    return ask


async def httpx2_client(url: str, stack: AsyncExitStack, *, over_aiohttp: bool = False) -> Ask:
    import httpx2
    import orjson

    from adaptive_eval.endpoints.transport import Transport

    transport = Transport() if over_aiohttp else httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=None))
    client = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, timeout=None, trust_env=False))

    async def ask(seed: int) -> object:
        response = await client.post(url + "/chat/completions", content=orjson.dumps(body(seed)))
        return orjson.loads(response.content)

    return ask


async def openai_client(url: str, stack: AsyncExitStack) -> Ask:
    import openai

    client = await stack.enter_async_context(openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0))

    async def ask(seed: int) -> object:
        return await client.chat.completions.create(**body(seed))  # type: ignore[call-overload]

    return ask


async def endpoint(url: str, stack: AsyncExitStack) -> Ask:
    from adaptive_eval.endpoints.endpoint import open_endpoint
    from adaptive_eval.endpoints.types import EndpointConfig, Limits, Message, Prompt, Sampling

    config, limits = EndpointConfig(base_url=url, model="m"), Limits(in_flight=1024)
    opened = open_endpoint(config, Sampling.model_validate(SAMPLING), limits, keys={})
    stack.push_async_callback(opened.close)
    prompt = Prompt(messages=(Message("user", PROMPT),))

    async def ask(seed: int) -> object:
        return await opened.sample(prompt, range(seed, seed + 1))

    return ask


CLIENTS: dict[str, Callable[[str, AsyncExitStack], Awaitable[Ask]]] = {
    "aiohttp": aiohttp_client,
    "httpx2 over aiohttp": partial(httpx2_client, over_aiohttp=True),
    "httpx2, its own pool": httpx2_client,
    "openai SDK": openai_client,
    "endpoint": endpoint,
}


async def load(client: str, url: str, in_flight: int, requests: int) -> None:
    async with AsyncExitStack() as stack:
        ask = await CLIENTS[client](url, stack)
        seeds = iter(range(10**9))

        async def work(until: int) -> None:
            for seed in seeds:
                assert await ask(seed)
                if seed >= until:
                    return

        # every connection is open, and every import done, before the clock starts
        await asyncio.gather(*(work(0) for _ in range(in_flight)))
        begun, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(work(requests) for _ in range(in_flight)))
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        done = next(seeds) - in_flight
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds / done, "cpu": cpu / done, "mib": mib}))


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    if role == "serve":
        asyncio.run(serve(int(arguments[0]), float(arguments[1]), *map(Path, arguments[2:])))
    else:
        asyncio.run(load(arguments[0], arguments[1], int(arguments[2]), int(arguments[3])))
