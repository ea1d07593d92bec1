"""Makes single attempts: takes a place at a replica, sends the request, reads the reply, returns the place."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import inf

from adaptive_eval.endpoints.answers import AnswerReader, ResponseOrigin, answers_without_text
from adaptive_eval.endpoints.client import Caller, Reply
from adaptive_eval.endpoints.failures import (
    HANDLING,
    Failure,
    FailureKind,
    Refusal,
    Refused,
    UnknownFinish,
    error_signal,
)
from adaptive_eval.endpoints.overdue import Heartbeat, OverdueWatch, ResponseTimes
from adaptive_eval.endpoints.pacing import RateLimits
from adaptive_eval.endpoints.replica_care import ReplicaCare
from adaptive_eval.endpoints.replicas import Replica, ReplicaSet
from adaptive_eval.endpoints.response_ids import ResponseIds
from adaptive_eval.endpoints.second_requests import SecondRequests, Superseded
from adaptive_eval.endpoints.servers import IdentifiedServers
from adaptive_eval.endpoints.sharing import SharedTime
from adaptive_eval.endpoints.time_limit import EndableBlock
from adaptive_eval.endpoints.traffic import AttemptedRequest, Traffic
from adaptive_eval.endpoints.types import KEEP_TOKENS, Answer, EndpointConfig, Limits, Prompt, Sampling
from adaptive_eval.endpoints.wire import BodyBuilder, stream_several, unstreamed


class ReplyReader:
    """Reads the replies to one model's requests."""

    def __init__(self, config: EndpointConfig, sampling: Sampling, caller: Caller, servers: IdentifiedServers) -> None:
        keeps = sampling.logprobs == KEEP_TOKENS
        longest = sampling.longest_answer
        self._answers = AnswerReader(config, caller.redactor, longest, servers.note, keeps_tokens=keeps)
        self._max_tokens = sampling.max_tokens
        self._caller = caller
        self._servers = servers

    def answers(self, reply: Reply, prompt: Prompt, seeds: range, origin: ResponseOrigin) -> list[Answer]:
        """The answers for the first seeds; raises `Failure` or `Refusal` if the reply has none."""
        if reply.status == 200:
            self._servers.note_reply(origin.replica, reply.payload)
            return self._answers.answers(reply.payload, prompt, seeds, origin)
        signal = error_signal(
            reply.status,
            reply.body,
            reply.headers,
            max_tokens=self._max_tokens,
            redactor=self._caller.redactor,
            unauthorized=self._caller.unauthorized,
        )
        return answers_without_text(signal, seeds, origin)


