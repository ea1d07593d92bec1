"""What runs on a node: servers that `launch` describes, one at a time, requests to the one that is up, and grading.

Host, endpoint and grader are those of a local run; a site that is told to serve another model swaps them as a place of
this machine does, and one that can sleep sleeps meanwhile. It lives until it is ended: where it is an actor of a
cluster, by the keeper of its run (`keeper.py`) when its head stays away.
"""

import asyncio
import os
import socket
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from adaptive_eval import __version__
from adaptive_eval.config.document import read_environment
from adaptive_eval.config.run import RunConfig, ServersConfig
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.errors import AdaptiveEvalError, EndpointError, GraderError, LaunchFailed
from adaptive_eval.graders.pool import GradingPool
from adaptive_eval.graders.types import Marks
from adaptive_eval.launch.command import free_ports
from adaptive_eval.launch.endpoint import ServedEndpoint
from adaptive_eval.launch.host import ExclusivePlaces, Host
from adaptive_eval.launch.server import LaunchedServer
from adaptive_eval.questions.types import Question
from adaptive_eval.running.launched import file_name, open_server, require_programs
from adaptive_eval.running.serving import allow_open_files
from adaptive_eval.scheduler.grading import result_or_error
from adaptive_eval.sites.messages import (
    BEAT_SECONDS,
    FULL_MESSAGE,
    GATHERING_SECONDS,
    SiteBegun,
    SiteFacts,
    SiteGone,
    SiteMaterial,
    SiteNews,
    SiteOrder,
    SiteReply,
    SiteRequest,
    SiteSecrets,
    SiteSetup,
    encode_error,
    packed,
)
from adaptive_eval.store import Event


