"""Grading an answer: a failure of the grader says nothing about the answer."""

from collections.abc import Awaitable, Callable

from adaptive_eval.base.errors import GraderError, JudgeFailed
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.graders.pool import Grading, why_unanswered
from adaptive_eval.machine.events import Graded
from adaptive_eval.machine.trial import GradeDetails, Trial
from adaptive_eval.questions.types import Question


async def grade_answer(
    grading: Grading, trial: Trial, question: Question, retry_gate: Callable[[], Awaitable[bool]] | None
) -> Graded:
    """Have an answer graded; `retry_gate` is called before a request with a lost reply is repeated."""
    answer = trial.answer
    assert answer is not None
    if (why := why_unanswered(answer)) is not None:
        return Graded(trial.key, None, GradeDetails(error=why))
    try:
        grade = await grading.grade(answer, question, retry_gate)
    except GraderError as error:
        cost = error.cost if isinstance(error, JudgeFailed) and isinstance(error.cost, Cost) else NO_COST
        usage = error.usage if isinstance(error, JudgeFailed) else {}
        return Graded(trial.key, None, GradeDetails(usage, error=str(error)), cost, has_failed=True)
    return Graded(trial.key, grade.category, GradeDetails(grade.signals, grade.extracted), grade.cost)
