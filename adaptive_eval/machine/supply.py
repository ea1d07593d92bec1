"""Where answers come from: the interface of a supply, and the supply of models that are asked request by request.

A supply is given requests, and posts events. It knows the machine only by these values. One that starts servers, or
hands requests to a batch service, also answers which trials of earlier starts it still has (`claims`), and is told what
each model needs (`Demand`).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from adaptive_eval.base.errors import Copied, EndpointError, Rejected, RetryNotAllowed
from adaptive_eval.core.answer_kinds import answer_kinds
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Answer, Endpoint, EndpointStats, Prompt, RetryGate
from adaptive_eval.machine.charges import sum_costs
from adaptive_eval.machine.events import Answered, Capacity, Event, Failed, Received, Wasted
from adaptive_eval.machine.follow_up import RequestFailure
from adaptive_eval.machine.permits import Permits
from adaptive_eval.machine.records import Note
from adaptive_eval.machine.trial import Key, Request

POLL_SECONDS = 0.4
"""Traffic is read at most this often."""

Post = Callable[[Event], None]
"""Gives the machine an event."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A model's demand for servers."""

    waiting: int = 0
    """Trials that could be sent now."""
    in_flight: int = 0
    """Requests that its servers have."""
    is_owed: bool = False
    """Whether the outcome of a trial that it is asked, or is to be asked, is not on disk yet."""
    is_settled: bool = False
    """Whether nothing can want it again, as far as anybody can know."""
    is_parked: bool = False
    """Whether nothing is asked of it until trials of others want it again."""


class Supply(Protocol):
    """A source of answers of some models; by default one whose requests end with the process."""

    def claims(self, keys: Collection[Key]) -> Collection[Key]:
        """Those of these trials, which an earlier start has sent, that will still be answered."""
        return ()

    def submit(self, request: Request, *, claimed: bool) -> None:
        """Send a request; `Answered` or `Failed` follow until all its trials have left it."""

    def allow(self, request: int, allowed: bool) -> None:
        """A lost request may be repeated, or not."""

    def cancel(self, requests: Collection[int]) -> None:
        """Cancel requests: `Failed` follows for each that was not answered before."""

    def on_stored(self, keys: Sequence[Key]) -> None:
        """Answers of these trials are on disk."""
        return

    def on_noted(self, note: Note) -> None:
        """A note about a model of this supply is on disk."""
        return

    def leave(self) -> None:
        """The run is stopping: give back requests that were not sent; what the next start can claim stays."""
        return

    def serve(self, demand: Mapping[int, Demand]) -> None:
        """Start and stop servers as models need them; called when something has changed, and twice a second."""

    def stats(self, model: int) -> EndpointStats:
        """The traffic of a model so far."""

    async def unreachable(self, model: int) -> str | None:
        """Why no server of a model can be reached; None if one can, or nobody can tell before it is asked."""
        return None

    async def close(self) -> None:
        """Start nothing more, and cancel work in progress; notes posted meanwhile are still stored."""


class ModelClient(Protocol):
    """A client of one model, wherever its servers are."""

    async def ask(self, request: Request, retry_gate: RetryGate | None) -> Sequence[Answer]:
        """The answers to a request, in the order of its trials; raises `EndpointError`.

        `retry_gate` is awaited before a lost answer, which may have cost something, is requested again.
        """

    @property
    def stats(self) -> EndpointStats:
        """The traffic so far."""


@dataclass(frozen=True, slots=True)
class EndpointClient:
    """A model at an endpoint, which needs only prompts and seeds."""

    endpoint: Endpoint
    prompt: Callable[[int], Prompt]
    """The prompt of a question."""
    seed: Callable[[int, int], int]
    """The seed of a question's trial."""

    async def ask(self, request: Request, retry_gate: RetryGate | None) -> Sequence[Answer]:
        """Sample with the seeds of the trials, which follow each other."""
        first = self.seed(request.question, request.first)
        return await self.endpoint.sample(self.prompt(request.question), range(first, first + request.size), retry_gate)

    @property
    def stats(self) -> EndpointStats:
        """The traffic of the endpoint."""
        return self.endpoint.stats


@dataclass(frozen=True, slots=True)
class AskedModel:
    """A model of a supply: who answers for it, how many requests it takes, and what its answers cost."""

    client: ModelClient
    slots: int
    """Requests in flight at its servers, or at each of those that the run starts."""
    cost: Callable[[Answer], Cost]
    reserve: Callable[[Answer, int], Cost] = field(default=lambda answer, question: NO_COST)
    """The most that the grade of an answer to a question may cost."""


def receive(answer: Answer, number: int, cost: Cost, reserve: Cost) -> Received:
    """An answer to trial `number` with all that the machine wants to know of it."""
    kinds = answer_kinds(" ".join(sorted(answer.signals))) if answer.signals else 0
    return Received(number, answer, cost, answer.latency, kinds, reserve)


