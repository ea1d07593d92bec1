"""The `Endpoint` of one model: sends its requests to its replicas, and retries them.

Every attempt has the same seeds, so it does not matter which one counts.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from adaptive_eval.base.errors import EndpointError, Rejected, RetryNotAllowed, Unavailable
from adaptive_eval.endpoints import open_files
from adaptive_eval.endpoints.answers import ResponseOrigin, answers_without_text
from adaptive_eval.endpoints.client import PROBE_SECONDS, Caller
from adaptive_eval.endpoints.context import EndpointContext
from adaptive_eval.endpoints.failures import Failure, FailureKind, Refusal, Refused, error_signal
from adaptive_eval.endpoints.retry import Retries, can_blame_request
from adaptive_eval.endpoints.sender import RequestSender
from adaptive_eval.endpoints.servers import NO_LIST_STATUSES, model_entries
from adaptive_eval.endpoints.sharing import SharedTime
from adaptive_eval.endpoints.traffic import AttemptedRequest
from adaptive_eval.endpoints.types import (
    Answer,
    EarlierTimes,
    Endpoint,
    EndpointConfig,
    EndpointStats,
    Health,
    Limits,
    Notice,
    Prompt,
    ReplicaHealth,
    RetryGate,
    Sampling,
)

CHECK_SECONDS = 60.0
"""A server that has not sent a byte in this time is unfit for a run."""


class ModelEndpoint:
    """The `Endpoint` of one model, over any `Caller`."""

    def __init__(self, context: EndpointContext, *, ready: bool = False, notices: Sequence[Notice] = ()) -> None:
        """`ready`: its servers are known to be up, so requests are retried from the start."""
        self._context = context
        for notice in notices:
            context.servers.note(notice)
        self._sender = RequestSender(context)
        for replica in self._sender.replicas.replicas if ready else ():
            replica.answered_at = context.clock()
        self._answers_per_request = context.limits.samples_per_request
        self._tiny: dict[str, asyncio.Task[bool]] = {}
        """Tiny requests in flight, by URL."""
        self._unanswered: dict[str, int] = {}
        """By URL: number of answered requests when a tiny one was not answered."""

    # -- the protocol --------------------------------------------------------------------------------------------

    async def sample(self, prompt: Prompt, seeds: range, retry_gate: RetryGate | None = None) -> list[Answer]:
        """One answer per seed, in their order."""
        if len(seeds) <= self._answers_per_request:
            return await self._request(prompt, seeds, retry_gate)
        return await self._request_all(prompt, _groups(seeds, self._answers_per_request), retry_gate)

    async def check(self) -> Health:
        replicas = self._sender.replicas.replicas
        return Health(tuple(await asyncio.gather(*(self._health(replica.url) for replica in replicas))))

    async def unreachable(self) -> str | None:
        urls = [replica.url for replica in self._sender.replicas.replicas]
        troubles: list[str | None] = []
        for attempt in range(self._context.settings.probe_misses):
            if attempt:
                await self._context.sleep(self._context.settings.probe_again)
            troubles = list(await asyncio.gather(*map(self._context.caller.connect_trouble, urls)))
            if None in troubles:
                return None
        details = "; ".join(f"{url}: {trouble}" for url, trouble in zip(urls, troubles, strict=True))
        return f"cannot connect to {'its server' if len(urls) == 1 else 'any of its servers'}: {details}"

    async def close(self) -> None:
        """Stop watching and close every connection, even if the task that closes them is cancelled meanwhile."""
        closing = asyncio.create_task(self._close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise

    async def _close(self) -> None:
        for tiny in list(self._tiny.values()):
            tiny.cancel()
        await self._sender.close()
        await self._context.servers.close()
        await self._context.caller.close()

    @property
    def stats(self) -> EndpointStats:
        context, sender = self._context, self._sender
        return replace(
            context.traffic.stats(),
            oldest=sender.oldest,
            replicas=sender.replicas.stats,
            notices=context.servers.notices,
        )

    # -- one request ---------------------------------------------------------------------------------------------

    async def _request_all(self, prompt: Prompt, groups: list[range], retry_gate: RetryGate | None) -> list[Answer]:
        """Send several requests at once and wait for all of them, even if one fails."""
        outcomes = await asyncio.gather(
            *(self._request(prompt, group, retry_gate) for group in groups), return_exceptions=True
        )
        answers = [answer for outcome in outcomes if not isinstance(outcome, BaseException) for answer in outcome]
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                self._context.traffic.lost += len(answers)  # these arrived, and are dropped with the failed ones
                raise outcome
        return answers

    async def _request(self, prompt: Prompt, seeds: range, retry_gate: RetryGate | None) -> list[Answer]:
        body = self._context.bodies.body(prompt, seeds, self._sender.streaming is not False)
        request = AttemptedRequest(prompt, seeds, body, retry_gate)
        try:
            try:
                answers = await self._sender.send(request)
            except Failure as failure:
                answers = await self._retry(request, failure, self._new_retries(request, failure))
        except Refusal as error:
            if len(seeds) == 1 or not request.concerns_option(error):
                raise
            return await self._request_singly(request, seeds, f"refuses n = {len(seeds)}: {error}")
        if len(answers) == len(seeds):
            return answers
        problem = f"gave {len(answers)} of n = {len(seeds)} answers"
        try:
            return answers + await self._request_singly(request, seeds[len(answers) :], problem)
        except EndpointError:
            self._context.traffic.lost += len(answers)
            raise

    async def _request_singly(self, request: AttemptedRequest, seeds: range, problem: str) -> list[Answer]:
        """Ask for one answer at a time from now on, because the server refuses or ignores n."""
        answers = await self._request_all(request.prompt, _groups(seeds, 1), request.retry_gate)
        if self._answers_per_request > 1:
            self._answers_per_request = 1
            self._context.servers.note(Notice("fewer_together", f"its server {problem}; it is asked for 1 at a time"))
        return answers

    def _new_retries(self, request: AttemptedRequest, failure: Failure) -> Retries:
        """For a request that has failed once."""
        context = self._context
        retries = Retries(context.limits, context.max_refusal_wait, context.settings, context.clock, context.traffic)
        if len(request.seeds) > 1:  # so that one long answer does not cost the others
            retries.timeouts = 1
        refusal = failure.refusal if isinstance(failure, Refused) else None
        if refusal is not None and request.concerns_option(refusal) and not request.concerns_stream(refusal):
            retries.refusals = 2
        return retries

    async def _retry(self, request: AttemptedRequest, pending: Failure | None, retries: Retries) -> list[Answer]:
        """Retry a request until it is answered or given up; `pending` is a failure that is not counted yet."""

        async def attempt() -> list[Answer]:
            nonlocal pending
            if pending is not None:
                first_failure, pending = pending, None
                raise first_failure
            return await self._attempt_again(request, retries)

        try:
            return await retries.retrying(self._context.sleep)(attempt)
        except Refused as refused:
            raise refused.refusal from None
        except Failure as last_failure:
            return await self._give_up(request, last_failure, retries)
        finally:
            retries.close()

    async def _attempt_again(self, request: AttemptedRequest, retries: Retries) -> list[Answer]:
        """Make another attempt at a request."""
        sender = self._sender
        if request.refusal is not None and len(request.seeds) > self._answers_per_request:
            raise request.refusal.copy()  # meanwhile the server is known to refuse this many
        if retries.needs_proof:
            retries.is_proven = await self._is_server_proven(request)
        await _require_allowed(request)
        self._context.traffic.retries += 1
        if sender.streaming is not None:  # other requests have shown meanwhile whether the servers stream
            request.body = self._context.bodies.body(request.prompt, request.seeds, sender.streaming)
        return await sender.send(request)

    async def _give_up(self, request: AttemptedRequest, failure: Failure, retries: Retries) -> list[Answer]:
        """Answers without text for a request that timed out or fails alone; raises `Unavailable` otherwise."""
        traffic, replica = self._context.traffic, request.replica.url if request.replica is not None else ""
        timed_out = failure.kind is FailureKind.TIMED_OUT
        if not (timed_out or retries.is_request_at_fault):
            may_blame = can_blame_request(failure.kind, traffic)
            if not (may_blame and await self._is_tiny_answered(request, replica)):
                attempts = max(request.attempts, traffic.failing.rounds)
                reason = (
                    f"model {self._context.config.model!r} at {replica}: given up after {attempts} attempts; "
                    f"the last one failed with {failure.kind}: {failure}"
                )
                if retries.has_all_failed:
                    traffic.given_up = reason
                    self._sender.replicas.fail_waiting(lambda: Unavailable(reason))
                raise Unavailable(reason) from None
            if retries.failures < self._context.settings.attempts:  # others failed more often
                retries.is_proven = True
                traffic.end_failures()
                return await self._retry(request, None, retries)
        if len(request.seeds) > 1:
            await _require_allowed(request)
            return await self._request_all(request.prompt, _groups(request.seeds, 1), request.retry_gate)
        origin = ResponseOrigin(replica, self._context.sampling.timeout if timed_out else 0.0, None, request.attempts)
        if timed_out:
            return answers_without_text("timed_out", request.seeds, origin)
        return answers_without_text("unanswered", request.seeds, origin, reason=str(failure))

    # -- tiny requests, which show whether a server answers ------------------------------------------------------

    async def _health(self, url: str) -> ReplicaHealth:
        """Ask a server once, or twice if it refuses or fails, since one such reply says little.

        A server that cannot be reached is not asked twice: a run would not wait for it either.
        """
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                try:
                    return await self._ask_server(url)
                except (Refusal, Failure) as error:
                    if isinstance(error, Failure) and error.kind is FailureKind.UNREACHABLE:
                        raise
                    await self._context.sleep(2.0 * self._context.settings.backoff)
                    health = await self._ask_server(url)
                    return replace(health, detail=f"{health.detail}, asked again after: {error}")
        except TimeoutError:
            return ReplicaHealth(url, False, f"no answer within {CHECK_SECONDS:g} s")
        except EndpointError as error:
            may_answer_later = isinstance(error, Failure) and error.kind is FailureKind.TIER_FULL
            return ReplicaHealth(url, may_answer_later, str(error), refuses=isinstance(error, Rejected))

    async def _ask_server(self, url: str) -> ReplicaHealth:
        """Ask a server for a tiny answer."""
        context = self._context
        server = await context.servers.identify(url)
        reply = await context.caller.ask(url, context.bodies.tiny())
        prompt, origin = context.bodies.tiny_prompt, ResponseOrigin(url, reply.latency, None, 1)
        context.servers.answer_names.check(reply.payload)
        context.reader.read(reply, prompt, range(1), origin)
        return ReplicaHealth(url, True, "it answers", reply.latency, server.notices)

    async def _is_server_proven(self, request: AttemptedRequest) -> bool:
        """Whether the server of a request answers a tiny one, which is sent once until another request is answered."""
        url, answered = "" if request.replica is None else request.replica.url, self._context.traffic.answered
        if self._unanswered.get(url) == answered:
            return False
        is_answered = await self._is_tiny_answered(request, url)
        if not is_answered:
            self._unanswered[url] = self._context.traffic.answered
        return is_answered

    async def _is_tiny_answered(self, request: AttemptedRequest, url: str) -> bool:
        """Whether a server answers a tiny request, which caps count as a lost answer.

        Concurrent callers share one request.
        """
        if url not in self._tiny:
            self._tiny[url] = tiny = asyncio.create_task(self._ask_tiny(request, url))
            tiny.add_done_callback(partial(self._on_tiny_end, url))
        return await asyncio.shield(self._tiny[url])

    async def _ask_tiny(self, request: AttemptedRequest, url: str) -> bool:
        if request.retry_gate is not None:
            if not await request.retry_gate():
                raise RetryNotAllowed("the budget does not allow asking whether the server answers")
            self._context.traffic.lost += 1
            request.lost = True
            await _require_allowed(request)
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._ask_server(url)
            return True
        except (TimeoutError, EndpointError):
            return False

    def _on_tiny_end(self, url: str, tiny: asyncio.Task[bool]) -> None:
        del self._tiny[url]
        if not tiny.cancelled():
            tiny.exception()  # marks it as retrieved, in case no request waits any more


async def _require_allowed(request: AttemptedRequest) -> None:
    """Raise `RetryNotAllowed` if the budget does not allow repeating a lost request."""
    if request.lost and request.retry_gate is not None and not await request.retry_gate():
        raise RetryNotAllowed("an answer was lost, and the budget does not allow asking for it again")
    request.lost = False


def _groups(seeds: range, size: int) -> list[range]:
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]


def open_endpoint(
    config: EndpointConfig,
    sampling: Sampling,
    limits: Limits,
    *,
    keys: Mapping[str, str],
    shared_time: SharedTime | None = None,
    ready: bool = False,
    folder: Path = Path(),
    notices: Sequence[Notice] = (),
    earlier: EarlierTimes | None = None,
    independent: bool = False,
) -> Endpoint:
    """Open the endpoint of one model; needs a running event loop.

    `keys` is the environment; `folder` has the files and plug-ins named in `config`. Endpoints on the same servers
    divide their time (`shared_time`). For the other parameters see `ModelEndpoint` and `EndpointContext`.
    """
    caller = _caller(config, sampling, keys, folder)
    open_files.allow(open_files.files_needed(limits.in_flight * len(config.replicas), len(config.replicas)))
    context = EndpointContext(
        config, sampling, limits, caller, shared_time or SharedTime(), earlier, independent=independent
    )
    return ModelEndpoint(context, ready=ready, notices=notices)


async def list_models(config: EndpointConfig, *, keys: Mapping[str, str], folder: Path = Path()) -> tuple[str, ...]:
    """The names in the server's list of models; empty if it has none. Raises `EndpointError` if it gives no list."""
    caller, url = _caller(config, Sampling(), keys, folder), config.replicas[0]
    try:
        reply = await caller.models(url)
    finally:
        await caller.close()
    if reply.status != 200 and reply.status not in NO_LIST_STATUSES:
        error_signal(reply.status, reply.body, reply.headers, redactor=caller.redactor)
    return tuple(dict.fromkeys(filter(None, (str(entry["id"]) for entry in model_entries(reply)))))


def _caller(config: EndpointConfig, sampling: Sampling, keys: Mapping[str, str], folder: Path) -> Caller:
    """The client of these servers, with their key; raises `ConfigError` if it is missing or cannot be sent."""
    if config.client == "openai":
        # only on demand: the SDK takes half a second to load
        from adaptive_eval.endpoints.sdk import SdkCaller

        return SdkCaller(config, sampling, keys, folder)
    return Caller(config, sampling, keys, folder)
