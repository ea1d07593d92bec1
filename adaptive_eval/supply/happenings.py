"""What happens in a run: everything that its loop hears of, one class for each kind.

Supplies, requests, graders and the writer of the store put these on one queue, and `scheduler.loop` takes them from it
one by one. No part of a run calls another one to tell it something.
"""

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adaptive_eval.base.errors import EndpointError
from adaptive_eval.core.types import Cost
from adaptive_eval.store import AnswersLost, CommitBatch, Event, Regrade, TrialRecord
from adaptive_eval.supply.types import Request

# -- requests and grades -----------------------------------------------------------------------------------------------


class Answered(NamedTuple):
    """A server has answered a request; its answers are being graded."""

    request: Request


class Unanswered(NamedTuple):
    """A request has no answer to come."""

    request: Request
    error: EndpointError


class Abandoned(NamedTuple):
    """A request was cancelled before it was answered."""

    request: Request
    failed: bool = False
    """Whether no server had it: it had failed, and was to be repeated."""


class Recorded(NamedTuple):
    """The answers of a request can be stored, with their grades or to be judged next."""

    request: Request
    trials: Sequence[TrialRecord]


class Judged(NamedTuple):
    """The grader has judged a stored answer, for which so much was reserved."""

    verdict: Regrade
    reserved: Cost


class LossFound(NamedTuple):
    """An answer or a verdict was lost on the way, and may have cost something."""

    loss: AnswersLost | None
    """A lost reply of a judge; None for an answer, which its endpoint counts."""
    counted: "Future[None]"
    """Done when the loss is counted."""


class TaskEnded(NamedTuple):
    """A task is over; an error, which nobody has foreseen, ends the run."""

    error: BaseException | None


# -- the store ---------------------------------------------------------------------------------------------------------


class Committed(NamedTuple):
    """A batch of records is on disk."""

    batch: CommitBatch
    waiting: "Sequence[Future[None]]" = ()
    """Those who wait for it to be known."""


# -- servers -----------------------------------------------------------------------------------------------------------


class Noted(NamedTuple):
    """A part of the run has an event to record."""

    event: Event


class ServerUp(NamedTuple):
    """A model can be asked."""

    model: int


class PlaceFreed(NamedTuple):
    """A place has become free, or was lost."""


class ServerDown(NamedTuple):
    """A model cannot be served."""

    model: int
    error: EndpointError


class PlacesLost(NamedTuple):
    """A model was served, and its places were lost again and again."""

    model: int
    error: EndpointError


# -- time, and the user ------------------------------------------------------------------------------------------------


class Ticked(NamedTuple):
    """Half a second is over."""


class RefusalsHeard(NamedTuple):
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
