"""Detects lost answers long before a request's timeout.

Limits are based on this model's answers so far, and leave enough time for a full-length answer:

    a whole response   SAFETY * max_tokens * (the most seconds per token, among the longer half of the answers)
    the first piece    SAFETY * (the longest wait for one); as a whole response where pieces are held back until the end
    the next piece     SAFETY * (the longest silence of nine in ten streams that went on), while its replica speaks to
                       others; ALONE times as long where nothing tells whether it lives

Each is at least `LEAST` seconds, doubles whenever it has cut this very request, and never exceeds the configured time
limit: a request counts as timed out only after that limit in full. Until `KNOWN` answers have arrived there are no
limits, except that a stream may be silent for `QUIET_SECONDS`. Limits are updated while a request waits, so that the
first requests profit from later ones, and a slower server gets more time.

If a server that reports its load (`load`) has counted most requests before, and reports for `IDLE_SECONDS` that it is
idle while no answer arrives, it has lost the requests sent before. If it counts one fewer than are in flight since a
certain time, it has lost one sent then: the one that takes longer than any answer so far. If nothing separates a hung
request from a long one, it is not cut, but sent a second time beside the first (`second_requests`).

If a model has no other replica for a request, time does not count in which its own replica gave no sign of life to any
request or health check: asking a stalled server again would not help.

A cut attempt is repeated with the same seed; its own answer is discarded.
"""

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import inf, sqrt
from typing import NamedTuple

from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.replicas import Replica
from adaptive_eval.endpoints.second_requests import LateRequest
from adaptive_eval.endpoints.time_limit import EndableBlock
from adaptive_eval.endpoints.traffic import AttemptedRequest

SAFETY = 4.0
LEAST = 5.0
ALONE = 2.0
USUAL = 0.9
"""Share of streams whose longest silence is usual: a machine that stalled once says nothing about servers."""
KNOWN = 16
"""Answers needed before limits are based on them."""
MANY = 100
"""A stream of this many tokens must take some time from its first piece to its last."""
KEPT = 256
"""Number of answers whose lengths and speeds are kept."""
QUIET_SECONDS = 120.0
IDLE_SECONDS = 3.0
"""Long enough for an answer from an idle server to arrive."""
FAR, RARE = 2.0, 1 / 1000
"""An answer is late at `FAR` times the longest so far, or more as fewer are known: such are `RARE` of all."""
LOOK_EVERY = 0.5


class Heartbeat:
    """Times at which pieces of an attempt's response arrived."""

    __slots__ = ("begun", "cuts", "first_at", "heard_at", "longest", "sent_at", "streamed")

    def __init__(
        self, now: float, streamed: bool, cuts: int, begun: Callable[[float], None] = lambda sent_at: None
    ) -> None:
        """`begun` is called at the first piece, with the time at which the request was sent."""
        self.begun = begun
        self.sent_at = self.heard_at = now
        self.first_at: float | None = None
        self.longest = 0.0
        """The longest silence after the first piece."""
        self.streamed = streamed
        self.cuts = cuts
        """How often this request was cut before."""

    def send(self, now: float) -> None:
        """Start the time of the request now that it is sent."""
        self.sent_at = self.heard_at = now

    def beat(self, now: float) -> None:
        """Record the arrival of a piece."""
        if self.first_at is None:
            self.first_at = now
            self.begun(self.sent_at)
        else:
            self.longest = max(self.longest, now - self.heard_at)
        self.heard_at = now


class AnswerLimits(NamedTuple):
    """Seconds that an answer may take, based on others."""

    whole: float
    first: float
    """Until the first piece of a stream."""
    silence: float
    """After the first piece, while the replica speaks to others."""


