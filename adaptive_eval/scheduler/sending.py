"""What is sent to the servers, and what becomes of each request.

Requests are started as slots and trials appear; there is one task per request in flight and none for what waits. Where
caps must hold through kills, a request is booked first and sent when it is on disk that it will be (see `ledger`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from adaptive_eval.core.types import Ask
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.errors import EndpointError, NotAskedAgain
from adaptive_eval.scheduler.committer import Committer
from adaptive_eval.scheduler.ledger import LostAnswers
from adaptive_eval.scheduler.server_times import ServerTimes
from adaptive_eval.scheduler.types import Decider, Lane
from adaptive_eval.scheduler.waiting import TrialGroup, WaitingLines
from adaptive_eval.seeds import SEED_SPAN, trial_seed
from adaptive_eval.store import CommitBatch


@dataclass(frozen=True, slots=True)
class SendCallbacks:
    """What the sender needs to know of the run, and whom it tells."""

    gone: Callable[[int], bool]
    """Whether nothing more is asked of this model."""
    servers: Callable[[int], int]
    """How many servers of the model are up, each with the lane's slots."""
    ending: Callable[[], bool]
    """Whether nothing more is sent at all."""
    answered: Callable[[int, Sequence[Answer]], None]
    """A request was answered."""
    keep: Callable[[int, TrialGroup, Sequence[Answer]], Awaitable[None]]
    """Grade the answers of a request, and have them stored."""
    failed: Callable[[int, EndpointError], None]
    """A request has no answer to come."""
    ended: Callable[[], None]
    """A request is over, whatever came of it."""
    broken: Callable[[BaseException], None]
    """Something failed that never should."""


