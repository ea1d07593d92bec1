"""Makes single attempts: takes a place at a replica, sends the request, reads the reply, returns the place."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf

from adaptive_eval.base.errors import Rejected, Unavailable
from adaptive_eval.endpoints.answers import ResponseOrigin
from adaptive_eval.endpoints.context import EndpointContext
from adaptive_eval.endpoints.failures import (
    HANDLING,
    Failure,
    FailureKind,
    ModelNotServed,
    Refusal,
    Refused,
    UnknownFinish,
)
from adaptive_eval.endpoints.late import LateRequests
from adaptive_eval.endpoints.parsing import Reply
from adaptive_eval.endpoints.replica import Replica
from adaptive_eval.endpoints.replicas import ReplicaSet
from adaptive_eval.endpoints.response_ids import ResponseIds
from adaptive_eval.endpoints.retry import believed_wait
from adaptive_eval.endpoints.traffic import Attempt, AttemptedRequest
from adaptive_eval.endpoints.types import Answer, ModelLimits, Notice
from adaptive_eval.endpoints.wire import stream_if_several, unstreamed


class RateLimit:
    """One limit per minute, or none: the generic cell rate algorithm.

    A reservation takes the next free stretch of time, of length amount / rate: in any window of T seconds, at most
    rate * T + one reservation pass.
    """

    def __init__(self, per_minute: float | None, clock: Callable[[], float]) -> None:
        self._seconds_each = 60.0 / per_minute if per_minute else 0.0
        self._clock = clock
        self._free_at = -inf

    def reserve(self, amount: float) -> float:
        """Reserve an amount and return the seconds to wait for it."""
        now = self._clock()
        start = max(self._free_at, now)
        self._free_at = start + amount * self._seconds_each
        return max(0.0, start - now)

    def correct(self, by: float) -> None:
        """Correct past reservations by the difference to actual use."""
        self._free_at += by * self._seconds_each


class RateLimits:
    """One model's limits on requests and on tokens; a request waits for the later of the two."""

    def __init__(
        self, limits: ModelLimits, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._sleep = sleep
        self._requests = RateLimit(limits.requests_per_minute, clock)
        self._tokens = RateLimit(limits.tokens_per_minute, clock)

    async def wait(self, tokens: float) -> float:
        """Wait until a request may be sent; returns the tokens it is expected to use."""
        if (delay := max(self._requests.reserve(1.0), self._tokens.reserve(tokens))) > 0.0:
            await self._sleep(delay)
        return tokens

    def correct(self, expected: float, used: float) -> None:
        """Replace a request's expected tokens by its actual ones."""
        self._tokens.correct(used - expected)


class RequestSender:
    """Sends one model's requests, one attempt at a time, and updates its state from the outcomes."""

    def __init__(self, context: EndpointContext) -> None:
        self._context = context
        self._caller, self._servers = context.caller, context.servers
        self._traffic, self._clock = context.traffic, context.clock
        self.streaming: bool | None = context.config.stream
        """Whether the servers stream; None while unknown."""
        self._streams_since = -inf
        self.replicas = ReplicaSet(context)
        self._ids = ResponseIds(context.servers.note, context.settings.refusals if context.independent else None)
        self._late = LateRequests(context, self.replicas, self._stream)
        self._pacer = RateLimits(context.limits, context.clock, context.sleep)
        self._watching: asyncio.Task[None] | None = None

    @property
    def oldest(self) -> float:
        """Age in seconds of the oldest attempt in flight."""
        oldest_attempt = next((attempt for attempt in self.replicas.attempts if attempt.is_sent), None)
        return 0.0 if oldest_attempt is None else self._clock() - oldest_attempt.sent_at

    async def _watch(self) -> None:
        """Watch replicas and attempts."""
        try:
            while True:
                now = self._clock()
                self.replicas.tick(now)
                self._late.tick(now)
                await asyncio.sleep(self._context.settings.tick)
        except Exception as error:  # no request may wait for a replica that is not watched
            self.replicas.give_up(f"watching its replicas failed: {error!r}")
            raise

    async def close(self) -> None:
        """Stop watching."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self.replicas.close()

    async def send(self, request: AttemptedRequest) -> list[Answer]:
        """Send a request once."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        traffic = self._traffic
        if traffic.given_up and not self.replicas.has_room:
            raise Unavailable(traffic.given_up)
        replica = request.replica = await self.replicas.acquire(avoid=request.replica)
        now = self._clock()
        traffic.in_flight += 1
        traffic.requests += 1
        request.attempts += 1
        server_share = self._context.shared_time.enter(replica.url, id(self), now)
        attempt = Attempt(request, replica, now)
        self.replicas.attempts[attempt] = None
        try:
            async with attempt:
                server = await self._servers.identify(replica.url)
                expected = await self._pacer.wait(len(request.seeds) * traffic.tokens_per_answer)
                body: Mapping[str, object] = stream_if_several(request.body) if server.llama else request.body
                attempt.send(self._clock(), bool(body.get("stream")))
                reply = await self._caller.send(replica.url, body, attempt)
            now = self._clock()
            answers = self._read(request, replica, reply, server_share.mean_share(now))
            replica.on_answer(attempt.sent_at, now)
        except Refusal as refusal:
            raise self._on_refused(request, replica, refusal, attempt.sent_at) from None
        except Failure as failure:
            self._on_failed(request, replica, failure, attempt.sent_at)
            raise
        except Rejected:
            self._count_lost(request)
            raise
        finally:
            server_share.leave(self._clock())
            traffic.in_flight -= 1
            del self.replicas.attempts[attempt]
            self.replicas.release(replica)
        self._learn(request, answers, reply, attempt, now)
        self._pacer.correct(expected, traffic.count_answers(answers, request.attempts))
        return answers

    def _read(self, request: AttemptedRequest, replica: Replica, reply: Reply, share: float) -> list[Answer]:
        """Answers in a reply to a request; `share` is its model's share of the server's time."""
        concurrent_answers = round(replica.window * len(request.seeds) / share)
        origin = ResponseOrigin(replica.url, reply.latency, reply.ttft, request.attempts, concurrent_answers)
        if reply.status == 200:
            self._ids.require_new(replica.url, reply.payload, request)
            self._servers.answer_names.check(reply.payload)
        try:
            return self._context.reader.read(reply, request.prompt, request.seeds, origin)
        except UnknownFinish as unknown:
            if self._traffic.has_answered:  # other answers have a known finish reason
                raise Failure(FailureKind.BAD_RESPONSE, unknown.among_others) from None
            if request.attempts == 1:
                raise Failure(FailureKind.BAD_RESPONSE, str(unknown)) from None
            raise

    def _learn(
        self, request: AttemptedRequest, answers: list[Answer], reply: Reply, attempt: Attempt, now: float
    ) -> None:
        """Update response times, and whether the server can stream."""
        if reply.status == 200:
            self._late.on_answer(max([answer.completion_tokens for answer in answers]), attempt, now)
        shows_streaming = attempt.sent_at >= self._streams_since  # others requested no stream
        if attempt.first_piece_at is not None:
            self.streaming = True
        elif (
            self.streaming is None
            and shows_streaming
            and reply.status == 200
            and any(answer.text for answer in answers)
        ):
            # an attempt in flight may still show that it can
            self.streaming = None if any(other.streamed for other in self.replicas.attempts) else False

    def _stream(self, request: AttemptedRequest) -> None:
        """Stream from now on, if possible, and a request that is sent again, too."""
        if self._context.bodies.stream():
            self.streaming, self._streams_since = None, self._clock()
        request.body = self._context.bodies.body(request.prompt, request.seeds, self.streaming is not False)

    def _on_refused(self, request: AttemptedRequest, replica: Replica, refusal: Refusal, sent_at: float) -> Refused:
        """Failure of a refused request; the request is repeated unless all replicas are assumed to refuse."""
        self._traffic.on_failure(FailureKind.REFUSED, refusal)
        request.refusal = refusal
        if self.streaming is not True and request.concerns_stream(refusal):
            if request.attempts > 1:
                request.body = unstreamed(request.body)
            return Refused(refusal, believed=False)
        if request.concerns_option(refusal):
            return Refused(refusal, believed=False)
        has_refused = replica.refuses
        is_certain = isinstance(refusal, ModelNotServed)
        replica.on_refusal(str(refusal), sent_at, self._clock(), is_certain=is_certain)
        if self.replicas.all_refuse:
            self.replicas.fail_waiting(refusal.copy)
        elif replica.refuses and not has_refused:
            text = f"its server at {replica.url} refuses everything, so requests go to its other servers: {refusal}"
            self._servers.note(Notice("replica_refuses", text))
        return Refused(refusal, self.replicas.all_refuse)

    def _on_failed(self, request: AttemptedRequest, replica: Replica, failure: Failure, sent_at: float) -> None:
        handling, now = HANDLING[failure.kind], self._clock()
        failure.wait = believed_wait(failure, self._context.max_refusal_wait, self._context.settings)
        replica.on_failure(failure.kind, sent_at, now, failure.wait)
        self._traffic.on_failure(failure.kind, failure)
        if handling.counts:
            self._traffic.failing.add(sent_at, now)
        if failure.may_have_cost:
            self._count_lost(request)
        if handling.health == "gone":
            self._servers.forget(replica.url)
        request.interruptions += failure.kind is FailureKind.REPLICA_LOST
        if self.streaming is None and handling.request_may_cause and request.attempts > 1:
            request.body = unstreamed(request.body)

    def _count_lost(self, request: AttemptedRequest) -> None:
        """Count a request whose answers may have been generated without arriving."""
        self._traffic.lost += len(request.seeds)
        request.lost = True
