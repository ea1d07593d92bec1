"""The graders of a run of several benchmarks at work, where judges grade some of them."""

from collections.abc import Mapping, Sequence
from itertools import chain

from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Again, Answer, Notice
from adaptive_eval.graders.judging import JudgePool
from adaptive_eval.graders.pool import GradingPool
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.types import Grade
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.questions.types import Question


class BenchmarksPool:
    """Has each answer judged, or read, as the benchmark of its question wants it."""

    lasting = True

    def __init__(self, judges: Mapping[str, JudgePool], others: GradingPool) -> None:
        self._judges, self._others = judges, others
        self._all: tuple[JudgePool | GradingPool, ...] = (*judges.values(), others)
        self.lost = next(iter(judges.values())).lost

    def asks(self, question: Question) -> bool:
        """Whether a judge grades the answers to this question."""
        return benchmark_named(question.id) in self._judges

    def _of(self, question: Question) -> JudgePool | GradingPool:
        return self._judges.get(benchmark_named(question.id), self._others)

    @property
    def rubric(self) -> Rubric:
        """That of all."""
        return self._others.rubric

    @rubric.setter
    def rubric(self, rubric: Rubric) -> None:
        for one in self._all:
            one.rubric = rubric

    @property
    def notices(self) -> Sequence[Notice]:
        """Notices about the servers of all judges."""
        return [*chain.from_iterable(one.notices for one in self._all)]

    def lost_with(self, answer: str, question: Question) -> Cost:
        """The most that the grade of this answer may cost."""
        return self._of(question).lost_with(answer, question)

    def lost_vote(self, lost: Cost) -> Cost:
        """The most that one reply of any judge may have cost that did not come."""
        each = [one.lost_vote(lost) for one in self._judges.values()]
        return Cost(*(max(values) for values in zip(*each, strict=True)))

    async def grade(self, answer: Answer, question: Question, again: Again | None = None) -> Grade:
        """The grade of an answer; raises what the grader of its benchmark does."""
        return await self._of(question).grade(answer, question, again)

    async def close(self) -> None:
        """Close every connection, and end the workers."""
        for one in self._all:
            await one.close()
