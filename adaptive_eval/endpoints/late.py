"""Hung requests: a request that takes far longer than any answer so far is cancelled and sent again.

The new request has the same seeds. It may take twice as long as the cancelled one (as long, for the second request of a
stream), and so on up to the configured time limit, so that every long answer comes; without an answer within that limit
it has timed out (`sender`). Age alone does not distinguish a long answer from a hung request, so these rules apply:

    rare        the limit is the longest of n answers times sqrt(1 / (n share)), and at least twice it: fewer than
                `late_share` of all answers exceed it, even if their share falls only with the square of the time
    no length   a stream is judged by its first piece, and then by its longest silence, not by its age: a long answer
                that keeps arriving is never late; so later answers are streamed if the configuration allows it
    counted     a request in its server's load is not late (`load`): waiting counts from when it was missing there
    alive       if a model has no other replica for a request, time does not count while its own replica gave no sign of
                life to any request or probe: sending to a stalled server again would not help
    ours        time in which this process did not run (stopped, or starved of its processor) does not count
    bounded     if a server samples another answer for each request, new requests favour short ones; so at most
                `late_free` and `late_replaced` of a model's answers are of requests that were late by age, and took
                less time when sent again. Beyond that, a notice is shown, and a request is only sent again if it takes
                longer than the longest possible answer
    careful     a server that stalls or slows down is not sent everything again: only one request is, and another once
                the first has had its time. When one of these is answered sooner than it had been waited for, all that
                were late by then are sent again
"""

from collections import deque
from collections.abc import Callable, Iterator
from math import inf, sqrt
from typing import NamedTuple

from adaptive_eval.base.numbers import plain_number
from adaptive_eval.endpoints.context import EndpointContext
from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.replicas import ReplicaSet
from adaptive_eval.endpoints.settings import EndpointSettings
from adaptive_eval.endpoints.traffic import Attempt, AttemptedRequest
from adaptive_eval.endpoints.types import EarlierTimes, Notice

MAX_REMEMBERED = 256
"""Silences of streams, and pauses of this process, that are remembered."""
SENT_AGAIN = Notice(
    "sent_again",
    "a request took far longer than any answer so far, and was cancelled and sent again: both may cost something",
)
TOO_MANY_LATE = (
    "more than 1 in {:.0f} of its requests took far longer than the other answers: they may hang, or have long "
    "answers. From now on they are sent again only if max_tokens cannot explain the time. `stream: true`, or a server "
    "with /metrics, tells which; a lower sampling.timeout or sampling.max_tokens shortens the wait"
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


class LateAttempt(NamedTuple):
    """An attempt in flight that takes far longer than any answer so far."""

    attempt: Attempt
    seconds: float
    """Seconds without a response."""
    by_age: bool
    """Whether a long answer would look the same."""
    since: float
    """When it became late."""


class LateRequests:
    """Finds the late requests of one model, and ends them to be sent again."""

    def __init__(
        self, context: EndpointContext, replicas: ReplicaSet, stream: Callable[[AttemptedRequest], None]
    ) -> None:
        """`stream` turns on streaming for a request and for later ones, if possible."""
        self._replicas, self._stream = replicas, stream
        self._traffic, self._settings, self._note = context.traffic, context.settings, context.servers.note
        self.times = ResponseTimes(context.sampling.longest_answer, context.settings, context.earlier or EarlierTimes())
        self._limit = context.sampling.timeout
        self._replaced = 0
        """Requests that were late by age, except those whose answer then took as long."""
        self._helped_at = self._next_at = -inf
        """When a request that was sent again was last answered sooner, and when the next one is sent to find out."""
        self._ticked_at = inf
        self._pauses: deque[tuple[float, float]] = deque(maxlen=MAX_REMEMBERED)
        """When this process did not run: the end of each pause, and its seconds."""

    def tick(self, now: float) -> None:
        """End attempts at their time limit, and late ones, the latest first."""
        if now - self._ticked_at > self._settings.longest_tick:
            self._pauses.append((now, now - self._ticked_at - self._settings.tick))
        self._ticked_at = now
        self._time_out(now)
        for late in sorted(self._late(now), key=lambda late: late.seconds, reverse=True):
            request = late.attempt.request
            is_new = late.by_age and not request.late_by_age
            if is_new and not self._may_replace and late.seconds < self.times.longest_plausible:
                self._note(Notice("many_late", TOO_MANY_LATE.format(1 / self._settings.late_replaced)))
            elif late.since < self._helped_at or now >= self._next_at:
                self._end(late, now)

    def _time_out(self, now: float) -> None:
        """End attempts over their limit, if this process did not run meanwhile after time to read what has come."""
        for attempt in self._replicas.attempts:
            over, to_read = now - attempt.sent_at - self._limit, self._settings.longest_tick
            if attempt.is_sent and over >= 0.0:
                attempt.overdue_at = min(attempt.overdue_at, now)
                if over <= to_read or now - attempt.overdue_at >= to_read:
                    attempt.end(Failure(FailureKind.TIMED_OUT, f"no answer within {plain_number(self._limit)} s"))

    def _end(self, late: LateAttempt, now: float) -> None:
        """End an attempt, so that its request is sent again."""
        request = late.attempt.request
        request.waited, is_again = late.seconds, request.waited > 0.0
        request.patience = late.seconds * (2.0 if late.by_age or is_again else 1.0)
        self._next_at = now + request.patience
        if late.by_age:
            self._replaced += not request.late_by_age
            request.late_by_age = True
            self._stream(request)
        self._note(SENT_AGAIN)
        late.attempt.end(Failure(FailureKind.STALLED, f"nothing came for {plain_number(late.seconds, 3)} s"))

    def on_answer(self, tokens: int, attempt: Attempt, now: float) -> None:
        """Learn from a response; `tokens` are those of its longest answer."""
        self.times.on_answer(tokens, attempt, now)
        request = attempt.request
        if request.waited:
            waited = now - attempt.sent_at if request.late_by_age else attempt.longest_wait(now)
            if waited < request.waited:
                self._helped_at = self._next_at = now
            else:
                self._replaced -= request.late_by_age

    def _late(self, now: float) -> Iterator[LateAttempt]:
        """Attempts that take far longer than any answer so far, while their server does not count them."""
        times = self.times
        response_limit, silence_limit = times.response_limit, times.silence_limit
        first_piece_limit = times.first_piece_limit
        for attempt in self._replicas.attempts:
            if not attempt.is_sent:
                continue
            by_age = not attempt.streamed or (attempt.first_piece_at is None and times.is_buffered)
            limit = response_limit if by_age else first_piece_limit if attempt.first_piece_at is None else silence_limit
            replica = attempt.replica
            limit = max(limit, attempt.request.patience)
            since, until = max(attempt.last_piece_at, replica.counted_at), now
            if now - since < limit:
                continue
            if not self._replicas.has_alternative(replica):
                since, until = max(since, replica.awake_since), replica.alive_at
            waited = until - since - sum(seconds for end, seconds in self._pauses if since < end <= until)
            if waited >= limit:
                yield LateAttempt(attempt, waited, by_age, since + limit)
            else:
                replica.on_suspicion()

    @property
    def _may_replace(self) -> bool:
        return self._replaced < self._settings.late_free + self._settings.late_replaced * self._traffic.answered
