"""Trials that the core has asked for and that wait for a free slot of their model."""

from collections import deque
from collections.abc import Iterable

from adaptive_eval.core.types import Ask
from adaptive_eval.scheduler.state import RunState
from adaptive_eval.supply.types import Lane, Request, trials_per_request

ASKED_AHEAD = 16
"""Requests that are queued beyond the free slots, so that the core is not asked at every answer."""


class TrialQueue:
    """One model's trials in the order they were asked for, grouped by question."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()
        self.trials = 0
        """How many trials wait."""

    def add(self, asks: Iterable[Ask]) -> None:
        """Append trials; one that continues the last request joins it."""
        for model, question, trial, round_ in asks:
            self.trials += 1
            last = self._requests[-1] if self._requests else None
            if last and (last.question, last.round, last.first + last.size) == (question, round_, trial):
                self._requests[-1] = Request(model, question, last.first, last.size + 1, round_)
            else:
                self._requests.append(Request(model, question, trial, 1, round_))

    def take(self, lane: Lane) -> Request:
        """Remove and return the next request, cut to the trials that fit into one; the others stay first."""
        request = self._requests.popleft()
        model, question, first, size, round_ = request
        if size > (at_most := trials_per_request(lane, question, first)):
            self._requests.appendleft(Request(model, question, first + at_most, size - at_most, round_))
            request = Request(model, question, first, at_most, round_)
        self.trials -= request.size
        return request

    def clear(self) -> None:
        """Forget all trials."""
        self._requests.clear()
        self.trials = 0


class TrialQueues:
    """The queues of all models, which the core fills."""

    def __init__(self, state: RunState) -> None:
        self._state, self._lanes = state, state.lanes
        self._queues = [TrialQueue() for _ in state.lanes]
        self._drained = [False] * len(state.lanes)
        """By model: whether the core has no further trials until it issues another round."""
        self._rounds_issued = 0
        """Rounds that the core had issued at the last call of `core_was_told`."""

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not any(queue.trials for queue in self._queues)

    def number(self, model: int, needed: int) -> int:
        """How many trials of a model wait, with so many `needed` now; 0 while the model is paused."""
        if self._state.controller.is_paused(model):
            return 0
        self._top_up(model, needed)
        return self._queues[model].trials

    def take(self, model: int, needed: int) -> Request | None:
        """Remove and return a model's next request, with so many trials `needed` now; None if `number` is 0."""
        return self._queues[model].take(self._lanes[model]) if self.number(model, needed) else None

    def give_back(self, request: Request) -> None:
        """Queue the trials of an unanswered request again."""
        model, question, _, _, round_ = request
        self._queues[model].add(Ask(model, question, trial, round_) for trial in request.trials)

    def core_was_told(self) -> None:
        """Ask the core again for trials of every model if it has issued another round."""
        issued = self._state.controller.rounds_issued
        if issued != self._rounds_issued:
            self._rounds_issued, self._drained = issued, [False] * len(self._lanes)

    def forget(self, model: int) -> None:
        """Forget the waiting trials of this model."""
        self._queues[model].clear()
        self._state.trials.forget_wanted(model)

    def clear(self) -> None:
        """Forget all waiting trials."""
        for model in range(len(self._lanes)):
            self.forget(model)

    def _top_up(self, model: int, needed: int) -> None:
        """Queue more trials than are needed now, so that requests are full when their turn comes."""
        lane, queue = self._lanes[model], self._queues[model]
        if self._drained[model] or queue.trials >= needed + lane.samples_per_request:
            return
        while (want := needed + ASKED_AHEAD * lane.samples_per_request - queue.trials) > 0 and not self._drained[model]:
            asks = self._state.controller.ask(want, model)
            queue.add(self._state.want(asks))
            self._drained[model] = len(asks) < want
