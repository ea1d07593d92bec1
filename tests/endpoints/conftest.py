"""Endpoints whose waits pass at once, so that a test of ten retries takes no minute."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from endpoint_opener import Opener, opened_caller

from adaptive_eval.endpoints import client as http_calls
from adaptive_eval.endpoints import replica_care, retry_after, servers
from adaptive_eval.endpoints import replicas as health
from adaptive_eval.endpoints import sdk as sdk_calls
from adaptive_eval.endpoints.endpoint import ModelEndpoint
from adaptive_eval.endpoints.load import LoadWatch
from adaptive_eval.endpoints.types import EndpointConfig, Limits, Sampling


@pytest.fixture
def waits() -> list[float]:
    """Every wait of the endpoints of a test, in seconds."""
    return []


@pytest.fixture
async def endpoint(waits: list[float], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opener]:
    """Opens an endpoint; keywords go to whichever of the three configurations knows them."""
    monkeypatch.setattr(health, "PROBE_EVERY", 0.1)
    monkeypatch.setattr(health, "PROBE_AGAIN", 0.02)
    for calls in (http_calls, sdk_calls):
        monkeypatch.setattr(calls, "perf_counter", asyncio.get_running_loop().time)
    monkeypatch.setattr(replica_care, "REFUSED_PAUSE", 0.02)
    monkeypatch.setattr(retry_after, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(servers, "TRY_AGAIN", (0.02, 0.04))

    async def pass_quickly(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(min(seconds, 0.01))

    async with AsyncExitStack() as opened:

        def opener(
            *base_urls: str,
            key: str | None = None,
            loads: LoadWatch | None = None,
            ready: bool = False,
            has_answered: bool = False,
            **values: Any,
        ) -> ModelEndpoint:
            def of(kind: Any) -> dict[str, Any]:
                return {name: value for name, value in values.items() if name in kind.model_fields}

            client = values.pop("client", "http")
            told = {"model": "m", "stream": False} | of(EndpointConfig)
            config = EndpointConfig(base_url=base_urls, **told)
            sampling = Sampling(**{"timeout": 5.0} | of(Sampling))
            limits = Limits(**{"patience": 0.0} | of(Limits))
            caller = opened_caller(base_urls, client, sampling, key or None, **told)
            made = ModelEndpoint(
                config, sampling, limits, caller, pass_quickly, loads, ready, has_answered=has_answered
            )
            opened.push_async_callback(made.close)
            return made

        yield opener
