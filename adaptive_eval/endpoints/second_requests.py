"""Sends a second request for what takes far longer than any answer so far; the first one stays, and may still answer.

Both have the same seeds, and the answer that comes first is the trial; the other request is cancelled, and counts as a
lost answer. A long answer cannot be told from a hung request by its age alone, so ages are judged as follows.

    rare        the limit is the longest of n answers times sqrt(1 / (n RARE)), and at least twice it: beyond that are
                fewer than `RARE` of all answers, even where their share falls only with the square of the time
    no length   a stream is judged by its silence, not by its age: a long answer that goes on is never late; so later
                answers are streamed where the configuration allows it
    counted     what its server counts in its load is not late (`load`): waiting counts from when it was missing
    last        while places are all in use, a late request costs one place, and nobody waits for it: it is left alone,
                unless `SHARE` of the places are late; so long answers are seen, and count for the limit
    bounded     a server that draws another answer at each request would favour short ones here; so at most `FEW` of a
                model's answers and `PART` of them come from second requests for whole answers; then the first is
                waited for, and the user told
    careful     one at a time; each that is answered first doubles the number, and the first request's answer sets it
                back to one: a server that stalls or slows down as a whole is not sent everything twice

A second request is replaced whenever the time of waiting has doubled; the first one stays.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from adaptive_eval.base.errors import EndpointError
from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.replicas import ReplicaSet
from adaptive_eval.endpoints.time_limit import EndableBlock
from adaptive_eval.endpoints.traffic import AttemptedRequest, Traffic
from adaptive_eval.endpoints.types import Answer, Notice

SHARE = 1 / 8
FEW, PART = 2, 1 / 50
SENT_TWICE = Notice(
    "sent_twice",
    "a request took far longer than any answer so far, and was sent a second time: the answer that comes first counts, "
    "and both may cost something",
)
TOO_MANY_LATE = Notice(
    "many_late",
    f"more than 1 in {1 / PART:.0f} of its requests took far longer than the other answers: they may hang, or have "
    "long answers. They are not sent a second time any more. `stream: true`, or a server with /metrics, tells which; "
    "a lower sampling.timeout or sampling.max_tokens shortens the wait",
)


class Superseded(Exception):
    """The second request for the same answers was answered first."""


class LateRequest(NamedTuple):
    """A request in flight that takes far longer than any answer so far."""

    request: AttemptedRequest
    lease: EndableBlock
    """Ends its first attempt."""
    seconds: float
    """How long nothing has come."""
    by_age: bool
    """Whether a long answer would look the same."""


class SecondRequests:
    """The second requests of one model."""

    def __init__(
        self,
        attempt: Callable[[AttemptedRequest], Awaitable[list[Answer]]],
        replicas: ReplicaSet,
        traffic: Traffic,
        note: Callable[[Notice], None],
        stream: Callable[[], None] = lambda: None,
    ) -> None:
        """`attempt` sends a request once; `stream` has later answers streamed, if they can be."""
        self._stream = stream
        self._attempt = attempt
        self._replicas = replicas
        self._traffic = traffic
        self._note = note
        self._tasks: set[asyncio.Task[None]] = set()
        self._allowed = 1
        """Number of second requests that may be in flight."""
        self._taken = 0
        """Answers of second requests for what was late by its age."""

    def consider(self, late: Sequence[LateRequest]) -> None:
        """Send the latest of these a second time, if there is room, or they take many places."""
        many = SHARE * self._replicas.places < len(late) < self._traffic.in_flight
        if not (many or self._replicas.has_room):
            return
        for one in sorted(late, key=lambda one: one.seconds, reverse=True):
            request = one.request
            if one.seconds < request.resend_after or request.taken is not None:
                continue
            if one.by_age and self._taken >= FEW + PART * self._traffic.answered:
                self._note(TOO_MANY_LATE)
            elif request.second is not None and not request.second.done():
                request.second.cancel()
                self._start(one)
            elif len(self._tasks) < self._allowed:
                self._start(one)

    async def answers(self, request: AttemptedRequest) -> list[Answer] | None:
        """Wait for the second request after the first has failed; None if there is none, or it fails, too."""
        request.first_failed = True
        if request.second is not None and not request.second.done():
            await asyncio.wait([request.second])
        if request.taken is not None:
            self._traffic.lost -= len(request.seeds)  # the first one has been counted as its failure requires
        return request.taken

    def end(self, request: AttemptedRequest) -> None:
        """Forget the second request: its answer was taken, or is not needed any more."""
        if request.second is not None and not request.second.done():
            request.second.cancel()
            self._allowed = 1
        request.second, request.taken, request.resend_after, request.first_failed = None, None, 0.0, False

    async def close(self) -> None:
        """Cancel all of them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, one: LateRequest) -> None:
        if one.by_age:
            self._stream()
        one.request.resend_after = 2.0 * one.seconds
        one.request.second = task = asyncio.create_task(self._carry(one))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, one: LateRequest) -> None:
        """Send the second request; one of the two counts as lost from now on, as a cap must know."""
        request = one.request
        second = replace(request, is_second=True, cuts=request.cuts + 1, second=None)
        may_cost = True
        self._traffic.lost += len(request.seeds)
        try:
            if request.again is not None and not await request.again():
                may_cost = False
                return
            self._note(SENT_TWICE)
            self._traffic.retries += 1
            answers = await self._attempt(second)
        except EndpointError:  # counted as its failure requires
            may_cost = False
            self._allowed = 1
        except asyncio.CancelledError:
            may_cost = second.attempts > request.attempts
            raise
        else:
            self._allowed *= 2
            self._taken += one.by_age
            request.taken = answers
            if not request.first_failed:
                why = f"nothing came for {one.seconds:.3g} s, and a second request was answered"
                self._traffic.on_failure(FailureKind.STALLED, Failure(FailureKind.STALLED, why))
                one.lease.end(Superseded())
        finally:
            request.attempts = max(request.attempts, second.attempts)
            if not may_cost:
                self._traffic.lost -= len(request.seeds)
