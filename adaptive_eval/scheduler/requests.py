"""Requests to the servers: one task for each in flight, none for those that wait.

Requests are started as slots and trials appear. A task asks the server, has the answers graded, and puts the results on
the queue of the run, where `loop` handles them. `ModelDemand` tells a supply what waits.

What a run has asked for is known through kills, so that caps hold: the trials of a request are entered in the store,
with the next group commit, and crossed out by the commit that has their answers. Entries that a later start finds may
have been generated and lost, and an event says so. The same goes for an answer that is lost on the way while the run
goes on (a reset, a stream that stops, a time-out, a dead replica). A refusal or an error that a server reports costs
nothing.

If a cap on tokens, USD or GPU time is set, a request is booked first, and sent only once its entry is on disk, and what
is lost counts at its worst cost. Without one it counts as much as stored answers of its model do in the mean, and a
kill leaves no trace of requests that were sent since the newest commit, nor of verdicts that were under way.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from adaptive_eval.base.errors import EndpointError
from adaptive_eval.core.types import Cost
from adaptive_eval.scheduler.answer_grader import AnswerGrader
from adaptive_eval.scheduler.committer import RepeatGuard, RunJournal
from adaptive_eval.scheduler.first_answers import FirstRequests
from adaptive_eval.scheduler.meter import ServerTimes
from adaptive_eval.scheduler.state import RunState
from adaptive_eval.scheduler.trial_queues import TrialQueues
from adaptive_eval.scheduler.trials import Step
from adaptive_eval.store import AnswersLost, CommitBatch, SentRequest, Store
from adaptive_eval.supply.happenings import Abandoned, Answered, Recorded, Say, TaskEnded, Unanswered
from adaptive_eval.supply.types import Lane, Request, Supply


class Slots:
    """Request slots at each model's servers."""

    def __init__(self, lanes: Sequence[Lane], supply: Supply, times: ServerTimes) -> None:
        self._lanes, self._supply, self.times = lanes, supply, times
        self.taken = [0] * len(lanes)
        """Requests that a server has, or is to be sent."""
        self.failing = [0] * len(lanes)
        """Requests among these that fail again and again while others are answered: their slots may be reused."""

    def free(self, model: int) -> int:
        """How many further requests a model's servers can be sent now."""
        slots = self._supply.servers(model) * self._lanes[model].slots
        return slots + min(self.failing[model], slots) - self.taken[model] if slots else 0

    def release(self, model: int) -> None:
        """Free the slot of a request that is over, answered or not."""
        self.taken[model] -= 1
        if not self.taken[model]:
            self.times.quiet(model)


@dataclass(slots=True)
class CountedLosses:
    """Losses of a model's endpoint that are counted already."""

    lost: int = 0
    """Answers lost at the last call of `new_losses`, less those cut off since."""
    in_vain: int = 0
    """Those of them whose usage was known."""


