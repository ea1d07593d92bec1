"""One site seen from the head: requests go out and answers come in, many in a message, never a call a trial.

Out goes what has gathered for a moment, or fills a message; its answer is what the site has to tell by then, or the
next that it has. The last message is followed by another as soon as it is answered: a site that has nothing to tell
says at least that at each beat, so that one that is silent hangs. Whatever breaks, the site is
gone as a whole: everyone who waits for it is told, and what comes later is for nobody.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

from adaptive_eval.endpoints.types import Again, Answer, EndpointStats, Health, Prompt, ReplicaHealth
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
    unpacked,
)
from adaptive_eval.store import Event


class _Outbox:
    """Messages to one site: what is put in goes out a moment later, with what has come meanwhile."""

    def __init__(self, send: Callable[[SiteOrder], None]) -> None:
        self._send = send
        self._numbers = count(1)
        self._requests: list[SiteRequest] = []
        self._allowed: list[tuple[int, bool]] = []
        self._dropped: list[int] = []
        self._timer: asyncio.TimerHandle | None = None

    def request(self, question: int, trial: int, seeds: range, guarded: bool) -> int:
        """Ask for answers, and give the number of the request."""
        number = next(self._numbers)
        self._requests.append(SiteRequest(number, question, trial, seeds.start, len(seeds), guarded))
        self.flush_soon()
        return number

    def allow(self, number: int, allowed: bool) -> None:
        """Say whether a lost request may be repeated."""
        self._allowed.append((number, allowed))
        self.flush_soon()

    def drop(self, number: int) -> None:
        """Say that nobody waits for a request any more."""
        self._dropped.append(number)
        self.flush_soon()

    def close(self) -> None:
        """Send nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def flush_soon(self) -> None:
        """Send a message a moment later, at once if it is full."""
        if len(self._requests) >= FULL_MESSAGE:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHERING_SECONDS, self.flush)

    def flush(self) -> None:
        """Send what there is."""
        self.close()
        self._timer = None
        order = SiteOrder(tuple(self._requests), tuple(self._allowed), tuple(self._dropped))
        self._requests, self._allowed, self._dropped = [], [], []
        self._send(order)


class _Waiting(NamedTuple):
    """Who waits for a request."""

    answers: asyncio.Future[list[Answer]]
    again: Again | None


class SiteLink:
    """An `Endpoint` of one site: the requests that it has, and what it tells."""

    def __init__(
        self,
        handle: SiteHandle,
        head: str,
        number: Callable[[Prompt, range], tuple[int, int]],
        where: str,
        silence: float,
        happened: Callable[[Event], None],
        gone: Callable[["SiteLink", str], None],
    ) -> None:
        """`number` gives the question that is put and its first trial, `where` is where its answers come from;
        `happened` hears what it tells of its server, `gone` that it does not answer any more, and why: after `silence`,
        in seconds, among other things."""
        self._handle, self._head, self._number, self._where, self._silence = handle, head, number, where, silence
        self._happened, self._on_gone = happened, gone
        self._waiting: dict[int, _Waiting] = {}
        self._outbox = _Outbox(self._send)
        self._stats = EndpointStats()
        self._tasks: set[asyncio.Task[None]] = set()
        self.answers = 0
        """That have come from it."""
        self._over = False
        self._pending = 0
        """Messages that the site has not answered; it waits with the last until there is news."""
        self._outbox.flush()

    @property
    def in_flight(self) -> int:
        """How many requests the site has."""
        return len(self._waiting)

    @property
    def stats(self) -> EndpointStats:
        """The traffic of its endpoint, as it was told last; its server is known by where it is."""
        replicas = tuple(replace(replica, url=self._where) for replica in self._stats.replicas)
        return replace(self._stats, in_flight=self.in_flight, replicas=replicas)

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        """One answer per seed, in their order; raises what the site's endpoint raises, and `SiteGone`."""
        if self._over:
            raise SiteGone("it is gone")
        waiting = _Waiting(asyncio.get_running_loop().create_future(), again)
        number = self._outbox.request(*self._number(prompt, seeds), seeds, again is not None)
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
        """Hear and say nothing more; who still waits is told."""
        self._leave("it was ended")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- out and in --------------------------------------------------------------------------------------------------

    def _send(self, order: SiteOrder) -> None:
        if not self._over:
            self._pending += 1
            self._start(self._exchange(order))

    async def _exchange(self, order: SiteOrder) -> None:
        """Send a message and hear the news; the last one that is answered is followed by another."""
        try:
            async with asyncio.timeout(self._silence):
                news = await self._handle.news(self._head, order)
        except TimeoutError:
            self._lose(f"it was silent for {self._silence:g} s")
        except SiteGone as error:
            self._lose(str(error))
        else:
            self._pending -= 1
            if not self._over:
                self._hear(news)
                if not self._pending:  # what is asked for because of this goes with it
                    self._outbox.flush_soon()

    def _hear(self, news: SiteNews) -> None:
        self._stats = news.stats
        for event in news.events:
            self._happened(event)
        for number in news.wanted:
            self._start(self._ask_head(number))
        for reply in news.replies:
            self._deliver(SiteReply(*reply))

    def _deliver(self, reply: SiteReply) -> None:
        """Hand over what came, unless nobody waits for it any more."""
        waiting = self._waiting.get(reply.number)
        if waiting is None or waiting.answers.done():
            return
        if reply.error is not None:
            waiting.answers.set_exception(decode_error(reply.error))
        else:
            self.answers += len(reply.answers)
            waiting.answers.set_result([unpacked(values, self._where) for values in reply.answers])

    async def _ask_head(self, number: int) -> None:
        """Ask whether a lost request may be repeated, and pass the permit on."""
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
            self._leave(reason)
            self._on_gone(self, reason)

    def _leave(self, reason: str) -> None:
        self._over = True
        self._outbox.close()
        for waiting in self._waiting.values():
            if not waiting.answers.done():
                waiting.answers.set_exception(SiteGone(reason))
