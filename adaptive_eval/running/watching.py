"""Watchers of a run."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from adaptive_eval.core.types import Look
from adaptive_eval.record.ending import Ended
from adaptive_eval.record.status import Status
from adaptive_eval.store import Event, RunBegun, RunFinished, RunStopped


class Watcher:
    """An observer of the scheduler that is also told of the beginning and the end; may not take long.

    This one hears nothing; who derives from it overrides what it wants to hear.
    """

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        """The run begins; `take` gives its status at any time, in the loop's thread."""

    def looked(self, looks: Sequence[Look]) -> None:
        """Rounds were completed."""

    def happened(self, event: Event) -> None:
        """An event was recorded."""

    def stopping(self, in_flight: int) -> None:
        """The user has stopped the run, and so many requests are being waited for."""

    def closed(self) -> None:
        """The run has ended, well or badly: give the terminal back."""


class Display(Watcher):
    """Shows a run in progress, and how it ended. This one shows nothing."""

    def ended(self, ended: Ended) -> None:
        """Say how the run ended and what to do next; called after `closed`, unless an error ended the run."""


class Watchers(Watcher):
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


class TwoPartWatcher(Watcher):
    """Watches a run after its greedy answers, which are a run before it: watchers see one from beginning to end."""

    def __init__(self, watcher: Watcher, name: str, promise: str | None) -> None:
        """Name and promise are those of the run itself."""
        self._watcher, self._name, self._promise = watcher, name, promise
        self._take: Callable[[], Status] | None = None
        self._before = (0, 0)
        """New trials and tokens of the greedy answers."""
        self._first, self._open = True, False

    def begin_second_part(self) -> None:
        """Pass on everything from now on: the greedy answers are there, and the run itself begins."""
        if self._take is not None:
            status = self._take()
            self._before = (status.new_trials, status.new_tokens)
        self._first = False

    def end(self) -> None:
        """Close the watcher, if it is open."""
        if self._open:
            self._open = False
            self._watcher.closed()

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        self._take = take
        if not self._open:
            self._open = True
            self._watcher.opened(self._name, models, self._now)

    def looked(self, looks: Sequence[Look]) -> None:
        if not self._first:
            self._watcher.looked(looks)

    def happened(self, event: Event) -> None:
        if not (self._first and isinstance(event, RunBegun | RunFinished | RunStopped)):
            self._watcher.happened(event)

    def stopping(self, in_flight: int) -> None:
        self._watcher.stopping(in_flight)

    def closed(self) -> None:
        if not self._first:
            self.end()

    def _now(self) -> Status:
        assert self._take is not None
        status = self._take()
        if self._first:
            return replace(status, looks=0, promise=self._promise)
        trials, tokens = self._before
        return replace(status, new_trials=status.new_trials + trials, new_tokens=status.new_tokens + tokens)
