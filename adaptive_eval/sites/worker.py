"""A site on its node: serves one model at a time as `launch` describes, sends it requests, and grades the answers.

Host, endpoint and grader are those of a local run. A site swaps models as a place of this machine does; a server that
can sleep sleeps meanwhile. A site lives until it is ended, and on a cluster no longer than its head.
"""

import asyncio
import os
import socket
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from adaptive_eval import __version__
from adaptive_eval.base.errors import AdaptiveEvalError, EndpointError, LaunchFailed
from adaptive_eval.config.document import read_environment
from adaptive_eval.config.run import RunConfig
from adaptive_eval.endpoints.types import Answer, Endpoint, EndpointStats, RetryGate
from adaptive_eval.graders.pool import GradingPool, grade_or_error
from adaptive_eval.graders.types import WorkerSettings, with_marks
from adaptive_eval.launch.command import free_ports
from adaptive_eval.launch.endpoint import ServedEndpoint
from adaptive_eval.launch.host import ExclusivePlaces, Host
from adaptive_eval.launch.server import LaunchedServer
from adaptive_eval.machine.permits import Permits
from adaptive_eval.notes import Event
from adaptive_eval.questions.types import Question
from adaptive_eval.sites.messages import (
    GATHERING_SECONDS,
    HEARTBEAT_SECONDS,
    MAX_PER_MESSAGE,
    SiteBegun,
    SiteData,
    SiteFacts,
    SiteGone,
    SiteOrder,
    SiteReply,
    SiteReport,
    SiteRequest,
    SiteSetup,
    sent_error,
)
from adaptive_eval.supplies.launched import ServerOpener, require_programs
from adaptive_eval.supplies.opening import file_name, within_open_files


