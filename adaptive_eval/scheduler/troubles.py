"""Troubles of a model's servers while its requests are repeated: no part of the result, but the cause of a wait.

Read off what the endpoint counts anyway, twice a second. What is over in a moment is not told.
"""

import time
from collections.abc import Collection, Iterator, Sequence

from adaptive_eval.endpoints.types import EndpointStats, Notice, ReplicaStats
from adaptive_eval.scheduler.departures import Departures
from adaptive_eval.scheduler.grading import Grading
from adaptive_eval.store import Event, OnlyFailures, ReplicaBack, ReplicaLost, ServersNoticed
from adaptive_eval.supply.types import Lane

LOST_SECONDS = 2.0
"""A replica that fails for so long is told to be lost: one connection in many may fail on a good day."""
RETRYING_SECONDS = 10.0
"""A model of which nothing but failures has come for so long is told to be in trouble."""


class Troubles:
    """The troubles of one model, each told once when it has lasted a while."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._down_since: dict[str, float] = {}
        self._lost: set[str] = set()
        self._answers = 0
        self._errors = 0
        self._failing_since: float | None = None
        """When the first request failed after the last answer."""
        self._told = False
        self._notices: set[Notice] = set()
        self._failing = self._out = False
        """Requests fail again and again, and none is answered; none of its replicas can be reached."""

    @property
    def stuck(self) -> bool:
        """Whether no answer of the model can be expected now."""
        return self._failing or self._out

    def noticed(self, stats: EndpointStats, answers: int, now: float) -> Iterator[Event]:
        """Events that are new at this moment; `answers` is the number of answered requests."""
        for replica in stats.replicas:
            yield from self._health(replica, now)
        self._out = bool(stats.replicas) and all(replica.url in self._lost for replica in stats.replicas)
        yield from self._progress(stats, answers, now)
        for notice in stats.notices:
            if notice not in self._notices:
                self._notices.add(notice)
                yield ServersNoticed(self._name, notice.kind, notice.text)

    def _health(self, replica: ReplicaStats, now: float) -> Iterator[Event]:
        if replica.healthy:
            self._down_since.pop(replica.url, None)
            if replica.url in self._lost:
                self._lost.remove(replica.url)
                yield ReplicaBack(self._name, replica.url)
        elif now - self._down_since.setdefault(replica.url, now) >= LOST_SECONDS and replica.url not in self._lost:
            self._lost.add(replica.url)
            yield ReplicaLost(self._name, replica.url, replica.trouble or None)

    def _progress(self, stats: EndpointStats, answers: int, now: float) -> Iterator[Event]:
        errors = sum(stats.errors.values())
        failed, self._errors = errors > self._errors, errors
        if answers != self._answers:
            self._answers, self._failing_since, self._told, self._failing = answers, None, False, False
        elif failed:
            since = self._failing_since = now if self._failing_since is None else self._failing_since
            self._failing = now - since >= LOST_SECONDS
            if now - since >= RETRYING_SECONDS and not self._told:
                self._told = True
                yield OnlyFailures(self._name, round(now - since), dict(stats.errors), stats.last_error or None)


class ServerWatch:
    """The troubles of all models, and of the servers that are asked for their grades."""

    def __init__(self, lanes: Sequence[Lane], departures: Departures, grading: Grading) -> None:
        self._lanes, self._departures, self._grading = lanes, departures, grading
        self._troubles = [Troubles(lane.name) for lane in lanes]
        self._grading_notices = 0
        """Notices of the grader that were told."""

    def news(self) -> Iterator[Event]:
        """Events since the last call."""
        now = time.monotonic()
        for model, (lane, troubles) in enumerate(zip(self._lanes, self._troubles, strict=True)):
            news = list(troubles.noticed(lane.endpoint.stats, self._departures.answers[model], now))
            if not self._departures.is_gone(model):  # else nobody waits for its servers any more
                yield from news
        for notice in self._grading.notices[self._grading_notices :]:
            yield ServersNoticed("", notice.kind, notice.text)
            self._grading_notices += 1

    @property
    def failing_requests(self) -> list[int]:
        """Requests of each model that fail again and again while others are answered."""
        return [lane.endpoint.stats.aside for lane in self._lanes]

    def hopeless(self, seconds: float) -> Collection[int]:
        """Models of which nothing comes now, and whose oldest request is not older than so many seconds."""
        each = enumerate(zip(self._lanes, self._troubles, strict=True))
        return {model for model, (lane, one) in each if one.stuck and lane.endpoint.stats.oldest <= seconds}
