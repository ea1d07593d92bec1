"""The trials that are not over and the requests in flight: every count and sum changes where a trial moves."""

from collections import Counter
from collections.abc import Sequence

from adaptive_eval.core.types import Cost
from adaptive_eval.machine.charges import Account
from adaptive_eval.machine.trial import (
    GRADING,
    HELD,
    IN_FLIGHT,
    NOT_SENT,
    OVER,
    QUEUED,
    RUNNING,
    STEPS,
    Key,
    Request,
    Trial,
    TrialState,
)


class TrialTable:
    """All trials of a run that are not over, and the requests that they are in."""

    def __init__(self, account: Account) -> None:
        """`account` gets the cost of each trial as it moves."""
        self.trials: dict[Key, Trial] = {}
        self.counts: Counter[TrialState] = Counter()
        """Trials, by state."""
        self.busy: Counter[int] = Counter()
        """By model: trials that were sent, or are about to be, until their outcomes are on disk."""
        self.held: Counter[int] = Counter()
        """By model: trials that were sent, or are about to be, until their answers are written."""
        self.requests: dict[int, tuple[Request, set[int]]] = {}
        """Requests in flight, each with the numbers of its trials that are."""
        self.in_flight: Counter[int] = Counter()
        """Requests in flight, by model."""
        self.unanswered: set[int] = set()
        """Models with a trial in flight in this start that got no answer then, even if it was asked again."""
        self._account = account
        self._request_of: dict[Key, int] = {}
        self._last_request = 0

    def move(self, after: Trial, *, is_charged: bool = False) -> None:
        """Change the state of a trial; `is_charged`: the account has its cost already. Raises `RuntimeError` for an
        illegal step."""
        key, state = after[:3], after.state
        before = self.trials.get(key)
        was = None if before is None else before.state
        if state not in STEPS[was]:
            raise RuntimeError(f"trial {key} is {was}, and now {state}")
        was_held, is_held = was in HELD, state in HELD
        if not is_charged and not (was_held and is_held):  # else the same is reserved for it as before
            if before is not None and was is not QUEUED:
                self._account.enter(before, -1)
            if state is not QUEUED:
                self._account.enter(after)
        if was is not None:
            self.counts[was] -= 1
            if was in IN_FLIGHT and state not in IN_FLIGHT:
                self._leave_request(key)
                if was is RUNNING and state is not GRADING:
                    self.unanswered.add(after.model)
        if is_held and not was_held:
            self.busy[after.model] += 1
            self.held[after.model] += 1
        elif was_held and not is_held:
            self.held[after.model] -= 1
            if state in NOT_SENT:
                self.busy[after.model] -= 1
        if state in OVER:
            self.trials.pop(key, None)
        else:
            self.counts[state] += 1
            self.trials[key] = after

    def add(self, trial: Trial) -> None:
        """Add a trial of an earlier start, in its state, whose cost the account has."""
        self.trials[trial.key] = trial
        self.counts[trial.state] += 1
        if trial.state in HELD:
            self.busy[trial.model] += 1
            self.held[trial.model] += 1

    def raise_reserve(self, model: int, cost: Cost) -> list[Trial]:
        """Reserve more for the trials of a model in flight; returns those of which less was reserved."""
        raised = [
            trial._replace(cost=cost)
            for trial in self.trials.values()
            if trial.model == model and trial.state in IN_FLIGHT and trial.cost.tokens < cost.tokens
        ]
        for trial in raised:
            self._account.enter(self.trials[trial.key], -1)
            self._account.enter(trial)
            self.trials[trial.key] = trial
        return raised

    def on_stored(self, trial: Trial) -> None:
        """The outcome of a trial that was sent is on disk."""
        self.busy[trial.model] -= 1

    def new_request(self, trials: Sequence[Trial]) -> Request:
        """A request for these trials, which holds a slot until the last of them has left it."""
        self._last_request += 1
        first = trials[0]
        request = Request(self._last_request, first.model, first.question, first.number, len(trials), first.round)
        self.requests[request.id] = request, set(request.numbers)
        self.in_flight[first.model] += 1
        for trial in trials:
            self._request_of[trial.key] = request.id
        return request

    def open_trials(self, number: int) -> list[Trial]:
        """The trials of a request that are still in flight."""
        request, open_trials = self.requests[number]
        return [self.trials[request.model, request.question, trial] for trial in sorted(open_trials)]

    def _leave_request(self, key: Key) -> None:
        number = self._request_of.pop(key)
        request, open_trials = self.requests[number]
        open_trials.discard(key[2])
        if not open_trials:
            del self.requests[number]
            self.in_flight[request.model] -= 1