class Requests:
    """Fills the free slots of every model with waiting trials."""

    def __init__(
        self, state: RunState, supply: Supply, grader: AnswerGrader, journal: RunJournal, guard: RepeatGuard, say: Say
    ) -> None:
        self._state, self._lanes, self._say = state, state.lanes, say
        self._grader, self._committer, self._guard = grader, journal.committer, guard
        self._lost = [CountedLosses() for _ in state.lanes]
        self.waiting = TrialQueues(state, FirstRequests(state))
        self.slots = Slots(state.lanes, supply, journal.meter.times)
        self.booked: list[Request] = []
        """Requests that are sent as soon as their ledger entries are on disk."""
        self._tasks: dict[asyncio.Task[None], Request | None] = {}
        """The request of each task; None while its answers are being graded."""
        self._failed: set[asyncio.Task[None]] = set()
        """Cancelled tasks whose requests no server has: they have failed, and wait to be repeated."""

    @property
    def tasks(self) -> int:
        """How many requests are with a server, or have answers that are being graded."""
        return len(self._tasks)

    @property
    def in_flight(self) -> Sequence[int]:
        """Requests of each model that its server has, or is to be sent."""
        return self.slots.taken

    def fill(self, model: int) -> None:
        """Send, or book, as many requests of a model as its free slots allow."""
        if self._state.models.is_gone(model):
            return
        lane = self._lanes[model]
        for free in range(self.slots.free(model), 0, -1):
            request = self.waiting.take(model, free * lane.samples_per_request)
            if request is None:
                return
            self.slots.taken[model] += 1
            self._committer.next_batch().sent.append(self._entry(request))
            if self._state.capped:
                self._state.trials.move_request(request, Step.BOOKED)
                self.booked.append(request)
            else:
                self._send(request)

    def make_room(self, failing: Sequence[int]) -> None:
        """Send further requests in the slots of those that fail again and again; `failing` counts them by model."""
        before, self.slots.failing = self.slots.failing, list(failing)
        for model, number in enumerate(failing):
            if number > before[model]:
                self.fill(model)

    def send_booked(self, batch: CommitBatch, *, ending: bool) -> None:
        """Send the requests whose entries are on disk, or drop them if the run is ending or their model is gone."""
        count = len(batch.sent)
        booked, self.booked = self.booked[:count], self.booked[count:]
        for request in booked:
            if ending or self._state.models.is_gone(request.model):
                self.slots.release(request.model)
                self.lose(request)
            else:
                self._send(request)

    def new_losses(self) -> Iterator[AnswersLost]:
        """Answers that were lost since the last call: at what they used if that is known."""
        for model, lane in enumerate(self._lanes):
            stats = lane.endpoint.stats
            before = self._lost[model]
            new, in_vain = stats.lost - before.lost, stats.in_vain[before.in_vain :]
            if new <= 0:
                continue
            self._lost[model] = CountedLosses(stats.lost, len(stats.in_vain))
            if in_vain:
                cost = reduce(Cost.plus, map(lane.price.cost, in_vain))
                yield AnswersLost(lane.name, len(in_vain), *cost, failed=True)
            if new > len(in_vain):
                yield self._state.loss(model, new - len(in_vain), killed=False)

    def lose(self, request: Request, *, cut_off: bool = False) -> None:
        """Cross out a request that gets no answer in this start; if it was cut off, its answer is lost."""
        self._state.trials.move_request(request, Step.LOST)
        self._lost[request.model].lost -= request.size * cut_off
        self._cross_out(request)

    def give_back(self, request: Request) -> None:
        """Return an unanswered request to the queue."""
        self._state.trials.move_request(request, Step.WANTED)
        self._cross_out(request)
        self.waiting.give_back(request)

    def give_up(self, model: int) -> None:
        """Cancel the unanswered requests of this model, which only fail."""
        tasks = [task for task, request in self._tasks.items() if request is not None and request.model == model]
        self._cancel(tasks, [lane.endpoint.stats.in_flight if self._state.capped else 0 for lane in self._lanes])

    async def cancel(self) -> None:
        """Cancel all requests, and the grading of their answers."""
        tasks = list(self._tasks)
        self._cancel(tasks, [lane.endpoint.stats.in_flight for lane in self._lanes])
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cancel(self, tasks: Sequence[asyncio.Task[None]], at_server: list[int]) -> None:
        """Cancel tasks; of each model so many requests are with a server, which are taken to be the largest."""
        for task in sorted(tasks, key=lambda task: getattr(self._tasks[task], "size", 0), reverse=True):
            if (request := self._tasks[task]) is not None:
                at_server[request.model] -= 1
                if at_server[request.model] < 0:
                    self._failed.add(task)
            task.cancel()

    def _cross_out(self, request: Request) -> None:
        self._committer.next_batch().unsent.append(self._entry(request))

    def _entry(self, request: Request) -> SentRequest:
        return SentRequest(self._lanes[request.model].name, request.size)

    def _send(self, request: Request) -> None:
        self._state.trials.move_request(request, Step.IN_FLIGHT)
        self.slots.times.sent(request.model)
        task = asyncio.create_task(self._carry(request))
        self._tasks[task] = request
        task.add_done_callback(self._on_end)

    async def _carry(self, request: Request) -> None:
        """Ask the server, and have its answers graded."""
        lane, task = self._lanes[request.model], asyncio.current_task()
        assert task is not None
        again = partial(self._guard.may_repeat, request.model) if self._state.capped else None
        try:
            answers = await lane.endpoint.sample(lane.prompt(request.question), request.seeds(lane), again)
        except EndpointError as error:
            del self._tasks[task]
            self._say(Unanswered(request, error))
            return
        self._tasks[task] = None
        self._say(Answered(request))
        records = await self._grader.records(request, answers)
        del self._tasks[task]
        self._say(Recorded(request, records))

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """Tell of a task that was cancelled or has failed; others have told what came of them."""
        if task not in self._tasks:
            return
        unanswered, failed = self._tasks.pop(task), task in self._failed
        self._failed.discard(task)
        if task.cancelled() and unanswered is not None:
            self._say(Abandoned(unanswered, failed))
        self._say(TaskEnded(None if task.cancelled() else task.exception()))


def lose_entered(store: Store, state: RunState, left: Mapping[str, int]) -> Iterator[AnswersLost]:
    """Record as lost the trials that earlier starts have entered and that have no answers; all else is decided before.

    `left` counts each model's trials at batch services: they are not lost, and are entered anew when asked for.
    """
    counts = store.reader.in_flight()
    for model, lane in enumerate(state.lanes):
        if lane.name in counts:
            event = state.loss(model, max(0, counts[lane.name] - left.get(lane.name, 0)), killed=True)
            event = state.placed(event)
            store.lose(event)
            if event.answers:
                state.apply(event)
                yield event


class ModelDemand:
    """The `Demand` by which a supply starts and stops servers: trials waiting, in flight, and still to come."""

    def __init__(self, state: RunState, requests: Requests) -> None:
        self._state, self._requests = state, requests

    @property
    def is_any_waiting(self) -> bool:
        """Whether a trial waits, maybe one that the core was not asked for because its model cannot be asked yet."""
        return not self._requests.waiting.empty or any(map(self.is_wanted, range(len(self._state.lanes))))

    def is_wanted(self, model: int) -> bool:
        gone, needed = self._state.models.is_gone(model), self._server_capacity(model)
        return not gone and self._requests.waiting.number(model, needed) > 0

    def has_queue_for(self, model: int, servers: int) -> bool:
        gone, needed = self._state.models.is_gone(model), servers * self._server_capacity(model)
        return not gone and self._requests.waiting.number(model, needed) >= needed

    def is_owed(self, model: int) -> bool:
        """Whether a trial that was asked of this model is not committed yet."""
        return self._state.is_owed(model)

    def is_settled(self, model: int) -> bool:
        """Whether this model has nothing in flight and will be asked nothing more."""
        models = self._state.models
        nothing_further = model in models.settled or models.is_gone(model)
        return nothing_further and not self._requests.in_flight[model]

    def is_parked(self, model: int) -> bool:
        """Whether the model has nothing to do until trials of others want it again."""
        busy = self._requests.in_flight[model] or self._state.is_owed(model) or self.is_wanted(model)
        return not busy and model in self._state.models.parked

    def _server_capacity(self, model: int) -> int:
        """How many trials one server of a model takes at a time."""
        lane = self._state.lanes[model]
        return lane.slots * lane.samples_per_request