class EndpointSupply(Supply):
    """Models that are always there: each request is a task that waits for its model's client."""

    def __init__(
        self,
        models: Mapping[int, AskedModel],
        post: Post,
        on_error: Callable[[BaseException], None],
        *,
        is_capped: bool,
    ) -> None:
        """`on_error` receives unexpected errors."""
        self._models, self._post, self._on_error, self._is_capped = models, post, on_error, is_capped
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._requests: dict[int, Request] = {}
        self._cut_off: set[int] = set()
        """Requests that were cancelled while they were at a server."""
        self._running: Counter[int] = Counter()
        """Requests in flight, by model."""
        self._permits = Permits[int]()
        """For lost requests."""
        self._polled_at = -POLL_SECONDS
        self._lost: dict[int, int] = dict.fromkeys(models, 0)
        """Lost answers that were posted, by model."""
        self._in_vain: dict[int, int] = dict.fromkeys(models, 0)
        """Lost answers whose usage was known, by model."""
        self._stuck: dict[int, int] = dict.fromkeys(models, 0)
        """Requests that keep failing while others are answered, by model: other requests get their places."""

    def submit(self, request: Request, *, claimed: bool) -> None:
        """Ask the model's endpoint in a task."""
        self._running[request.model] += 1
        self._requests[request.id] = request
        task = self._tasks[request.id] = asyncio.create_task(self._ask(request))
        task.add_done_callback(partial(self._on_done, request))

    def allow(self, request: int, allowed: bool) -> None:
        """Resume a request that waits for permission."""
        self._permits.give(request, allowed)

    def cancel(self, requests: Collection[int]) -> None:
        """Cancel the tasks of these requests. Some may wait to be repeated, so that no server has them: the largest are
        taken to be at the servers, as many as these have of the model. Those that have just ended are at none."""
        running = [number for number in requests if number in self._tasks and not self._tasks[number].done()]
        cancelled = [self._requests[number] for number in running]
        at_server = {model: self.stats(model).in_flight for model in {request.model for request in cancelled}}
        for request in sorted(cancelled, key=lambda request: (self._permits.is_asked(request.id), -request.size)):
            if at_server[request.model] > 0:
                at_server[request.model] -= 1
                self._cut_off.add(request.id)
            self._tasks[request.id].cancel()

    def serve(self, demand: Mapping[int, Demand]) -> None:
        """Post losses of requests that go on, such as the slower one of two requests."""
        now = asyncio.get_running_loop().time()
        if now - self._polled_at < POLL_SECONDS:
            return
        self._polled_at = now
        for model in self._models:
            self._post_losses(model)
            stuck = self.stats(model).stuck_requests
            if stuck != self._stuck[model]:
                self._stuck[model] = stuck
                self.post_capacity(model)

    def post_capacity(self, model: int) -> None:
        """Post the number of a model's requests that may be in flight."""
        self._post(Capacity(model, self.capacity(model)))

    def capacity(self, model: int) -> int:
        """Requests of a model that may be in flight."""
        return self._models[model].slots + self._stuck[model]

    def stats(self, model: int) -> EndpointStats:
        """The traffic of the model's client."""
        return self._models[model].client.stats

    async def unreachable(self, model: int) -> str | None:
        """Why no server of a model can be reached; None if one can, or its client cannot tell."""
        client = self._models[model].client
        return await client.endpoint.unreachable() if isinstance(client, EndpointClient) else None

    async def close(self) -> None:
        """Cancel all requests."""
        self.cancel(list(self._tasks))
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _ask(self, request: Request) -> None:
        model = self._models[request.model]
        retry_gate = partial(self._may_repeat, request) if self._is_capped else None
        try:
            answers = await model.client.ask(request, retry_gate)
        except RetryNotAllowed as error:
            self._fail(request, RequestFailure.NOT_ALLOWED, str(error))
        except Copied as error:
            self._fail(request, RequestFailure.COPIED, str(error))
        except Rejected as error:
            self._fail(request, RequestFailure.REFUSED, str(error))
        except EndpointError as error:
            self._fail(request, RequestFailure.UNAVAILABLE, str(error))
        else:
            received = [
                receive(answer, number, model.cost(answer), model.reserve(answer, request.question))
                for number, answer in zip(request.numbers, answers, strict=True)
            ]
            self._post(Answered(request.id, received))

    def _on_done(self, request: Request, task: asyncio.Task[None]) -> None:
        """Forget a request."""
        del self._tasks[request.id], self._requests[request.id]
        self._permits.forget(request.id)
        is_at_server = request.id in self._cut_off
        self._cut_off.discard(request.id)
        self._running[request.model] -= 1
        if not self._running[request.model]:
            self._post_losses(request.model)
        if task.cancelled():
            self._fail(request, RequestFailure.CUT_OFF if is_at_server else RequestFailure.NOT_SENT)
        elif (error := task.exception()) is not None:  # a bug of this program
            self._on_error(error)

    def _fail(self, request: Request, kind: RequestFailure, reason: str = "") -> None:
        self._post_losses(request.model)
        self._post(Failed(request.id, kind, reason))

    async def _may_repeat(self, request: Request) -> bool:
        """Whether a lost request may be repeated: its loss has to be on disk, and within the caps."""
        permit = self._permits.ask(request.id)
        self._post_losses(request.model, waiting_request=request.id)
        return await permit

    def _post_losses(self, model: int, *, waiting_request: int | None = None) -> None:
        """Post the answers lost since the last call, except those of cancelled requests, which the machine charges."""
        stats = self.stats(model)
        lost, in_vain = stats.lost - self._lost[model], stats.in_vain[self._in_vain[model] :]
        self._lost[model], self._in_vain[model] = stats.lost, len(stats.in_vain)
        if in_vain:
            self._post(Wasted(model, len(in_vain), sum_costs(map(self._models[model].cost, in_vain))))
        unknown = max(lost - len(in_vain), 0)
        if unknown or waiting_request is not None:
            self._post(Wasted(model, unknown, None, waiting_request))
