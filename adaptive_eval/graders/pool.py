"""Grading for the event loop: at once where that is cheap, in a worker process where it may take time."""

import os
from collections.abc import Collection
from pathlib import Path

from adaptive_eval.endpoints.types import Answer
from adaptive_eval.errors import GraderError
from adaptive_eval.graders.facts import FLAGS, answer_facts, reads_as_refusal
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.types import Grade, Grader, Marks
from adaptive_eval.graders.workers import Workers
from adaptive_eval.questions.types import Question

MOST_WORKERS = 4


class GradingPool:
    """Grades answers: the grader's signals and the answer's own, made into a category by the rubric."""

    def __init__(self, grader: Grader, rubric: Rubric, *, folder: Path = Path(), keys: Collection[str] = ()) -> None:
        """`keys` are variables that worker processes do not get, besides all that are named like secrets."""
        self._grader, self._rubric = grader, rubric
        self._workers = Workers(grader, grader.workers or _default_workers(), folder, keys)

    async def grade(self, answer: Answer, question: Question) -> Grade:
        """The grade of an answer; `GraderError` says why there is none, and the answer can be graded again."""
        marks = self._quick(answer.text, question)
        if marks is None:
            marks = await self._workers.grade(answer.text, question)
        return make_grade(answer, marks, self._rubric)

    async def close(self) -> None:
        """End the worker processes."""
        await self._workers.close()

    def _quick(self, text: str, question: Question) -> Marks | None:
        try:
            return self._grader.quick(text, question)
        except GraderError:
            raise
        except Exception as error:  # a grader that fails is no wrong answer, whatever it failed with
            raise GraderError(f"the grader raised {type(error).__name__}: {error}") from error


def make_grade(answer: Answer, marks: Marks, rubric: Rubric) -> Grade:
    """The category of an answer, and the signals that led to it: all of the grader's, and the flags that are up."""
    facts = answer_facts(answer)
    if not marks.signals.get("has_answer", True) and reads_as_refusal(answer.text):
        facts["refusal"] = True
    raised = {flag: True for flag in FLAGS if facts[flag]}
    return Grade(rubric.category({**facts, **marks.signals}), {**marks.signals, **raised}, marks.extracted)


def _default_workers() -> int:
    """One per core but one, four at most."""
    return max(1, min(MOST_WORKERS, (os.cpu_count() or 2) - 1))
