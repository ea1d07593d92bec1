"""Several attempts at the grade of an answer."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from adaptive_eval.base.errors import GraderError, GraderExhausted
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.questions.types import Question

ATTEMPTS = 3
"""After this many errors on one answer the grader is not tried again on it."""

Result = TypeVar("Result")


def why_unanswered(answer: Answer) -> str | None:
    """Why there is nothing to grade; None if there is an answer."""
    if "unanswered" not in answer.signals:
        return None
    return f"every attempt at it failed, and others are answered: {answer.finish_reason}"


async def grade_or_error(
    grade: Callable[[Answer, Question], Awaitable[Result]], answer: Answer, question: Question
) -> Result | GraderError:
    """Grade an answer; returns the error of the last attempt, or of the server if it gave no answer."""
    if (why := why_unanswered(answer)) is not None:
        return GraderError(why)
    for _ in range(ATTEMPTS):
        try:
            return await grade(answer, question)
        except GraderError as error:
            last = error
            if isinstance(error, GraderExhausted):
                break
    return last
