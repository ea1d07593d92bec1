"""The `Endpoint` of one model: sends its requests to its replicas, and retries them.

Every attempt has the same seeds, so it does not matter which one counts. Tenacity is only used after a failure.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import SecretStr

from adaptive_eval.base.errors import ConfigError, EndpointError, Rejected, RetryNotAllowed, Unavailable
from adaptive_eval.endpoints import open_files
from adaptive_eval.endpoints.answers import ResponseOrigin, answers_without_text
from adaptive_eval.endpoints.checking import ServerCheck, tiny_prompt
from adaptive_eval.endpoints.client import NOT_SENDABLE, Caller, is_sendable
from adaptive_eval.endpoints.failures import Failure, FailureKind, Refusal, Refused, RetryDecision
from adaptive_eval.endpoints.load import LoadWatch
from adaptive_eval.endpoints.lone_failures import LoneFailures, can_blame
from adaptive_eval.endpoints.replica_care import OF_ONE
from adaptive_eval.endpoints.replicas import MISSES, PROBE_AGAIN
from adaptive_eval.endpoints.sender import ReplyReader, RequestSender
from adaptive_eval.endpoints.servers import IdentifiedServers
from adaptive_eval.endpoints.traffic import AttemptedRequest
from adaptive_eval.endpoints.types import (
    Again,
    Answer,
    Endpoint,
    EndpointConfig,
    EndpointStats,
    Health,
    Limits,
    Notice,
    Prompt,
    Sampling,
)
from adaptive_eval.endpoints.wire import BodyBuilder, unstreamed

STRAY = "one of its requests was refused ({}), and answered when it was asked again"


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
        has_answered: bool = False,
    ) -> None:
        """`ready`: its servers are known to be up, and get patience from the first request on. `has_answered`: the
        model has answered at an earlier start of the run."""
        self._model = config.model
        self._timeout = sampling.timeout
        self._limits = limits
        self._caller = caller
        self._sleep = sleep
        self._bodies = BodyBuilder(config, sampling)
        prompt = tiny_prompt(config)
        tiny = self._bodies.tiny(prompt)
        self._servers = IdentifiedServers(caller, config, sampling, tiny)
        for notice in notices:
            self._servers.note(notice)
        replies = ReplyReader(config, sampling, caller, self._servers)
        self._check = ServerCheck(caller, self._servers, replies, prompt, tiny, sleep)
        self._loads = loads or LoadWatch()
        shared_time = self._loads.shared_time
        self._sender = RequestSender(
            config, sampling, limits, caller, self._servers, replies, self._bodies, sleep, shared_time
        )
        self._sender.traffic.has_answered = has_answered
        for replica in self._sender.replicas.replicas if ready else ():
            replica.answered_at = self._sender.clock()
        self._together = limits.samples_per_request
        self._started = False
        self._probes: dict[str, asyncio.Task[bool]] = {}
        """Tiny requests under way that caps count, by address."""
        self._silent: dict[str, int] = {}
        """By address: how many requests had been answered when a tiny one that caps count was not."""

    # -- the protocol --------------------------------------------------------------------------------------------

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        """One answer per seed, in their order."""
        if not self._started:
            self._start()
        if len(seeds) <= self._together:
            return await self._request(prompt, seeds, again)
        return await self._request_all(prompt, _groups(seeds, self._together), again)

    async def check(self) -> Health:
        replicas = self._sender.replicas.replicas
        return Health(tuple(await asyncio.gather(*(self._check.health(replica.url) for replica in replicas))))

    async def unreachable(self) -> str | None:
        urls = [replica.url for replica in self._sender.replicas.replicas]
        troubles: list[str | None] = []
        for attempt in range(MISSES):
            if attempt:
                await self._sleep(PROBE_AGAIN)
            troubles = list(await asyncio.gather(*map(self._caller.connect_trouble, urls)))
            if None in troubles:
                return None
        each = "; ".join(f"{url}: {trouble}" for url, trouble in zip(urls, troubles, strict=True))
        return f"no connection to {'its server' if len(urls) == 1 else 'any of its servers'} can be made: {each}"

    async def close(self) -> None:
        """Stop watching and close every connection."""
        for probe in list(self._probes.values()):
            probe.cancel()
        await self._sender.close()
        await self._servers.close()
        await self._loads.leave(self._sender.replicas)
        await self._caller.close()

    @property
    def stats(self) -> EndpointStats:
        sender = self._sender
        return replace(
            sender.traffic.stats(),
            oldest=sender.overdue.oldest,
            replicas=sender.replicas.stats,
            notices=self._servers.notices,
        )

    # -- one request ---------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._started = True
        self._sender.start()
        self._loads.join(self._sender.replicas, self._metrics, self._together)

    async def _metrics(self, url: str) -> tuple[int, bytes]:
        return await self._caller.fetch_outside_api(url, "/metrics")

    async def _request_all(self, prompt: Prompt, groups: list[range], again: Again | None) -> list[Answer]:
        """Send several requests at once, and wait for all of them even if one fails, so that none is orphaned."""
        parts = await asyncio.gather(*(self._request(prompt, group, again) for group in groups), return_exceptions=True)
        answers = [answer for part in parts if not isinstance(part, BaseException) for answer in part]
        for part in parts:
            if isinstance(part, BaseException):
                self._sender.traffic.lost += len(answers)  # these arrived, and are dropped with the failed ones
                raise part
        return answers

    async def _request(self, prompt: Prompt, seeds: range, again: Again | None) -> list[Answer]:
        body = self._bodies.body(prompt, seeds, self._sender.streaming is not False)
        request = AttemptedRequest(prompt, seeds, body, again)
        try:
            try:
                answers = await self._sender.send(request)
            except Failure as failure:
                answers = await self._retry(request, failure)
        except Rejected as error:
            known = self._sender.is_known_to_stream
            if not isinstance(error, Refusal) or not request.concerns_option(error, known):
                raise
            if not known and request.body.get("stream") and "stream" in str(error).lower():
                return await self._retry_unstreamed(request, error)
            if len(seeds) == 1:
                raise
            return await self._request_fewer(request, seeds, len(seeds), f"refuses n = {len(seeds)}: {error}")
        if len(answers) == len(seeds):
            return answers
        why = f"gave {len(answers)} of n = {len(seeds)} answers"
        try:
            return answers + await self._request_fewer(request, seeds[len(answers) :], 1, why)
        except EndpointError:
            self._sender.traffic.lost += len(answers)
            raise

    async def _retry_unstreamed(self, request: AttemptedRequest, refusal: Rejected) -> list[Answer]:
        """Retry without streaming, since a server that never streamed seems to refuse it."""
        request = AttemptedRequest(request.prompt, request.seeds, unstreamed(request.body), request.again, request.lost)
        try:
            return await self._sender.send(request)
        except Failure as failure:
            return await self._retry(request, failure)
        except Rejected:
            raise refusal from None

    async def _request_fewer(self, request: AttemptedRequest, seeds: range, refused: int, why: str) -> list[Answer]:
        """Ask for fewer answers at a time from now on, because the server refuses or ignores n."""
        together = self._servers.fewer_answers(refused)
        answers = await self._request_all(request.prompt, _groups(seeds, together), request.again)
        if together < self._together:
            self._together = together
            self._servers.note(Notice("fewer_together", f"its server {why}; it is asked for {together} at a time"))
        return answers

    async def _retry(self, request: AttemptedRequest, first: Failure) -> list[Answer]:
        """Retry a failed request until it is answered or given up."""
        pending: Failure | None = first
        # the first timeout splits a request for several answers, lest a long answer cost the others
        timeouts = 1 if len(request.seeds) > 1 else self._limits.attempts
        streams = self._sender.is_known_to_stream
        mendable = isinstance(first, Refused) and request.concerns_option(first.refusal, streams)
        refusals = 2 if mendable else max(OF_ONE, self._limits.attempts)
        lone = LoneFailures(self._sender.traffic)
        sender = self._sender
        decision = RetryDecision(self._limits, timeouts, refusals, sender.longest_refusal, sender.clock, lone.judge)

        async def attempt() -> list[Answer]:
            nonlocal pending
            if pending is not None:
                failure, pending = pending, None
                raise failure
            if request.refusal is not None and len(request.seeds) > self._together:
                raise request.refusal.copy()  # by now the server is known to refuse this many
            if lone.lacks_another:
                await self._ask_tiny(request, lone)
            await _require_allowed(request)
            self._sender.traffic.retries += 1
            if sender.streaming is not None:  # other requests have shown meanwhile whether the servers stream
                request.body = self._bodies.body(request.prompt, request.seeds, sender.streaming)
            return await self._sender.send(request)

        try:
            answers: list[Answer] = await decision.retrying(self._sleep)(attempt)
        except Refused as failure:
            raise failure.refusal from None
        except Failure as failure:
            return await self._give_up(request, failure, is_lone=lone.is_certain)
        finally:
            lone.close()
        if request.refusal is not None and all(one.fit for one in sender.replicas.replicas):
            self._servers.note_first(Notice("stray_refusal", STRAY.format(request.refusal)))
        return answers

    async def _give_up(self, request: AttemptedRequest, failure: Failure, *, is_lone: bool) -> list[Answer]:
        """Answers without text for a request that timed out or fails alone; raises `Unavailable` otherwise."""
        replica = request.replica.url if request.replica is not None else ""
        timed_out = failure.kind is FailureKind.TIMED_OUT
        may_blame = can_blame(failure.kind, self._sender.traffic)
        if not (timed_out or is_lone or (may_blame and await self._answers(request))):
            raise Unavailable(
                f"model {self._model!r} at {replica}: given up after {request.attempts} attempts; "
                f"the last one failed with {failure.kind}: {failure}"
            ) from None
        if len(request.seeds) > 1:
            await _require_allowed(request)
            return await self._request_all(request.prompt, _groups(request.seeds, 1), request.again)
        arrival = ResponseOrigin(replica, self._timeout if timed_out else 0.0, None, request.attempts)
        if timed_out:
            return answers_without_text("timed_out", request.seeds, arrival)
        return answers_without_text("unanswered", request.seeds, arrival, reason=str(failure))

    async def _ask_tiny(self, request: AttemptedRequest, lone: LoneFailures) -> None:
        """Ask a tiny request in place of others: after each failure, under caps when chance does not explain them."""
        traffic, url = self._sender.traffic, "" if request.replica is None else request.replica.url
        if request.again is None:
            answers = await self._check.answers_now(url)
            traffic.answered += answers  # after the wait, in which others may have been answered
        elif lone.is_beyond_chance and not lone.is_proven and self._silent.get(url) != traffic.answered:
            lone.is_proven = await self._answers(request)
            if not lone.is_proven:
                self._silent[url] = traffic.answered

    async def _answers(self, request: AttemptedRequest) -> bool:
        """Whether the server of a request answers a tiny one, which caps count as a lost answer; False without caps.

        Requests that ask this meanwhile go by the same one.
        """
        if request.again is None or request.replica is None:
            return False
        url = request.replica.url
        if url not in self._probes:
            self._probes[url] = probe = asyncio.create_task(self._ask_counted(request, url))
            probe.add_done_callback(partial(self._on_probe_end, url))
        return await asyncio.shield(self._probes[url])

    async def _ask_counted(self, request: AttemptedRequest, url: str) -> bool:
        """Count a lost answer, and send a tiny request instead if the caps allow it."""
        assert request.again is not None
        if not await request.again():
            raise RetryNotAllowed("the budget does not allow asking whether the server answers")
        self._sender.traffic.lost += 1
        request.lost = True
        await _require_allowed(request)
        return await self._check.answers_now(url)

    def _on_probe_end(self, url: str, probe: asyncio.Task[bool]) -> None:
        del self._probes[url]
        if not probe.cancelled():
            probe.exception()  # marks it as retrieved, in case no request waits any more


async def _require_allowed(request: AttemptedRequest) -> None:
    """Raise `RetryNotAllowed` if the budget does not allow to repeat a lost request."""
    if request.lost and request.again is not None and not await request.again():
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
    loads: LoadWatch | None = None,
    ready: bool = False,
    folder: Path = Path(),
    notices: Sequence[Notice] = (),
    has_answered: bool = False,
) -> Endpoint:
    """Open the endpoint of one model; needs a running event loop.

    `keys` is the environment; `folder` has the files and plug-ins named in `config`. Endpoints on the same servers
    share their `loads`. For the others see `ModelEndpoint`.
    """
    if (problem := config.missing_key(keys)) is not None:
        raise ConfigError(problem)
    # a key read from a file often ends in a line break
    key = keys.get(config.key_variable or "", "").strip()
    if not is_sendable(key):
        raise ConfigError(f"{config.key_variable} must hold a key, but its value has {NOT_SENDABLE}")
    open_files.allow(open_files.wanted_for(limits.in_flight * len(config.replicas), len(config.replicas)))
    caller = _caller(config, sampling, SecretStr(key) if key else None, folder)
    return ModelEndpoint(
        config, sampling, limits, caller, loads=loads, ready=ready, notices=notices, has_answered=has_answered
    )


def _caller(config: EndpointConfig, sampling: Sampling, key: SecretStr | None, folder: Path) -> Caller:
    if config.client == "openai":
        # only on demand: the SDK takes half a second to load
        from adaptive_eval.endpoints.sdk import SdkCaller

        return SdkCaller(config, sampling, key, folder)
    return Caller(config, sampling, key, folder)