class SiteWorker:
    """One site, with the calls of its head."""

    def __init__(self) -> None:
        self._servers: dict[int, LaunchedServer] = {}
        """Servers that were up here, by number; all except one sleep or are stopped."""
        self._numbers: dict[str, int] = {}
        """Numbers of the servers, by the names of their models."""
        self._host = Host(None, self._servers, ExclusivePlaces((), ""))
        self._endpoint = ServedEndpoint(self._sample)
        self._ports = free_ports()
        self._begin_task: asyncio.Task[SiteBegun] | None = None
        self._grading: GradingPool | None = None
        self._grading_inputs: tuple[object, ...] = ()
        """Inputs of the grading pool."""
        self._setup: SiteSetup | None = None
        """That of the model which is served now."""
        self._site_data: SiteData | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._has_news = asyncio.Event()
        """Set when there is something to report to the head's last call, or when the head calls again."""
        self._clear_outbox()

    def _clear_outbox(self) -> None:
        """Drop everything queued for the head."""
        self._replies: list[SiteReply] = []
        self._retry_requests: list[int] = []
        self._events: list[Event] = []
        self._permits = Permits[int]()

    # -- calls of the head -------------------------------------------------------------------------------------------

    async def facts(self) -> SiteFacts:
        """Facts of the site and its node."""
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return SiteFacts(socket.gethostname(), os.getpid(), __version__, devices)

    async def begin(self, setup: SiteSetup, site_data: SiteData) -> SiteBegun:
        try:
            await self._cancel_beginning()
            self._begin_task = asyncio.create_task(self._begin(setup, site_data))
            return await self._begin_task
        except asyncio.CancelledError:
            raise SiteGone("it serves another model, or is being ended") from None

    async def sync(self, order: SiteOrder) -> SiteReport:
        """Carry out an order, and return a report: at once if it fills a message, else shortly after there is something
        to report, at the next heartbeat, or when the head calls again."""
        setup = self._setup
        if setup is None:
            raise SiteGone("it serves no model")
        self._apply_order(order)
        self._has_news.set()
        has_news = self._has_news = asyncio.Event()
        if self._replies or self._retry_requests or self._events:
            has_news.set()
        if len(self._replies) < MAX_PER_MESSAGE:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await has_news.wait()
            except TimeoutError:
                pass
            else:
                if has_news is self._has_news:
                    await asyncio.sleep(GATHERING_SECONDS)
        if self._setup is not setup:
            raise SiteGone("it serves another model")
        replies, retry_requests = tuple(self._replies), tuple(self._retry_requests)
        report = SiteReport(replies, retry_requests, self._take_events(), self._endpoint.stats)
        self._replies, self._retry_requests = [], []
        return report

    async def end(self, at_once: bool) -> None:
        """Stop the server, and cancel all requests."""
        await self._cancel_beginning()
        await self._cancel_requests()
        await self._clear(at_once=at_once)

    # ----------------------------------------------------------------------------------------------------------------

    def _apply_order(self, order: SiteOrder) -> None:
        """Start requests, and apply permits and cancellations, which may concern requests of the same order."""
        for number, allowed in order.allowed:
            self._permits.give(number, allowed)
        for request in order.requests:
            task = self._tasks[request.number] = asyncio.create_task(self._answer(request))
            task.add_done_callback(partial(self._on_end, request))
        for number in order.dropped:
            if (dropped := self._tasks.get(number)) is not None:
                dropped.cancel()

    async def _cancel_beginning(self) -> None:
        """Cancel a `begin` in progress."""
        if self._begin_task is not None:
            self._begin_task.cancel()
            await asyncio.gather(self._begin_task, return_exceptions=True)

    async def _begin(self, setup: SiteSetup, site_data: SiteData) -> SiteBegun:
        await self._cancel_requests()
        self._setup, self._site_data = None, site_data
        number = self._numbers.setdefault(setup.model.name, len(self._numbers))
        try:
            if number not in self._servers:
                self._servers[number] = self._open_server(setup)
            place = self._servers[number].served
            place.earlier_traffic = EndpointStats()  # that of earlier turns was reported then
            self._endpoint = ServedEndpoint(self._sample, [place], answered_before=setup.has_answered)
            await self._host.load(number, self._record_event)
        except (AdaptiveEvalError, OSError) as error:
            self._servers.pop(number, None)
            return SiteBegun(self._take_events(), str(error))
        await self._grade_with(site_data, setup)
        self._setup = setup
        return SiteBegun(self._take_events())

    def _open_server(self, setup: SiteSetup) -> LaunchedServer:
        # only the sections needed for serving, which were checked on the head
        settings: dict[str, Any] = {"name": setup.run, "models": (setup.model,), "pool": setup.pool}
        config = RunConfig.model_construct(**settings, folder=setup.folder)
        environment = {**read_environment(setup.folder), **setup.keys}
        require_programs(config, environment)
        config, notices = within_open_files(config, grades=False)
        logs = _writable_logs(setup.logs)
        if setup.pool is not None:  # several places may serve the model at the same time
            logs /= file_name(setup.site)
        place = "" if setup.pool is None else environment.get("CUDA_VISIBLE_DEVICES", "")
        return ServerOpener(config, environment, logs, self._ports, notices).open(0, place)

    async def _grade_with(self, site_data: SiteData, setup: SiteSetup) -> None:
        """Create the grading pool for this data, unless it is unchanged."""
        grader, rubric = site_data.grader, site_data.rubric
        settings = WorkerSettings(site_data.limits, setup.folder, setup.hidden)
        if (grades := (grader, rubric, settings)) == self._grading_inputs:
            return
        await self._close_grading()
        if grader is not None:
            self._grading = GradingPool(grader, rubric, settings)
            self._grading_inputs = grades

    async def _close_grading(self) -> None:
        grading, self._grading, self._grading_inputs = self._grading, None, ()
        if grading is not None:
            await grading.close()

    async def _answer(self, request: SiteRequest) -> None:
        assert self._site_data is not None
        question = self._site_data.questions[request.question]
        retry_gate = partial(self._is_repeat_allowed, request.number) if request.guarded else None
        try:
            answers = await self._endpoint.ask(request, retry_gate)
        except EndpointError as error:
            self._reply(SiteReply(request.number, error=sent_error(error)))
            return
        self._reply(SiteReply(request.number, tuple([await self._grade(answer, question) for answer in answers])))

    async def _sample(self, endpoint: Endpoint, request: SiteRequest, retry_gate: RetryGate | None) -> Sequence[Answer]:
        """Send a request to the endpoint of the server that is up."""
        assert self._site_data is not None
        seeds = range(request.first, request.first + request.size)
        return await endpoint.sample(self._site_data.prompts[request.question], seeds, retry_gate)

    async def _grade(self, answer: Answer, question: Question) -> Answer:
        """The answer with its grader's marks; as it is if the head grades."""
        if (grading := self._grading) is None:
            return answer
        marks = await grade_or_error(lambda answer, question: grading.marks(answer.text, question), answer, question)
        return with_marks(answer, marks)

    def _record_event(self, event: Event) -> None:
        """Record an event of the server."""
        self._events.append(event)
        self._has_news.set()

    def _take_events(self) -> tuple[Event, ...]:
        events, self._events = self._events, []
        return tuple(events)

    def _reply(self, reply: SiteReply) -> None:
        self._replies.append(reply)
        self._has_news.set()

    async def _is_repeat_allowed(self, number: int) -> bool:
        """Ask the head, which has the budget, whether a lost request may be repeated."""
        permit = self._permits.ask(number)
        self._retry_requests.append(number)
        self._has_news.set()
        return await permit

    def _on_end(self, request: SiteRequest, task: asyncio.Task[None]) -> None:
        self._tasks.pop(request.number, None)
        self._permits.forget(request.number)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._reply(SiteReply(request.number, error=LaunchFailed(f"its site is broken: {error!r}")))

    async def _cancel_requests(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._clear_outbox()

    async def _clear(self, *, at_once: bool) -> None:
        """Stop serving and grading."""
        self._setup = None
        await self._close_grading()
        await self._host.unload(at_once=at_once)
        self._servers.clear()
        self._numbers.clear()


def _writable_logs(logs: Path) -> Path:
    """The run's log folder if the node can write it, else a temporary one."""
    if logs.parent.is_dir() and os.access(logs.parent, os.W_OK):
        return logs
    return Path(tempfile.mkdtemp(prefix="adaptive-eval-site-"))
