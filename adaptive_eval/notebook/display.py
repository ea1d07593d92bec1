"""Shows a run in a notebook: one output that is redrawn during the run, and tables as HTML.

Names come from outside, so all texts are escaped.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from adaptive_eval.notes import Event
from adaptive_eval.report.ending import Ended
from adaptive_eval.report.event_words import event_sentence
from adaptive_eval.report.lines import Scale, count, duration, safe_line
from adaptive_eval.report.results import ModelRow
from adaptive_eval.report.status import Status
from adaptive_eval.running.watching import Display
from adaptive_eval.show.ranking import ranking_table
from adaptive_eval.show.text import stopping_line

REFRESH_SECONDS = 0.5
MAX_EVENTS = 4
MAX_MODELS = 100


def notebook() -> Any | None:
    """IPython's display module if this process is the kernel of a notebook; else None."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython import display  # type: ignore[import-not-found,unused-ignore]

    return display


class NotebookDisplay(Display):
    """Draws the status into one output; the result is shown by the return value of `run`."""

    def __init__(self, display: Any, scale: Scale) -> None:
        self._display = display
        self._scale = scale
        self._events: deque[str] = deque(maxlen=MAX_EVENTS)
        self._handle: Any = None
        self._timer: asyncio.TimerHandle | None = None

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        self._name, self._take = name, take
        self._handle = self._display.display(self._render(), display_id=True)
        self._schedule()

    def happened(self, event: Event) -> None:
        if (sentence := event_sentence(event)) is not None:
            self._events.append(sentence)

    def stopping(self, in_flight: int, at_most: float) -> None:
        self._events.append(stopping_line(in_flight, at_most))
        self._draw()

    def closed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._draw()

    def ended(self, ended: Ended) -> None:
        if self._handle is not None:
            self._handle.update(self._display.HTML(paragraph_html(ended.why)))

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(REFRESH_SECONDS, self._tick)

    def _tick(self) -> None:
        self._draw()
        self._schedule()

    def _draw(self) -> None:
        if self._handle is not None:
            self._handle.update(self._render())

    def _render(self) -> Any:
        return self._display.HTML(progress_html(self._name, self._take(), self._scale, tuple(self._events)))


def ranking_html(models: Sequence[ModelRow], scale: Scale, *, gated: bool) -> str:
    """The models from best to worst."""
    rows = ranking_table(((row, row.name, "") for row in models[:MAX_MODELS]), scale, gated=gated)
    head, *lines = (row[:-1] for row in rows)
    hidden = len(models) - MAX_MODELS
    return table_html(head, lines) + (paragraph_html(f"and {hidden} more") if hidden > 0 else "")


def table_html(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """An HTML table of texts."""
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{_cells(headings, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def _cells(texts: Iterable[str], tag: str) -> str:
    return "".join(f"<{tag}>{escape(safe_line(text))}</{tag}>" for text in texts)


def paragraph_html(text: str) -> str:
    """A line of text."""
    return f"<p>{escape(safe_line(text, 1000))}</p>"


def progress_html(name: str, status: Status, scale: Scale, events: Sequence[str]) -> str:
    """A running run: a progress bar, the ranking so far, and the latest events."""
    bar = "<progress></progress>"
    if status.trials_to_go is not None:
        total = status.trials + status.trials_to_go
        bar = f'<progress value="{status.trials}" max="{total:.0f}"></progress>'
    headline = f"{name}: look {status.looks}, {count(status.trials)} trials, {duration(status.elapsed)}"
    models = [standing.row for standing in status.standings]
    ranking = ranking_html(models, scale, gated=bool(status.gate)) if models else ""
    return f"{paragraph_html(headline)}{bar}{ranking}{''.join(map(paragraph_html, events))}"
