"""Trials that the core has asked for and that wait for a free slot of their model."""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from adaptive_eval.core.types import Ask
from adaptive_eval.scheduler.first_answers import FirstRequests
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

    def take(self, lane: Lane, admits: Callable[[Request], bool] | None = None) -> Request | None:
        """Remove and return the next request that `admits` allows, cut to the trials that fit into one; the others
        stay in its place. None if it allows none."""
        places = range(1) if admits is None else range(len(self._requests))
        place = next((at for at in places if admits is None or admits(self._requests[at])), None)
        if place is None:
            return None
        model, question, first, size, round_ = request = self._requests[place]
        if size > (at_most := trials_per_request(lane, question, first)):
            self._requests[place] = Request(model, question, first + at_most, size - at_most, round_)
            request = Request(model, question, first, at_most, round_)
        else:
            del self._requests[place]
        self.trials -= request.size
        return request

    def clear(self) -> None:
        """Forget all trials."""
        self._requests.clear()
        self.trials = 0


class TrialQueues:
    """The queues of all models, which the core fills."""

    def __init__(self, state: RunState, first: FirstRequests) -> None:
        """`first` limits what may be sent."""
        self._state, self._lanes, self._first = state, state.lanes, first
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
        """Remove and return a model's next request that may be sent, with so many trials `needed` now; None if there
        is none."""
        queue, lane = self._queues[model], self._lanes[model]
        if not self.number(model, needed):
            return None
        if (admits := self._first.admits(model)) is None:
            return queue.take(lane)
        while (request := queue.take(lane, partial(admits, same_question=False))) is None and not self._drained[model]:
            self._ask_core(model, ASKED_AHEAD * lane.samples_per_request)
        return queue.take(lane, partial(admits, same_question=True)) if request is None else request

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
            self._ask_core(model, want)

    def _ask_core(self, model: int, want: int) -> None:
        """Queue so many further trials, or all that the core has."""
        asks = self._state.controller.ask(want, model)
        self._queues[model].add(self._state.want(asks))
        self._drained[model] = len(asks) < want
