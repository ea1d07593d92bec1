"""One model behind its replicas: answers in, failures repeated, each trial with its own seed.

The path of a request that does not fail is short: take a place at a replica, send, read, give the place back. Only
a failure starts tenacity. Every attempt carries the same seeds, so which attempt counts changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from adaptive_eval.endpoints import open_files
from adaptive_eval.endpoints.answers import AnswerReader, ResponseOrigin, answers_without_text
from adaptive_eval.endpoints.checking import check_server
from adaptive_eval.endpoints.client import PROBE_SECONDS, Caller, Reply
from adaptive_eval.endpoints.failures import (
    Failure,
    FailureKind,
    Refusal,
    Refused,
    RetryDecision,
    UnknownFinish,
    safe_excerpt,
    signal_of_error,
)
from adaptive_eval.endpoints.load import LoadWatch
from adaptive_eval.endpoints.lone_failures import LoneFailures
from adaptive_eval.endpoints.overdue import LastHeard, OverdueWatch, ResponseTimes
from adaptive_eval.endpoints.pacing import RateLimits
from adaptive_eval.endpoints.refusals import OF_ONE, RefusalDoubts
from adaptive_eval.endpoints.replicas import HealthWatch, Replica, ReplicaSet
from adaptive_eval.endpoints.retry_after import BelievedRetryAfter
from adaptive_eval.endpoints.servers import IdentifiedServers, ServerIdentity, fingerprint_of, name_of
from adaptive_eval.endpoints.time_limit import EndableBlock
from adaptive_eval.endpoints.traffic import AttemptedRequest, Traffic
from adaptive_eval.endpoints.types import (
    KEEP_TOKENS,
    Again,
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
from adaptive_eval.errors import EndpointError, NotAskedAgain, Rejected, Unavailable

_NOT_STREAMED = frozenset({FailureKind.BAD_RESPONSE, FailureKind.RESET, FailureKind.SERVER_ERROR})
"""What may mean that a server cannot stream, as long as it never has."""
MAY_HAVE_COST = frozenset({FailureKind.RESET, FailureKind.STALLED, FailureKind.TIMED_OUT, FailureKind.BAD_RESPONSE})
"""Failures after which an answer may have been generated for nothing; so may one of a replica that is found dead."""
FIRST_GUESS = 1000.0
"""Tokens that an answer is expected to use before any is known; corrected as soon as it is."""

SHOWN_OF_A_WAIT = 60
STRAY = "its server refused a request ({}) and answered it when it was asked again"
_TINY_CHAT = Prompt(messages=(Message("user", "Say OK."),))
_TINY_TEXT = Prompt(text="Say OK.")


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
        notices: Sequence[Notice] = (),
    ) -> None:
        """`ready`: its servers have said that they are, and get patience from the first request on."""
        self._config = config
        self._sampling = sampling
        self._limits = limits
        self._caller = caller
        self._sleep = sleep
        self._clock = asyncio.get_running_loop().time
        self._bodies = BodyBuilder(config, sampling)
        self._replicas = ReplicaSet(config.replicas, limits.in_flight, self._clock)
        for replica in self._replicas.replicas if ready else ():
            replica.answered_at = self._clock()
        self._watch = HealthWatch(self._replicas, caller.probe, limits.patience, self._clock)
        self._loads = loads or LoadWatch()
        told = sampling.extra_body.get("max_completion_tokens", sampling.max_tokens)
        longest = told if isinstance(told, int) else None
        self._times = ResponseTimes(sampling.timeout, longest)
        self._overdue = OverdueWatch(
            self._times,
            sampling.timeout,
            self._replicas.elsewhere,
            self._clock,
            lambda notice: self._servers.note(notice),
        )
        self._streaming: bool | None = config.stream
        """Whether the servers stream; None as long as it is not known."""
        self._servers = IdentifiedServers(config.model, self._identify, caller.secrets)
        for notice in notices:
            self._servers.note(notice)
        keeps = sampling.logprobs == KEEP_TOKENS
        self._reader = AnswerReader(config, caller.secrets, longest, self._servers.note, keeps_tokens=keeps)
        self._pacer = RateLimits(limits.requests_per_minute, limits.tokens_per_minute, self._clock)
        self._longest_refusal = max(sampling.timeout, limits.patience)
        self._doubts = RefusalDoubts(self._replicas, self._watch, self._clock)
        self._waits = BelievedRetryAfter(
            self._longest_refusal,
            self._clock,
            self._servers.note,
            lambda text: safe_excerpt(text, caller.secrets, SHOWN_OF_A_WAIT),
        )
        self._together = limits.samples_per_request
        self._traffic = Traffic()
        self._asks_another = False
        self._started = False

    # -- the protocol --------------------------------------------------------------------------------------------

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        """One answer per seed, in their order."""
        if not self._started:
            self._start()
        if len(seeds) <= self._together:
            return await self._request(prompt, seeds, again)
        return await self._request_all(prompt, _groups(seeds, self._together), again)

    async def check(self) -> Health:
        checks = (check_server(url, self._ask_tiny, self._sleep) for url in self._config.replicas)
        return Health(tuple(await asyncio.gather(*checks)))

    async def close(self) -> None:
        """Stop watching and close every connection."""
        await self._watch.close()
        await self._overdue.close()
        await self._servers.close()
        await self._loads.leave(self._replicas)
        await self._caller.close()

    @property
    def stats(self) -> EndpointStats:
        return replace(
            self._traffic.stats(),
            oldest=self._overdue.oldest,
            replicas=self._replicas.stats,
            notices=self._servers.notices,
        )

    # -- one request ---------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._started = True
        self._watch.start()
        self._overdue.start()
        self._loads.join(self._replicas, self._metrics, self._together)

    async def _metrics(self, url: str) -> tuple[int, bytes]:
        return await self._caller.fetch_outside_api(url, "/metrics")

    async def _request_all(self, prompt: Prompt, groups: list[range], again: Again | None) -> list[Answer]:
        """Several requests at once; waits for all of them even where one fails, so that none is left alone."""
        parts = await asyncio.gather(*(self._request(prompt, group, again) for group in groups), return_exceptions=True)
        answers = [answer for part in parts if not isinstance(part, BaseException) for answer in part]
        for part in parts:
            if isinstance(part, BaseException):
                self._traffic.lost += len(answers)  # they came, and go with the others
                raise part
        return answers

    async def _request(self, prompt: Prompt, seeds: range, again: Again | None) -> list[Answer]:
        request = AttemptedRequest(prompt, seeds, self._bodies.body(prompt, seeds, self._streaming is not False), again)
        try:
            try:
                answers = await self._attempt(request)
            except Failure as failure:
                answers = await self._persist(request, failure)
        except Rejected as error:
            known = self._streaming is not None
            if not isinstance(error, Refusal) or not request.may_be_mended(error, known):
                raise
            if not known and request.body.get("stream") and "stream" in str(error).lower():
                return await self._in_one_piece(request, error)
            if len(seeds) == 1:
                raise
            return await self._request_fewer(request, seeds, len(seeds), f"refuses n = {len(seeds)}: {error}")
        if len(answers) == len(seeds):
            return answers
        why = f"gave {len(answers)} of n = {len(seeds)} answers"
        try:
            return answers + await self._request_fewer(request, seeds[len(answers) :], 1, why)
        except EndpointError:
            self._traffic.lost += len(answers)
            raise

    async def _in_one_piece(self, request: AttemptedRequest, refusal: Rejected) -> list[Answer]:
        """A server that never streamed seems to refuse it: ask for the response in one piece."""
        request = AttemptedRequest(request.prompt, request.seeds, unstreamed(request.body), request.again, request.lost)
        try:
            return await self._attempt(request)
        except Failure as failure:
            return await self._persist(request, failure)
        except Rejected:
            raise refusal from None

    async def _request_fewer(self, request: AttemptedRequest, seeds: range, refused: int, why: str) -> list[Answer]:
        """The server refuses or ignores n: ask for fewer answers at a time, now and from now on."""
        together = self._servers.fewer(refused)
        answers = await self._request_all(request.prompt, _groups(seeds, together), request.again)
        if together < self._together:
            self._together = together
            self._servers.note(Notice("fewer_together", f"its server {why}; it is asked for {together} at a time"))
        return answers

    async def _persist(self, request: AttemptedRequest, first: Failure) -> list[Answer]:
        """Repeat a failed request until it is answered or given up."""
        pending: Failure | None = first
        # one long answer must not take with it the others of its request: they part at the first time-out
        timeouts = 1 if len(request.seeds) > 1 else self._limits.attempts
        mendable = isinstance(first, Refused) and request.may_be_mended(first.refusal, self._streaming is not None)
        refusals = 2 if mendable else max(OF_ONE, self._limits.attempts)
        lone = LoneFailures(self._traffic)
        decision = RetryDecision(self._limits, timeouts, refusals, self._longest_refusal, self._clock, lone.judge)

        async def again() -> list[Answer]:
            nonlocal pending
            if pending is not None:
                failure, pending = pending, None
                raise failure
            if request.refusal is not None and len(request.seeds) > self._together:
                raise request.refusal.again()  # it is known by now that they are too many
            if lone.lacks_another and request.again is None:  # under caps nothing is asked that they do not count
                await self._ask_another(request.replica)
            await _require_allowed(request)
            self._traffic.retries += 1
            if self._streaming:  # else one that was to be mended by asking without may hang unseen
                request.body = self._bodies.body(request.prompt, request.seeds)
            return await self._attempt(request)

        try:
            answers: list[Answer] = await decision.retrying(self._sleep)(again)
        except Refused as failure:
            raise failure.refusal from None
        except Failure as failure:
            replica = request.replica.url if request.replica is not None else ""
            if (failure.kind is FailureKind.TIMED_OUT or lone.is_certain) and len(request.seeds) > 1:
                await _require_allowed(request)
                return await self._request_all(request.prompt, _groups(request.seeds, 1), request.again)
            if failure.kind is FailureKind.TIMED_OUT:
                arrival = ResponseOrigin(replica, self._sampling.timeout, None, request.attempts)
                return answers_without_text("timed_out", request.seeds, arrival)
            if lone.is_certain:
                arrival = ResponseOrigin(replica, 0.0, None, request.attempts)
                return answers_without_text("unanswered", request.seeds, arrival, reason=str(failure))
            raise Unavailable(
                f"model {self._config.model!r} at {replica}: given up after {request.attempts} attempts; "
                f"the last one failed with {failure.kind}: {failure}"
            ) from None
        finally:
            lone.close()
        if request.refusal is not None:
            self._servers.note_first(Notice("stray_refusal", STRAY.format(request.refusal)))
        return answers

    async def _attempt(self, request: AttemptedRequest) -> list[Answer]:
        """Send a request once."""
        replica = request.replica = await self._replicas.acquire(avoid=request.replica)
        traffic = self._traffic
        traffic.in_flight += 1
        traffic.requests += 1
        request.attempts += 1
        body: Mapping[str, object] = request.body
        now, expected = self._clock(), 0.0
        pulse = LastHeard(now, bool(body.get("stream")), request.cuts, partial(self._doubts.accepted, replica, now))
        try:
            with EndableBlock() as lease:
                replica.leases[lease] = request.ended
                server = self._servers.known_identity(replica.url)
                if server is None or not self._pacer.unlimited:
                    server = server or await self._servers.identity_of(replica.url)
                    expected = 0.0 if self._pacer.unlimited else await self._keep_pace(len(request.seeds))
                    now = self._clock()
                    pulse.send(now, partial(self._doubts.accepted, replica, now))
                if server.llama:
                    body = counted_apart(body)
                    pulse.streamed = bool(body.get("stream"))
                self._overdue.enter(lease, replica, pulse)
                reply = await self._caller.ask(replica.url, body, pulse)
            answers = self._read(request, replica, reply)
        except TimeoutError:
            raise self._on_interrupted(request, replica, pulse) from None
        except Refusal as refusal:
            raise self._on_refused(request, replica, refusal, pulse.sent_at) from None
        except Failure as failure:
            if failure.kind is FailureKind.OUT_OF_FILES:
                self._on_unsent(request, replica, pulse.sent_at)
                raise
            self._on_failed(replica, failure, pulse.sent_at)
            if failure.kind in MAY_HAVE_COST:
                self._count_lost(request)
            if self._streaming is None and failure.kind in _NOT_STREAMED and request.attempts > 1:
                request.body = unstreamed(request.body)
            raise
        except UnknownFinish:
            self._count_lost(request)
            raise
        finally:
            traffic.in_flight -= 1
            replica.leases.pop(lease, None)
            self._overdue.leave(lease)
            self._replicas.release(replica)
        now = self._clock()
        self._learn(answers, reply, pulse, now)
        self._traffic.failed_before += request.attempts - 1
        self._on_answered(replica, answers, expected, now)
        self._doubts.accepted(replica, pulse.sent_at)
        return answers

    def _on_refused(self, request: AttemptedRequest, replica: Replica, refusal: Refusal, sent_at: float) -> Refused:
        """The failure of a refused request, which is sent again unless the refusal is believed."""
        self._traffic.failed(FailureKind.REFUSED, refusal)
        request.refusal = refusal
        if request.may_be_mended(refusal, self._streaming is not None):
            return Refused(refusal, believed=False)
        pending = self._overdue.pending(replica)
        return Refused(refusal, self._doubts.refused(replica, refusal, sent_at, pending))

    def _on_interrupted(self, request: AttemptedRequest, replica: Replica, pulse: LastHeard) -> Failure:
        """The failure of an attempt that was ended from outside: it was overdue, or its replica is dead."""
        self._count_lost(request)
        if pulse.overdue is None:
            request.ended += 1
            failure = Failure(FailureKind.REPLICA_LOST, f"{replica.url} was found dead while a request was in flight")
            self._traffic.failed(failure.kind, failure)
            return failure
        request.cuts += 1
        failure = Failure(FailureKind.STALLED, pulse.overdue)
        self._on_failed(replica, failure, pulse.sent_at)
        return failure

    def _count_lost(self, request: AttemptedRequest) -> None:
        """Count a request whose answers may have been generated, and do not count."""
        self._traffic.lost += len(request.seeds)
        request.lost = True

    def _learn(self, answers: list[Answer], reply: Reply, pulse: LastHeard, now: float) -> None:
        """Learn how long answers take, and whether the server can stream."""
        if reply.status == 200:
            self._times.answered(max([answer.completion_tokens for answer in answers]), pulse, now)
        if pulse.first_at is not None:
            self._streaming = True
        elif self._streaming is None and reply.status == 200 and any(answer.text for answer in answers):
            self._streaming = None if self._overdue.streams else False  # one that is in flight may show that it can

    def _read(self, request: AttemptedRequest, replica: Replica, reply: Reply) -> list[Answer]:
        abreast = replica.window.size * len(request.seeds)
        arrival = ResponseOrigin(replica.url, reply.latency, reply.ttft, request.attempts, abreast)
        if reply.status == 200:
            self._servers.answered_as(name_of(reply.payload))
            self._servers.answered_by(replica.url, fingerprint_of(reply.payload))
            return self._reader.answers(reply.payload, request.prompt, request.seeds, arrival)
        return answers_without_text(self._signal(reply), request.seeds, arrival)

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

    def _on_answered(self, replica: Replica, answers: list[Answer], expected: float, now: float) -> None:
        replica.answered_at = now
        replica.spoke(now)
        replica.window.answered()
        self._waits.answered(replica.url)
        traffic = self._traffic
        prompt = sum([answer.prompt_tokens for answer in answers])
        completion = sum([answer.completion_tokens for answer in answers])
        traffic.prompt_tokens += prompt
        traffic.completion_tokens += completion
        traffic.answers += len(answers)
        traffic.answered += 1
        if expected:
            self._pacer.correct(expected, prompt + completion)

    def _on_unsent(self, request: AttemptedRequest, replica: Replica, sent_at: float) -> None:
        """Send fewer requests at a time: this machine had no connection for one."""
        request.attempts -= 1
        self._traffic.requests -= 1
        replica.window.refused(sent_at, self._clock())
        self._servers.note_first(Notice("out_of_files", open_files.shortage_message()))

    def _on_failed(self, replica: Replica, failure: Failure, sent_at: float) -> None:
        self._traffic.failed(failure.kind, failure)
        if failure.kind is FailureKind.RATE_LIMITED:
            replica.window.refused(sent_at, self._clock())
        else:
            replica.window.failed(sent_at, self._clock())
            if (pause := replica.window.pause) > 0.0:
                self._replicas.pause(replica, pause)
        failure.wait = self._waits.believed_seconds(replica.url, failure.told, sent_at)
        if failure.wait > 0.0:
            self._replicas.pause(replica, failure.wait)
        if failure.kind is FailureKind.UNREACHABLE:
            self._servers.forget(replica.url)
            self._watch.unreachable(replica)
        elif failure.kind is not FailureKind.RATE_LIMITED:
            self._watch.suspect(replica)

    # -- health on demand ----------------------------------------------------------------------------------------

    async def _ask_tiny(self, url: str) -> ReplicaHealth:
        server = await self._servers.identity_of(url)
        reply = await self._caller.ask(url, self._tiny())
        if reply.status == 200:
            self._reader.answers(
                reply.payload, self._tiny_prompt, range(1), ResponseOrigin(url, reply.latency, None, 1)
            )
        else:
            self._signal(reply)
        return ReplicaHealth(url, True, "it answers", server.served, reply.latency, server.notices)

    async def _ask_another(self, replica: Replica | None) -> None:
        """Ask for a tiny answer where a request has failed again: whether its server answers others."""
        if replica is None or self._asks_another:
            return
        self._asks_another = True
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._ask_tiny(replica.url)
            self._traffic.answered += 1
        except (TimeoutError, Failure, EndpointError):
            pass
        finally:
            self._asks_another = False

    async def _identify(self, url: str) -> ServerIdentity:
        return await ServerIdentity.identify(self._caller, url, self._config, self._sampling, self._tiny())

    def _tiny(self) -> Mapping[str, object]:
        """A request that costs next to nothing."""
        return self._bodies.tiny(self._tiny_prompt)

    @property
    def _tiny_prompt(self) -> Prompt:
        return _TINY_CHAT if self._config.api == "chat" else _TINY_TEXT


async def _require_allowed(request: AttemptedRequest) -> None:
    """Raise `NotAskedAgain` if the budget forbids to repeat a lost request."""
    if request.lost and request.again is not None and not await request.again():
        raise NotAskedAgain("an answer was lost, and the budget does not allow asking for it again")
    request.lost = False


def _groups(seeds: range, size: int) -> list[range]:
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]
