"""What hangs: a request that takes far longer than any answer so far is sent a second time.

The first one stays, and may still answer. Both have the same seeds, and the answer that comes first is the trial; the
other request is cancelled, and counts as a lost answer. What has no answer within the configured time limit has timed
out (`sender`). A long answer cannot be told from a hung request by its age alone, so ages are judged as follows.

    rare        the limit is the longest of n answers times sqrt(1 / (n share)), and at least twice it: beyond that are
                fewer than `late_share` of all answers, even where their share falls only with the square of the time
    no length   a stream is judged by its first piece, and then by its longest silence, not by its age: a long answer
                that goes on is never late; so later answers are streamed where the configuration allows it
    counted     what its server counts in its load is not late (`load`): waiting counts from when it was missing
    alive       if a model has no other replica for a request, time does not count in which its own gave no sign of life
                to any request or probe: asking a stalled server again would not help
    last        while places are all in use, a late request costs one place, and nobody waits for it: it is left alone,
                unless more than `late_many` of the places are late; so long answers are seen, and count for the limit
    bounded     a server that draws another answer at each request would favour short ones here; so at most `late_free`
                and `late_replaced` of a model's answers come from second requests for whole answers. Then the user is
                told, and only what takes longer than the longest possible answer is sent a second time
    careful     one at a time; each that is answered first doubles the number, and the first request's answer sets it
                back to one: a server that stalls or slows down as a whole is not sent everything twice

A second request is replaced whenever the time of waiting has doubled.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from math import inf, sqrt
from typing import NamedTuple

from adaptive_eval.base.errors import EndpointError
from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.replicas import ReplicaSet
from adaptive_eval.endpoints.settings import EndpointSettings
from adaptive_eval.endpoints.traffic import Attempt, AttemptedRequest, Traffic
from adaptive_eval.endpoints.types import Answer, Notice

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
    """Response times of one model's answers so far, and the limits that follow; infinite before enough are known."""

    def __init__(self, max_tokens: int | None, settings: EndpointSettings) -> None:
        self._max_tokens = max_tokens
        self._settings = settings
        self._answers = self._tokens = self._streams = 0
        self._longest = self._first = 0.0
        self._slowest = 0.0
        """Seconds per token, of answers that are not short."""
        self._gaps: deque[float] = deque(maxlen=256)
        self.held_back = False
        """Whether streams arrive in one piece, at the end."""

    def on_answer(self, tokens: int, attempt: Attempt, now: float) -> None:
        """Record one more response; `tokens` are those of its longest answer."""
        seconds = now - attempt.sent_at
        self._answers += 1
        self._tokens += tokens
        self._longest = max(self._longest, seconds)
        if 0 < self._tokens <= tokens * self._answers:
            self._slowest = max(self._slowest, seconds / tokens)
        if attempt.first_at is not None:
            self._streams += 1
            self._first = max(self._first, attempt.first_at - attempt.sent_at)
            self._gaps.append(attempt.longest)
            # a stream of many tokens must take some time from its first piece to its last
            self.held_back |= tokens >= 100 and now - attempt.first_at < seconds / 10

    @property
    def whole(self) -> float:
        """Seconds after which a whole response is late."""
        return self._far(self._longest, self._answers)

    @property
    def first(self) -> float:
        """Seconds after which the first piece of a stream is late."""
        return self.whole if self.held_back else self._far(self._first, self._streams)

    @property
    def silence(self) -> float:
        """Seconds after which the next piece of a stream is late; those of the settings before enough are known."""
        if self._streams < self._settings.late_after:
            return self._settings.late_stream
        return self._far(max(self._gaps), self._streams)

    @property
    def hopeless(self) -> float:
        """Seconds that no whole response can honestly take."""
        if self._max_tokens is None or self._answers < self._settings.late_after:
            return inf
        return max(self._settings.late_least, self._settings.late_hopeless * self._max_tokens * self._slowest)

    def _far(self, longest: float, number: int) -> float:
        """What `late_share` of all exceed, if this is the longest of a number."""
        settings = self._settings
        if number < settings.late_after:
            return inf
        return max(settings.late_least, longest * max(settings.late_factor, sqrt(1.0 / (settings.late_share * number))))


