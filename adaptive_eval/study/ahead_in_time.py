"""A replay in simulated time where slots that would be idle are asked ahead, trial by trial.

What is asked ahead depends on which slots are idle when, so that every answer is an event of its own here. The looks
are those of `drive_in_time` without it.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.types import NO_COST, Ask, Look, Outcome
from adaptive_eval.study.drive import CostTable
from adaptive_eval.study.tape import Tape, TrialArrays
from scorio.moments import FloatArray, IntArray

AT_A_TIME = 1024
THERE = -1
Place = tuple[int, int, int]


class TimesOfTrials(NamedTuple):
    """What a replay asks of a tape and of the times of its answers."""

    tape: Tape
    seconds: Callable[[TrialArrays, IntArray], FloatArray]

    def of(self, place: Place) -> tuple[int, float]:
        """Category and seconds of one trial."""
        category = self.tape.category(*place)
        model, question, trial = (np.array([number]) for number in place)
        return category, float(self.seconds(TrialArrays(model, question, trial), np.array([category]))[0])


@dataclass
class _Line:
    """One model: its free slots, what waits for them, and what came of it."""

    free: int
    asked: deque[Place] = field(default_factory=deque)
    ahead: deque[Ask] = field(default_factory=deque)
    rounds: int = -1
    """Rounds that were issued when there was nothing further to ask."""
    began: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)


class AheadReplay:
    """Servers with slots, and the controller that asks them."""

    def __init__(self, controller: Controller, times: TimesOfTrials, slots: Sequence[int], costs: CostTable | None):
        self._controller, self._times, self._costs = controller, times, costs
        self.lines = [_Line(free) for free in slots]
        self._known: dict[Place, int] = {}
        """Trials that were asked for, ahead or not, and their categories; those that took no time were there."""
        self._early: dict[Place, Outcome] = {}
        """Answers that no round has asked for."""
        self._wanted: set[Place] = set()
        self._ends: list[tuple[float, Place, int, float]] = []
        self._looks = -1
        self.now = 0.0

    def run(self, on_look: Callable[[Look], None] | None) -> list[float]:
        """Until the controller is finished, or its wall time is over; gives the times of the looks."""
        controller, cap, looked = self._controller, self._controller.plan.budget.wall_seconds, list[float]()
        told: list[Outcome] = []
        while controller.finished is None:
            for model in range(len(self.lines)):
                told += self._fill(model)
            if not told:
                end, place, category, seconds = heapq.heappop(self._ends)
                if cap is not None and end >= cap:
                    self.now = cap
                    controller.tick(cap)
                    break
                self.now = end
                told += self._end(place, category, seconds)
            for look in controller.tell(told):
                looked.append(self.now)
                if on_look is not None:
                    on_look(look)
            told = []
        return looked

    def _fill(self, model: int) -> list[Outcome]:
        """Ask what fits; gives what a round has come to want and is there already."""
        line, here = self.lines[model], list[Outcome]()
        if line.rounds != self._controller.rounds_issued:
            line.rounds = self._controller.rounds_issued
            while asks := self._controller.ask(AT_A_TIME, model):
                for ask in asks:
                    self._wanted.add(ask[:3])
                    if (early := self._early.pop(ask[:3], None)) is not None:
                        here.append(early)
                    elif ask[:3] not in self._known:
                        line.asked.append(ask[:3])
        if self._looks != self._controller.looks_taken:
            self._looks = self._controller.looks_taken
            for one, asks in zip(self.lines, self._controller.likely_next(), strict=True):
                one.ahead = deque(asks)
        while line.free and (line.asked or line.ahead):
            place = line.asked.popleft() if line.asked else line.ahead.popleft()[:3]
            if place not in self._known:
                self._begin(line, place)
        return here

    def _begin(self, line: _Line, place: Place) -> None:
        category, seconds = self._times.of(place)
        self._known[place] = category if seconds > 0.0 else THERE
        line.free -= 1
        line.began.append(self.now)
        line.ended.append(self.now + seconds)
        heapq.heappush(self._ends, (self.now + seconds, place, category, seconds))

    def _end(self, place: Place, category: int, seconds: float) -> list[Outcome]:
        self.lines[place[0]].free += 1
        cost = NO_COST if self._costs is None else self._costs[place[0]][category]
        outcome = Outcome(*place, category, cost, seconds=seconds)
        if place in self._wanted:
            return [outcome]
        self._early[place] = outcome
        return []

    def unwanted(self) -> IntArray:
        """(L, K): trials that were asked for in vain."""
        bench = self._controller.plan.bench
        counts = np.zeros((bench.models, bench.categories), dtype=np.int64)
        for place in self._known.keys() - self._wanted:
            if (category := self._known[place]) != THERE:
                counts[place[0], category] += 1
        return counts