class ResponseTimes:
    """Response times of one model's answers so far."""

    def __init__(self, timeout: float, max_tokens: int | None) -> None:
        self._timeout = timeout
        self._max_tokens = max_tokens
        self._answers = 0
        self._longest = 0.0
        self._known: list[tuple[int, float]] = []
        """Tokens and seconds per token of answers, shortest first."""
        self._streams = 0
        self._first = 0.0
        self._gaps: deque[float] = deque(maxlen=KEPT)
        self._held_back = False
        """Whether streams arrive in one piece, at the end."""

    def on_answer(self, tokens: int, pulse: Heartbeat, now: float) -> None:
        """Record one more response; `tokens` are those of its longest answer."""
        seconds = now - pulse.sent_at
        self._answers += 1
        self._longest = max(self._longest, seconds)
        if tokens > 0:
            insort(self._known, (tokens, seconds / tokens))
            if len(self._known) > KEPT:
                self._known = self._thinned()
        if pulse.first_at is not None:
            self._streams += 1
            self._first = max(self._first, pulse.first_at - pulse.sent_at)
            self._gaps.append(pulse.longest)
            speaking = now - pulse.first_at
            self._held_back = self._held_back or (tokens >= MANY and speaking < seconds / 10)

    def limits(self) -> AnswerLimits:
        """The limits that follow from the times so far."""
        return AnswerLimits(self.whole(), self.first(), self.silence())

    def whole(self) -> float:
        """Seconds that a whole response may take."""
        if self._max_tokens is None or len(self._known) < KNOWN:
            return self._timeout
        slowest = max(pace for _, pace in self._known[len(self._known) // 2 :])
        return self._bounded(SAFETY * self._max_tokens * slowest)

    def first(self) -> float:
        """Seconds until the first piece of a stream."""
        if self._streams < KNOWN or self._held_back:
            return self.whole()
        return self._bounded(SAFETY * self._first)

    def silence(self) -> float:
        """Seconds of silence after the first piece, while the replica speaks to others."""
        if self._streams < KNOWN:
            return min(QUIET_SECONDS, self._timeout)
        usual = sorted(self._gaps)[int(USUAL * (len(self._gaps) - 1))]
        return self._bounded(SAFETY * usual)

    @property
    def longest(self) -> float:
        """Seconds that the longest answer took; infinite before enough are known."""
        return inf if self._answers < KNOWN else self._longest

    @property
    def held_back(self) -> bool:
        """Whether streams arrive in one piece, at the end."""
        return self._held_back

    def late(self) -> AnswerLimits:
        """Seconds far beyond all answers so far; infinite before enough are known."""
        whole = _far(self._longest, self._answers)
        first = whole if self._held_back else _far(self._first, self._streams)
        return AnswerLimits(whole, first, _far(max(self._gaps, default=0.0), self._streams))

    def _bounded(self, seconds: float) -> float:
        return min(self._timeout, max(LEAST, seconds))

    def _thinned(self) -> list[tuple[int, float]]:
        """Half of the entries: each has the longer length and the slower speed of two neighbours."""
        pairs = zip(self._known[::2], self._known[1::2], strict=False)
        return [(long, max(one, other)) for (_, one), (long, other) in pairs]


def _far(longest: float, number: int) -> float:
    """What `RARE` of all exceed, if this is the longest of a number: where their share falls with its square."""
    return inf if number < KNOWN else max(LEAST, longest * max(FAR, sqrt(1.0 / (RARE * number))))


class OverdueWatch:
    """Ends the attempts of one model that are overdue, and tells of those that are late."""

    def __init__(
        self,
        times: ResponseTimes,
        timeout: float,
        has_alternative: Callable[[Replica], bool],
        clock: Callable[[], float],
        on_late: Callable[[Sequence[LateRequest]], None] = lambda late: None,
        on_doubt: Callable[[Replica], None] = lambda replica: None,
    ) -> None:
        """`has_alternative`: whether another replica can take a replica's requests. At each look, `on_late` gets the
        attempts that take far longer than any answer, and `on_doubt` the replica of one that does if it is alive.
        """
        self._on_late = on_late
        self._on_doubt = on_doubt
        self._times = times
        self._timeout = timeout
        self._has_alternative = has_alternative
        self._clock = clock
        self._attempts: dict[EndableBlock, tuple[Replica, Heartbeat, AttemptedRequest]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._task = asyncio.create_task(self._watch())

    def enter(self, lease: EndableBlock, replica: Replica, pulse: Heartbeat, request: AttemptedRequest) -> None:
        """Watch an attempt that was sent."""
        self._attempts[lease] = (replica, pulse, request)

    def leave(self, lease: EndableBlock) -> None:
        """Stop watching an attempt that has ended."""
        self._attempts.pop(lease, None)

    @property
    def oldest(self) -> float:
        """Age in seconds of the oldest attempt in flight."""
        first = next(iter(self._attempts.values()), None)  # in the order of sending
        return 0.0 if first is None else self._clock() - first[1].sent_at

    @property
    def streams(self) -> bool:
        """Whether a streamed attempt is in flight that has not failed."""
        return any(pulse.streamed for _, pulse, _ in self._attempts.values())

    def pending(self, replica: Replica) -> Iterator[Heartbeat]:
        """The attempts in flight at a replica."""
        return (pulse for where, pulse, _ in self._attempts.values() if where is replica)

    async def close(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        spoken: dict[str, float] = {}
        while True:
            await asyncio.sleep(LOOK_EVERY)
            for replica, pulse, _ in self._attempts.values():
                if pulse.first_at is not None and pulse.heard_at > spoken.get(replica.url, 0.0):
                    spoken[replica.url] = pulse.heard_at
                    replica.mark_alive(pulse.heard_at)
            now, limits = self._clock(), self._times.limits()
            for lease, (replica, pulse, _) in list(self._attempts.items()):
                why = self._overdue(pulse, replica, now, spoken.get(replica.url, 0.0), limits)
                if why is not None:
                    self.leave(lease)
                    lease.end(Failure(FailureKind.STALLED, why))
            if late := list(self._late(now)):
                self._on_late(late)

    def _late(self, now: float) -> Iterator[LateRequest]:
        """First attempts that take far longer than any answer so far, while their server does not count them."""
        late = self._times.late()
        for lease, (replica, pulse, request) in self._attempts.items():
            if request.is_second:
                continue
            by_age = not pulse.streamed or (pulse.first_at is None and self._times.held_back)
            limit = late.whole if by_age else late.first if pulse.first_at is None else late.silence
            seconds = self._waited(replica, max(pulse.heard_at, replica.counted_at), now)
            if seconds >= limit * 2.0**pulse.cuts:
                yield LateRequest(request, lease, seconds, by_age)
            elif now - pulse.heard_at >= limit * 2.0**pulse.cuts:
                self._on_doubt(replica)

    def _overdue(
        self, pulse: Heartbeat, replica: Replica, now: float, spoken: float, limits: AnswerLimits
    ) -> str | None:
        """Why an attempt will not complete; None if it may."""
        patience = 2.0**pulse.cuts
        idle = replica.idle_until - max(replica.idle_since, replica.answered_at, pulse.heard_at)
        if idle >= IDLE_SECONDS * patience:
            return f"its server has reported for {idle:.3g} s that it is idle"
        if pulse.first_at is None and now - pulse.sent_at >= patience * max(IDLE_SECONDS, self._times.longest):
            for sent in replica.missing:
                if sent[0] < pulse.sent_at <= sent[1]:
                    replica.missing.remove(sent)
                    return "its server counts one request fewer than it was sent"
        if pulse.first_at is None:
            limit = patience * (limits.first if pulse.streamed else limits.whole)
            what = "first piece" if pulse.streamed else "answer"
            late = limit < self._timeout and self._waited(replica, pulse.sent_at, now) >= limit
            return f"no {what} within {limit:.3g} s, longer than an answer should take here" if late else None
        base = patience * limits.silence
        limit = base if spoken - pulse.heard_at >= base else min(QUIET_SECONDS * patience, ALONE * base)
        late = limit < self._timeout and self._waited(replica, pulse.heard_at, now) >= limit
        return f"nothing came on the stream for {limit:.3g} s" if late else None

    def _waited(self, replica: Replica, since: float, now: float) -> float:
        """Seconds of waiting that count."""
        if self._has_alternative(replica):
            return now - since
        return replica.alive_at - max(since, replica.awake_since)
