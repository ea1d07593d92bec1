"""Clocks of a run: the time it was active, and the time for which each model holds its servers, busy or not.

The latter is what a run on one's own GPUs pays. A server that the run starts is held from its start until it is
stopped, whether or not it ever comes up: nobody else can use a GPU that loads a model. After a kill the time goes on
while a site on a cluster keeps the server for the next start. If a model is served at several places at the same time,
each of its servers counts. Servers of others are held, in each start of the run, from the first request to the last:
before and after that somebody else could have had them. While several models hold servers at one address, each counts
its equal share: the address counts once. For a model that is asked through a batch service nothing is held.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise

from adaptive_eval.scheduler.spent import SpentByModel
from adaptive_eval.store import (
    Event,
    HeldTime,
    RunBegun,
    RunFinished,
    RunReader,
    RunStopped,
    ServerDied,
    ServerLaunched,
    ServerLaunching,
    ServerReleased,
    SiteLost,
)
from adaptive_eval.store.spending import HeldServers
from adaptive_eval.supply.types import Lane, Supply

BEAT_SECONDS = 2.0
"""The elapsed time of a run is stored at least this often: a kill loses no more of it."""
UNSAID_SECONDS = BEAT_SECONDS + 1.0
"""A killed run may have been active for up to this long after its last record of the time."""


def at_least_elapsed(reader: RunReader) -> float:
    """Seconds that the run has been active; after a kill with the longest time that it may not have recorded."""
    marks = [event for event in reader.events() if isinstance(event, RunBegun | RunStopped | RunFinished)]
    killed = bool(marks) and isinstance(marks[-1], RunBegun)
    return reader.elapsed + (UNSAID_SECONDS if killed else 0.0)


class ServerTimes:
    """The clock of every model's servers."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        launched: Collection[int],
        before: Mapping[str, HeldTime],
        served_by_nobody: Collection[int] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`before`: held times of earlier starts.

        Nothing is held for models that are `served_by_nobody`: a batch service answers when it has time.
        """
        self._lanes, self._launched, self._before, self._clock = lanes, launched, before, clock
        self._not_held = served_by_nobody
        self._numbers = {lane.name: number for number, lane in enumerate(lanes)}
        self._past_seconds = [0.0] * len(lanes)
        """Seconds of this start that are over."""
        self._since: dict[int, dict[str | None, float]] = {}
        """By model: the places where it is up, and since when."""
        self._until: dict[int, float] = {}
        """When the last answer came from servers of others that have no request now."""
        self._over: dict[int, tuple[float, float]] = {}
        """When servers of others were held in this start, of models that have released them."""

    def hear(self, event: Event) -> None:
        """Note that a server of the run is started, came up, or ended."""
        match event:
            case ServerLaunching(model=name, on=place):
                self._begin(self._numbers[name], place)
            case ServerLaunched(model=name, on=place, without_head=before, seconds=start):
                self._past_seconds[self._numbers[name]] += before or 0.0
                self._begin(self._numbers[name], place, start)
            case ServerDied(model=name, on=on) | ServerReleased(model=name, on=on) | SiteLost(model=name, on=on):
                self._end(self._numbers[name], on)

    def sent(self, model: int) -> None:
        """Note that a request is sent to a model."""
        if model not in self._launched and model not in self._not_held:
            if not self._since.get(model):
                self._begin(model, None)
            self._until.pop(model, None)

    def quiet(self, model: int) -> None:
        """Note that a model has no request in flight any more."""
        if self._since.get(model) and model not in self._launched:
            self._until[model] = self._clock()

    def close(self) -> None:
        """Note that the run releases all servers."""
        for model, places in self._since.items():
            for place in list(places):
                self._end(model, place)

    def held_times(self) -> dict[str, HeldTime]:
        """Time for which each model has held its servers, over all starts."""
        now = self._clock()
        ours = {lane.name: self._held_time(model, lane, now) for model, lane in enumerate(self._lanes)}
        return {**self._before, **{name: held for name, held in ours.items() if held is not None}}

    def _held_time(self, model: int, lane: Lane, now: float) -> HeldTime | None:
        """The held time of a model; None if it held nothing."""
        before, up = self._before.get(lane.name), self._since.get(model, {})
        if before is None and not up and not self._past_seconds[model] and model not in self._over:
            return None
        before = before or HeldTime()
        if model in self._launched:
            seconds = self._past_seconds[model] + sum(now - since for since in up.values())
        else:
            seconds = self._shared_seconds(model, now)
        if before.up:  # an earlier start was killed while it held them
            seconds += UNSAID_SECONDS
        return HeldTime(
            before.seconds + seconds,
            before.gpu_seconds + seconds * lane.price.gpus,
            bool(up) and model not in self._until,
        )

    def _shared_seconds(self, model: int, now: float) -> float:
        """The model's share of the time for which it held servers of others in this start, as a mean over them."""
        spans = self._over | {
            other: (places[None], self._until.get(other, now))
            for other, places in self._since.items()
            if places and other not in self._launched
        }
        if model not in spans:
            return 0.0
        addresses = self._lanes[model].addresses
        at_each = [
            [span for other, span in spans.items() if address in self._lanes[other].addresses] for address in addresses
        ]
        parts = [_share_of_span(spans[model], at_one) for at_one in at_each or [[spans[model]]]]
        return sum(parts) / len(parts)

    def _begin(self, model: int, place: str | None, ago: float = 0.0) -> None:
        self._since.setdefault(model, {}).setdefault(place, self._clock() - ago)

    def _end(self, model: int, place: str | None) -> None:
        if (since := self._since.get(model, {}).pop(place, None)) is None:
            return
        if model in self._launched:
            self._past_seconds[model] += self._clock() - since
        else:
            self._over[model] = (since, self._until.pop(model, self._clock()))