class Superseded(Exception):
    """The second request for the same answers was answered first."""


class LateAttempt(NamedTuple):
    """An attempt in flight that takes far longer than any answer so far."""

    attempt: Attempt
    seconds: float
    """How long nothing has come."""
    by_age: bool
    """Whether a long answer would look the same."""


class SecondRequests:
    """The second requests of one model."""

    def __init__(
        self,
        send: Callable[[AttemptedRequest], Awaitable[list[Answer]]],
        replicas: ReplicaSet,
        times: ResponseTimes,
        traffic: Traffic,
        settings: EndpointSettings,
        note: Callable[[Notice], None],
        stream: Callable[[], None],
    ) -> None:
        """`send` makes one attempt; `stream` has later answers streamed, if they can be."""
        self._send = send
        self._replicas = replicas
        self._times = times
        self._traffic = traffic
        self._settings = settings
        self._note = note
        self._stream = stream
        self._tasks: set[asyncio.Task[None]] = set()
        self._allowed = 1
        """Number of second requests that may be in flight."""
        self._replaced = 0
        """Answers of second requests for what was late by its age."""

    def tick(self, now: float) -> None:
        """Send the latest attempts a second time, if there is room, or they take many places."""
        late = list(self._late(now))
        are_many = self._replicas.places * self._settings.late_many < len(late) < self._traffic.in_flight
        if not (are_many or (late and self._replicas.has_room)):
            return
        for one in sorted(late, key=lambda one: one.seconds, reverse=True):
            request = one.attempt.request
            if one.seconds < request.resend_after or request.taken is not None:
                continue
            if one.by_age and not self._may_replace and one.seconds < self._times.hopeless:
                self._note(Notice("many_late", TOO_MANY_LATE.format(1 / self._settings.late_replaced)))
            elif request.second is not None and not request.second.done():
                request.second.cancel()
                self._start(one)
            elif len(self._tasks) < self._allowed:
                self._start(one)

    def _late(self, now: float) -> Iterator[LateAttempt]:
        """First attempts that take far longer than any answer so far, while their server does not count them."""
        times = self._times
        whole, first, silence = times.whole, times.first, times.silence
        for attempt in self._replicas.attempts:
            if attempt.request.is_second or not attempt.is_sent:
                continue
            by_age = not attempt.streamed or (attempt.first_at is None and times.held_back)
            limit = whole if by_age else first if attempt.first_at is None else silence
            replica = attempt.replica
            since, until = max(attempt.heard_at, replica.counted_at), now
            if now - since < limit:
                continue
            if not self._replicas.has_alternative(replica):
                since, until = max(since, replica.awake_since), replica.alive_at
            if until - since >= limit:
                yield LateAttempt(attempt, until - since, by_age)
            else:
                replica.on_doubt()

    @property
    def _may_replace(self) -> bool:
        return self._replaced < self._settings.late_free + self._settings.late_replaced * self._traffic.answered

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

    def _start(self, late: LateAttempt) -> None:
        if late.by_age:
            self._stream()
        request = late.attempt.request
        request.resend_after = 2.0 * late.seconds
        request.second = task = asyncio.create_task(self._resend(late))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resend(self, late: LateAttempt) -> None:
        """Send the second request; one of the two counts as lost from now on, as a cap must know."""
        request = late.attempt.request
        second = replace(request, is_second=True, second=None)
        may_cost = True
        self._traffic.lost += len(request.seeds)
        try:
            if request.again is not None and not await request.again():
                may_cost = False
                return
            self._note(SENT_TWICE)
            self._traffic.retries += 1
            answers = await self._send(second)
        except EndpointError:  # counted as its failure requires
            may_cost = False
            self._allowed = 1
        except asyncio.CancelledError:
            may_cost = second.attempts > request.attempts
            raise
        else:
            self._allowed *= 2
            self._replaced += late.by_age
            request.taken = answers
            if not request.first_failed:
                why = f"nothing came for {late.seconds:.3g} s, and a second request was answered"
                self._traffic.on_failure(FailureKind.STALLED, Failure(FailureKind.STALLED, why))
                late.attempt.end(Superseded())
        finally:
            request.attempts = max(request.attempts, second.attempts)
            if not may_cost:
                self._traffic.lost -= len(request.seeds)
