"""One replay from its seed to its end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from adaptive_eval.core import Controller, Look
from adaptive_eval.replay.drive import drive
from adaptive_eval.replay.hosts import Host
from adaptive_eval.replay.prepare import Prepared
from adaptive_eval.replay.timed import AnswerTimes, Timeline, drive_in_time
from adaptive_eval.simulate.worlds import Latency


class Servers(NamedTuple):
    """Simulated servers: how long answers take, and how many requests a model may have at a time."""

    latency: Latency
    slots: int
    swap_seconds: float | None = None
    """All models share one server in turn, and a change of model takes so long; None: each has a server of its own."""


@dataclass(frozen=True, slots=True)
class Performed:
    """A replay that has ended."""

    controller: Controller
    timeline: Timeline | None


def perform(
    prepared: Prepared, seed: int | None, servers: Servers | None = None, on_look: Callable[[Look], None] | None = None
) -> Performed:
    """Replay with trials in the random order of a seed; with None as they were recorded, where that is known."""
    source, controller = prepared.source, Controller(prepared.plan)
    rng = np.random.default_rng([seed or 0, 0])
    tape = source.tape_in_order(rng) if seed is None else source.tape(rng)
    if servers is None:
        return Performed(drive(controller, tape, on_look), None)
    shape = len(source.models), len(source.questions)
    times = AnswerTimes(servers.latency, shape, source.weights, np.random.default_rng([seed or 0, 1]))
    shared = []
    if servers.swap_seconds is not None:
        shared = [Host(range(len(source.models)), servers.slots, servers.swap_seconds)]
    return Performed(controller, drive_in_time(controller, tape, times, servers.slots, on_look, shared))
