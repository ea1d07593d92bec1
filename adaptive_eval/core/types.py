"""The values that enter and leave the core: indices and numbers, nothing that could do I/O.

Models and questions are integers here, positions in the run's lists; the shell knows their names.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from adaptive_eval.base.errors import first_line

ModelNumbers = Sequence[int | None]
"""For each model of a stage of a run its number in the stage before; None if it joins."""


class Ask(NamedTuple):
    """One trial to be run: the `trial`-th sample (from 0) of a question by a model, needed for round `round`."""

    model: int
    question: int
    trial: int
    round: int


class Cost(NamedTuple):
    """The cost of one trial, or its upper bound: USD is infinite if nothing bounds its tokens."""

    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0

    @property
    def is_unbounded(self) -> bool:
        """Whether nothing bounds its tokens, or the USD for them."""
        return self.usd == math.inf

    def plus(self, more: "Cost") -> "Cost":
        """The sum of both costs."""
        return Cost(self.tokens + more.tokens, self.usd + more.usd, self.gpu_seconds + more.gpu_seconds)

    def times(self, number: int) -> "Cost":
        """`number` times the cost; -1 negates it."""
        return Cost(number * self.tokens, number * self.usd, number * self.gpu_seconds)


NO_COST = Cost()


class Outcome(NamedTuple):
    """A trial that has arrived.

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
    kinds: int = 0
    """Bits of `AnswerKind`. Time-outs count as answers only if there are at least as many real ones."""
    seconds: float = 0.0
    """Seconds that the answer took; 0 if unknown."""


class Cause(StrEnum):
    """Why a model was set aside: its server, its grades, an alarm about its answers, or the budget."""

    SERVER = "server"
    EXCESS = "excess"
    """Its server sends answers that cost more than caps reserve: no further start can make up for that."""
    GRADER = "grader"
    ANSWERS = "answers"
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
    """A model without obtainable trials: its pairs are blocked, and the run continues without it."""

    model: int
    reason: str
    cause: Cause = Cause.SERVER


class Verdict(StrEnum):
    """The state of one comparison."""

    RESOLVED = "resolved"
    """It is decided which model is better; latched."""
    TIED = "tied"
    """The difference lies within delta; latched."""
    OPEN = "open"
    """More trials may decide it."""
    OUT_OF_REACH = "out_of_reach"
    """The remaining trials would hardly decide it; a change of order or a larger budget can reopen it."""
    BLOCKED = "blocked"
    """One of the two models was set aside, or ungraded or incomplete answers could decide it."""
    UNDECIDED_BY_LABELS = "undecided_by_labels"
    """The grades decide it, but scores corrected by labels do not. No look has this verdict: see `corrected`."""


VERDICTS = (
    Verdict.OPEN,
    Verdict.OUT_OF_REACH,
    Verdict.BLOCKED,
    Verdict.UNDECIDED_BY_LABELS,
    Verdict.TIED,
    Verdict.RESOLVED,
)
"""Decided verdicts come last."""
VERDICTS_OF_LOOKS = tuple(verdict for verdict in Verdict if verdict is not Verdict.UNDECIDED_BY_LABELS)


class Reason(StrEnum):
    """Why a run is finished."""

    SETTLED = "settled"
    """Every comparison of the objective is resolved or tied."""
    OUT_OF_REACH = "out_of_reach"
    """The remaining trials would probably not decide the comparisons that are still open."""
    BLOCKED = "blocked"
    """The open comparisons need a model that was set aside, or missing grades."""
    BUDGET = "budget"
    """The next round no longer fits a cap on trials, tokens, USD or GPU time."""
    WALL_TIME = "wall_time"
    """The cap on wall time was reached."""
    GPU_TIME = "gpu_time"
    """Servers were held for all the GPU time in the budget."""
    ALARM = "alarm"
    """Too many answers of a model are incomplete, or a kind of failure has become more frequent (`answer_alarms`)."""

    def ends(self, trials: int) -> bool:
        """Whether a run with this many trials is finished. After an alarm, or blocked without any trial, it was only
        stopped."""
        return self is not Reason.ALARM and (self is not Reason.BLOCKED or trials > 0)


class PairVerdict(NamedTuple):
    """One comparison at one look; positive z favours `first`, the model placed higher at that look.

    `second` is None if a model stands alone or is compared with a fixed value. z, rho and boundary are nan if the
    objective does not compare.
    """

    first: int
    second: int | None
    verdict: Verdict
    z: float
    rho: float
    boundary: float
    information: float
    power: float
    trials_needed: float
    reversed: bool
    """Whether an earlier look called the comparison the other way round; that call stands."""

    @property
    def winner(self) -> int | None:
        """The model that was called; None if none was, or if the call is that a model is below a fixed value."""
        if self.verdict is not Verdict.RESOLVED:
            return None
        return self.first if (self.z > 0) is not self.reversed else self.second


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
