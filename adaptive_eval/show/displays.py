"""Displays of a run, and the choice among them."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, Protocol, TextIO, cast

from adaptive_eval.record.ending import Ended
from adaptive_eval.record.lines import Scale
from adaptive_eval.running.watching import Watcher
from adaptive_eval.show.live import LiveDisplay
from adaptive_eval.show.plain import JsonDisplay, PlainDisplay, QuietDisplay


class Display(Watcher, Protocol):
    """Shows a run in progress, and how it ended."""

    def ended(self, ended: Ended) -> None:
        """Say how the run ended and what to do next; called after `closed`, unless an error ended the run."""


class DispensableDisplay:
    """A display that may fail without ending the run: once it cannot write, nothing more is shown."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def __getattr__(self, name: str) -> Callable[..., None]:
        """A method of `Display` that is called as long as the display works."""

        def show(*given: object) -> None:
            with self._hidden_after_error():
                getattr(self._display, name)(*given)

        return show

    @contextmanager
    def _hidden_after_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            lost, self._display = self._display, QuietDisplay()
            with suppress(OSError):
                lost.closed()
            _redirect_to_null(sys.stdout)
            with suppress(OSError):
                print(f"nothing more is shown ({error.strerror}); the run goes on", file=sys.stderr, flush=True)


def _redirect_to_null(stream: TextIO) -> None:
    """Redirect a stream to the null device, including its unwritten buffer."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):  # a stream that is no file, as in a test
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


DisplayKind = Literal["rich", "plain", "json", "none"]


def open_display(kind: DisplayKind | None, weights: Sequence[float]) -> Display:
    """Open a display of this kind; by default the live view on a terminal, else plain lines."""
    if kind is None:
        kind = "rich" if sys.stdout.isatty() else "plain"
    return cast(Display, DispensableDisplay(_make_display(kind, weights)))


def _make_display(kind: DisplayKind, weights: Sequence[float]) -> Display:
    match kind:
        case "rich":
            return LiveDisplay(Scale.of(weights))
        case "plain":
            return PlainDisplay()
        case "json":
            return JsonDisplay()
        case "none":
            return QuietDisplay()