class RequestSender:
    """Fills the free slots of every model with what waits for them."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        controller: Decider,
        committer: Committer,
        times: ServerTimes,
        losses: LostAnswers,
        tell: SendCallbacks,
        is_here: Callable[[Ask], bool] | None = None,
    ) -> None:
        """`is_here`: of a trial that the core asks for, whether its answer is there already."""
        self._lanes, self._controller, self._committer = lanes, controller, committer
        self._times, self._losses, self._tell = times, losses, tell
        self.waiting = WaitingLines(controller, lanes, is_here)
        self.in_flight = [0] * len(lanes)
        """Requests of each model that its server has."""
        self.aside = [0] * len(lanes)
        """Requests among these that fail again and again while others are answered: others may take their places."""
        self._booked: list[tuple[int, TrialGroup, range]] = []
        """Requests that are sent as soon as it is written down that they will be."""
        self.tasks: set[asyncio.Task[None]] = set()
        """Requests that are under way, or whose answers are being graded."""
        self._unanswered: dict[asyncio.Task[None], int] = {}
        """Those among them that have no answer yet, with their model."""

    def fill(self, model: int) -> None:
        """Send what a model's free slots allow."""
        servers = self._tell.servers(model)
        if self._tell.ending() or not servers or self._tell.gone(model):
            return
        lane = self._lanes[model]
        slots = servers * lane.slots + min(self.aside[model], servers * lane.slots)
        while (free := slots - self.in_flight[model]) > 0:
            group = self.waiting.first(model, free * lane.samples_per_request)
            if group is None:
                return
            self._start(model, group)

    def make_room(self, aside: Sequence[int]) -> None:
        """Send others in the places of so many requests of each model that fail again and again."""
        before, self.aside = self.aside, list(aside)
        for model, number in enumerate(aside):
            if number > before[model]:
                self.fill(model)

    def wanted(self, model: int) -> bool:
        """There is something to ask this model."""
        lane = self._lanes[model]
        return (
            not self._tell.gone(model) and self.waiting.first(model, lane.slots * lane.samples_per_request) is not None
        )

    def booked(self, model: int) -> bool:
        """Something is still to be sent to a server of this model that has a slot for it."""
        return any(booked == model for booked, _, _ in self._booked)

    def crowded(self, model: int, coming: int) -> bool:
        """More waits than one server takes at a time, beside so many that are on their way."""
        wave = (coming + 1) * self._lanes[model].slots * self._lanes[model].samples_per_request
        return not self._tell.gone(model) and self.waiting.number(model, wave) >= wave

    def send_booked(self, batch: CommitBatch) -> None:
        """Send what is written down by now, unless it is not to be sent any more."""
        count = len(batch.sent)
        booked, self._booked = self._booked[:count], self._booked[count:]
        over = self._tell.ending() or self._controller.finished is not None
        for model, group, seeds in booked:
            if over or self._tell.gone(model):
                self._one_less(model)
                self._cross_out(model, group)
            else:
                self._send(model, group, seeds)

    def give_up(self, model: int) -> None:
        """Wait no more for what this model was asked, and has not answered."""
        for task, asked in list(self._unanswered.items()):
            if asked == model:
                task.cancel()

    def tell_losses(self) -> None:
        """Count what servers have generated and lost; where a cap is reached by it, nothing more is asked."""
        self._losses.tell()
        if self._controller.finished is not None:
            self.waiting.clear()

    def _start(self, model: int, group: TrialGroup) -> None:
        lane = self._lanes[model]
        seed = trial_seed(lane.seed_base(group.question), group.first)
        # a request's seeds may not run over the end of their range
        group = self.waiting.take(model, min(lane.samples_per_request, SEED_SPAN - seed))
        self.in_flight[model] += 1
        seeds = range(seed, seed + group.size)
        if self._losses.ledger is None:
            self._send(model, group, seeds)
        else:
            self._booked.append((model, group, seeds))
            self._committer.add_sent(self._losses.ledger.entry(model, group))

    def _send(self, model: int, group: TrialGroup, seeds: range) -> None:
        task = asyncio.create_task(self._request(model, group, seeds))
        self.tasks.add(task)
        task.add_done_callback(self._on_request_end)

    async def _request(self, model: int, group: TrialGroup, seeds: range) -> None:
        lane, task = self._lanes[model], asyncio.current_task()
        assert task is not None
        again = None if self._losses.ledger is None else partial(self._may_ask_again, model)
        self._times.sent(model)
        self._unanswered[task] = model
        try:
            if self._tell.gone(model):  # since this task was made
                raise NotAskedAgain("the model was set aside")
            answers = await lane.endpoint.sample(lane.prompt(group.question), seeds, again)
        except EndpointError as error:
            if self._losses.ledger is not None:
                self.tell_losses()  # counted apart; what was refused cost nothing
                self._cross_out(model, group)
            if self._controller.is_paused(model):  # nobody waits for it now
                self.waiting.give_back(model, group)
            elif not isinstance(error, NotAskedAgain):  # no further trials: the core itself has said that
                self._tell.failed(model, error)
            return
        finally:
            del self._unanswered[task]
            self._one_less(model)
        self._tell.answered(model, answers)
        self.fill(model)  # the slot is free; grading takes none
        await self._tell.keep(model, group, answers)

    def _one_less(self, model: int) -> None:
        """A request is over, or is not sent after all."""
        self.in_flight[model] -= 1
        if not self.in_flight[model]:
            self._times.quiet(model)

    def _cross_out(self, model: int, group: TrialGroup) -> None:
        """A request without an answer to come is in no ledger any more."""
        if self._losses.ledger is not None:
            self._committer.add_unsent(self._losses.ledger.entry(model, group))

    async def _may_ask_again(self, model: int) -> bool:
        """Whether what was lost on the way may be asked for once more: its loss is on disk, and the caps bear both."""
        self.tell_losses()
        if self._controller.finished is not None or self._tell.gone(model):
            return False
        await self._committer.safe()
        return self._controller.finished is None and not self._tell.gone(model)

    def _on_request_end(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell.broken(error)
        self._tell.ended()
