"""Several attempts at the grade of an answer."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from adaptive_eval.base.errors import GraderError, GraderExhausted
from adaptive_eval.endpoints.types import Answer, RetryGate
from adaptive_eval.questions.types import Question

ATTEMPTS = 3
"""After this many errors on one answer the grader is not tried again on it."""

Result = TypeVar("Result")


async def grade_or_error(
    grade: Callable[[Answer, Question, RetryGate | None], Awaitable[Result]],
    answer: Answer,
    question: Question,
    again: RetryGate | None = None,
) -> Result | GraderError:
    """Grade an answer; returns the error of the last attempt, or of the server if it gave no answer."""
    if "unanswered" in answer.signals:
        return GraderError(f"every attempt at it failed, and others are answered: {answer.finish_reason}")
    for _ in range(ATTEMPTS):
        try:
            return await grade(answer, question, again)
        except GraderError as error:
            last = error
            if isinstance(error, GraderExhausted):
                break
    return last
