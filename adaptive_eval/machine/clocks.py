"""Clocks of a run: the time it was active, and the time for which each model holds its servers, busy or not.

The latter is what a run on one's own GPUs pays. A server that the run starts is held from its start until it is
stopped, whether or not it ever comes up: nobody else can use a GPU that loads a model. After a kill the time goes on
while a site on a cluster keeps the server for the next start. If a model is served at several places at the same time,
each of its servers counts. Servers of others are held, in each start of the run, from the first request to the last:
before and after that somebody else could have had them. While several models hold servers at one address, each counts
its equal share: the address counts once. For a model that is asked through a batch service nothing is held.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.records import BEGUN, FINISHED, STOPPED, Json, Note

BEAT_SECONDS = 2.0
"""The elapsed time of a run is stored at least this often: a kill loses no more of it."""
UNRECORDED_SECONDS = BEAT_SECONDS + 1.0
"""A killed run may have been active for up to this long after its last record of the time."""


class HeldTime(NamedTuple):
    """Time for which a model has held its servers, busy or not, over all starts."""

    seconds: float = 0.0
    gpu_seconds: float = 0.0
    """`seconds` times the model's GPUs."""
    up: bool = False
    """Whether it still holds them."""


@dataclass(frozen=True, slots=True)
class ClockedModel:
    """Properties of a model that the clocks need."""

    name: str
    gpus: float = 0.0
    """GPUs that are paid for while the servers are held."""
    addresses: tuple[str, ...] = ()
    """Addresses of servers of others, whose time counts once if models share them."""
    is_launched: bool = False
    """Whether the run starts its servers."""
    is_batched: bool = False
    """Whether a batch service answers when it has time, so that nothing is held."""
    request_gpu_seconds: float = 0.0
    """The most that a request in flight may use."""


def at_least_elapsed(elapsed: float, notes: Sequence[tuple[int, Note]]) -> float:
    """Seconds that the run has been active; after a kill with the longest time that it may not have recorded."""
    kinds = [note.kind for _, note in notes if note.kind in BEGUN or note.kind in (FINISHED, STOPPED)]
    return elapsed + (UNRECORDED_SECONDS if kinds and kinds[-1] in BEGUN else 0.0)


class RunClock:
    """The clocks of a run, over all its starts: its own, and one of every model's servers."""

    def __init__(
        self,
        models: Mapping[int, ClockedModel],
        elapsed: float,
        before: Mapping[str, HeldTime],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`elapsed`: seconds that earlier starts were active; `before`: their held times, by name."""
        self._models, self._before, self.now = models, before, clock
        self._elapsed_before = elapsed
        self._started: float | None = None
        self._past_seconds = dict.fromkeys(models, 0.0)
        """Seconds of this start that are over."""
        self._since: dict[int, dict[str | None, float]] = {}
        """By model: the places where it is up, and since when."""
        self._until: dict[int, float] = {}
        """When the last answer came from servers of others that have no request now."""

    def start(self) -> None:
        """Start the clock unless it runs."""
        if self._started is None:
            self._started = self.now()

    def stop(self) -> None:
        """Stop the clock: nothing more is asked."""
        self._elapsed_before, self._started = self.elapsed(), None

    def elapsed(self) -> float:
        """Seconds the run has been active."""
        return self._elapsed_before + (0.0 if self._started is None else self.now() - self._started)

    def on_note(self, note: Note) -> None:
        """Note that a server of the run is started, came up, or ended."""
        if (model := note.model) is None or model not in self._models:
            return
        body = note.body
        place = body.get("on")
        match note.kind:
            case "launching":
                self._begin(model, place)
            case "launched":
                self._begin(model, place, body.get("seconds", 0.0))
            case "server_died" | "released" | "site_lost":
                self._end(model, place)

    def on_sent(self, model: int) -> None:
        """Note that a request is sent to a model."""
        if not (self._models[model].is_launched or self._models[model].is_batched):
            if not self._since.get(model):
                self._begin(model, None)
            self._until.pop(model, None)

    def on_quiet(self, model: int) -> None:
        """Note that a model has no request in flight any more."""
        if self._since.get(model) and not self._models[model].is_launched:
            self._until[model] = self.now()

    def held_times(self) -> dict[str, HeldTime]:
        """Time for which each model has held its servers, over all starts."""
        now = self.now()
        times = {clocked.name: self.held_time(model, now) for model, clocked in self._models.items()}
        return {**self._before, **{name: held for name, held in times.items() if held is not None}}

    def held_time(self, model: int, now: float) -> HeldTime | None:
        """The held time of a model; None if it held nothing."""
        described = self._models[model]
        before, up = self._before.get(described.name), self._since.get(model, {})
        if before is None and not up and not self._past_seconds[model]:
            return None
        before = before or HeldTime()
        if described.is_launched:
            seconds = self._past_seconds[model] + sum(now - since for since in up.values())
        else:
            seconds = self._shared_seconds(model, now)
        if before.up:  # an earlier start was killed while it held them
            seconds += UNRECORDED_SECONDS
        return HeldTime(
            before.seconds + seconds,
            before.gpu_seconds + seconds * described.gpus,
            bool(up) and model not in self._until,
        )

    def held(self) -> Json:
        """For how long each model has held its servers, as plain values."""
        return {name: list(held) for name, held in self.held_times().items()}

    def gpu_seconds(self, machine: Machine) -> float:
        """GPU seconds that a cap on held servers counts.

        Servers that the run starts count for as long as they were held. Others count for the time of their requests;
        requests in flight, and lost ones, count at their worst.
        """
        now, total = self.now(), 0.0
        for model, account in machine.account.models.items():
            described = self._models.get(model)
            if described is not None and described.is_launched:
                continue
            total += account.paid.cost.gpu_seconds + account.charged.cost.gpu_seconds
            if described is not None:
                total += machine.in_flight[model] * described.request_gpu_seconds
        for model, described in self._models.items():
            if described.is_launched and (held := self.held_time(model, now)) is not None:
                total += held.gpu_seconds
        return total

    def _shared_seconds(self, model: int, now: float) -> float:
        """The model's share of the time for which it held servers of others in this start, as a mean over them."""
        spans = {
            other: (places[None], self._until.get(other, now))
            for other, places in self._since.items()
            if places and not self._models[other].is_launched
        }
        if model not in spans:
            return 0.0
        addresses = self._models[model].addresses
        at_each = [
            [span for other, span in spans.items() if address in self._models[other].addresses] for address in addresses
        ]
        parts = [_share_of_span(spans[model], sharing) for sharing in at_each or [[spans[model]]]]
        return sum(parts) / len(parts)

    def _begin(self, model: int, place: str | None, ago: float = 0.0) -> None:
        self._since.setdefault(model, {}).setdefault(place, self.now() - ago)

    def _end(self, model: int, place: str | None) -> None:
        if (since := self._since.get(model, {}).pop(place, None)) is not None:
            self._past_seconds[model] += self.now() - since


def _share_of_span(interval: tuple[float, float], spans: Sequence[tuple[float, float]]) -> float:
    """The time of `interval`, each moment divided by the number of `spans` that contain it, `interval` among them."""
    begin, end = interval
    marks = sorted({begin, end, *(mark for span in spans for mark in span if begin < mark < end)})
    seconds = 0.0
    for before, after in pairwise(marks):
        seconds += (after - before) / sum(first <= before and after <= last for first, last in spans)
    return seconds
