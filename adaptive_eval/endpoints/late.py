"""Hung requests: a request that takes far longer than any answer so far is sent a second time.

The first request stays, and may still be answered. Both have the same seeds, and the first answer is the trial; the
other request is cancelled, and counts as a lost answer. A request without an answer within the configured time limit
has timed out (`sender`). Age alone does not distinguish a long answer from a hung request, so these rules apply:

    rare        the limit is the longest of n answers times sqrt(1 / (n share)), and at least twice it: fewer than
                `late_share` of all answers exceed it, even if their share falls only with the square of the time
    no length   a stream is judged by its first piece, and then by its longest silence, not by its age: a long answer
                that keeps arriving is never late; so later answers are streamed if the configuration allows it
    counted     a request in its server's load is not late (`load`): waiting counts from when it was missing there
    alive       if a model has no other replica for a request, time does not count while its own replica gave no sign of
                life to any request or probe: sending to a stalled server again would not help
    ours        time in which this process did not run (stopped, or starved of its processor) does not count
    last        while all places are in use, a late request costs only one place: it is not repeated unless more than
                `late_max_share` of the places are late; so long answers arrive, and count for the limit
    bounded     if a server samples another answer for each request, second requests favour short ones; so at most
                `late_free` and `late_replaced` of a model's answers come from second requests for whole answers. Beyond
                that, a notice is shown, and only requests longer than the longest possible answer are repeated
    careful     one at a time; each second request that is answered first doubles the number, and an answer to the first
                request resets it to one: a server that stalls or slows down is not sent everything twice

A second request is replaced whenever the waiting time has doubled.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from math import inf, sqrt
from typing import NamedTuple

from adaptive_eval.base.errors import EndpointError
from adaptive_eval.endpoints.context import EndpointContext
from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.replicas import ReplicaSet
from adaptive_eval.endpoints.settings import EndpointSettings
from adaptive_eval.endpoints.traffic import Attempt, AttemptedRequest
from adaptive_eval.endpoints.types import Answer, EarlierTimes, Notice

MAX_REMEMBERED = 256
"""Silences of streams, and pauses of this process, that are remembered."""
SENT_TWICE = Notice(
    "sent_twice",
    "a request took far longer than any answer so far, and was sent a second time: the answer that comes first counts, "
    "and both may cost something",
)
TOO_MANY_LATE = (
    "more than 1 in {:.0f} of its requests took far longer than the other answers: they may hang, or have long "
    "answers. From now on they are sent a second time only if max_tokens cannot explain the time. `stream: true`, or "
    "a server with /metrics, tells which; a lower sampling.timeout or sampling.max_tokens shortens the wait"
)


class ResponseTimes:
    """Response times of one model's answers, and the limits that follow; infinite until there are enough answers."""

    def __init__(self, max_tokens: int | None, settings: EndpointSettings, earlier: EarlierTimes) -> None:
        self._max_tokens, self._earlier = max_tokens, earlier
        self._settings = settings
        self._answers = self._tokens = self._streams = 0
        self._longest = self._first = 0.0
        self._slowest = 0.0
        """Seconds per token, of answers that are not short."""
        self._gaps: deque[float] = deque(maxlen=MAX_REMEMBERED)
        self.is_buffered = False
        """Whether streams arrive in one piece, at the end."""

    def on_answer(self, tokens: int, attempt: Attempt, now: float) -> None:
        """Record a response; `tokens` are those of its longest answer."""
        seconds = now - attempt.sent_at
        self._answers += 1
        self._tokens += tokens
        self._longest = max(self._longest, seconds)
        if 0 < self._tokens <= tokens * self._answers:
            self._slowest = max(self._slowest, seconds / tokens)
        if attempt.first_piece_at is not None:
            self._streams += 1
            self._first = max(self._first, attempt.first_piece_at - attempt.sent_at)
            self._gaps.append(attempt.longest_silence)
            # a stream of many tokens must take some time from its first piece to its last
            self.is_buffered |= tokens >= 100 and now - attempt.first_piece_at < seconds / 10

    @property
    def response_limit(self) -> float:
        """Seconds after which a whole response is late."""
        earlier = self._earlier
        return self._late_limit(max(self._longest, earlier.longest), self._answers + earlier.answers)

    @property
    def first_piece_limit(self) -> float:
        """Seconds after which the first piece of a stream is late."""
        if self.is_buffered:
            return self.response_limit
        earlier = self._earlier
        return self._late_limit(max(self._first, earlier.latest_first), self._streams + earlier.streams)

    @property
    def silence_limit(self) -> float:
        """Seconds after which the next piece of a stream is late; from the settings until there are enough streams."""
        if self._streams < self._settings.late_after:
            return self._settings.late_stream
        return self._late_limit(max(self._gaps), self._streams)

    @property
    def longest_plausible(self) -> float:
        """Seconds that no whole response can plausibly exceed."""
        if self._max_tokens is None or self._answers < self._settings.late_after:
            return inf
        return max(self._settings.min_late, self._settings.late_max_factor * self._max_tokens * self._slowest)

    def _late_limit(self, longest_seconds: float, count: int) -> float:
        """Seconds that `late_share` of all responses exceed, if the longest of `count` took `longest_seconds`."""
        settings = self._settings
        if count < settings.late_after:
            return inf
        return max(
            settings.min_late, longest_seconds * max(settings.late_factor, sqrt(1.0 / (settings.late_share * count)))
        )


class Superseded(Exception):
    """The second request for the same answers was answered first."""


