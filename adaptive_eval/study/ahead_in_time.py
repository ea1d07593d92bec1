"""A replay in simulated time where slots that would be idle are asked ahead.

The looks are those of `drive_in_time` without it. What is asked ahead depends on which slots are idle when; but from
one look to the next no model's slots know of another's, so that each has its own queue: first what rounds have asked
for, then what is likely to be wanted.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from adaptive_eval.core.ahead import LikelyTrials
from adaptive_eval.core.controller import Controller
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.rounds import Round
from adaptive_eval.core.settings import Budget
from adaptive_eval.core.tape import Tape, TrialArrays
from adaptive_eval.core.types import NO_COST, Look, Outcome
from adaptive_eval.study.drive import CostTable, DrawnRound
from scorio.moments import FloatArray, IntArray

MOST_ASKED_AHEAD = 1_000_000
"""Trials of a run at most whose idle slots are simulated."""
ASKED_AHEAD_IN_ALL = 300_000
"""Trials of all runs together whose idle slots are simulated, of each variant."""
TIMED_LEAST, TIMED_MOST = 3, 20
"""Worlds in which runs are timed."""


def asks_ahead(plan: Plan, *, never: bool = False) -> bool:
    """Whether it is simulated what idle slots are asked ahead. Where trials are too many, the run is taken to ask
    nothing ahead: it takes longer, and asks for fewer."""
    counted = replace(plan.budget, wall_seconds=None) != Budget()
    return bool(plan.pace.ahead) and not never and not counted and _most_trials(plan) <= MOST_ASKED_AHEAD


def timed_worlds(plan: Plan, *, never: bool = False) -> int:
    """In how many worlds a run is timed, at most: times differ less from world to world than trials do, and take as
    long to find, or longer where idle slots are asked ahead."""
    if not asks_ahead(plan, never=never):
        return TIMED_MOST
    return min(max(ASKED_AHEAD_IN_ALL // _most_trials(plan), TIMED_LEAST), TIMED_MOST)


def _most_trials(plan: Plan) -> int:
    return plan.bench.models * plan.bench.questions * plan.trials.max


class TimesOfTrials(NamedTuple):
    """What a replay asks of a tape and of the times of its answers."""

    tape: Tape
    seconds: Callable[[TrialArrays, IntArray], FloatArray]

    def of(self, trials: TrialArrays) -> FloatArray:
        """What answers to the trials take."""
        return self.seconds(trials, self.tape.categories(trials))


class Slots:
    """The slots of one model, and what was asked in them."""

    def __init__(self, model: int, slots: int, questions: int, times: TimesOfTrials) -> None:
        self._model, self._times = model, times
        self._free = [0.0] * slots
        """A heap: when each slot is free."""
        self._ends = np.full((questions, 8), np.nan)
        """(M, N): when trials that were asked for end; nan for others."""
        self._wanted = np.zeros(questions, dtype=np.int64)
        """Trials of each question that rounds have asked for."""
        self._likely: tuple[LikelyTrials, list[float]] = (LikelyTrials(*np.zeros((2, 0), dtype=np.int64)), [])
        """What may be asked ahead, and what it takes."""
        self._spans: list[tuple[list[float], list[float]]] = []

    def serve(self, question: IntArray, trial: IntArray, now: float) -> FloatArray:
        """Ask what a round wants, unless it was asked ahead, and say when each trial ends."""
        np.maximum.at(self._wanted, question, trial + 1)
        new = np.flatnonzero(np.isnan(self._room(trial)[question, trial]))
        trials = self._trials(question[new], trial[new])
        self._ends[question[new], trial[new]] = self._begin(self._times.of(trials).tolist(), now)
        return np.asarray(self._ends[question, trial])

    def likely(self, found: LikelyTrials) -> None:
        """Set the trials that may be wanted next."""
        new = np.flatnonzero(np.isnan(self._room(found.trial)[found.question, found.trial]))
        trials = LikelyTrials(found.question[new], found.trial[new])
        self._likely = trials, self._times.of(self._trials(*trials)).tolist()

    def ask_ahead(self, now: float, until: float) -> None:
        """What slots that are idle in this time are asked."""
        (question, trial), seconds = self._likely
        ends = self._begin(seconds, now, until)
        self._ends[question[: len(ends)], trial[: len(ends)]] = ends

    def _begin(self, seconds: Sequence[float], now: float, until: float = np.inf) -> list[float]:
        """Have a slot do each of these, as far as they begin now or before a time; gives when they end."""
        free, begins, ends = self._free, list[float](), list[float]()
        for took in seconds:
            begin = free[0] if free[0] > now else now
            if begin >= until and begin > now:
                break
            begins.append(begin)
            ends.append(begin + took)
            heapq.heapreplace(free, begin + took)
        self._spans.append((begins, ends))
        return ends

    def _trials(self, question: IntArray, trial: IntArray) -> TrialArrays:
        return TrialArrays(np.full(len(question), self._model), question, trial)

    def _room(self, trial: IntArray) -> FloatArray:
        """The times of trials, as far as these."""
        if (more := int(trial.max(initial=0)) + 1 - self._ends.shape[1]) > 0:
            room = np.full((len(self._ends), max(more, self._ends.shape[1])), np.nan)
            self._ends = np.concatenate([self._ends, room], axis=1)
        return self._ends

    def spans(self, until: float) -> tuple[FloatArray, FloatArray]:
        """When trials began and ended, those that had begun by then."""
        begins = np.concatenate([np.zeros(0), *(begun for begun, _ in self._spans)])
        ends = np.concatenate([np.zeros(0), *(ended for _, ended in self._spans)])
        return begins[begins <= until], np.minimum(ends[begins <= until], until)

    def in_vain(self, categories: int) -> IntArray:
        """(K,): trials that were asked for and that no round wanted; those that took no time were there."""
        question, trial = np.nonzero(~np.isnan(self._ends))
        vain = trial >= self._wanted[question]
        trials = self._trials(question[vain], trial[vain])
        took = self._times.of(trials) > 0.0
        return np.bincount(self._times.tape.categories(trials)[took], minlength=categories)


class _DueRound(NamedTuple):
    """A round, and when its trials end."""

    asked: Round
    drawn: DrawnRound
    ends: FloatArray


class AheadReplay:
    """Servers with slots, and the controller that asks them."""

    def __init__(self, controller: Controller, times: TimesOfTrials, slots: Sequence[int], costs: CostTable | None):
        self._controller, self._times, self._costs = controller, times, costs
        questions = controller.plan.bench.questions
        self.slots = [Slots(model, own, questions, times) for model, own in enumerate(slots)]
        self._due = deque[_DueRound]()
        self.now = 0.0

    def run(self, on_look: Callable[[Look], None] | None) -> list[float]:
        """Until the controller is finished, or its wall time is over; gives the times of the looks."""
        controller, cap, looked = self._controller, self._controller.plan.budget.wall_seconds, list[float]()
        while controller.finished is None:
            self._due.extend(map(self._serve, controller.ask_rounds()))
            for own, found in zip(self.slots, controller.likely_next(), strict=True):
                own.likely(found)
            end = max(self.now, float(self._due[0].ends.max(initial=0.0)))
            over = cap is not None and end >= cap
            for own in self.slots:
                own.ask_ahead(self.now, cap if cap is not None and over else end)
            if cap is not None and over:
                self.now = cap
                controller.tell(self._before(cap))
                controller.tick(cap)
                break
            self.now = end
            landed = self._due.popleft()
            for look in controller.tell_round(landed.asked, landed.drawn.counts, self._costs):
                looked.append(self.now)
                if on_look is not None:
                    on_look(look)
        return looked

    def _serve(self, asked: Round) -> _DueRound:
        """Have what a round asks for asked now."""
        drawn = DrawnRound.of(asked, self._times.tape, self._controller.plan.bench.categories)
        ends = np.zeros(len(drawn.trials.model))
        for model, own in enumerate(self.slots):
            mine = drawn.trials.model == model
            ends[mine] = own.serve(drawn.trials.question[mine], drawn.trials.trial[mine], self.now)
        return _DueRound(asked, drawn, ends)

    def _before(self, cap: float) -> Iterator[Outcome]:
        """What has come of rounds before the cap."""
        for due in self._due:
            came = due.ends < cap
            columns = (*due.drawn.trials, due.drawn.categories)
            for model, question, trial, category in zip(*(one[came].tolist() for one in columns), strict=True):
                cost = NO_COST if self._costs is None else self._costs[model][category]
                yield Outcome(model, question, trial, category, cost)

    def unwanted(self) -> IntArray:
        """(L, K): trials that were asked for in vain."""
        return np.stack([own.in_vain(self._controller.plan.bench.categories) for own in self.slots])
