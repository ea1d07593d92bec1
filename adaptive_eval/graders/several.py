"""Grading in a run with several benchmarks, some of which are graded by judges."""

from collections.abc import Mapping, Sequence
from itertools import chain

from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Again, Answer, Notice
from adaptive_eval.graders.judging import JudgePool
from adaptive_eval.graders.pool import Grading, GradingPool
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.types import Grade
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.questions.types import Question


class BenchmarksPool(Grading):
    """Grades each answer with the judge of its question's benchmark, or with the graders that ask no server."""

    lasting = True

    def __init__(self, judges: Mapping[str, JudgePool], others: GradingPool) -> None:
        self._judges, self._others = judges, others
        self._all: tuple[JudgePool | GradingPool, ...] = (*judges.values(), others)
        self.lost = next(iter(judges.values())).lost

    def asks(self, question: Question) -> bool:
        return benchmark_named(question.id) in self._judges

    def _pool_for(self, question: Question) -> JudgePool | GradingPool:
        return self._judges.get(benchmark_named(question.id), self._others)

    @property
    def rubric(self) -> Rubric:
        return self._others.rubric

    @rubric.setter
    def rubric(self, rubric: Rubric) -> None:
        for one in self._all:
            one.rubric = rubric

    @property
    def notices(self) -> Sequence[Notice]:
        return [*chain.from_iterable(one.notices for one in self._all)]

    def lost_with(self, answer: str, question: Question) -> Cost:
        return self._pool_for(question).lost_with(answer, question)

    def lost_vote(self, lost: Cost) -> Cost:
        each = [one.lost_vote(lost) for one in self._judges.values()]
        return Cost(*(max(values) for values in zip(*each, strict=True)))

    async def grade(self, answer: Answer, question: Question, again: Again | None = None) -> Grade:
        return await self._pool_for(question).grade(answer, question, again)

    async def close(self) -> None:
        for one in self._all:
            await one.close()
