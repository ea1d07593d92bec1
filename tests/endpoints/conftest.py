"""Endpoints whose waits pass at once, so that a test of ten retries takes no minute."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from endpoint_opener import Opener, Served, opened_caller
from raw_servers import NO_PAGES, RawServer, Script, raw_server

from adaptive_eval.endpoints import client
from adaptive_eval.endpoints.context import EndpointContext
from adaptive_eval.endpoints.endpoint import ModelEndpoint
from adaptive_eval.endpoints.settings import EndpointSettings
from adaptive_eval.endpoints.sharing import SharedTime
from adaptive_eval.endpoints.types import EarlierTimes, EndpointConfig, Limits, Sampling

QUICK = EndpointSettings(tick=0.1, backoff=0.01, probe_every=0.1, probe_again=0.02)
"""What takes seconds takes fractions of one."""


@pytest.fixture
def waits() -> list[float]:
    """Every wait of the endpoints of a test, in seconds."""
    return []


@pytest.fixture
async def endpoint(waits: list[float], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opener]:
    """Opens an endpoint; keywords go to whichever of the three configurations knows them."""
    monkeypatch.setattr(client, "perf_counter", asyncio.get_running_loop().time)

    async def pass_quickly(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(min(seconds, 0.01))

    async with AsyncExitStack() as opened:

        def opener(
            *base_urls: str,
            key: str | None = None,
            shared_time: SharedTime | None = None,
            ready: bool = False,
            has_answered: bool = False,
            settings: EndpointSettings = QUICK,
            **values: Any,
        ) -> ModelEndpoint:
            def of(section: Any) -> dict[str, Any]:
                return {name: value for name, value in values.items() if name in section.model_fields}

            kind = values.pop("client", "http")
            settings = replace(settings, attempts=values.pop("attempts", settings.attempts))
            chosen = {"model": "m", "stream": False} | of(EndpointConfig)
            config = EndpointConfig(base_url=base_urls, **chosen)
            sampling = Sampling(**{"timeout": 5.0} | of(Sampling))
            limits = Limits(**{"retry_for": 0.0} | of(Limits))
            caller = opened_caller(base_urls, kind, sampling, key or None, **chosen)
            earlier = EarlierTimes() if has_answered else None
            time = shared_time or SharedTime()
            context = EndpointContext(config, sampling, limits, caller, time, earlier, pass_quickly, settings)
            made = ModelEndpoint(context, ready=ready)
            opened.push_async_callback(made.close)
            return made

        yield opener


@pytest.fixture
def served(endpoint: Opener) -> Served:
    """A server with this script, and an endpoint that asks it."""

    @asynccontextmanager
    async def serving(
        script: Script, health: int = 200, pages: Mapping[str, Script] = NO_PAGES, **options: Any
    ) -> AsyncIterator[tuple[RawServer, ModelEndpoint]]:
        async with raw_server(script, health, pages=pages) as server:
            yield server, endpoint(server.base_url, **options)

    return serving
