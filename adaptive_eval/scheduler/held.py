"""For how long each model holds its servers, busy or not: what a run on one's own GPUs pays.

A server that the run starts is held from when it is ready until it is stopped; the last of its seconds are those of the
run. Servers of others are held, in each start of the run, from the first to the last request that was wanted of them:
before and after that somebody else could have had them.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from adaptive_eval.scheduler.ledger import UNSAID_SECONDS
from adaptive_eval.scheduler.types import Lane
from adaptive_eval.store import Event, HeldTime, ServerDied, ServerLaunched, ServerReleased


class ServerTimes:
    """The clock of every model's servers."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        launched: Collection[int],
        before: Mapping[str, HeldTime] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`before` is what earlier starts held; None where that is unknown, and then nothing is measured."""
        self._lanes, self._launched, self._before, self._clock = lanes, launched, before, clock
        self._numbers = {lane.name: number for number, lane in enumerate(lanes)}
        self._done = [0.0] * len(lanes)
        """Seconds of this start that are over."""
        self._since: dict[int, float] = {}
        self._until: dict[int, float] = {}
        """When the last answer came from servers of others that have no request now."""

    def hear(self, event: Event) -> None:
        """A server of the run came up, or ended."""
        match event:
            case ServerLaunched(model=name):
                self._since.setdefault(self._numbers[name], self._clock())
            case ServerDied(model=name) | ServerReleased(model=name):
                self._end(self._numbers[name])

    def sent(self, model: int) -> None:
        """A request is wanted of a model."""
        if model not in self._launched:
            self._since.setdefault(model, self._clock())
            self._until.pop(model, None)

    def quiet(self, model: int) -> None:
        """Its last request has come back."""
        if model in self._since and model not in self._launched:
            self._until[model] = self._clock()

    def close(self) -> None:
        """The run lets go of all of them."""
        for model in list(self._since):
            self._end(model)

    def held(self) -> dict[str, HeldTime] | None:
        """Up to now, over all starts; None where that is unknown."""
        if self._before is None:
            return None
        now = self._clock()
        ours = {lane.name: self._held(model, lane, now) for model, lane in enumerate(self._lanes)}
        return {**self._before, **{name: held for name, held in ours.items() if held is not None}}

    def _held(self, model: int, lane: Lane, now: float) -> HeldTime | None:
        """None: not a moment."""
        assert self._before is not None
        before, up = self._before.get(lane.name), model in self._since
        if before is None and not up and not self._done[model]:
            return None
        before = before or HeldTime()
        seconds = self._done[model] + (self._until.get(model, now) - self._since[model] if up else 0.0)
        if before.up:  # an earlier start was killed while it held them
            seconds += UNSAID_SECONDS
        return HeldTime(
            before.seconds + seconds, before.gpu_seconds + seconds * lane.gpus, up and model not in self._until
        )

    def _end(self, model: int) -> None:
        if (since := self._since.pop(model, None)) is not None:
            self._done[model] += self._until.pop(model, self._clock()) - since


def gpu_seconds_used(held: Sequence[HeldTime | None], launched: Collection[int], requests: Sequence[float]) -> float:
    """What a cap on GPU time counts: for how long servers were held that the run starts, of others the requests.

    Where it is not known how long they were held, as in a run of an earlier version, it is the requests of all.
    """
    each = enumerate(zip(held, requests, strict=True))
    return sum(one.gpu_seconds if model in launched and one is not None else spent for model, (one, spent) in each)
