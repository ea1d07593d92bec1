"""What happens in a run: everything that its loop hears of, one class for each kind.

Supplies, requests, graders and the writer of the store put these on one queue, and `scheduler.loop` takes them from it
one by one. No part of a run calls another one to tell it something.
"""

from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adaptive_eval.core.types import Cost
from adaptive_eval.errors import EndpointError
from adaptive_eval.store import AnswersLost, CommitBatch, Event, Regrade, TrialRecord
from adaptive_eval.supply.types import Request

# -- requests and grades -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answered:
    """A server has answered a request; its answers are being graded."""

    request: Request


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A request has no answer to come."""

    request: Request
    error: EndpointError


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A request was cancelled before it was answered."""

    request: Request
    failed: bool = False
    """Whether no server had it any more: it had only failed."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The answers of a request can be stored, with their grades or to be judged next."""

    request: Request
    trials: Sequence[TrialRecord]


@dataclass(frozen=True, slots=True)
class Judged:
    """The grader has judged a stored answer, for which so much was reserved."""

    verdict: Regrade
    reserved: Cost


@dataclass(frozen=True, slots=True)
class LossFound:
    """An answer or a verdict was lost on the way, and may have cost something."""

    loss: AnswersLost | None
    """A lost reply of a judge; None for an answer, which its endpoint counts."""
    counted: "Future[None]"
    """Done when the loss is counted."""


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task is over; an error, which nobody has foreseen, ends the run."""

    error: BaseException | None


# -- the store ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Committed:
    """A batch of records is on disk."""

    batch: CommitBatch
    waiting: "Sequence[Future[None]]" = ()
    """Those who wait for it to be known."""


# -- servers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Noted:
    """A part of the run has an event to record."""

    event: Event


@dataclass(frozen=True, slots=True)
class ServerUp:
    """A model can be asked."""

    model: int


@dataclass(frozen=True, slots=True)
class PlaceFreed:
    """A place has become free, or was lost."""


@dataclass(frozen=True, slots=True)
class ServerDown:
    """A model cannot be served."""

    model: int
    error: EndpointError


@dataclass(frozen=True, slots=True)
class PlacesLost:
    """A model was served, and its places were lost again and again."""

    model: int
    error: EndpointError


# -- time, and the user ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ticked:
    """Half a second is over."""


@dataclass(frozen=True, slots=True)
class RefusalsHeard:
    """A model has refused its first request, and the others had time to say whether they do, too."""


Happening = (
    Answered
    | Unanswered
    | Abandoned
    | Recorded
    | Judged
    | LossFound
    | TaskEnded
    | Committed
    | Noted
    | ServerUp
    | PlaceFreed
    | ServerDown
    | PlacesLost
    | Ticked
    | RefusalsHeard
)

Say = Callable[[Happening], None]
"""Puts something on the queue."""