class LateAttempt(NamedTuple):
    """An attempt in flight that takes far longer than any answer so far."""

    attempt: Attempt
    seconds: float
    """Seconds without a response."""
    by_age: bool
    """Whether a long answer would look the same."""


class SecondRequests:
    """The second requests of one model."""

    def __init__(
        self,
        context: EndpointContext,
        replicas: ReplicaSet,
        send: Callable[[AttemptedRequest], Awaitable[list[Answer]]],
        stream: Callable[[], None],
    ) -> None:
        """`send` makes one attempt; `stream` turns on streaming for later answers, if possible."""
        self._replicas, self._send, self._stream = replicas, send, stream
        self._traffic, self._settings, self._note = context.traffic, context.settings, context.servers.note_first
        self.times = ResponseTimes(context.sampling.longest_answer, context.settings, context.earlier or EarlierTimes())
        self._tasks: set[asyncio.Task[None]] = set()
        self._max_second = 1
        """Number of second requests that may be in flight."""
        self._replaced = 0
        """Answers of second requests for attempts that were late by age."""
        self._ticked_at = inf
        self._pauses: deque[tuple[float, float]] = deque(maxlen=MAX_REMEMBERED)
        """When this process did not run: the end of each pause, and its seconds."""

    def tick(self, now: float) -> None:
        """Send the latest attempts a second time, if there is room or they take many places."""
        if now - self._ticked_at > self._settings.longest_tick:
            self._pauses.append((now, now - self._ticked_at - self._settings.tick))
        self._ticked_at = now
        late_attempts = list(self._late(now))
        are_many = self._replicas.places * self._settings.late_max_share < len(late_attempts) < self._traffic.in_flight
        if not (are_many or (late_attempts and self._replicas.has_room)):
            return
        for late in sorted(late_attempts, key=lambda late: late.seconds, reverse=True):
            request = late.attempt.request
            if late.seconds < request.resend_after or request.second_answers is not None:
                continue
            if late.by_age and not self._may_replace and late.seconds < self.times.longest_plausible:
                self._note(Notice("many_late", TOO_MANY_LATE.format(1 / self._settings.late_replaced)))
            elif request.second is not None and not request.second.done():
                request.second.cancel()
                self._start(late)
            elif len(self._tasks) < self._max_second:
                self._start(late)

    def _late(self, now: float) -> Iterator[LateAttempt]:
        """First attempts that take far longer than any answer so far, while their server does not count them."""
        times = self.times
        response_limit, silence_limit = times.response_limit, times.silence_limit
        first_piece_limit = times.first_piece_limit
        for attempt in self._replicas.attempts:
            if attempt.request.is_second or not attempt.is_sent:
                continue
            by_age = not attempt.streamed or (attempt.first_piece_at is None and times.is_buffered)
            limit = response_limit if by_age else first_piece_limit if attempt.first_piece_at is None else silence_limit
            replica = attempt.replica
            since, until = max(attempt.last_piece_at, replica.counted_at), now
            if now - since < limit:
                continue
            if not self._replicas.has_alternative(replica):
                since, until = max(since, replica.awake_since), replica.alive_at
            waited = until - since - sum(seconds for end, seconds in self._pauses if since < end <= until)
            if waited >= limit:
                yield LateAttempt(attempt, waited, by_age)
            else:
                replica.on_suspicion()

    @property
    def _may_replace(self) -> bool:
        return self._replaced < self._settings.late_free + self._settings.late_replaced * self._traffic.answered

    async def answers(self, request: AttemptedRequest) -> list[Answer] | None:
        """Wait for the second request after the first has failed; None if there is none or it fails, too."""
        request.first_failed = True
        if request.second is not None and not request.second.done():
            await asyncio.wait([request.second])
        if request.second_answers is not None:
            self._traffic.lost -= len(request.seeds)  # the first request is already counted by its failure
        return request.second_answers

    def end(self, request: AttemptedRequest) -> None:
        """Drop the second request: its answer was used or is no longer needed."""
        if request.second is not None and not request.second.done():
            request.second.cancel()
            self._max_second = 1
        request.second, request.second_answers, request.resend_after, request.first_failed = None, None, 0.0, False

    async def close(self) -> None:
        """Cancel all second requests."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, late: LateAttempt) -> None:
        if late.by_age:
            self._stream()
        request = late.attempt.request
        request.resend_after = 2.0 * late.seconds
        request.second = task = asyncio.create_task(self._resend(late))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resend(self, late: LateAttempt) -> None:
        """Send the second request; one of the two counts as lost from now on, so that caps include it."""
        request = late.attempt.request
        second = replace(request, is_second=True, second=None)
        may_cost = True
        self._traffic.lost += len(request.seeds)
        try:
            if request.retry_gate is not None and not await request.retry_gate():
                may_cost = False
                return
            self._note(SENT_TWICE)
            self._traffic.retries += 1
            answers = await self._send(second)
        except EndpointError:  # already counted by its failure
            may_cost = False
            self._max_second = 1
        except asyncio.CancelledError:
            may_cost = second.attempts > request.attempts
            raise
        else:
            self._max_second *= 2
            self._replaced += late.by_age
            request.second_answers = answers
            if not request.first_failed:
                message = f"nothing came for {late.seconds:.3g} s, and a second request was answered"
                self._traffic.on_failure(FailureKind.STALLED, Failure(FailureKind.STALLED, message))
                late.attempt.end(Superseded())
        finally:
            request.attempts = max(request.attempts, second.attempts)
            if not may_cost:
                self._traffic.lost -= len(request.seeds)
