"""A simulated server that stands still after so many answers, until it is let go on, for good or for some more.

Whatever a test does meanwhile is done while requests are in flight, however slow the machine is: nothing that needs one
answer more can be over.
"""

import math

from adaptive_eval.simulate.replies import ApiReply
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import World

EVERYONE = 10_000
"""Places for all requests of a test."""


class GatedServer(SimulatedServer):
    """Gives so many answers, or verdicts; who asks for another one waits until it is `open`."""

    def __init__(self, world: World, answers: int, **habits: object) -> None:
        super().__init__(world, max_num_seqs=EVERYONE, **habits)  # type: ignore[arg-type]
        self._left: float = answers

    def _handle(self, method: str, path: str, body: bytes) -> ApiReply:
        reply = super()._handle(method, path, body)
        if reply.sequences:
            self._left -= 1
            if self._left < 0:
                self._let_in(0)
        return reply

    @property
    def waiting(self) -> int:
        """Requests that wait for it to open."""
        return 0 if self.places is None else self.places.waiting

    def open(self, answers: float = math.inf) -> None:
        """From another thread: answer all that wait, and so many more."""
        self._loop.call_soon_threadsafe(self._go_on, answers)

    def _go_on(self, answers: float) -> None:
        self._left = answers
        self._let_in(EVERYONE)

    def _let_in(self, number: int) -> None:
        assert self.places is not None
        self.places.resize(number)
