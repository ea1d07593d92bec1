"""What goes wrong at a model's servers while its requests are repeated: no part of the result, but what one waits for.

Read off what the endpoint counts anyway, twice a second. What is over in a moment is not told.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence

from adaptive_eval.endpoints.types import EndpointStats, Notice, ReplicaStats
from adaptive_eval.scheduler.departures import Departures
from adaptive_eval.scheduler.grading import Grading
from adaptive_eval.scheduler.types import Lane
from adaptive_eval.store import Event, OnlyFailures, ReplicaBack, ReplicaLost, ServersNoticed

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
        """Nothing comes of the model now, and nobody knows for how long."""
        return self._failing or self._out

    def noticed(self, stats: EndpointStats, answers: int, now: float) -> Iterator[Event]:
        """What is new at this moment; `answers` is how many requests have been answered."""
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


class RunTroubles:
    """Those of all models, and of whoever is asked for their grades."""

    def __init__(
        self, lanes: Sequence[Lane], departures: Departures, grading: Grading, note: Callable[[Event], None]
    ) -> None:
        self._lanes, self._departures, self._grading, self._note = lanes, departures, grading, note
        self._each = [Troubles(lane.name) for lane in lanes]
        self._told_of_grading = 0
        self.aside = [0] * len(lanes)
        """Requests of each model that fail again and again while others are answered."""
        self.stuck: Collection[int] = ()
        """Models of which nothing came when this was told last."""

    def tell(self) -> None:
        """Note what is new."""
        now = time.monotonic()
        for model, (lane, troubles) in enumerate(zip(self._lanes, self._each, strict=True)):
            stats = lane.endpoint.stats
            self.aside[model] = stats.aside
            news = list(troubles.noticed(stats, self._departures.answers[model], now))
            for event in () if self._departures.gone(model) else news:  # else nobody waits for its servers any more
                self._note(event)
        self.stuck = {model for model, troubles in enumerate(self._each) if troubles.stuck}
        for notice in self._grading.notices[self._told_of_grading :]:
            self._note(ServersNoticed("", notice.kind, notice.text))
            self._told_of_grading += 1
