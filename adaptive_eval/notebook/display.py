"""A run shown in a notebook: one output that is drawn anew while the run goes on."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from adaptive_eval.notebook.tables import paragraph_html, progress_html
from adaptive_eval.record.ending import Ended
from adaptive_eval.record.event_words import event_sentence
from adaptive_eval.record.scale import Scale
from adaptive_eval.record.status import Status
from adaptive_eval.running.watching import IdleWatcher
from adaptive_eval.show.text import stopping_line
from adaptive_eval.store import Event

REFRESH_SECONDS = 0.5
SHOWN_EVENTS = 4


def notebook() -> Any | None:
    """IPython's module of displays where this process is the kernel of a notebook; else None."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython import display  # type: ignore[import-not-found,unused-ignore]

    return display


class NotebookDisplay(IdleWatcher):
    """Draws the status into one output; what a run has found is shown by what `run` returns."""

    def __init__(self, display: Any, scale: Scale) -> None:
        self._display = display
        self._scale = scale
        self._events: deque[str] = deque(maxlen=SHOWN_EVENTS)
        self._handle: Any = None
        self._timer: asyncio.TimerHandle | None = None

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        self._name, self._take = name, take
        self._handle = self._display.display(self._render(), display_id=True)
        self._later()

    def happened(self, event: Event) -> None:
        if (told := event_sentence(event)) is not None:
            self._events.append(told)

    def stopping(self, in_flight: int) -> None:
        self._events.append(stopping_line(in_flight))
        self._draw()

    def closed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._draw()

    def ended(self, ended: Ended) -> None:
        if self._handle is not None:
            self._handle.update(self._display.HTML(paragraph_html(ended.why)))

    def _later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(REFRESH_SECONDS, self._tick)

    def _tick(self) -> None:
        self._draw()
        self._later()

    def _draw(self) -> None:
        if self._handle is not None:
            self._handle.update(self._render())

    def _render(self) -> Any:
        return self._display.HTML(progress_html(self._name, self._take(), self._scale, tuple(self._events)))
