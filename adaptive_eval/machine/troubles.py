"""Reports server troubles while requests are retried: they do not affect the result, but explain a wait.

They are derived from the statistics of supplies at each commit, and twice a second. Short troubles are not reported.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from adaptive_eval.endpoints.types import EndpointStats, Notice, ReplicaStats
from adaptive_eval.machine.notes import note_of
from adaptive_eval.machine.records import Note
from adaptive_eval.notes.event import Event
from adaptive_eval.notes.servers import OnlyFailures, ReplicaBack, ReplicaLost, ServersNoticed

LOST_SECONDS = 2.0
"""Time after which a failing replica is reported as lost: single connections may fail at any time."""
RETRYING_SECONDS = 10.0
"""Time after which a model is reported whose requests all fail."""


class ModelTroubles:
    """The troubles of one model; each is reported once, when it has lasted for a while."""

    def __init__(self) -> None:
        self._down_since: dict[str, float] = {}
        self._lost: set[str] = set()
        self._answers = 0
        self._errors = 0
        self._failing_since: float | None = None
        """When the first request failed after the last answer."""
        self._is_reported = False
        self._notices: set[Notice] = set()
        self._is_failing = False
        """Whether requests keep failing and none is answered."""
        self._is_unreachable = False
        """Whether none of the model's replicas can be reached."""

    @property
    def is_stuck(self) -> bool:
        """Whether no answer of the model can be expected now."""
        return self._is_failing or self._is_unreachable

    def events(self, stats: EndpointStats, answers: int, now: float) -> Iterator[Event]:
        """Events since the last call; `answers` is the number of answered requests."""
        for replica in stats.replicas:
            yield from self._replica_events(replica, now)
        self._is_unreachable = bool(stats.replicas) and all(replica.url in self._lost for replica in stats.replicas)
        yield from self._failure_events(stats, answers, now)
        for notice in stats.notices:
            if notice not in self._notices:
                self._notices.add(notice)
                yield ServersNoticed("", notice.kind, notice.text)

    def _replica_events(self, replica: ReplicaStats, now: float) -> Iterator[Event]:
        if replica.healthy:
            self._down_since.pop(replica.url, None)
            if replica.url in self._lost:
                self._lost.remove(replica.url)
                yield ReplicaBack("", replica.url)
        elif now - self._down_since.setdefault(replica.url, now) >= LOST_SECONDS and replica.url not in self._lost:
            self._lost.add(replica.url)
            yield ReplicaLost("", replica.url, replica.trouble or None)

    def _failure_events(self, stats: EndpointStats, answers: int, now: float) -> Iterator[Event]:
        errors = sum(stats.errors.values())
        has_failed, self._errors = errors > self._errors, errors
        if answers != self._answers:
            self._answers, self._failing_since, self._is_reported, self._is_failing = answers, None, False, False
        elif has_failed:
            since = self._failing_since = now if self._failing_since is None else self._failing_since
            self._is_failing = now - since >= LOST_SECONDS
            if now - since >= RETRYING_SECONDS and not self._is_reported:
                self._is_reported = True
                yield OnlyFailures("", round(now - since), dict(stats.errors), stats.last_error or None)


class ServerWatch:
    """The troubles of all models, and the notices of the grader's servers."""

    def __init__(self) -> None:
        self.answers: Counter[int] = Counter()
        """Number of answered requests of each model in this start."""
        self._troubles: dict[int, ModelTroubles] = {}
        self._grading_notices = 0
        """Number of reported notices of the grader."""
        self._grader_troubles: dict[str, ModelTroubles] = {}

    def notes(
        self, models: Mapping[int, Callable[[], EndpointStats]], absent_models: Collection[int], now: float
    ) -> Iterator[Note]:
        """Notes since the last call; `models` gives the traffic of each; nobody waits for servers of those
        `absent_models`."""
        for model, stats in models.items():
            troubles = self._troubles.setdefault(model, ModelTroubles())
            events = list(troubles.events(stats(), self.answers[model], now))
            if model not in absent_models:
                yield from (note_of(event, {})._replace(model=model) for event in events)

    def grading_notes(
        self, notices: Collection[Notice], servers: Mapping[str, EndpointStats], now: float
    ) -> Iterator[Note]:
        """Notes about the grader's servers since the last call; `servers` is the traffic of each judge."""
        for judge, stats in servers.items():
            troubles = self._grader_troubles.setdefault(judge, ModelTroubles())
            for event in troubles.events(stats, stats.prompt_tokens, now):
                if isinstance(event, OnlyFailures | ReplicaLost | ReplicaBack):
                    yield note_of(replace(event, judge=judge), {})
        for notice in list(notices)[self._grading_notices :]:
            self._grading_notices += 1
            yield note_of(ServersNoticed("", notice.kind, notice.text), {})

    def hopeless(self, models: Mapping[int, Callable[[], EndpointStats]], seconds: float) -> list[int]:
        """Models from which no answer is expected now, and whose oldest request is at most `seconds` old."""
        return [
            model
            for model, stats in models.items()
            if model in self._troubles and self._troubles[model].is_stuck and stats().oldest <= seconds
        ]
