"""A progress bar for slow commands, redrawn on progress without a thread."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

MAX_LOG_LINES = 10
"""Lines printed from start to end if there is no terminal."""
MIN_REDRAW_SECONDS = 0.1
"""Shortest time between two redraws."""


class Progress:
    """A progress bar on a terminal, or a line for each tenth of `total`."""

    def __init__(self, total: float) -> None:
        self._total = total
        self._lines_printed = 0
        console = Console(stderr=True, highlight=False, markup=False)
        columns = (
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[state]}", markup=False),
        )
        self._drawn = 0.0
        bar = Bar(*columns, console=console, transient=True, auto_refresh=False)
        self._bar = bar if console.is_terminal else None
        self._task = self._bar.add_task("", total=total, state="") if self._bar is not None else None

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def to(self, done: float, state: str) -> None:
        """Set how much is `done`, and the `state` next to it."""
        lines = int(MAX_LOG_LINES * done / self._total)
        if self._bar is not None and self._task is not None:
            now = time.monotonic()
            draw = now - self._drawn >= MIN_REDRAW_SECONDS
            self._drawn = now if draw else self._drawn
            self._bar.update(self._task, completed=done, state=state, refresh=draw)
        elif lines > self._lines_printed:
            self._lines_printed = lines
            print(f"{done / self._total:4.0%}  {state}", file=sys.stderr, flush=True)
