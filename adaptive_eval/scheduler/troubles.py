"""Troubles of a model's servers while its requests are retried: they do not affect the result, but explain a wait.

They are read from the endpoint's statistics twice a second. Short troubles are not reported.
"""

import time
from collections.abc import Collection, Iterator, Sequence

from adaptive_eval.endpoints.types import EndpointStats, Notice, ReplicaStats
from adaptive_eval.scheduler.grading import Grading
from adaptive_eval.scheduler.model_states import ModelStates
from adaptive_eval.store import Event, OnlyFailures, ReplicaBack, ReplicaLost, ServersAwaited, ServersNoticed
from adaptive_eval.supply.types import Lane

LOST_SECONDS = 2.0
"""A replica that fails for this long is reported as lost: one connection in many may fail on a good day."""
RETRYING_SECONDS = 10.0
"""A model whose requests have only failed for this long is reported."""
AWAITED_SECONDS = 10.0
"""A model is reported for whose server the whole run has waited for this long."""


class Troubles:
    """The troubles of one model, each reported once when it has lasted a while."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._down_since: dict[str, float] = {}
        self._lost: set[str] = set()
        self._answers = 0
        self._errors = 0
        self._failing_since: float | None = None
        """When the first request failed after the last answer."""
        self._is_reported = False
        self._notices: set[Notice] = set()
        self._failing = False
        """Requests fail again and again, and none is answered."""
        self._unreachable = False
        """None of the model's replicas can be reached."""

    @property
    def stuck(self) -> bool:
        """Whether no answer of the model can be expected now."""
        return self._failing or self._unreachable

    def noticed(self, stats: EndpointStats, answers: int, now: float) -> Iterator[Event]:
        """Events since the last call; `answers` is the number of answered requests."""
        for replica in stats.replicas:
            yield from self._replica_events(replica, now)
        self._unreachable = bool(stats.replicas) and all(replica.url in self._lost for replica in stats.replicas)
        yield from self._failure_events(stats, answers, now)
        for notice in stats.notices:
            if notice not in self._notices:
                self._notices.add(notice)
                yield ServersNoticed(self._name, notice.kind, notice.text)

    def _replica_events(self, replica: ReplicaStats, now: float) -> Iterator[Event]:
        if replica.healthy:
            self._down_since.pop(replica.url, None)
            if replica.url in self._lost:
                self._lost.remove(replica.url)
                yield ReplicaBack(self._name, replica.url)
        elif now - self._down_since.setdefault(replica.url, now) >= LOST_SECONDS and replica.url not in self._lost:
            self._lost.add(replica.url)
            yield ReplicaLost(self._name, replica.url, replica.trouble or None)

    def _failure_events(self, stats: EndpointStats, answers: int, now: float) -> Iterator[Event]:
        errors = sum(stats.errors.values())
        failed, self._errors = errors > self._errors, errors
        if answers != self._answers:
            self._answers, self._failing_since, self._is_reported, self._failing = answers, None, False, False
        elif failed:
            since = self._failing_since = now if self._failing_since is None else self._failing_since
            self._failing = now - since >= LOST_SECONDS
            if now - since >= RETRYING_SECONDS and not self._is_reported:
                self._is_reported = True
                yield OnlyFailures(self._name, round(now - since), dict(stats.errors), stats.last_error or None)


class ServerWatch:
    """The troubles of all models, and the notices of the grader's servers."""

    def __init__(self, lanes: Sequence[Lane], models: ModelStates, grading: Grading) -> None:
        self._lanes, self._models, self._grading = lanes, models, grading
        self._troubles = [Troubles(lane.name) for lane in lanes]
        self._grading_notices = 0
        """How many notices of the grader were reported."""
        self._awaited_since: dict[int, float] = {}
        self._awaited: set[int] = set()
        """Models that were reported as awaited, until the run goes on."""

    def news(self) -> Iterator[Event]:
        """Events since the last call."""
        now = time.monotonic()
        for model, (lane, troubles) in enumerate(zip(self._lanes, self._troubles, strict=True)):
            news = list(troubles.noticed(lane.endpoint.stats, self._models.answers[model], now))
            if not self._models.is_gone(model):  # else nobody waits for its servers any more
                yield from news
        for notice in self._grading.notices[self._grading_notices :]:
            yield ServersNoticed("", notice.kind, notice.text)
            self._grading_notices += 1

    def awaited(self, unserved: Collection[int]) -> Iterator[Event]:
        """Events of models that keep the run waiting; `unserved` have no server now, and nothing else is under way."""
        now = time.monotonic()
        self._awaited &= set(unserved)
        self._awaited_since = {model: self._awaited_since.get(model, now) for model in unserved}
        for model, since in self._awaited_since.items():
            if now - since >= AWAITED_SECONDS and model not in self._awaited:
                self._awaited.add(model)
                yield ServersAwaited(self._lanes[model].name, round(now - since))

    @property
    def failing_requests(self) -> list[int]:
        """How many requests of each model fail again and again while others are answered."""
        return [lane.endpoint.stats.aside for lane in self._lanes]

    def hopeless(self, seconds: float) -> Collection[int]:
        """Models from which no answer can be expected now, and whose oldest request is at most so many seconds old."""
        each = enumerate(zip(self._lanes, self._troubles, strict=True))
        return {model for model, (lane, one) in each if one.stuck and lane.endpoint.stats.oldest <= seconds}
