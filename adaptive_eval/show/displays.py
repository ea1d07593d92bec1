"""Ways to watch a run.

What a display is.
"""

import sys
from collections.abc import Sequence
from typing import Literal, Protocol

from adaptive_eval.record.ending import Ended
from adaptive_eval.record.scale import Scale
from adaptive_eval.running.watching import Watcher
from adaptive_eval.show.live import LiveDisplay
from adaptive_eval.show.plain import JsonDisplay, PlainDisplay, QuietDisplay


class Display(Watcher, Protocol):
    """Shows a run while it goes on, and how it ended."""

    def ended(self, ended: Ended, command: str) -> None:
        """Say how the run ended, and what continues it; after `closed`, and only if no error ended it."""
        ...


Kind = Literal["rich", "plain", "json", "none"]


def open_display(kind: Kind | None, weights: Sequence[float]) -> Display:
    """The display of this kind; by default the live view on a terminal, else plain lines."""
    if kind is None:
        kind = "rich" if sys.stdout.isatty() else "plain"
    match kind:
        case "rich":
            return LiveDisplay(Scale.of(weights))
        case "plain":
            return PlainDisplay()
        case "json":
            return JsonDisplay()
        case "none":
            return QuietDisplay()
