"""What runs on a node: a server that `launch` describes, requests to it from its own host, and grading.

Host, endpoint and grader are those of a local run. A site that hears nothing of its head for as long as it is told to
`keep` itself ends, and its server with it: a head that was killed and comes back before finds it with its model loaded.
"""

import asyncio
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from adaptive_eval import __version__
from adaptive_eval.config.document import read_environment
from adaptive_eval.config.run import RunConfig
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.errors import AdaptiveEvalError, EndpointError, GraderError, LaunchFailed
from adaptive_eval.graders.pool import GradingPool
from adaptive_eval.graders.types import Marks
from adaptive_eval.launch.host import ExclusivePlaces, Host
from adaptive_eval.questions.types import Question
from adaptive_eval.running.serving import allow_open_files, open_hosts
from adaptive_eval.scheduler.grading import ATTEMPTS
from adaptive_eval.sites.messages import (
    BEAT_SECONDS,
    SiteBegun,
    SiteConfidence,
    SiteFacts,
    SiteGone,
    SiteMaterial,
    SiteNews,
    SiteOrder,
    SiteReply,
    SiteRequest,
    SiteSetup,
    packed,
    told_error,
)
from adaptive_eval.store import Event

WATCH_SECONDS = 0.5


class SiteWorker:
    """One site, as its head speaks to it."""

    def __init__(self, keep: float, leave: Callable[[], None] | None = None) -> None:
        """`keep`: seconds without a word of the head after which it calls `leave`; by default its process ends."""
        self._keep, self._leave = keep, leave or partial(os._exit, 1)
        self._heard = time.monotonic()
        self._busy = 0
        """Calls of the head that are under way, however long they take."""
        self._host: Host | None = None
        self._grading: GradingPool | None = None
        self._setup: SiteSetup | None = None
        self._material: SiteMaterial | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._forget()
        threading.Thread(target=self._watch, daemon=True).start()

    def _forget(self) -> None:
        """Owe nobody anything."""
        self._replies: list[SiteReply] = []
        self._wanted: list[int] = []
        self._events: list[Event] = []
        self._permits: dict[int, asyncio.Future[bool]] = {}

    # -- what the head calls -----------------------------------------------------------------------------------------

    async def facts(self) -> SiteFacts:
        """Where it is, and what it runs."""
        return SiteFacts(socket.gethostname(), os.getpid(), __version__)

    async def begin(self, setup: SiteSetup, confided: SiteConfidence, material: SiteMaterial) -> SiteBegun:
        """Serve the model for this head, unless it is served like this already; an earlier head is owed nothing."""
        self._busy += 1
        try:
            await self._drop_all()
            before, self._setup, self._material = self._setup, setup, material
            self._something = asyncio.Event()
            if self._host is not None and self._host.up and before is not None and before.mark == setup.mark:
                return SiteBegun((self._host.servers[0].launched(0.0),))
            await self._clear(at_once=True)
            return await self._load(setup, confided, material)
        finally:
            self._busy -= 1
            self._heard = time.monotonic()

    async def order(self, head: str, order: SiteOrder) -> None:
        """Take requests, permits and what nobody wants any more."""
        self._require(head)
        for number in order.dropped:
            if (task := self._tasks.get(number)) is not None:
                task.cancel()
        for number, allowed in order.allowed:
            if (permit := self._permits.pop(number, None)) is not None and not permit.done():
                permit.set_result(allowed)
        for request in map(SiteRequest._make, order.requests):
            task = self._tasks[request.number] = asyncio.create_task(self._answer(request))
            task.add_done_callback(partial(self._on_end, request))

    async def news(self, head: str) -> SiteNews:
        """What there is to tell: at once where it fills a message, else after a moment; at each beat in any case."""
        setup = self._require(head)
        if len(self._replies) < setup.batch:
            try:
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._something.wait()
            except TimeoutError:
                pass
            else:
                await asyncio.sleep(setup.moment)
        if self._setup is not setup or self._host is None:
            raise SiteGone("it works for another start of the run")
        self._something.clear()
        stats = self._host.servers[0].endpoint.stats
        news = SiteNews(tuple(self._replies), tuple(self._wanted), self._take_events(), stats)
        self._replies, self._wanted = [], []
        self._heard = time.monotonic()
        return news

    async def end(self, at_once: bool) -> None:
        """Stop the server, and all that was asked."""
        self._busy += 1
        try:
            await self._drop_all()
            await self._clear(at_once=at_once)
        finally:
            self._busy -= 1

    # ----------------------------------------------------------------------------------------------------------------

    def _require(self, head: str) -> SiteSetup:
        """Only one start of the run tells it what to do: the last that began."""
        if self._setup is None or self._setup.head != head:
            raise SiteGone("it works for another start of the run")
        self._heard = time.monotonic()
        return self._setup

    async def _load(self, setup: SiteSetup, confided: SiteConfidence, material: SiteMaterial) -> SiteBegun:
        # the sections that serving needs, which were checked on the head; nothing else of the run is known here
        known: dict[str, Any] = {"name": setup.run, "models": (confided.model,), "pool": None, "folder": setup.folder}
        config = RunConfig.model_construct(**known)
        try:
            environment = {**read_environment(setup.folder), **confided.keys}
            notices, places = allow_open_files(config), ExclusivePlaces((), setup.run)
            (self._host,) = open_hosts(config, environment, _writable(setup.logs), places, notices)
            await self._host.load(0, self._note)
        except (AdaptiveEvalError, OSError) as error:
            self._setup = None
            return SiteBegun(self._take_events(), str(error))
        if material.grader is not None:
            self._grading = GradingPool(material.grader, material.rubric, folder=setup.folder, keys=confided.hidden)
        return SiteBegun(self._take_events())

    async def _answer(self, request: SiteRequest) -> None:
        assert self._host is not None and self._material is not None
        seeds = range(request.first, request.first + request.size)
        prompt, question = self._material.prompts[request.question], self._material.questions[request.question]
        again = partial(self._may_ask_again, request.number)
        try:
            answers = await self._host.servers[0].endpoint.sample(prompt, seeds, again)
        except EndpointError as error:
            self._tell(SiteReply(request.number, error=told_error(error)))
            return
        marks = [await self._marks(one, question.for_trial(request.trial + at)) for at, one in enumerate(answers)]
        self._tell(SiteReply(request.number, tuple(map(packed, answers, marks))))

    async def _marks(self, answer: Answer, question: Question) -> Marks | GraderError | None:
        """What the grader finds, tried as often as on the head."""
        if self._grading is None:
            return None
        for attempt in range(ATTEMPTS):
            try:
                return await self._grading.marks(answer.text, question)
            except GraderError as error:
                if attempt == ATTEMPTS - 1 or type(error) is not GraderError:
                    return error
        raise AssertionError("unreachable")

    def _note(self, event: Event) -> None:
        """What happens to the server."""
        self._events.append(event)
        self._something.set()

    def _take_events(self) -> tuple[Event, ...]:
        events, self._events = self._events, []
        return tuple(events)

    def _tell(self, reply: SiteReply) -> None:
        self._replies.append(reply)
        self._something.set()

    async def _may_ask_again(self, number: int) -> bool:
        """The head decides, for it has the budget."""
        permit: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._permits[number] = permit
        self._wanted.append(number)
        self._something.set()
        return await permit

    def _on_end(self, request: SiteRequest, task: asyncio.Task[None]) -> None:
        self._tasks.pop(request.number, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell(SiteReply(request.number, error=(LaunchFailed.__name__, f"its site is broken: {error!r}")))

    async def _drop_all(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._forget()

    async def _clear(self, *, at_once: bool) -> None:
        """Serve and grade nothing."""
        host, self._host = self._host, None
        grading, self._grading = self._grading, None
        if grading is not None:
            await grading.close()
        if host is not None:
            await host.unload(at_once=at_once)

    def _watch(self) -> None:
        """In a thread of its own, which no work of the site holds up."""
        while self._busy or time.monotonic() - self._heard < self._keep:
            time.sleep(min(WATCH_SECONDS, self._keep / 4))
        self._leave()


def _writable(logs: Path) -> Path:
    """The folder of the run where the node sees it, else one of its own."""
    if logs.parent.is_dir() and os.access(logs.parent, os.W_OK):
        return logs
    return Path(tempfile.mkdtemp(prefix="adaptive-eval-site-"))
