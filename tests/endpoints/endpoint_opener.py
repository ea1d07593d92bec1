"""How the endpoints of the tests are opened (the fixture `endpoint` does it)."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import httpx2
import pytest
from raw_servers import CHAT, Exchange, RawServer, Script

from adaptive_eval.endpoints.client import Caller
from adaptive_eval.endpoints.endpoint import ModelEndpoint
from adaptive_eval.endpoints.sdk import SdkCaller
from adaptive_eval.endpoints.server_access import ServerAccess
from adaptive_eval.endpoints.transport import Post, post_through
from adaptive_eval.endpoints.types import Answer, EndpointConfig, RetryGate, Sampling

Opener = Callable[..., ModelEndpoint]
Served = Callable[..., AbstractAsyncContextManager[tuple[RawServer, ModelEndpoint]]]

EACH_CLIENT = ["http", "httpx2", "openai"]
CLIENTS = pytest.mark.parametrize("client", EACH_CLIENT)
"""Every way of a request: straight to the transport, through a client of httpx2, and through the SDK."""


async def answer(asked: Exchange) -> None:
    """As many answers as are asked for."""
    await asked.answer(*["42"] * int(str(asked.body.get("n", 1))))


async def hang(asked: Exchange) -> None:
    """For longer than any time limit of a test."""
    await asyncio.sleep(5)


async def ask(model: ModelEndpoint, number: int, start: int = 0, again: RetryGate | None = None) -> list[Answer]:
    """The answers to so many requests at once, from this seed on."""
    tasks = (model.sample(CHAT, range(seed, seed + 1), again) for seed in range(start, start + number))
    return [answer for answers in await asyncio.gather(*tasks) for answer in answers]


def first(times: int, failure: Script, then: Script = answer) -> Script:
    """A script that fails so many times before it answers."""

    async def script(asked: Exchange) -> None:
        await (failure if asked.index < times else then)(asked)

    return script


def opened_caller(
    base_urls: str | tuple[str, ...],
    client: str,
    sampling: Sampling,
    key: str | None = None,
    folder: Path = Path(),
    **values: object,
) -> Caller:
    """What sends requests this way; `httpx2` is the default client as it is behind a proxy or with a plug-in."""
    named: dict[str, object] = {} if key is None else {"api_key_env": "KEY"}
    kind = "http" if client == "httpx2" else client
    config = EndpointConfig.model_validate({"base_url": base_urls, "model": "m", "client": kind, **named, **values})
    keys = {} if key is None else {"KEY": key}
    if client == "openai":
        return SdkCaller(config, sampling, keys, folder)
    if client == "http":
        return Caller(config, sampling, keys, folder)
    with patch.object(ServerAccess, "poster", _through_httpx2):
        return Caller(config, sampling, keys, folder)


def _through_httpx2(
    self: ServerAccess, client: httpx2.AsyncClient, url: str, headers: httpx2.Headers, limit: float
) -> Post:
    return partial(post_through, client, url, headers, limit)
