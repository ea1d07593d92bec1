"""Show a run in another terminal, by the displays of `run` and the status of the stored run."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.cells import cell_len

from adaptive_eval.base.errors import ExitCode, StoreError
from adaptive_eval.config.planning import core_caps
from adaptive_eval.notes import (
    ReplicaBack,
    ReplicaLost,
    ServersNoticed,
    events_of_kind,
    events_since_start,
)
from adaptive_eval.notes.batches import pending_batches
from adaptive_eval.report.ending import Ended, build_ended
from adaptive_eval.report.event_words import event_sentence
from adaptive_eval.report.findings import find
from adaptive_eval.report.lines import count, safe_line
from adaptive_eval.report.looks import read_look
from adaptive_eval.report.records import Spending
from adaptive_eval.report.snapshot import batch_rows
from adaptive_eval.report.status import CurrentTraffic, Status, results_in_progress, used_caps
from adaptive_eval.report.words import promise_of
from adaptive_eval.running.watching import Display
from adaptive_eval.show.displays import pending_look
from adaptive_eval.show.live import title_line
from adaptive_eval.show.ranking import MAX_NAME_WIDTH
from adaptive_eval.show.serve.feed import Feed
from adaptive_eval.show.summary import SHOWN_WARNINGS, screen
from adaptive_eval.show.text import fit_columns
from adaptive_eval.store.locate import has_database
from adaptive_eval.store.lock import is_held

POLL_SECONDS = 1.0
PAUSE_SECONDS = 0.2
"""Pause between two checks for a run that has not begun."""


def open_feed(directory: Path, patience: float, on_wait: Callable[[], None]) -> Feed:
    """Open the feed of a run; if there is none, call `on_wait` once and wait up to `patience` seconds for it to begin.

    Raises `StoreError` if none has begun by then, and at once if the run cannot be read.
    """
    deadline, is_announced = time.monotonic() + patience, False
    while True:
        feed = Feed(directory)
        try:
            feed.poll()
            return feed
        except StoreError:
            # a run locks its directory before its database is complete
            begun = has_database(directory) and not is_held(directory)
            if begun or time.monotonic() > deadline:
                raise
        if not is_announced:
            on_wait()
            is_announced = True
        time.sleep(PAUSE_SECONDS)


async def attach(feed: Feed, display: Display, *, follow: bool = True) -> ExitCode:
    """Show the run until it is over, or only its latest look if you do not `follow` it; returns its exit code."""
    shown = _DisplayUpdater(feed, display)
    try:
        shown.catch_up()
        while follow and feed.running:
            await asyncio.sleep(POLL_SECONDS)
            if await asyncio.to_thread(feed.poll):
                shown.catch_up()
    finally:
        display.closed()
    return ExitCode.RUNNING if feed.running else show_end(feed, display)


def status_text(feed: Feed) -> str:
    """Describe a run in progress as text."""
    status = stored_status(feed)
    results = feed.results
    progress = [pending_look(status), *_progress_lines(feed), ""] if results is None else []
    lines = [*progress, *screen(find(status.results, status.used, status.elapsed), results)]
    return "\n".join([title_line(safe_line(feed.stored.config.name), status, None).plain, "", *lines])


def _progress_lines(feed: Feed) -> Iterator[str]:
    """Number of unjudged answers by model, and notices about servers."""
    width = min(max(map(cell_len, feed.models)), MAX_NAME_WIDTH)
    for model, answers in zip(feed.models, feed.sums.counts.sum(axis=(1, 2)).tolist(), strict=True):
        yield f"  {fit_columns(model, width)}  {count(answers):>8} answers"
    noticed = events_of_kind(events_since_start(feed.sums.events), ServersNoticed)
    yield from (f"warning   {event_sentence(event)}" for event in noticed[:SHOWN_WARNINGS])


def show_end(feed: Feed, display: Display) -> ExitCode:
    """Show how the run ended, and return its exit code."""
    ended = build_ended_from_feed(feed)
    display.ended(ended)
    return ended.exit_code


class _DisplayUpdater:
    """Opens a display, and sends it new looks and events, and of earlier looks the latest."""

    def __init__(self, feed: Feed, display: Display) -> None:
        self._feed = feed
        self._display = display
        self._models = feed.models
        self._looks = max(len(feed.sums.looks) - 1, 0)
        self._events = 0
        self._before = feed.sums.spent(feed.models)
        self._status = stored_status(feed, self._before)
        # as of the latest update, since the feed may be polling in another thread
        display.opened(feed.stored.config.name, feed.models, lambda: self._status)

    def catch_up(self) -> None:
        """Send new looks and events to the display."""
        if self._feed.models != self._models:
            raise StoreError(f"{self._feed.directory} has other models now; restart the monitor")
        self._status = stored_status(self._feed, self._before)
        looks, events = self._feed.sums.looks, events_since_start(self._feed.sums.events)
        for event in events[self._events :]:
            self._display.happened(event)
        if new := looks[self._looks :]:
            self._display.looked([read_look(stored).look for stored in new])
        self._looks, self._events = len(looks), len(events)


def stored_status(feed: Feed, before: Spending | None = None) -> Status:
    """Status as of the feed's latest poll; trials and tokens beyond `before` (default: now) count as new."""
    config, results, used, elapsed = feed.stored.config, feed.results, feed.used, feed.sums.elapsed
    before = used.spent if before is None else before
    return Status(
        looks=len(feed.sums.looks),
        results=None if results is None else results_in_progress(results),
        caps=used_caps(core_caps(config.budget), used, elapsed),
        traffic=_traffic(feed),
        used=used,
        new_trials=used.spent.trials - before.trials,
        new_tokens=used.spent.tokens - before.tokens,
        elapsed=elapsed,
        promise=promise_of(config),
        batches=batch_rows(pending_batches(feed.sums.events)),
    )


def _traffic(feed: Feed) -> CurrentTraffic:
    replicas = {(model.name, url) for model in feed.stored.config.models for url in model.replicas}
    lost: set[tuple[str, str]] = set()
    for event in events_since_start(feed.sums.events):
        match event:
            case ReplicaLost(model=model, replica=replica):
                lost.add((model, replica))
            case ReplicaBack(model=model, replica=replica):
                lost.discard((model, replica))
    return CurrentTraffic(
        in_flight=None,
        retries=sum(row.retries for row in feed.sums.traffic),
        errors=None,
        healthy_replicas=len(replicas) - len(lost & replicas),  # sites are not replicas
        replicas=len(replicas),
    )


def build_ended_from_feed(feed: Feed) -> Ended:
    """How a run that is over ended."""
    return build_ended(feed.sums.events, feed.results, stored_status(feed), feed.directory, feed.stored.config)
