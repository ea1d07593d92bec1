"""The values that cross the border of the core: indices and numbers, nothing that could do I/O.

Models and questions are integers here, positions in the run's lists; the shell keeps the names.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from adaptive_eval.errors import first_line


class Ask(NamedTuple):
    """One trial to be run: the `trial`-th sample (from 0) of a question by a model, needed for round `round`."""

    model: int
    question: int
    trial: int
    round: int


class Cost(NamedTuple):
    """The cost of one trial, or the most that it may be: infinite USD where nothing bounds its tokens."""

    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0

    @property
    def is_unbounded(self) -> bool:
        """Whether nothing bounds its tokens, nor the USD for them."""
        return self.usd == math.inf

    def plus(self, more: "Cost") -> "Cost":
        """The sum of both costs."""
        return Cost(self.tokens + more.tokens, self.usd + more.usd, self.gpu_seconds + more.gpu_seconds)

    def times(self, number: int) -> "Cost":
        """The cost so many times; -1 takes it back."""
        return Cost(number * self.tokens, number * self.usd, number * self.gpu_seconds)


NO_COST = Cost()


class Outcome(NamedTuple):
    """One trial that has come.

    Examples:
        >>> from adaptive_eval.core import Ask, Cost, Outcome
        >>> asked = Ask(model=0, question=3, trial=2, round=0)
        >>> Outcome(asked.model, asked.question, asked.trial, category=1, cost=Cost(tokens=250)).category
        1
    """

    model: int
    question: int
    trial: int
    category: int | None
    """None: the grader could not grade the answer."""
    cost: Cost = NO_COST
    timed_out: bool = False
    """Nothing came within the time limit, at every attempt: an answer only beside as many real ones."""
    seconds: float = 0.0
    """How long the answer took; 0 where nobody knows."""


class Cause(StrEnum):
    """The cause for which a model was set aside: its server, its grades, or the budget."""

    SERVER = "server"
    GRADER = "grader"
    BUDGET = "budget"


class Lost(NamedTuple):
    """Why a model was set aside."""

    cause: Cause
    reason: str

    @property
    def headline(self) -> str:
        """The reason in one line."""
        return first_line(self.reason)


class SetAside(NamedTuple):
    """A model whose trials cannot be had: its pairs are blocked, and the run goes on without it."""

    model: int
    reason: str
    cause: Cause = Cause.SERVER


class Verdict(StrEnum):
    """The state of one comparison."""

    RESOLVED = "resolved"
    """Who is better is decided; latched."""
    TIED = "tied"
    """The difference lies within delta; latched."""
    OPEN = "open"
    """More trials may decide it."""
    OUT_OF_REACH = "out_of_reach"
    """The trials that are left would hardly decide it; a change of order or a larger budget can reopen it."""
    BLOCKED = "blocked"
    """One of the two models was set aside, or answers that have no grade could decide it."""


class Reason(StrEnum):
    """Why a run is finished."""

    SETTLED = "settled"
    """Every comparison of the objective is resolved or tied."""
    OUT_OF_REACH = "out_of_reach"
    """The trials that are left would probably not decide the comparisons that are still open."""
    BLOCKED = "blocked"
    """The comparisons that are still open need a model that was set aside, or grades that are missing."""
    BUDGET = "budget"
    """The next round no longer fits a cap on trials, tokens, USD or GPU time."""
    WALL_TIME = "wall_time"
    """The cap on wall time was reached."""
    GPU_TIME = "gpu_time"
    """Servers were held for all the GPU time that the budget allows."""

    def ends(self, trials: int) -> bool:
        """Whether a run with so many trials is finished: one to which nobody has answered was only stopped."""
        return self is not Reason.BLOCKED or trials > 0


class PairVerdict(NamedTuple):
    """One comparison at one look; positive z favours `better`, the model placed higher at that look.

    `worse` is None where a model stands alone or is compared with a fixed value. z, rho and boundary are nan where the
    objective does not compare.
    """

    better: int
    worse: int | None
    verdict: Verdict
    z: float
    rho: float
    boundary: float
    information: float
    power: float
    trials_needed: float
    reversed: bool


@dataclass(frozen=True, slots=True)
class Look:
    """One evaluation of the stopping rule, on complete rounds only."""

    index: int
    trials: tuple[int, ...]
    order: tuple[int, ...]
    tiers: tuple[int, ...]
    scores: tuple[float, ...]
    sigmas: tuple[float, ...]
    comparisons: tuple[PairVerdict, ...]

    def count(self, verdict: Verdict) -> int:
        """How many of the objective's comparisons have this verdict."""
        return sum(pair.verdict is verdict for pair in self.comparisons)
