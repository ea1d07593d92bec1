"""Lost requests that wait for permission to be repeated.

Several parts of one request may wait at once: samples that its server does not take together, or votes on one answer.
"""

import asyncio
from collections import defaultdict, deque
from typing import Generic, TypeVar

Target = TypeVar("Target")


class Permits(Generic[Target]):
    """Waiting requests by what they repeat; permits are given in the order of the requests."""

    def __init__(self) -> None:
        self._waiting: defaultdict[Target, deque[asyncio.Future[bool]]] = defaultdict(deque)

    def ask(self, target: Target) -> asyncio.Future[bool]:
        """A future of the next free permit."""
        waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[target].append(waiting)
        return waiting

    def give(self, target: Target, allowed: bool) -> None:
        """Resolve the first waiting request: whether it may repeat."""
        if waiting := self._waiting.get(target):
            first = waiting.popleft()
            if not first.done():
                first.set_result(allowed)

    def is_asked(self, target: Target) -> bool:
        """Whether any part waits."""
        return any(not waiting.done() for waiting in self._waiting.get(target, ()))

    def forget(self, target: Target) -> None:
        """Remove all waiting requests."""
        self._waiting.pop(target, None)
