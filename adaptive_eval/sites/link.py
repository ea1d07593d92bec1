"""One site as seen from the head: requests go out and answers come in, many in a message, never one call per trial.

Requests are gathered for a moment, or until they fill a message; the reply has the site's news, and waits for some if
there are none. A reply to the last message is followed by another message at once. A site without news replies at each
heartbeat, so one that is silent hangs. On any failure the site is gone as a whole: everyone who waits for it gets an
error, and later replies are ignored.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

from adaptive_eval.endpoints.types import Again, Answer, EndpointStats, Health, ReplicaHealth
from adaptive_eval.machine.trial import Request
from adaptive_eval.notes import Event
from adaptive_eval.sites.messages import (
    FULL_MESSAGE,
    GATHERING_SECONDS,
    SiteGone,
    SiteHandle,
    SiteNews,
    SiteOrder,
    SiteReply,
    SiteRequest,
    decode_error,
    unpack_answer,
)


class _Outbox:
    """Gathers messages to one site for a moment before it sends them."""

    def __init__(self, send: Callable[[SiteOrder], None]) -> None:
        self._send = send
        self._numbers = count(1)
        self._requests: list[SiteRequest] = []
        self._allowed: list[tuple[int, bool]] = []
        self._dropped: list[int] = []
        self._timer: asyncio.TimerHandle | None = None

    def request(self, question: int, trial: int, seeds: range, guarded: bool) -> int:
        """Queue a request for answers, and return its number."""
        number = next(self._numbers)
        self._requests.append(SiteRequest(number, question, trial, seeds.start, len(seeds), guarded))
        self.flush_soon()
        return number

    def allow(self, number: int, allowed: bool) -> None:
        """Queue the reply on whether a lost request may be repeated."""
        self._allowed.append((number, allowed))
        self.flush_soon()

    def drop(self, number: int) -> None:
        """Queue the cancellation of a request."""
        self._dropped.append(number)
        self.flush_soon()

    def close(self) -> None:
        """Send nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def flush_soon(self) -> None:
        """Send a message in a moment, or at once if it is full."""
        if len(self._requests) >= FULL_MESSAGE:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHERING_SECONDS, self.flush)

    def flush(self) -> None:
        """Send everything that is queued."""
        self.close()
        self._timer = None
        order = SiteOrder(tuple(self._requests), tuple(self._allowed), tuple(self._dropped))
        self._requests, self._allowed, self._dropped = [], [], []
        self._send(order)


class _Waiting(NamedTuple):
    """A request in flight."""

    answers: asyncio.Future[list[Answer]]
    again: Again | None


class SiteLink:
    """An `Endpoint` of one site, with its requests in flight and its news."""

    def __init__(
        self,
        handle: SiteHandle,
        head: str,
        where: str,
        silence: float,
        happened: Callable[[Event], None],
        gone: Callable[["SiteLink", str], None],
    ) -> None:
        """`where` is the replica's name for answers.
        `happened` is called with events of the site's server, and `gone` with the reason when the site stops answering,
        for example after `silence` seconds."""
        self._handle, self._head, self._where, self._silence = handle, head, where, silence
        self._happened, self._on_gone = happened, gone
        self._waiting: dict[int, _Waiting] = {}
        self._outbox = _Outbox(self._send)
        self._stats = EndpointStats()
        self._tasks: set[asyncio.Task[None]] = set()
        self.answers = 0
        """Number of answers that came from the site."""
        self._over = False
        self._pending = 0
        """Messages without a reply yet; the site replies to the last one when there is news."""
        self._outbox.flush()

    @property
    def in_flight(self) -> int:
        """Number of requests that the site has."""
        return len(self._waiting)

    @property
    def stats(self) -> EndpointStats:
        """Latest traffic of the site's endpoint; its server is named by its place."""
        replicas = tuple(replace(replica, url=self._where) for replica in self._stats.replicas)
        return replace(self._stats, in_flight=self.in_flight, replicas=replicas)

    async def ask(self, request: Request, seeds: range, again: Again | None) -> list[Answer]:
        """One answer per seed, in order; raises the errors of the site's endpoint, and `SiteGone`."""
        if self._over:
            raise SiteGone("it is gone")
        waiting = _Waiting(asyncio.get_running_loop().create_future(), again)
        number = self._outbox.request(request.question, request.first, seeds, again is not None)
        self._waiting[number] = waiting
        try:
            return await waiting.answers
        except asyncio.CancelledError:
            if not self._over:
                self._outbox.drop(number)
            raise
        finally:
            self._waiting.pop(number, None)

    async def check(self) -> Health:
        return Health((ReplicaHealth(self._where, True, "it serves the model"),))

    async def close(self) -> None:
        """Stop all messages; requests in flight get `SiteGone`."""
        self._shut_down("it was ended")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- out and in --------------------------------------------------------------------------------------------------

    def _send(self, order: SiteOrder) -> None:
        if not self._over:
            self._pending += 1
            self._start(self._exchange(order))

    async def _exchange(self, order: SiteOrder) -> None:
        """Send a message and apply the news; if no other message is pending, send another."""
        try:
            async with asyncio.timeout(self._silence):
                news = await self._handle.sync(self._head, order)
        except TimeoutError:
            self._lose(f"it was silent for {self._silence:g} s")
        except SiteGone as error:
            self._lose(str(error))
        else:
            self._pending -= 1
            if not self._over:
                self._apply(news)
                if not self._pending:  # new requests that follow from the news go along
                    self._outbox.flush_soon()

    def _apply(self, news: SiteNews) -> None:
        self._stats = news.stats
        for event in news.events:
            self._happened(event)
        for number in news.wanted:
            self._start(self._ask_head(number))
        for reply in news.replies:
            self._deliver(SiteReply(*reply))

    def _deliver(self, reply: SiteReply) -> None:
        """Deliver a reply, unless nobody waits for it any more."""
        waiting = self._waiting.get(reply.number)
        if waiting is None or waiting.answers.done():
            return
        if reply.error is not None:
            waiting.answers.set_exception(decode_error(reply.error))
        else:
            self.answers += len(reply.answers)
            waiting.answers.set_result([unpack_answer(values, self._where) for values in reply.answers])

    async def _ask_head(self, number: int) -> None:
        """Ask whether a lost request may be repeated, and send the reply to the site."""
        waiting = self._waiting.get(number)
        self._outbox.allow(number, waiting is None or waiting.again is None or await waiting.again())

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
        if not self._over:
            self._shut_down(reason)
            self._on_gone(self, reason)

    def _shut_down(self, reason: str) -> None:
        self._over = True
        self._outbox.close()
        for waiting in self._waiting.values():
            if not waiting.answers.done():
                waiting.answers.set_exception(SiteGone(reason))