class RequestSender:
    """Sends one model's requests, each attempt separately, and learns from the outcomes."""

    def __init__(
        self,
        config: EndpointConfig,
        sampling: Sampling,
        limits: Limits,
        caller: Caller,
        servers: IdentifiedServers,
        replies: ReplyReader,
        bodies: BodyBuilder,
        sleep: Callable[[float], Awaitable[None]],
        shared_time: SharedTime,
    ) -> None:
        self.clock = asyncio.get_running_loop().time
        self._shared_time = shared_time
        self.traffic = Traffic()
        self.streaming: bool | None = config.stream
        """Whether the servers stream; None while unknown."""
        self.replicas = ReplicaSet(config.replicas, limits.in_flight, self.clock)
        self.longest_refusal = max(sampling.timeout, limits.patience)
        """Seconds for which one request waits out refusals."""
        self._caller = caller
        self._servers = servers
        self._replies = replies
        self._bodies = bodies
        self._streams_since = -inf
        self._ids = ResponseIds(servers.note)
        self._care = ReplicaCare(self.replicas, servers, caller, limits, self.longest_refusal, self.clock)
        self._limit = sampling.timeout
        self._times = ResponseTimes(sampling.timeout, sampling.longest_answer)
        other = self.replicas.has_alternative
        self._second = SecondRequests(self._attempt, self.replicas, self.traffic, servers.note_first, self._stream)
        late, doubt = self._second.consider, self._care.watch.suspect
        self.overdue = OverdueWatch(self._times, sampling.timeout, other, self.clock, late, doubt)
        self._pacer = RateLimits(limits.requests_per_minute, limits.tokens_per_minute, self.clock, sleep)

    @property
    def is_known_to_stream(self) -> bool:
        """Whether it is known that the servers stream."""
        return self.streaming is True

    def start(self) -> None:
        """Begin to watch replicas and attempts."""
        self._care.watch.start()
        self.overdue.start()

    async def close(self) -> None:
        """Stop watching."""
        await self._second.close()
        await self._care.watch.close()
        await self.overdue.close()

    async def send(self, request: AttemptedRequest) -> list[Answer]:
        """Send a request once; if it is late, it is sent a second time meanwhile."""
        try:
            return await self._attempt(request)
        except Superseded:
            assert request.taken is not None
            return request.taken
        except Failure:
            answers = await self._second.answers(request)
            if answers is None:
                raise
            return answers
        finally:
            if request.second is not None:
                self._second.end(request)

    async def _attempt(self, request: AttemptedRequest) -> list[Answer]:
        replica = request.replica = await self.replicas.acquire(avoid=request.replica)
        self.traffic.in_flight += not request.is_second
        self.traffic.requests += 1
        request.attempts += 1
        expected = 0.0
        late: asyncio.TimerHandle | None = None
        mark = self._shared_time.enter(replica.url, id(self), self.clock())
        accepted = partial(self._care.on_accepted, replica)
        pulse = Heartbeat(self.clock(), bool(request.body.get("stream")), request.cuts, accepted)
        try:
            with EndableBlock() as lease:
                replica.leases[lease] = request.ended
                server = self._servers.known_identity(replica.url)
                if server is None or not self._pacer.unlimited:
                    server = server or await self._servers.identify(replica.url)
                    expected = await self._pacer.wait(len(request.seeds) * self.traffic.tokens_per_answer)
                    pulse.send(self.clock())
                body: Mapping[str, object] = request.body
                if server.llama:
                    body = stream_several(body)
                    pulse.streamed = bool(body.get("stream"))
                self.overdue.enter(lease, replica, pulse, request)
                late = asyncio.get_running_loop().call_later(self._limit, self._end_late, lease)
                reply = await self._caller.send(replica.url, body, pulse)
            if request.taken is not None:
                raise Superseded
            answers = self._read(request, replica, reply, mark.part(self.clock()))
        except Refusal as refusal:
            raise self._on_refused(request, replica, refusal, pulse.sent_at) from None
        except Failure as failure:
            self._on_failed(request, replica, failure, pulse.sent_at)
            raise
        except UnknownFinish:
            self._count_lost(request)
            raise
        finally:
            mark.leave(self.clock())
            self.traffic.in_flight -= not request.is_second
            replica.leases.pop(lease, None)
            self.overdue.leave(lease)
            if late is not None:
                late.cancel()
            self.replicas.release(replica)
        now = self.clock()
        self._learn(request, answers, reply, pulse, now)
        used = self.traffic.count_answers(answers, request.attempts)
        self._care.on_answer(replica, pulse.sent_at, now)
        if expected:
            self._pacer.correct(expected, used)
        return answers

    def _end_late(self, lease: EndableBlock) -> None:
        lease.end(Failure(FailureKind.TIMED_OUT, f"no answer within {self._limit:g} s"))

    def _read(self, request: AttemptedRequest, replica: Replica, reply: Reply, part: float) -> list[Answer]:
        """The answers in a reply to a request, whose model has had this part of the server's time."""
        abreast = round(replica.window.size * len(request.seeds) / part)
        origin = ResponseOrigin(replica.url, reply.latency, reply.ttft, request.attempts, abreast)
        if reply.status == 200:
            self._ids.require_new(replica.url, reply.payload, request.prompt, request.seeds)
        try:
            return self._replies.answers(reply, request.prompt, request.seeds, origin)
        except UnknownFinish as unknown:
            if request.attempts == 1 or self.traffic.has_answered:  # others end as they should
                raise Failure(FailureKind.BAD_RESPONSE, str(unknown)) from None
            raise

    def _learn(
        self, request: AttemptedRequest, answers: list[Answer], reply: Reply, pulse: Heartbeat, now: float
    ) -> None:
        """Update response times, and whether the server can stream."""
        if reply.status == 200:
            self._times.on_answer(max([answer.completion_tokens for answer in answers]), pulse, now)
        told = pulse.sent_at >= self._streams_since and not request.is_second  # others were not asked to stream
        if pulse.first_at is not None:
            self.streaming = True
        elif self.streaming is None and told and reply.status == 200 and any(answer.text for answer in answers):
            self.streaming = None if self.overdue.streams else False  # one in flight may still show that it can

    def _stream(self) -> None:
        """Stream from now on, where nothing speaks against it."""
        if self._bodies.stream():
            self.streaming, self._streams_since = None, self.clock()

    def _on_refused(self, request: AttemptedRequest, replica: Replica, refusal: Refusal, sent_at: float) -> Refused:
        """The failure of a refused request, which is repeated unless the refusal is believed."""
        self.traffic.on_failure(FailureKind.REFUSED, refusal)
        request.refusal = refusal
        if request.concerns_option(refusal, self.is_known_to_stream):
            return Refused(refusal, believed=False)
        return Refused(refusal, self._care.on_refusal(replica, refusal, sent_at, self.overdue.pending(replica)))

    def _on_failed(self, request: AttemptedRequest, replica: Replica, failure: Failure, sent_at: float) -> None:
        if failure.kind is FailureKind.OUT_OF_FILES:  # it was not sent
            request.attempts -= 1
            self.traffic.requests -= 1
            self._care.on_unsent(replica, sent_at)
            return
        self.traffic.on_failure(failure.kind, failure)
        if HANDLING[failure.kind].may_have_cost:
            self._count_lost(request)
        if failure.kind is FailureKind.REPLICA_LOST:
            request.ended += 1
            return
        request.cuts += failure.kind is FailureKind.STALLED
        self._care.on_failure(replica, failure, sent_at)
        if self.streaming is None and HANDLING[failure.kind].own and request.attempts > 1:
            request.body = unstreamed(request.body)

    def _count_lost(self, request: AttemptedRequest) -> None:
        """Count a request whose answers may have been generated in vain."""
        self.traffic.lost += len(request.seeds)
        request.lost = True
