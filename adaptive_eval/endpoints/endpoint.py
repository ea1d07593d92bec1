"""One model behind its replicas: answers in, failures repeated, each trial with its own seed.

The path of a request that does not fail is short: take a place at a replica, send, read, give the place back. Only
a failure starts tenacity. Every attempt carries the same seeds, so which attempt counts changes nothing.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import tenacity

from adaptive_eval.endpoints.answers import Arrival, Reader, without_text
from adaptive_eval.endpoints.client import Caller, Reply
from adaptive_eval.endpoints.failures import Failure, Kind, Persistence, UnknownFinish, signal_of_error
from adaptive_eval.endpoints.load import LoadWatch
from adaptive_eval.endpoints.overdue import OverdueWatch, Pulse, Times
from adaptive_eval.endpoints.replicas import HealthWatch, Pacer, Replica, ReplicaSet
from adaptive_eval.endpoints.servers import Acquaintance, Server, meet, name_of
from adaptive_eval.endpoints.types import (
    Answer,
    EndpointConfig,
    EndpointStats,
    Health,
    Limits,
    Message,
    Notice,
    Prompt,
    ReplicaHealth,
    Sampling,
    Signal,
)
from adaptive_eval.endpoints.wire import BodyBuilder, counted_apart, unstreamed
from adaptive_eval.errors import EndpointError, Rejected, Unavailable

_NOT_STREAMED = frozenset({Kind.BAD_RESPONSE, Kind.RESET, Kind.SERVER_ERROR})
"""What may mean that a server cannot stream, as long as it never has."""
MAY_HAVE_COST = frozenset({Kind.RESET, Kind.STALLED, Kind.TIMED_OUT, Kind.BAD_RESPONSE})
"""Failures after which an answer may have been generated for nothing; so may one of a replica that is found dead."""
FIRST_GUESS = 1000.0
"""Tokens that an answer is expected to use before any is known; corrected as soon as it is."""

CHECK_SECONDS = 60.0
"""A server that has not said a word in this time is not fit for a run."""

_TINY_CHAT = Prompt(messages=(Message("user", "Say OK."),))
_TINY_TEXT = Prompt(text="Say OK.")


@dataclass(slots=True)
class _Request:
    """One request over all its attempts."""

    prompt: Prompt
    seeds: range
    body: dict[str, object]
    attempts: int = 0
    cuts: int = 0
    """Attempts that were overdue."""
    replica: Replica | None = None
    """Where the last attempt went."""


@dataclass(slots=True)
class _Traffic:
    """What `EndpointStats` is made of."""

    in_flight: int = 0
    requests: int = 0
    retries: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    answers: int = 0


class ModelEndpoint:
    """The `Endpoint` of one model, over any `Caller`."""

    def __init__(
        self,
        config: EndpointConfig,
        sampling: Sampling,
        limits: Limits,
        caller: Caller,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        loads: LoadWatch | None = None,
        ready: bool = False,
    ) -> None:
        """`ready`: its servers have said that they are, and get patience from the first request on."""
        self._config = config
        self._sampling = sampling
        self._limits = limits
        self._caller = caller
        self._sleep = sleep
        self._clock = asyncio.get_running_loop().time
        self._bodies = BodyBuilder(config, sampling)
        self._replicas = ReplicaSet(config.replicas, limits.concurrency, self._clock)
        for replica in self._replicas.replicas if ready else ():
            replica.answered_at = self._clock()
        self._watch = HealthWatch(self._replicas, caller.probe, limits.patience, self._clock)
        self._loads = (loads or LoadWatch()) if limits.steer else None
        told = sampling.extra_body.get("max_completion_tokens", sampling.max_tokens)
        longest = told if isinstance(told, int) else None
        self._times = Times(sampling.timeout, longest)
        self._overdue = OverdueWatch(self._times, sampling.timeout, self._clock)
        self._streaming: bool | None = config.stream
        """Whether the servers stream; None as long as it is not known."""
        self._acquaintance = Acquaintance(config.model, self._meet)
        self._reader = Reader(config, caller.secrets, longest, self._acquaintance.note)
        self._pacer = Pacer(limits.requests_per_minute, limits.tokens_per_minute, self._clock)
        self._longest_refusal = max(sampling.timeout, limits.patience)
        self._together = limits.samples_per_request
        self._traffic = _Traffic()
        self._started = False

    # -- the protocol --------------------------------------------------------------------------------------------

    async def sample(self, prompt: Prompt, seeds: range) -> list[Answer]:
        """One answer per seed, in their order."""
        if not self._started:
            self._start()
        if len(seeds) <= self._together:
            return await self._request(prompt, seeds)
        return await self._all(prompt, _groups(seeds, self._together))

    async def check(self) -> Health:
        """Ask every replica for its models and for one tiny answer."""
        return Health(tuple(await asyncio.gather(*(self._check(url) for url in self._config.replicas))))

    async def close(self) -> None:
        """Stop watching and close every connection."""
        await self._watch.close()
        await self._overdue.close()
        await self._acquaintance.close()
        if self._loads is not None:
            await self._loads.leave(self._replicas)
        await self._caller.close()

    @property
    def stats(self) -> EndpointStats:
        """The traffic so far."""
        traffic = self._traffic
        return EndpointStats(
            in_flight=traffic.in_flight,
            requests=traffic.requests,
            retries=traffic.retries,
            errors=dict(traffic.errors),
            lost=traffic.lost,
            prompt_tokens=traffic.prompt_tokens,
            completion_tokens=traffic.completion_tokens,
            replicas=self._replicas.stats,
            notices=self._acquaintance.notices,
        )

    # -- one request ---------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._started = True
        self._watch.start()
        self._overdue.start()
        if self._loads is not None:
            self._loads.join(self._replicas, self._metrics, self._together)

    async def _metrics(self, url: str) -> tuple[int, bytes]:
        return await self._caller.beside(url, "/metrics")

    async def _all(self, prompt: Prompt, groups: list[range]) -> list[Answer]:
        """Several requests at once; waits for all of them even where one fails, so that none is left alone."""
        parts = await asyncio.gather(*(self._request(prompt, group) for group in groups), return_exceptions=True)
        answers: list[Answer] = []
        for part in parts:
            if isinstance(part, BaseException):
                raise part
            answers += part
        return answers

    async def _request(self, prompt: Prompt, seeds: range) -> list[Answer]:
        body = self._bodies.body(prompt, seeds)
        request = _Request(prompt, seeds, unstreamed(body) if self._streaming is False else body)
        try:
            try:
                answers = await self._attempt(request)
            except Failure as failure:
                answers = await self._persist(request, failure)
        except Rejected as error:
            if isinstance(error, UnknownFinish):
                raise
            if self._streaming is None and request.body.get("stream") and "stream" in str(error).lower():
                return await self._in_one_piece(prompt, seeds, error)
            if len(seeds) == 1:
                raise
            return await self._fewer(prompt, seeds, len(seeds), f"refuses n = {len(seeds)}: {error}")
        if len(answers) == len(seeds):
            return answers
        why = f"gave {len(answers)} of n = {len(seeds)} answers"
        return answers + await self._fewer(prompt, seeds[len(answers) :], 1, why)

    async def _in_one_piece(self, prompt: Prompt, seeds: range, refusal: Rejected) -> list[Answer]:
        """A server that never streamed seems to refuse it: ask for the response in one piece."""
        request = _Request(prompt, seeds, unstreamed(self._bodies.body(prompt, seeds)))
        try:
            return await self._attempt(request)
        except Failure as failure:
            return await self._persist(request, failure)
        except Rejected:
            raise refusal from None

    async def _fewer(self, prompt: Prompt, seeds: range, refused: int, why: str) -> list[Answer]:
        """The server refuses or ignores n: ask for fewer answers at a time, now and from now on."""
        together = self._acquaintance.fewer(refused)
        answers = await self._all(prompt, _groups(seeds, together))
        if together < self._together:
            self._together = together
            self._acquaintance.note(Notice("fewer_together", f"its server {why}; it is asked for {together} at a time"))
        return answers

    async def _persist(self, request: _Request, first: Failure) -> list[Answer]:
        """Repeat a failed request until it is answered or given up."""
        pending: Failure | None = first
        # one long answer must not take with it the others of its request: they part at the first time-out
        timeouts = 1 if len(request.seeds) > 1 else self._limits.attempts
        persistence = Persistence(self._limits, timeouts, self._longest_refusal, self._clock)

        async def again() -> list[Answer]:
            nonlocal pending
            if pending is not None:
                failure, pending = pending, None
                raise failure
            self._traffic.retries += 1
            return await self._attempt(request)

        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(Failure),
            stop=persistence.stop,
            wait=persistence.wait,
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return await retrying(again)
        except Failure as failure:
            replica = request.replica.url if request.replica is not None else ""
            if failure.kind is Kind.TIMED_OUT and len(request.seeds) > 1:
                return await self._all(request.prompt, _groups(request.seeds, 1))
            if failure.kind is Kind.TIMED_OUT:
                arrival = Arrival(replica, self._sampling.timeout, None, request.attempts)
                return without_text("timed_out", request.seeds, arrival)
            raise Unavailable(
                f"model {self._config.model!r} at {replica}: given up after {request.attempts} attempts; "
                f"the last one failed with {failure.kind}: {failure}"
            ) from None

    async def _attempt(self, request: _Request) -> list[Answer]:
        """Send a request once."""
        replica = request.replica = await self._replicas.acquire(avoid=request.replica)
        traffic = self._traffic
        traffic.in_flight += 1
        traffic.requests += 1
        request.attempts += 1
        pulse = Pulse(self._clock(), bool(request.body.get("stream")), request.cuts)
        try:
            async with asyncio.timeout(None) as lease:
                replica.leases.add(lease)
                server = self._acquaintance.known(replica.url) or await self._acquaintance.of(replica.url)
                expected = 0.0 if self._pacer.unlimited else await self._keep_pace(len(request.seeds))
                body = counted_apart(request.body) if server.llama else request.body
                pulse = Pulse(self._clock(), bool(body.get("stream")), request.cuts)
                self._overdue.enter(lease, replica.url, pulse)
                reply = await self._caller.ask(replica.url, body, pulse)
            answers = self._read(request, replica, reply)
        except TimeoutError:
            raise self._interrupted(request, replica, pulse) from None
        except Failure as failure:
            self._failed(replica, failure, pulse.sent_at)
            traffic.lost += len(request.seeds) if failure.kind in MAY_HAVE_COST else 0
            if self._streaming is None and failure.kind in _NOT_STREAMED:
                request.body = unstreamed(request.body)
            raise
        finally:
            traffic.in_flight -= 1
            replica.leases.discard(lease)
            self._overdue.leave(lease)
            self._replicas.release(replica)
        self._learn(answers, reply, pulse)
        self._answered(replica, answers, expected)
        return answers

    def _interrupted(self, request: _Request, replica: Replica, pulse: Pulse) -> Failure:
        """What ended an attempt from outside: it was overdue, or its replica is dead."""
        self._traffic.lost += len(request.seeds)
        if pulse.overdue is None:
            self._traffic.errors[Kind.REPLICA_LOST.value] += 1
            return Failure(Kind.REPLICA_LOST, f"{replica.url} was found dead while a request was in flight")
        request.cuts += 1
        failure = Failure(Kind.STALLED, pulse.overdue)
        self._failed(replica, failure, pulse.sent_at)
        return failure

    def _learn(self, answers: list[Answer], reply: Reply, pulse: Pulse) -> None:
        """What an answer took, and whether its server can stream."""
        if reply.status == 200:
            self._times.answered(max(answer.completion_tokens for answer in answers), pulse, self._clock())
        if pulse.first_at is not None:
            self._streaming = True
        elif self._streaming is None and reply.status == 200 and any(answer.text for answer in answers):
            self._streaming = False

    def _read(self, request: _Request, replica: Replica, reply: Reply) -> list[Answer]:
        abreast = replica.window.size * len(request.seeds)
        arrival = Arrival(replica.url, reply.latency, reply.ttft, request.attempts, abreast)
        if reply.status == 200:
            self._acquaintance.answered_as(name_of(reply.payload))
            return self._reader.answers(reply.payload, request.prompt, request.seeds, arrival)
        return without_text(self._signal(reply), request.seeds, arrival)

    def _signal(self, reply: Reply) -> Signal:
        """The signal of an error that is an answer; raises for any other."""
        return signal_of_error(
            reply.status,
            reply.body,
            reply.headers,
            max_tokens=self._sampling.max_tokens,
            secrets=self._caller.secrets,
            unauthorized=self._caller.unauthorized,
        )

    async def _keep_pace(self, answers: int) -> float:
        """Wait until the limits per minute allow a request; gives the tokens that it is expected to use."""
        traffic = self._traffic
        known = (traffic.prompt_tokens + traffic.completion_tokens) / traffic.answers if traffic.answers else 0.0
        expected = answers * (known or FIRST_GUESS)
        wait = self._pacer.reserve(expected)
        if wait > 0:
            await self._sleep(wait)
        return expected

    # -- what an attempt means for its replica -------------------------------------------------------------------

    def _answered(self, replica: Replica, answers: list[Answer], expected: float) -> None:
        replica.answered_at = self._clock()
        replica.window.answered()
        traffic = self._traffic
        prompt = sum(answer.prompt_tokens for answer in answers)
        completion = sum(answer.completion_tokens for answer in answers)
        traffic.prompt_tokens += prompt
        traffic.completion_tokens += completion
        traffic.answers += len(answers)
        if expected:
            self._pacer.correct(expected, prompt + completion)

    def _failed(self, replica: Replica, failure: Failure, sent_at: float) -> None:
        self._traffic.errors[failure.kind.value] += 1
        if failure.kind is Kind.RATE_LIMITED:
            replica.window.refused(sent_at, self._clock())
        else:
            replica.window.failed(sent_at, self._clock())
            if (pause := replica.window.pause) > 0.0:
                self._replicas.pause(replica, pause)
        if failure.retry_after is not None and failure.retry_after <= self._longest_refusal:
            self._replicas.pause(replica, failure.retry_after)
        if failure.kind is Kind.UNREACHABLE:
            self._acquaintance.forget(replica.url)
            self._watch.unreachable(replica)
        elif failure.kind is not Kind.RATE_LIMITED:
            self._watch.suspect(replica)

    # -- health on demand ----------------------------------------------------------------------------------------

    async def _check(self, url: str) -> ReplicaHealth:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                return await self._ask_once(url)
        except TimeoutError:
            return ReplicaHealth(url, False, f"no answer within {CHECK_SECONDS:g} s")
        except EndpointError as error:
            return ReplicaHealth(url, False, str(error))

    async def _ask_once(self, url: str) -> ReplicaHealth:
        server = await self._acquaintance.of(url)
        reply = await self._caller.ask(url, self._tiny())
        if reply.status == 200:
            self._reader.answers(reply.payload, self._tiny_prompt, range(1), Arrival(url, reply.latency, None, 1))
        else:
            self._signal(reply)
        return ReplicaHealth(url, True, "it answers", server.served, reply.latency, server.notices)

    async def _meet(self, url: str) -> Server:
        return await meet(self._caller, url, self._config, self._sampling, self._tiny())

    def _tiny(self) -> Mapping[str, object]:
        """A request that costs next to nothing."""
        return self._bodies.tiny(self._tiny_prompt)

    @property
    def _tiny_prompt(self) -> Prompt:
        return _TINY_CHAT if self._config.api == "chat" else _TINY_TEXT


def _groups(seeds: range, size: int) -> list[range]:
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]
