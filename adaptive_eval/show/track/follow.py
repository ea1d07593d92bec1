"""Following a run, and telling one tracker of it until it is over.

The same for a run that is over already: a tracked run is found again, and gets what it has not got yet.
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
    """A run as its tracker has it."""

    looks: int
    """Number of looks that the tracker has."""
    where: str
    """A link, or words."""


class Tracker(Protocol):
    """A tracker of runs: W&B or MLflow."""

    def begin(self, view: RunView, created: float, directory: Path) -> TrackedRun:
        """Find the tracked run again, or begin it."""

    def log(self, points: Sequence[Point]) -> None:
        """Add looks to the tracked run."""

    def finish(self, view: RunView, status: str, directory: Path, folder: Path) -> None:
        """Add what is known in the end; what is written on the way goes into `folder`."""


def follow(feed: Feed, tracker: Tracker, tell: Callable[[str], None]) -> None:
    """Give the tracker every look until the run is over."""
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
def alone(path: Path) -> Iterator[None]:
    """Wait for another follower of the run, which ends soon after it; two would tell everything twice."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            path.parent.mkdir(exist_ok=True)
            lock = FileLock.take(path)
            break
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise StoreError(f"{path} is held: another process tells the same tracker of this run") from error
            time.sleep(POLL_SECONDS / 10.0)
        except OSError as error:
            raise StoreError(f"{error.filename or path} cannot be written: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()
