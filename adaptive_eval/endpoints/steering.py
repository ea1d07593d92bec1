"""How many requests a server should have in flight, by the load that it says it has.

A server that computes R sequences at once while W wait is asked too much for where W > R/4, and for too little where
nothing waits although a window is what limits. In between, a few that wait keep its places taken while an answer is on
its way back. What is to be done must be said by two readings in a row:

    shrink    windows to (requests in flight) * (R + R/8) / (R + W), by half at most
    grow      windows by 1/8, then 1/4, 1/2, 1, 1 ... of their size, as long as nothing waits; by 1 from the beginning

The step is a share of what is in flight, so it needs not be known how many sequences a request is, nor how many
clients the server has: each takes its part, and what others ask for is load like any other. Since it goes by what is
in flight and not by the window, it says the same while long answers keep a smaller window from taking effect.

A reading is believed as long as it follows: where requests were taken away and the load has not fallen by a quarter of
their share, then it is not made by them (many others ask the same server), or it is wrong. Then nothing is gained by
staying away, and the windows are left alone for `DOUBT_SECONDS`.
"""

from enum import Enum, auto
from typing import NamedTuple

from adaptive_eval.endpoints.load import Load

DEEP = 1 / 4
"""Share of the running sequences that may wait."""
MARGIN = 1 / 8
"""Share that is to wait after a window was made smaller."""
FIRST_STEP = 1 / 8
LARGEST_STEP = 1.0
MOST_AT_ONCE = 1 / 2
SHOWS = 1 / 2
"""When this share of the requests is left, it shows whether the load follows."""
DOUBT_SECONDS = 300.0


class Saying(Enum):
    """What one reading says should be done."""

    GROW = auto()
    STAY = auto()
    SHRINK = auto()


class Move(NamedTuple):
    """What becomes of the windows that are full: `factor` times what they are (growth) or have in flight (below 1)."""

    factor: float = 1.0
    let_go: bool = False
    """The readings are not to be believed: as large as configured."""


STAY = Move()


class Steering:
    """The law for one server."""

    def __init__(self) -> None:
        self._said = Saying.STAY
        self._step = LARGEST_STEP
        self._before: tuple[float, float] | None = None
        """Requests in flight and sequences at the server when the windows were first made smaller."""
        self._doubted_until = -float("inf")

    @property
    def doubling(self) -> bool:
        """Nothing has waited for long: windows grow as fast as they can."""
        return self._step == LARGEST_STEP

    def read(self, load: Load, in_flight: int, full: bool, now: float) -> Move:
        """What to do after a reading, with so many requests in flight; it says nothing where no window is `full`."""
        if load.waiting:
            self._step = FIRST_STEP
        if not full or now < self._doubted_until:
            return STAY
        saying = _saying(load)
        again, self._said = saying is self._said, saying
        if saying is not Saying.SHRINK:
            self._before = None
        if saying is Saying.STAY or not again:
            return STAY
        self._said = Saying.STAY
        return self._grow() if saying is Saying.GROW else self._shrink(load, in_flight, now)

    def _grow(self) -> Move:
        step = self._step
        self._step = min(LARGEST_STEP, 2 * step)
        return Move(1.0 + step)

    def _shrink(self, load: Load, in_flight: int, now: float) -> Move:
        asked, was_inside = self._before = self._before or (in_flight, load.inside)
        left = in_flight / asked
        if left <= SHOWS:
            self._before = (in_flight, load.inside)
            if load.inside > was_inside * (1.0 - (1.0 - left) / 4):
                self._before, self._doubted_until = None, now + DOUBT_SECONDS
                return Move(let_go=True)
        return Move(max(MOST_AT_ONCE, load.running * (1.0 + MARGIN) / load.inside))


def _saying(load: Load) -> Saying:
    if not load.waiting:
        return Saying.GROW
    # one that waits is no queue, and a server that computes nothing is about to begin
    return Saying.SHRINK if load.waiting > max(1.0, DEEP * load.running) and load.running else Saying.STAY
