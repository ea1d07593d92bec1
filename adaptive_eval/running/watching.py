"""The display of a run."""

from collections.abc import Callable, Sequence

from adaptive_eval.core.types import Look
from adaptive_eval.notes import Event
from adaptive_eval.report.ending import Ended
from adaptive_eval.report.status import Status


class Display:
    """Shows a run in progress, and how it ended; must return quickly.

    This one shows nothing; who derives from it overrides what it wants to show.
    """

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        """The run begins; `take` gives its status at any time, in the loop's thread."""

    def looked(self, looks: Sequence[Look]) -> None:
        """Rounds were completed."""

    def happened(self, event: Event) -> None:
        """An event was recorded."""

    def stopping(self, in_flight: int, at_most: float) -> None:
        """The user has stopped the run, and so many requests are being waited for, for so many seconds at most."""

    def closed(self) -> None:
        """The run has ended, well or badly: give the terminal back."""

    def ended(self, ended: Ended) -> None:
        """Show how the run ended and what to do next; called after `closed`, unless an error ended the run."""
