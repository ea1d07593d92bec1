"""Grading an answer: a failure of the grader says nothing about the answer."""

from collections.abc import Awaitable, Callable

from adaptive_eval.base.errors import GraderError, GraderExhausted, JudgeFailed
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.graders.attempts import ATTEMPTS, why_unanswered
from adaptive_eval.graders.pool import Grading
from adaptive_eval.machine.events import Graded
from adaptive_eval.machine.trial import GradeDetails, Trial
from adaptive_eval.questions.types import Question


async def grade_answer(
    grading: Grading, trial: Trial, question: Question, retry_gate: Callable[[], Awaitable[bool]] | None
) -> Graded:
    """Have an answer graded; `retry_gate` is called before a request with a lost reply is repeated. A grader that has
    failed on it in an earlier start is tried once more, unless it sends requests."""
    answer = trial.answer
    assert answer is not None
    if (why := why_unanswered(answer)) is not None:
        return Graded(trial.key, None, GradeDetails(error=why))
    cost = NO_COST
    has_failed = trial.grade is not None and trial.grade.error is not None
    for _ in range(1 if has_failed and not grading.lasting else ATTEMPTS):
        try:
            grade = await grading.grade(answer, question, retry_gate)
        except GraderError as error:
            last = error
            if isinstance(error, JudgeFailed) and isinstance(error.cost, Cost):
                cost = cost.plus(error.cost)
            if isinstance(error, GraderExhausted):
                break
        else:
            return Graded(
                trial.key, grade.category, GradeDetails(grade.signals, grade.extracted), cost.plus(grade.cost)
            )
    return Graded(trial.key, None, GradeDetails(error=str(last)), cost, has_failed=True)
