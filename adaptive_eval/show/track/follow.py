"""Follow a run and log it to a tracker until it is over.

A run that is already over works too: its tracked run is found again, and gets what it lacks.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol

from adaptive_eval.errors import StoreError
from adaptive_eval.files import FileLock
from adaptive_eval.record.view import RunView
from adaptive_eval.show.serve.feed import Feed
from adaptive_eval.show.track.points import Point, points
from adaptive_eval.store import RunReader

POLL_SECONDS = 2.0
PATIENCE_SECONDS = 30.0


class TrackedRun(NamedTuple):
    """State of a run in its tracker."""

    looks: int
    """Number of looks that the tracker has."""
    where: str
    """A link, or a description."""


class Tracker(Protocol):
    """A tracker of runs: W&B or MLflow."""

    def begin(self, view: RunView, created: float, directory: Path) -> TrackedRun:
        """Find the tracked run, or begin it."""

    def log(self, points: Sequence[Point]) -> None:
        """Add looks to the tracked run."""

    def finish(self, view: RunView, status: str, directory: Path, folder: Path) -> None:
        """Add final results; temporary files go into `folder`."""


def follow(feed: Feed, tracker: Tracker, tell: Callable[[str], None]) -> None:
    """Log every look until the run is over."""
    edition = -1
    with closing(RunReader.open(feed.directory)) as reader:
        created = reader.created
    tracked = tracker.begin(feed.view(), created, feed.directory)
    last = tracked.looks
    tell(tracked.where)
    while True:
        over = not feed.running
        if edition != feed.edition and (new := [one for one in points(feed.view()) if one.look > last]):
            tracker.log(new)
            last = new[-1].look
        edition = feed.edition
        if over:
            break
        time.sleep(POLL_SECONDS)
        feed.poll()
    with TemporaryDirectory(prefix="adaptive-eval-") as folder:
        tracker.finish(feed.view(), feed.status, feed.directory, Path(folder))


@contextmanager
def exclusive_follower(path: Path) -> Iterator[None]:
    """Wait until no other process follows the run, since two would log everything twice."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            path.parent.mkdir(exist_ok=True)
            lock = FileLock.take(path)
            break
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise StoreError(f"{path} is locked: another process sends this run to the same tracker") from error
            time.sleep(POLL_SECONDS / 10.0)
        except OSError as error:
            raise StoreError(f"{error.filename or path} cannot be written: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()
