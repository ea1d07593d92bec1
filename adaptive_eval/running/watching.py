"""Who watches a run."""

from collections.abc import Callable, Sequence
from typing import Protocol

from adaptive_eval.core.types import Look
from adaptive_eval.record.status import Status
from adaptive_eval.scheduler.types import Observer
from adaptive_eval.store import Event


class Watcher(Observer, Protocol):
    """An observer of the scheduler that is also told of the beginning and the end; may not take long."""

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        """The run begins; `take` gives its status at any time, in the loop's thread."""
        ...

    def stopping(self, in_flight: int) -> None:
        """The user has stopped the run, and so many requests are being waited for."""
        ...

    def closed(self) -> None:
        """The run has ended, well or badly: give the terminal back."""
        ...


class IdleWatcher:
    """Does nothing; those that derive from it hear what they want to hear alone."""

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        pass

    def looked(self, looks: Sequence[Look]) -> None:
        pass

    def happened(self, event: Event) -> None:
        pass

    def stopping(self, in_flight: int) -> None:
        pass

    def closed(self) -> None:
        pass


class Watchers:
    """Several watchers as one."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        for watcher in self._watchers:
            watcher.opened(name, models, take)

    def looked(self, looks: Sequence[Look]) -> None:
        for watcher in self._watchers:
            watcher.looked(looks)

    def happened(self, event: Event) -> None:
        for watcher in self._watchers:
            watcher.happened(event)

    def stopping(self, in_flight: int) -> None:
        for watcher in self._watchers:
            watcher.stopping(in_flight)

    def closed(self) -> None:
        for watcher in self._watchers:
            watcher.closed()