def _share_of_span(own: tuple[float, float], spans: Sequence[tuple[float, float]]) -> float:
    """The time of `own`, each moment divided by the number of `spans` that contain it, `own` among them."""
    begin, end = own
    marks = sorted({begin, end, *(mark for span in spans for mark in span if begin < mark < end)})
    seconds = 0.0
    for before, after in pairwise(marks):
        seconds += (after - before) / sum(first <= before and after <= last for first, last in spans)
    return seconds


class RunMeter:
    """The clocks of a run, over all its starts."""

    def __init__(self, lanes: Sequence[Lane], supply: Supply, reader: RunReader, removed_gpu_seconds: float) -> None:
        """`removed_gpu_seconds`: of models that were taken out of the run."""
        self._lanes, self.launched = lanes, frozenset(supply.launched)
        self._removed_gpu_seconds = removed_gpu_seconds
        self._elapsed_before = at_least_elapsed(reader)
        self._started: float | None = None
        self.times = ServerTimes(lanes, self.launched, reader.held_times(), supply.batched)

    def start(self) -> None:
        """Start the clock unless it runs; called when something is asked or graded."""
        self._started = self._started or time.monotonic()

    def stop(self) -> None:
        """Stop the clock: nothing more is asked."""
        self._elapsed_before, self._started = self.elapsed(), None

    def hear(self, event: Event) -> None:
        """Note the start or end of a server."""
        self.times.hear(event)

    def elapsed(self) -> float:
        """Seconds the run has been active."""
        since = 0.0 if self._started is None else time.monotonic() - self._started
        return self._elapsed_before + since

    def held_times(self) -> Sequence[HeldTime | None]:
        """How long each model has held its servers; None if it held none."""
        held = self.times.held_times()
        return [held.get(lane.name) for lane in self._lanes]

    def servers(self) -> HeldServers:
        """How long each model has held its servers, and whose servers the run starts."""
        return HeldServers(self.held_times(), self.launched)

    def gpu_seconds(self, spent: SpentByModel, in_flight: Sequence[int]) -> float:
        """GPU seconds under a cap.

        Servers that the run starts count for as long as they were held. Others count for the time of their requests;
        requests in flight, and lost ones, count at their worst.
        """
        owed = (
            count * lane.samples_per_request * lane.price.worst.gpu_seconds
            for lane, count in zip(self._lanes, in_flight, strict=True)
        )
        each = zip(spent.usages, owed, spent.lost_gpu_seconds, strict=True)
        requests = [usage.gpu_seconds + flying + lost for usage, flying, lost in each]
        return self._removed_gpu_seconds + self.servers().gpu_seconds(requests)
