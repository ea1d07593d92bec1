"""One site as seen from the head: sends requests and receives answers, many in a message, never one call per trial.

Requests are gathered for a moment, or until they fill a message. The reply is the site's report; the site delays it
until there is something to report. A reply to the last message is followed by another message at once. A site with
nothing to report replies at each heartbeat, so a silent site hangs. Any failure ends the link: all waiting requests get
an error, and later replies are ignored.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

from adaptive_eval.endpoints.types import Answer, EndpointStats, RetryGate
from adaptive_eval.machine.trial import Request
from adaptive_eval.notes import Event
from adaptive_eval.sites.messages import (
    GATHERING_SECONDS,
    MAX_PER_MESSAGE,
    SiteGone,
    SiteHandle,
    SiteOrder,
    SiteReply,
    SiteReport,
    SiteRequest,
)


class _Waiting(NamedTuple):
    """A request in flight."""

    answers: asyncio.Future[list[Answer]]
    retry_gate: RetryGate | None


class SiteLink:
    """The client of one site, with its requests in flight and its reports."""

    def __init__(
        self,
        handle: SiteHandle,
        replica: str,
        silence: float,
        on_event: Callable[[Event], None],
        on_gone: Callable[["SiteLink", str], None],
    ) -> None:
        """`replica` is the replica's name for answers. `on_event` is called with events of the site's server, and
        `on_gone` with the reason when the site stops answering, for example after `silence` seconds."""
        self._handle, self._replica, self._silence = handle, replica, silence
        self._on_event, self._on_gone = on_event, on_gone
        self._waiting: dict[int, _Waiting] = {}
        self._numbers = count(1)
        self._requests: list[SiteRequest] = []
        self._allowed: list[tuple[int, bool]] = []
        self._dropped: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        """Sends what was gathered of these."""
        self._stats = EndpointStats()
        self._tasks: set[asyncio.Task[None]] = set()
        self.answers = 0
        """Number of answers received from the site."""
        self._is_closed = False
        self._pending = 0
        """Messages without a reply; the site replies to the last one when it has something to report."""
        self._flush()

    @property
    def in_flight(self) -> int:
        """Number of requests at the site."""
        return len(self._waiting)

    @property
    def stats(self) -> EndpointStats:
        """Latest traffic of the site's endpoint; its server has the name of its place."""
        replicas = tuple(replace(replica, url=self._replica) for replica in self._stats.replicas)
        return replace(self._stats, in_flight=self.in_flight, replicas=replicas)

    async def ask(self, request: Request, seed: int, retry_gate: RetryGate | None) -> list[Answer]:
        """One answer per trial, in order, `seed` being that of the first; raises the errors of the site's endpoint, and
        `SiteGone`."""
        if self._is_closed:
            raise SiteGone("it is gone")
        waiting = _Waiting(asyncio.get_running_loop().create_future(), retry_gate)
        number = next(self._numbers)
        self._waiting[number] = waiting
        self._requests.append(SiteRequest(number, request.question, seed, request.size, retry_gate is not None))
        self._flush_soon()
        try:
            return await waiting.answers
        except asyncio.CancelledError:
            if not self._is_closed:
                self._dropped.append(number)
                self._flush_soon()
            raise
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """Stop all messages; requests in flight get `SiteGone`."""
        self._shut_down("it was ended")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- messages ----------------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        """Send a message in a moment, or at once if it is full."""
        if len(self._requests) >= MAX_PER_MESSAGE:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHERING_SECONDS, self._flush)

    def _flush(self) -> None:
        """Send everything that was gathered."""
        self._stop_timer()
        order = SiteOrder(tuple(self._requests), tuple(self._allowed), tuple(self._dropped))
        self._requests, self._allowed, self._dropped = [], [], []
        if not self._is_closed:
            self._pending += 1
            self._start(self._exchange(order))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    async def _exchange(self, order: SiteOrder) -> None:
        """Send a message and apply the report; if no other message is pending, send another."""
        try:
            async with asyncio.timeout(self._silence):
                report = await self._handle.sync(order)
        except TimeoutError:
            self._lose(f"it was silent for {self._silence:g} s")
        except SiteGone as error:
            self._lose(str(error))
        else:
            self._pending -= 1
            if not self._is_closed:
                self._apply(report)
                if not self._pending:  # requests that follow from the report are included
                    self._flush_soon()

    def _apply(self, report: SiteReport) -> None:
        self._stats = report.stats
        for event in report.events:
            self._on_event(event)
        for number in report.retry_requests:
            self._start(self._ask_head(number))
        for reply in report.replies:
            self._deliver(reply)

    def _deliver(self, reply: SiteReply) -> None:
        """Deliver a reply, unless its request was cancelled."""
        waiting = self._waiting.get(reply.number)
        if waiting is None or waiting.answers.done():
            return
        if reply.error is not None:
            waiting.answers.set_exception(reply.error)
        else:
            self.answers += len(reply.answers)
            waiting.answers.set_result([replace(answer, replica=self._replica) for answer in reply.answers])

    async def _ask_head(self, number: int) -> None:
        """Ask whether a lost request may be repeated, and send the reply to the site."""
        waiting = self._waiting.get(number)
        is_allowed = waiting is None or waiting.retry_gate is None or await waiting.retry_gate()
        self._allowed.append((number, is_allowed))
        self._flush_soon()

    # ----------------------------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._lose(f"its messages cannot be read: {error!r}")

    def _lose(self, reason: str) -> None:
        if not self._is_closed:
            self._shut_down(reason)
            self._on_gone(self, reason)

    def _shut_down(self, reason: str) -> None:
        self._is_closed = True
        self._stop_timer()
        for waiting in self._waiting.values():
            if not waiting.answers.done():
                waiting.answers.set_exception(SiteGone(reason))
