"""Few requests of each model whose answers are lost where they get no grade, and an end where a grader always fails.

An answer of Inspect comes with the score of its task, and is lost without one. A scorer may fail on every answer, which
shows on the first ones. So such a model is asked for `FIRST_IN_FLIGHT` answers at a time, to different questions if
there are, until an answer of it in their benchmark has a grade. Other answers are stored, and graded again later:
their servers are kept full from the beginning, since limits on the time of an answer are learnt from the first ones.

If `FIRST_ANSWERS` have come and none could be graded, the run ends. They are stored, and the next start grades them
first.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from adaptive_eval.base.errors import ConfigError, Unavailable
from adaptive_eval.scheduler.state import RunState
from adaptive_eval.store import Regrade, TrialRecord
from adaptive_eval.supply.types import Request

FIRST_IN_FLIGHT = 4
"""Answers of such a model in flight until something has been graded."""
FIRST_ANSWERS = 12
"""A grader that has failed on this many answers, and has graded none, is taken to fail on all."""
MUTE = (
    "none of the first {} answers could be graded, so no more are requested: {}\n"
    "Every answer is stored. Fix the grader or its server; the same command then grades these answers first."
)


class Admits(Protocol):
    """A check of a request: whether it may be sent now."""

    def __call__(self, request: Request, *, same_question: bool) -> bool:
        """`same_question`: even if another request to its question is in flight."""


class FirstRequests:
    """Limits the first requests of models whose answers come with their grades."""

    def __init__(self, state: RunState) -> None:
        self._state = state

    def admits(self, model: int) -> Admits | None:
        """A check of the model's next request; None if any may be sent."""
        graded = self._state.models.graded
        if not graded.is_awaited(model):
            return None
        under_way = self._state.trials.under_way(model)

        def check(request: Request, *, same_question: bool) -> bool:
            benchmark = graded.benchmark(request.question)
            if graded.has_grade(benchmark, model):
                return True
            alike = [question for question in under_way if graded.benchmark(question) == benchmark]
            return len(alike) < FIRST_IN_FLIGHT and (same_question or request.question not in alike)

        return check


class GradeWatch:
    """Notices a grader that fails on everything."""

    def __init__(self, state: RunState, asks: Callable[[str], bool]) -> None:
        """`asks`: whether the grade of an answer to a question takes a request."""
        self._state, self._asks = state, asks
        self._failed: Counter[str] = Counter()
        """Answers without a grade since this start, by benchmark."""
        self._graded: set[str] = set()
        """Benchmarks of which an answer was graded since this start."""

    def see(self, grades: Iterable[TrialRecord | Regrade], earlier: Callable[[], Collection[str]] = tuple) -> None:
        """Count new grades; raises `Unavailable`, or `ConfigError` for a grader that asks no server, if it has failed
        on the first answers and graded none.

        `earlier` has questions of which an earlier start has graded an answer.
        """
        for one in grades:
            benchmark = self._benchmark(one.question)
            if one.failed:
                self._failed[benchmark] += 1
                if self._failed[benchmark] >= FIRST_ANSWERS and not self._has_graded(benchmark, earlier):
                    kind = Unavailable if self._asks(one.question) else ConfigError
                    raise kind(MUTE.format(self._failed[benchmark], one.grader_error))
            elif one.category is not None:
                self._graded.add(benchmark)

    def _has_graded(self, benchmark: str, earlier: Callable[[], Collection[str]]) -> bool:
        """Whether an answer in a benchmark has a grade, or none is needed any more."""
        if self._state.controller.finished is not None or benchmark in self._graded:
            return True
        return self._state.models.graded.has_grade(benchmark) or benchmark in map(self._benchmark, earlier())

    def _benchmark(self, question: str) -> str:
        return self._state.models.graded.benchmark(self._state.roster.questions.position(question))
