"""Follow a run as a tracker logs it: a point for each look, then settings, the ranking and files, as plain values.

A finished run works too: its tracked run is found again, and missing looks are added. Names of models may contain
anything, but trackers derive paths and files from the names of series.
"""

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol

import yaml

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.base.files import FileLock, write_atomic
from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.core.types import VERDICTS_OF_LOOKS
from adaptive_eval.exchange.inspect.writer import make_distinct
from adaptive_eval.notes import AnswersLost
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results_file import RESULTS_FILE
from adaptive_eval.report.view import LookView, RunView
from adaptive_eval.show.markdown import markdown
from adaptive_eval.show.repeatable import published_configuration, view_config
from adaptive_eval.show.serve.feed import Feed
from adaptive_eval.show.text import SECONDS_PER_HOUR

MAX_NAME = 80
"""Characters of a name in a series, or of a key."""
COLUMNS = ("rank", "tier", "model", "score", "lo", "hi", "sigma", "bayes", "trials", "tokens", "usd")
WRITE_HINT = "Free some space, or give TMPDIR another folder"


class Point(NamedTuple):
    """Values of one look, with the usage by then."""

    look: int
    """Counted from 1."""
    at: float
    values: Mapping[str, float]
    """Finite values by series."""


def tracked_id(view: RunView, created: float) -> str:
    """Identifier that is the same for every start of a run, by which its tracked run is found again."""
    return blake2b(json.dumps([view.name, created, view.configuration["seed"]]).encode(), digest_size=10).hexdigest()


def points(view: RunView) -> list[Point]:
    """Points for all looks, oldest first."""
    series = series_names(view.models)
    return [Point(look.look, look.at, dict(_values(view, look, series))) for look in view.looks]


def series_names(models: Sequence[str]) -> dict[str, str]:
    """A distinct name for each model that is safe for trackers, file systems and queries."""
    return dict(zip(models, make_distinct(map(plain_key, models)), strict=True))


def plain_key(text: str) -> str:
    """Reduce a text to letters, digits, single dots, hyphens and underscores."""
    return re.sub(r"\.{2,}", ".", re.sub(r"[^A-Za-z0-9._-]+", "_", text))[:MAX_NAME].strip("._") or "model"


def _values(view: RunView, look: LookView, series: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    verdicts = [pair.verdict for pair in look.pairs]
    yield "look", float(look.look)
    yield "trials", float(sum(look.trials))
    for verdict in VERDICTS_OF_LOOKS:
        yield f"comparisons/{verdict}", float(verdicts.count(str(verdict)))
    used = [spending for spending in view.spending if spending.at <= look.at]
    lost = [event.body for event in view.events if event.kind == AnswersLost.KIND and event.at <= look.at]
    yield "lost_answers", _total(lost, "answers")
    if used:
        yield "spent/tokens", used[-1].tokens + _total(lost, "tokens")
        yield "spent/usd", used[-1].usd + _total(lost, "usd")
        yield "spent/gpu_hours", (used[-1].gpu_seconds + _total(lost, "gpu_seconds")) / SECONDS_PER_HOUR
    columns = zip(look.models, look.scores, look.sigmas, look.tiers, look.trials, strict=True)
    for model, score, sigma, tier, trials in columns:
        if model not in series:
            continue
        name = series[model]
        yield f"tier/{name}", float(tier)
        yield f"trials/{name}", float(trials)
        if score is not None and sigma is not None and math.isfinite(score) and math.isfinite(sigma):
            yield f"score/{name}", score
            yield f"lo/{name}", score - TWO_SIDED_95 * sigma
            yield f"hi/{name}", score + TWO_SIDED_95 * sigma


def _total(bodies: Iterable[Mapping[str, object]], field: str) -> float:
    return float(sum(value for body in bodies if isinstance(value := body.get(field, 0), int | float)))


def ranking(view: RunView) -> list[list[object]]:
    """Rows of the final ranking, best first, with the columns of `COLUMNS`."""
    rows = () if view.results is None else view.results.models
    return [[getattr(row, "name" if key == "model" else key) for key in COLUMNS] for row in rows]


def settings(view: RunView) -> Mapping[str, object]:
    """The configuration as in a report, without secrets and defaults."""
    return published_configuration(view_config(view))


def flatten(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Values of a nested configuration as texts, each with its path of keys."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flatten(inner, f"{path}.{plain_key(str(key))}".removeprefix("."))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from flatten(inner, f"{path}.{number}".removeprefix("."))
    else:
        yield path, str(value)


def write_files(view: RunView, run: Path, folder: Path) -> list[Path]:
    """Write results, report, configuration, and figures if matplotlib is installed."""
    report, configuration = folder / "report.md", folder / "configuration.yaml"
    write_atomic(report, markdown(view).encode("utf-8", "replace"), WRITE_HINT)
    write_atomic(configuration, yaml.safe_dump(dict(settings(view)), sort_keys=False).encode(), WRITE_HINT)
    paths = [report, configuration]
    if (results := run / RESULTS_FILE).is_file() and not results.is_symlink():
        paths.append(results)
    return paths


def draw(view: RunView, folder: Path) -> list[Path]:
    """Draw the figures as PNG; none if matplotlib is not installed."""
    # imported here: it needs an extra
    from adaptive_eval.show.plots import draw_all

    try:
        return draw_all(view, folder, ("png",))
    except ConfigError:
        return []


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


def follow(feed: Feed, tracker: Tracker, on_start: Callable[[str], None]) -> None:
    """Log every look until the run is over."""
    edition = -1
    with closing(RunReader.open(feed.directory)) as reader:
        created = reader.created
    tracked = tracker.begin(feed.view(), created, feed.directory)
    last = tracked.looks
    on_start(tracked.where)
    while True:
        over = not feed.running
        if edition != feed.edition and (new := [point for point in points(feed.view()) if point.look > last]):
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
    with closing(lock):
        yield
