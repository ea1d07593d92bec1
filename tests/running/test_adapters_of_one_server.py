"""A run of six models at one address, such as LoRA adapters of one server: its GPU counts once."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web
from live_runs import FAST, Site, small_world, trials_in

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.endpoints.sharing import SharedTime, ShareMark
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import World, binary
from adaptive_eval.supplies.opening import SupplyContext

ADAPTERS = tuple(f"adapter-{letter}" for letter in "abcdef")
IN_FLIGHT, TIMEOUT, WAVE = 4, 300, 250.0
AT_ONCE = len(ADAPTERS) * IN_FLIGHT
TRIALS = len(ADAPTERS) * 8 * 4
"""Four answers to each of eight questions by each model."""

NEVER_COMPLETE = 20.0
"""Seconds after which what waits is answered, so that a run which asks for less than it should comes to its end."""


class Waves(SimulatedServer):
    """Has all requests that can be in flight wait for each other, and takes 250 seconds of its own for them all."""

    now = 0.0
    _waiting = 0

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            if not self._waiting:
                self._complete = asyncio.Event()
            complete = self._complete
            self._waiting += 1
            if self._waiting == AT_ONCE:
                self._answer(complete)
            asyncio.get_running_loop().call_later(NEVER_COMPLETE, self._answer, complete)
            await complete.wait()
        return await super()._respond(request)

    def _answer(self, complete: asyncio.Event) -> None:
        if not complete.is_set():
            self._waiting, self.now = 0, self.now + WAVE
            complete.set()


class TimeOf(SharedTime):
    """Divides the time of that server, by the server's clock."""

    def __init__(self, server: Waves) -> None:
        super().__init__()
        self._server = server

    def enter(self, url: str, model: int, now: float) -> ShareMark:
        shared = super().enter(url, model, self._server.now)
        mean_share, leave = shared.mean_share, shared.leave
        shared.mean_share = lambda now: mean_share(self._server.now)  # type: ignore[method-assign]
        shared.leave = lambda now: leave(self._server.now)  # type: ignore[method-assign]
        return shared


def alike() -> World:
    """Models that no number of answers tells apart."""
    return World(
        "alike", binary(np.full((6, 8), 0.5)), latency=FAST, models=ADAPTERS, questions=small_world().questions
    )


@pytest.mark.slow
@pytest.mark.parametrize("capped", [False, True])
def test_six_models_at_one_address_use_its_gpu_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_attempts: Callable[[int], None], capped: bool
) -> None:
    """All answers take 2,000 seconds of the server. A cap of 6,000 lets them all be asked for; it would end the run in
    the middle if each model counted all of the time."""
    set_attempts(1)
    server = Waves(alike())
    timed = partial(SupplyContext, shared_time=TimeOf(server))
    monkeypatch.setattr("adaptive_eval.running.start.SupplyContext", timed)
    monkeypatch.setattr("adaptive_eval.endpoints.client.perf_counter", lambda: server.now)
    with serving(server) as url:
        site = Site.make(tmp_path, url)
        config = site.write(
            models=[{"name": name, "base_url": url, "gpus": 1} for name in ADAPTERS],
            sampling={"max_tokens": 2000, "timeout": TIMEOUT},
            concurrency=IN_FLIGHT,
            trials={"min": 4, "max": 4, "optimize": "cost"},
            budget={"gpu_hours": 6000 / 3600} if capped else {},
        )
        ended = site.run(config)
    assert ended.exit_code == ExitCode.SPENT, ended.output
    assert trials_in(site.directory()) == TRIALS, ended.output
    results = json.loads((site.directory() / "results.json").read_bytes())
    assert results["cost"]["gpu_seconds"] == pytest.approx(server.now) == TRIALS / AT_ONCE * WAVE
