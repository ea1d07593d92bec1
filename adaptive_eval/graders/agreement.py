"""Checks on a sample whether a grader reproduces the stored grades of answers.

Mixing the grades of two graders in one score is unfair: a model whose later answers are graded more strictly falls.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import NamedTuple

from adaptive_eval.base.errors import GraderError
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.by_benchmark import find_grader, grader_that_asks
from adaptive_eval.graders.pool import GradingPool
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.types import GraderOptions, WorkerSettings, with_marks
from adaptive_eval.questions.types import Question

SAMPLE_SIZE = 256
"""Answers to grade again: if 1% of all grades differ, only 8 of 100 samples agree entirely."""
MAX_EXAMPLES = 3
MAX_QUOTED = 100
"""Characters quoted of an answer or a key."""


class GradedAnswer(NamedTuple):
    """A stored answer with its grade."""

    question: Question
    answer: Answer
    category: int


class Agreement(NamedTuple):
    """The result of grading a sample again."""

    grader: str
    compared: int
    disagreements: int
    """Number of answers whose new grade differs."""
    examples: tuple[str, ...] = ()
    tried: bool = True
    """False for a judge or a verifier, which only runs can ask: then the agreement is unknown."""

    @property
    def all_agree(self) -> bool:
        """Whether every answer got its stored grade."""
        return self.tried and self.disagreements == 0

    @property
    def summary(self) -> str:
        """The agreement in one line."""
        if not self.tried:
            return f"it is unknown whether the {self.grader} reproduces the grades of the logs: only a run can ask it"
        return f"{self.grader} grades {self.disagreements} of {self.compared} stored answers differently"


class Reservoir:
    """A uniform, reproducible sample of a stream of answers."""

    def __init__(self) -> None:
        self.answers: list[GradedAnswer] = []
        self._seen, self._random = 0, random.Random(0)

    def offer(self, answer: GradedAnswer) -> None:
        """Offer an answer, which may become part of the sample."""
        self._seen += 1
        if len(self.answers) < SAMPLE_SIZE:
            self.answers.append(answer)
        elif (index := self._random.randrange(self._seen)) < SAMPLE_SIZE:
            self.answers[index] = answer


async def agreement(
    grader: GraderOptions, rubric: Rubric, sample: Sequence[GradedAnswer], settings: WorkerSettings
) -> Agreement:
    """Grade a sample again; an answer on which the grader fails counts as a disagreement."""
    if (asked := grader_that_asks(grader)) is not None:
        return Agreement(asked.kind, 0, 0, tried=False)
    async with GradingPool(grader, rubric, settings) as pool:
        marked = (_with_stored_marks(grader, answer) for answer in sample)
        results = await asyncio.gather(*(_describe_difference(pool, rubric, answer) for answer in marked))
    differences = [difference for difference in results if difference is not None]
    return Agreement(getattr(grader, "kind", ""), len(sample), len(differences), tuple(differences[:MAX_EXAMPLES]))


def _with_stored_marks(grader: GraderOptions, graded: GradedAnswer) -> GradedAnswer:
    """The answer with the marks that came with it, if its grader takes those and the answer has them itself."""
    part = find_grader(grader, graded.question)
    marks = part.stored_marks(graded.answer, {}, None) if part.comes_with_answer else None
    return graded if marks is None else graded._replace(answer=with_marks(graded.answer, marks))


async def _describe_difference(pool: GradingPool, rubric: Rubric, graded: GradedAnswer) -> str | None:
    """Describe how the new grade of an answer differs from the stored one; None if it does not."""
    try:
        grade = await pool.grade(graded.answer, graded.question)
    except GraderError as error:
        outcome = f"no grade ({error})"
    else:
        if grade.category == graded.category:
            return None
        outcome = f"{rubric.names[grade.category]} (extracted {grade.extracted!r:.{MAX_QUOTED}})"
    text, question, stored = graded.answer.text.strip(), graded.question, rubric.names[graded.category]
    shown = text if len(text) <= MAX_QUOTED else f"…{text[-MAX_QUOTED:]}"
    return f"{shown!r} to question {question.id}, key {question.answer!r:.{MAX_QUOTED}}: stored {stored}, now {outcome}"