class SiteWorker:
    """One site, as its head speaks to it."""

    def __init__(self) -> None:
        self._servers: dict[int, LaunchedServer] = {}
        """Servers that were up here; all but one sleep, or are stopped."""
        self._numbers: dict[str, int] = {}
        """Theirs, by the marks of what they serve."""
        self._host = Host(None, self._servers, ExclusivePlaces((), ""))
        self._server: LaunchedServer | None = None
        """The one that is up."""
        self._endpoint = ServedEndpoint()
        self._lost_before = 0
        """Answers that were lost before this head, or this turn of the model: they have been counted."""
        self._ports = free_ports()
        self._heard_at = time.monotonic()
        """When a head has said something last."""
        self._beginning: asyncio.Task[SiteBegun] | None = None
        self._grading: GradingPool | None = None
        self._grades: tuple[object, ...] = ()
        """What it is that grades."""
        self._setup: SiteSetup | None = None
        self._material: SiteMaterial | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._something = asyncio.Event()
        """There is news for the last call of the head, or it has called again."""
        self._forget()

    def _forget(self) -> None:
        """Drop everything that is owed to a head."""
        self._replies: list[SiteReply] = []
        self._wanted: list[int] = []
        self._events: list[Event] = []
        self._permits: dict[int, asyncio.Future[bool]] = {}

    # -- what the head calls -----------------------------------------------------------------------------------------

    async def facts(self) -> SiteFacts:
        """Facts of the site: its node, and what it runs."""
        serves = self._setup.mark if self._setup is not None and self._server is not None else ""
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return SiteFacts(socket.gethostname(), os.getpid(), __version__, devices, serves=serves)

    async def begin(self, setup: SiteSetup, site_secrets: SiteSecrets, material: SiteMaterial) -> SiteBegun:
        try:
            await self._cancel_beginning()
            self._beginning = asyncio.create_task(self._begin(setup, site_secrets, material))
            begun = await self._beginning
            self._lost_before = self._endpoint.stats.lost
            return begun
        except asyncio.CancelledError:
            raise SiteGone("it works for another start of the run, or is being ended") from None

    async def news(self, head: str, order: SiteOrder) -> SiteNews:
        """Do as told; then news: at once if it fills a message, else after a moment, at each heartbeat, or when the
        head tells more, by another call that waits in the place of this one."""
        setup = self._require(head)
        self._take(order)
        self._something.set()
        something = self._something = asyncio.Event()
        if self._replies or self._wanted or self._events:
            something.set()
        if len(self._replies) < FULL_MESSAGE:
            try:
                async with asyncio.timeout(BEAT_SECONDS):
                    await something.wait()
            except TimeoutError:
                pass
            else:
                if something is self._something:
                    await asyncio.sleep(GATHERING_SECONDS)
        if self._setup is not setup or self._server is None:
            raise SiteGone("it works for another start of the run, or serves another model")
        stats = self._endpoint.stats
        stats = replace(stats, lost=stats.lost - self._lost_before)
        news = SiteNews(tuple(self._replies), tuple(self._wanted), self._take_events(), stats)
        self._replies, self._wanted = [], []
        return news

    async def end(self, at_once: bool) -> None:
        """Stop the server, and all that was asked."""
        await self._cancel_beginning()
        await self._drop_all()
        await self._clear(at_once=at_once)

    # ----------------------------------------------------------------------------------------------------------------

    def _take(self, order: SiteOrder) -> None:
        """Take requests, permits and what nobody wants any more."""
        for number in order.dropped:
            if (task := self._tasks.get(number)) is not None:
                task.cancel()
        for number, allowed in order.allowed:
            if (permit := self._permits.pop(number, None)) is not None and not permit.done():
                permit.set_result(allowed)
        for request in map(SiteRequest._make, order.requests):
            task = self._tasks[request.number] = asyncio.create_task(self._answer(request))
            task.add_done_callback(partial(self._on_end, request))

    def _require(self, head: str) -> SiteSetup:
        """Only one start of the run tells it what to do: the last that began."""
        if self._setup is None or self._setup.head != head:
            raise SiteGone("it works for another start of the run")
        self._heard_at = time.monotonic()
        return self._setup

    async def _cancel_beginning(self) -> None:
        """Cancel what an earlier head has begun."""
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.gather(self._beginning, return_exceptions=True)

    async def _begin(self, setup: SiteSetup, site_secrets: SiteSecrets, material: SiteMaterial) -> SiteBegun:
        await self._drop_all()
        before, self._setup, self._material = self._setup, setup, material
        if self._server is not None and before is not None and before.mark == setup.mark:
            alone = None if before.head == setup.head else time.monotonic() - self._heard_at
            return SiteBegun((replace(self._server.launched(0.0), without_head=alone),))
        self._server = None
        if not self._numbers.keys() <= setup.marks:
            await self._clear(at_once=True)
        return await self._load(setup, site_secrets, material)

    async def _load(self, setup: SiteSetup, site_secrets: SiteSecrets, material: SiteMaterial) -> SiteBegun:
        number = self._numbers.setdefault(setup.mark, len(self._numbers))
        try:
            if number not in self._servers:
                self._servers[number] = self._opened(setup, site_secrets)
            self._endpoint = ServedEndpoint([self._servers[number].served])
            self._endpoint.answered_before = setup.has_answered
            await self._host.load(number, self._note)
        except (AdaptiveEvalError, OSError) as error:
            self._setup = None
            self._servers.pop(number, None)
            return SiteBegun(self._take_events(), str(error))
        self._server = self._servers[number]
        await self._grade_with(material, setup, site_secrets)
        return SiteBegun(self._take_events())

    def _opened(self, setup: SiteSetup, site_secrets: SiteSecrets) -> LaunchedServer:
        # the sections that serving needs, which were checked on the head; nothing else of the run is known here
        servers = ServersConfig(pool=setup.pool)
        known: dict[str, Any] = {"name": setup.run, "models": (site_secrets.model,), "servers": servers}
        config = RunConfig.model_construct(**known, folder=setup.folder)
        environment = {**read_environment(setup.folder), **site_secrets.keys}
        require_programs(config, environment)
        notices, logs = allow_open_files(config), _writable(setup.logs)
        if setup.pool is not None:  # several places may serve the model at the same time
            logs /= file_name(setup.site)
        place = environment.get("CUDA_VISIBLE_DEVICES", "") if setup.place is None else setup.place
        return open_server(config, 0, environment, logs, place, self._ports, notices)

    async def _grade_with(self, material: SiteMaterial, setup: SiteSetup, site_secrets: SiteSecrets) -> None:
        """Have the grader of this material, which is the same for most models."""
        if (grades := (material.grader, material.rubric, setup.folder, site_secrets.hidden)) == self._grades:
            return
        await self._close_grading()
        if material.grader is not None:
            self._grading = GradingPool(material.grader, material.rubric, folder=setup.folder, keys=site_secrets.hidden)
            self._grades = grades

    async def _close_grading(self) -> None:
        grading, self._grading, self._grades = self._grading, None, ()
        if grading is not None:
            await grading.close()

    async def _answer(self, request: SiteRequest) -> None:
        assert self._server is not None and self._material is not None
        seeds = range(request.first, request.first + request.size)
        prompt, question = self._material.prompts[request.question], self._material.questions[request.question]
        again = partial(self._is_repeat_allowed, request.number) if request.guarded else None
        try:
            answers = await self._endpoint.sample(prompt, seeds, again)
        except EndpointError as error:
            self._tell(SiteReply(request.number, error=encode_error(error)))
            return
        marks = [await self._marks(one, question.for_trial(request.trial + at)) for at, one in enumerate(answers)]
        self._tell(SiteReply(request.number, tuple(map(packed, answers, marks))))

    async def _marks(self, answer: Answer, question: Question) -> Marks | GraderError | None:
        """Marks of the grader, tried as often as on the head."""
        if self._grading is None:
            return None
        return await result_or_error(partial(self._grading.marks, answer.text, question))

    def _note(self, event: Event) -> None:
        """Record an event of the server."""
        self._events.append(event)
        self._something.set()

    def _take_events(self) -> tuple[Event, ...]:
        events, self._events = self._events, []
        return tuple(events)

    def _tell(self, reply: SiteReply) -> None:
        self._replies.append(reply)
        self._something.set()

    async def _is_repeat_allowed(self, number: int) -> bool:
        """Ask the head, which has the budget, whether a lost request may be repeated."""
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
        """Stop serving and grading."""
        self._server = None
        await self._close_grading()
        await self._host.unload(at_once=at_once)
        self._servers.clear()
        self._numbers.clear()


def _writable(logs: Path) -> Path:
    """The folder of the run where the node sees it, else one of its own."""
    if logs.parent.is_dir() and os.access(logs.parent, os.W_OK):
        return logs
    return Path(tempfile.mkdtemp(prefix="adaptive-eval-site-"))
