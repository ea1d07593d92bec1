"""Steering: windows that follow the load that servers report, beside windows that stay as configured.

    python benchmarks/steering.py [--quick] [--json PATH] [--markdown PATH]

Simulated servers compute a limited number of answers at once and let the others wait, as vLLM does with
`--max-num-seqs`; answers take log-normal times, a second on average. Each client has 256 requests at hand all the time
and is allowed 256 in flight at each server. After the time that a run takes to settle, four things are measured: the
share of the servers' places that were busy (the throughput, as a share of the best there is), how many waited there on
average and at most, and how long an answer took from when it was sent, in units of the time that it took to compute.
The rest of that time was spent in the server's queue, and counts against a request's time limit. (Where hundreds wait
it still grows when the measurement ends: in the end it is 256 over the number of places.)
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from math import exp
from typing import NamedTuple

import numpy as np
from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.load import LoadWatch
from adaptive_eval.endpoints.replicas import ReplicaSet
from adaptive_eval.endpoints.types import Endpoint, EndpointConfig, Limits, Message, Prompt, Sampling
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import Latency, World, binary

CONFIGURED = 256
SIGMA = 0.5
SAMPLED_EVERY = 0.02
BUSY = 0.97
"""Goal for the share of places that are busy."""
DEEP = 1 / 4
"""Goal for the mean number that wait, as a share of the places; two may wait in any case."""
QUESTION = Prompt(messages=(Message("user", "[q1] Which number?"),))
HEADER = ("servers", "windows", "places", "busy", "waiting", "most waiting", "time of an answer")


@dataclass(frozen=True)
class Scene:
    """Servers by their places, and what happens."""

    name: str
    places: tuple[int, ...]
    before: int | None = None
    """Places of the one server while the run settles, where they change then."""
    clients: int = 1
    together: int = 1
    """Answers in a request."""


@dataclass(frozen=True)
class Size:
    """Seconds of an answer, until a change, until everything has settled, and of the measurement."""

    answer: float
    change: float
    settle: float
    measure: float
    scenes: tuple[Scene, ...]


SCENES = (
    Scene("one of 2 places", (2,)),
    Scene("one of 16", (16,)),
    Scene("one of 128", (128,)),
    Scene("one, from 64 to 8", (8,), before=64),
    Scene("one, from 8 to 64", (64,), before=8),
    Scene("two, of 4 and 48", (4, 48)),
    Scene("one of 32, two clients", (32,), clients=2),
    Scene("one of 32, four answers a request", (32,), together=4),
)
FULL = Size(1.0, 30.0, 60.0, 60.0, SCENES)
QUICK = Size(0.5, 8.0, 16.0, 6.0, tuple(scene for scene in SCENES if max(scene.places) <= 64))


class Figures(NamedTuple):
    """What was measured."""

    busy: float
    waiting: float
    most: int
    stretch: float
    """Seconds of an answer over seconds of its computation."""


async def asked_for_ever(model: Endpoint, firsts: Iterator[int], together: int, seen: list[float]) -> None:
    """One of many who ask without a pause; notes the seconds of each request."""
    while True:
        first = next(firsts)
        answers = await model.sample(QUESTION, range(first, first + together))
        seen.append(answers[0].latency)


async def watched(servers: list[SimulatedServer], seconds: float) -> tuple[list[list[int]], list[list[int]]]:
    """How many ran and waited at each server, at many moments."""
    running, waiting = [], []
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(SAMPLED_EVERY)
        places = [server.places for server in servers]
        running.append([place.running for place in places if place is not None])
        waiting.append([place.waiting for place in places if place is not None])
    return running, waiting


class Unread(LoadWatch):
    """Reads no server's load."""

    def join(self, replicas: ReplicaSet, fetch: object, answers: int) -> None:
        pass


async def played(scene: Scene, steer: bool, size: Size) -> Figures:
    """One scene, from the first request to the end of the measurement."""
    world = World("one", binary(np.full((1, 1), 0.5)), latency=Latency(size.answer * exp(-(SIGMA**2) / 2), SIGMA, 1.0))
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(SimulatedServer(world, max_num_seqs=scene.before or places))
            for places in scene.places
        ]
        config = EndpointConfig(base_url=tuple(server.base_url for server in servers), model=world.models[0])
        limits = Limits(in_flight=CONFIGURED, samples_per_request=scene.together)
        firsts, seen = count(0, scene.together), list[float]()
        tasks = []
        for _ in range(scene.clients):
            model = open_endpoint(config, Sampling(), limits, keys={}, loads=None if steer else Unread())
            stack.push_async_callback(model.close)
            for _ in range(CONFIGURED * len(servers)):
                tasks.append(asyncio.create_task(asked_for_ever(model, firsts, scene.together, seen)))
        await settle(scene, servers, size)
        seen.clear()
        running, waiting = await watched(servers, size.measure)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    busy = float(np.mean(np.array(running) / np.array(scene.places)))
    each = np.array(waiting).sum(axis=1)
    alone = size.answer * longest_of(scene.together)
    return Figures(busy, float(each.mean()), int(each.max()), float(np.mean(seen)) / alone if seen else float("inf"))


async def settle(scene: Scene, servers: list[SimulatedServer], size: Size) -> None:
    """Let the run find its windows, and find them anew where the places change."""
    if scene.before is not None:
        await asyncio.sleep(size.change)
        assert servers[0].places is not None
        servers[0].places.resize(scene.places[0])
    await asyncio.sleep(size.settle)


def longest_of(answers: int) -> float:
    """The mean time of the longest of so many answers, in units of the mean time of one."""
    draws = np.random.default_rng(1).normal(size=(200_000, answers))
    return float(np.exp(SIGMA * draws - SIGMA**2 / 2).max(axis=1).mean())


async def measured(size: Size) -> dict[tuple[Scene, bool], Figures]:
    """All scenes at the same time: their servers have nothing to do with each other."""
    keys = [(scene, steer) for scene in size.scenes for steer in (True, False)]
    figures = await asyncio.gather(*(played(scene, steer, size) for scene, steer in keys))
    return dict(zip(keys, figures, strict=True))


def checks(found: dict[tuple[Scene, bool], Figures]) -> Iterator[Check]:
    """Full, and few wait."""
    for (scene, steer), figures in found.items():
        if steer:
            most = max(2.0, DEEP * sum(scene.places))
            yield Check(f"{scene.name}: busy", round(figures.busy, 3), f">= {BUSY}", figures.busy >= BUSY)
            yield Check(f"{scene.name}: waiting", round(figures.waiting, 2), f"<= {most:g}", figures.waiting <= most)


def show(found: dict[tuple[Scene, bool], Figures], rows: list[Check]) -> str:
    """The document."""
    words = {True: "steered", False: f"{CONFIGURED}"}
    table = [
        (scene.name, words[steer], sum(scene.places), one.busy, round(one.waiting, 1), one.most, round(one.stretch, 2))
        for (scene, steer), one in found.items()
    ]
    title = f"# Steering\n\n{(__doc__ or '').strip()}\n\nOn {machine()}; all scenes at the same time."
    return "\n\n".join([title, markdown(HEADER, table), check_table(rows)]) + "\n"


def main() -> None:
    options = arguments((__doc__ or "").partition("\n")[0]).parse_args()
    found = asyncio.run(measured(QUICK if options.quick else FULL))
    rows = list(checks(found))
    text = show(found, rows)
    publish(options, text, rows)
    sys.exit(0 if all(row.holds for row in rows) else 1)


if __name__ == "__main__":
    main()
