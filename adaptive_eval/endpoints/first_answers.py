"""Whether a model answers at all: what is known of its first trials, where only a trial can tell."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

MAX_FAILURES = 8
"""Trials that may fail for good before one is answered."""
FIRST_ATTEMPTS = 2
"""Attempts at a trial that fails, until any trial is answered."""


@dataclass
class FirstAnswers:
    """Trials of one model in this start of the run, in one benchmark if there are several."""

    running: int = 0
    failed: int = 0
    """Trials that failed at every attempt."""
    refused: int = 0
    """Failed trials that the provider refused."""
    answered: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever a trial ends."""

    @contextmanager
    def trial(self) -> Iterator[None]:
        """A context in which a trial is running."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self.changed.set()

    async def is_any_answered(self, *, before: bool) -> bool:
        """Count a failed trial, wait until one is answered or all others have failed, and return whether one is.

        If the model answered `before` this start, that counts too, unless `MAX_FAILURES` trials have failed.
        """
        self.failed += 1
        self.changed.set()
        while not self.answered and self.running and self.failed < MAX_FAILURES:
            self.changed.clear()
            await self.changed.wait()
        return self.answered or (before and self.failed < MAX_FAILURES)
