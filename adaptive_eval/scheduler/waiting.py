"""Trials that were asked for and wait for a free slot of their model."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from adaptive_eval.core.types import Ask
from adaptive_eval.scheduler.types import Decider, Lane

ASKED_AHEAD = 16
"""Requests whose trials wait besides those that fill the free slots, so that the core is not asked at every answer."""


class TrialGroup(NamedTuple):
    """Consecutive trials of one question and round, which may travel in one request."""

    question: int
    first: int
    """The number of the first trial."""
    size: int
    round: int

    @property
    def trials(self) -> range:
        """The numbers of the group's trials."""
        return range(self.first, self.first + self.size)


class WaitingLine:
    """One model's trials in the order they were asked for, grouped by question."""

    def __init__(self) -> None:
        self._groups: deque[TrialGroup] = deque()
        self.trials = 0
        """How many trials wait."""

    def add(self, asks: Iterable[Ask]) -> None:
        """Append trials; one that continues the last group joins it."""
        for _, question, trial, round_ in asks:
            self.trials += 1
            last = self._groups[-1] if self._groups else None
            if last and (last.question, last.round, last.first + last.size) == (question, round_, trial):
                self._groups[-1] = TrialGroup(question, last.first, last.size + 1, round_)
            else:
                self._groups.append(TrialGroup(question, trial, 1, round_))

    def peek(self) -> TrialGroup | None:
        """The group whose turn it is."""
        return self._groups[0] if self._groups else None

    def take(self, at_most: int) -> TrialGroup:
        """The first trials of the group whose turn it is; the others keep their place."""
        group = self._groups.popleft()
        question, first, size, round_ = group
        if size > at_most:
            self._groups.appendleft(TrialGroup(question, first + at_most, size - at_most, round_))
            group = TrialGroup(question, first, at_most, round_)
        self.trials -= group.size
        return group

    def clear(self) -> None:
        """Forget all groups."""
        self._groups.clear()
        self.trials = 0


class WaitingLines:
    """The lines of all models, which the core fills."""

    def __init__(
        self, controller: Decider, lanes: Sequence[Lane], is_here: Callable[[Ask], bool] | None = None
    ) -> None:
        """`is_here`: of a trial that the core asks for, whether its answer is stored already."""
        self._controller, self._lanes, self._is_here = controller, lanes, is_here
        self._lines = [WaitingLine() for _ in lanes]
        self._dry = [False] * len(lanes)
        """Models that the core has no further trials for until it issues more."""
        self._rounds_issued = 0
        """Rounds that the core had issued when it was told last."""

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not any(line.trials for line in self._lines)

    def first(self, model: int, needed: int) -> TrialGroup | None:
        """The group of a model whose turn it is, when so many trials are needed of it now; None while it is paused."""
        if self._controller.is_paused(model):
            return None
        self._top_up(model, needed)
        return self._lines[model].peek()

    def number(self, model: int, needed: int) -> int:
        """How many trials of a model wait, when so many are needed of it now; none while it is paused."""
        if self._controller.is_paused(model):
            return 0
        self._top_up(model, needed)
        return self._lines[model].trials

    def take(self, model: int, at_most: int) -> TrialGroup:
        """The first trials of that group."""
        return self._lines[model].take(at_most)

    def give_back(self, model: int, group: TrialGroup) -> None:
        """Let trials that were sent and not answered wait again."""
        self._lines[model].add(Ask(model, group.question, trial, group.round) for trial in group.trials)

    def core_was_told(self) -> None:
        """The core may have issued more: ask it again for every model."""
        if self._controller.rounds_issued != self._rounds_issued:
            self._rounds_issued, self._dry = self._controller.rounds_issued, [False] * len(self._lanes)

    def forget(self, model: int) -> None:
        """Nothing of this model waits any more."""
        self._lines[model].clear()

    def clear(self) -> None:
        """Nothing waits any more."""
        for line in self._lines:
            line.clear()

    def _top_up(self, model: int, needed: int) -> None:
        """Have more trials wait than are needed now: groups are then whole when their turn comes."""
        lane, line = self._lanes[model], self._lines[model]
        if self._dry[model] or line.trials >= needed + lane.samples_per_request:
            return
        while (want := needed + ASKED_AHEAD * lane.samples_per_request - line.trials) > 0 and not self._dry[model]:
            asks = self._controller.ask(want, model)
            line.add(asks if self._is_here is None else [ask for ask in asks if not self._is_here(ask)])
            self._dry[model] = len(asks) < want
