"""The load of a server, and the rule by which it limits how many requests are in flight there.

A reading is one request for `/metrics` on its own connection, bounded in time and size (`client`); there is none while
nothing is in flight. Until the first reading, windows are small enough for most servers. While windows double and the
server keeps up or is idle, readings are frequent, so that the windows of a short run open in time. If readings fail,
windows are as large as configured; a server that has never reported its load is then not asked again.

A server that computes R sequences at once while W wait has too many requests if W > R/4, and too few if nothing waits
although its window is full. In between, a few waiting requests keep its slots busy while answers are on their way back.
A server that has not answered yet may be warming up, and keeps its windows. A change needs two readings in a row:

    shrink    to (requests in flight) * (R + R/8) / (R + W), by half at most
    grow      by 1/8, then 1/4, 1/2, 1, 1 ... of its size, as long as nothing waits; by 1 from the beginning

The step is a share of a model's own requests in flight, so that the number of sequences per request, and of other
models and clients at the server, need not be known: each takes its part, and others' requests are load like any other.
Since it depends on requests in flight rather than the window, it stays the same while long answers delay the effect of
a smaller window.

Readings are trusted as long as the load follows. If half of the requests were withdrawn and the load has not fallen by
a quarter of their share, other clients cause it, or the reading is wrong. Then fewer requests gain nothing, and windows
stay as configured for a while.

The load is read from the Prometheus text of `/metrics`: vLLM has gauges of running and waiting sequences for each
engine; llama-server has them for its slots. The gauges that a router passes on from several servers are summed.
"""

import re
from math import ceil, inf, isfinite
from typing import NamedTuple

from adaptive_eval.endpoints.settings import EndpointSettings

_GAUGE = re.compile(
    rb"^(?:vllm:num_requests_(running|waiting)|llamacpp:requests_(processing|deferred))(?:\{[^\n]*\})?[ \t]+(\S+)",
    re.MULTILINE,
)


class ServerLoad(NamedTuple):
    """Numbers of sequences that a server computes and that wait."""

    running: float
    waiting: float

    @property
    def total(self) -> float:
        """Sequences at the server, running or waiting."""
        return self.running + self.waiting


def parse_load(metrics: bytes) -> ServerLoad | None:
    """The load, summed over engines; None if either gauge is missing or not a number."""
    totals: dict[bool, float] = {}
    for match in _GAUGE.finditer(metrics):
        runs = match[1] == b"running" or match[2] == b"processing"
        try:
            value = float(match[3])
        except ValueError:
            return None
        if not (isfinite(value) and value >= 0.0):
            return None
        totals[runs] = totals.get(runs, 0.0) + value
    return ServerLoad(totals[True], totals[False]) if len(totals) == 2 else None


class Steering:
    """Sets the ceiling of one model's window at a server from the server's load."""

    def __init__(self, configured: int, settings: EndpointSettings) -> None:
        self.ceiling = self._configured = configured
        self._settings = settings
        self._direction = 0
        """What the last reading suggested: to grow (1), to shrink (-1), or neither."""
        self._step = 1.0
        """Share by which the window grows next."""
        self._before_shrinking: tuple[float, float] | None = None
        """Requests of all models in flight, and sequences at the server, when the window was first shrunk."""
        self._doubted_until = -inf
        self._read_at = -inf
        self.misses = 0
        """Consecutive failed readings."""
        self._is_known = self._is_absent = False
        """Whether the server has reported its load, or is assumed not to."""
        self._is_opening = True
        """Whether the window is probably far below what it could be."""

    def limit(self, ceiling: int) -> None:
        """Set the ceiling."""
        self.ceiling = max(1, min(self._configured, ceiling))

    def needs_reading(self, now: float, is_asked: bool) -> bool:
        """Whether to read the load now; `is_asked` if the server got requests since the last reading."""
        settings = self._settings
        if not (is_asked or self._read_at == -inf) or self._is_absent:
            return False
        every = min(settings.read_rarely, settings.read_every * 2.0 ** min(self.misses, 16))
        return now - self._read_at >= (0.0 if self._is_opening and not self.misses else every)

    def on_failure(self, now: float, *, is_warm: bool) -> None:
        """Handle a failed reading; `is_warm` if the server has returned answers."""
        self._read_at, self.misses = now, self.misses + 1
        self._is_opening = False
        are_enough = self.misses >= self._settings.probe_misses
        self._is_absent = is_warm and are_enough and not self._is_known
        if are_enough or not self._is_known:
            self.ceiling = self._configured

    def on_load(self, load: ServerLoad, in_flight: int, total_in_flight: int, now: float, *, is_warm: bool) -> None:
        """Handle a reading; `in_flight` is the maximum of this model's requests in flight since the last reading,
        `total_in_flight` that of all models; `is_warm` if the server has returned answers."""
        self._read_at, self.misses, self._is_known = now, 0, True
        if load.waiting:
            self._step = self._settings.queue_left
        is_full = in_flight >= self.ceiling
        is_counted = load.running >= in_flight or not load.total
        self._is_opening = is_full and self.ceiling < self._configured and self._step == 1.0 and is_counted
        if not is_full or now < self._doubted_until:
            return
        # a single waiting request is no queue, and a server that computes nothing is about to start
        are_too_many = load.waiting > max(1.0, self._settings.queue_share * load.running) and load.running
        direction, previous_direction = 1 if not load.waiting else -1 if are_too_many else 0, self._direction
        self._direction = direction if direction != previous_direction else 0
        if direction >= 0:
            self._before_shrinking = None
        if direction != previous_direction:
            return
        if direction > 0:
            self.limit(self.ceiling + max(1, round(self._step * self.ceiling)))
            self._step = min(1.0, 2 * self._step)
        elif direction < 0 and is_warm:
            self._shrink(load, in_flight, max(in_flight, total_in_flight), now)

    def _shrink(self, load: ServerLoad, in_flight: int, total_in_flight: int, now: float) -> None:
        in_flight_before, sequences_before = self._before_shrinking = self._before_shrinking or (
            total_in_flight,
            load.total,
        )
        share_left = total_in_flight / in_flight_before
        if share_left <= 0.5:
            self._before_shrinking = (total_in_flight, load.total)
            if load.total > sequences_before * (1.0 - (1.0 - share_left) / 4):
                self._before_shrinking, self._doubted_until = None, now + self._settings.doubt
                self.ceiling = self._configured
                return
        factor = max(0.5, load.running * (1.0 + self._settings.queue_left) / load.total)
        self.limit(min(self.ceiling, ceil(in_flight * factor)))
