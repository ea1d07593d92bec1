"""Whether a grader gives stored answers the grades that they have: a sample of them is graded once more.

Grades of two graders in one score compare nothing: a model whose later answers are graded more strictly falls.
"""

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.endpoints.types import Answer
from adaptive_eval.errors import GraderError
from adaptive_eval.graders.by_benchmark import grader_that_asks
from adaptive_eval.graders.pool import GradingPool
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.questions.types import Question

SAMPLE = 256
"""Answers that are graded again: at one in a hundred graded otherwise, all agree in 8 of 100 samples."""
SHOWN = 3
CUT = 100


class GradedAnswer(NamedTuple):
    """A stored answer with its grade."""

    question: Question
    answer: Answer
    category: int


class Agreement(NamedTuple):
    """The result of grading a sample again."""

    grader: str
    compared: int
    others: int
    """Answers that got another grade."""
    examples: tuple[str, ...] = ()
    tried: bool = True
    """False for a judge or a verifier, which is asked by runs alone: nothing is known of it."""

    @property
    def all_agree(self) -> bool:
        """Every answer got the grade that it has."""
        return self.tried and self.others == 0

    @property
    def summary(self) -> str:
        """The agreement in one line."""
        if not self.tried:
            return (
                f"whether the {self.grader} gives the grades of the logs is not known, since it is asked by runs alone"
            )
        return f"{self.others} of {self.compared} stored answers get another grade from {self.grader}"


class Reservoir:
    """Keeps a sample of what passes by, each with the same chance, the same for the same answers."""

    def __init__(self, size: int = SAMPLE) -> None:
        self.kept: list[GradedAnswer] = []
        self._size, self._seen, self._random = size, 0, random.Random(0)

    def take(self, one: GradedAnswer) -> None:
        """Show it one more answer, which it may keep."""
        self._seen += 1
        if len(self.kept) < self._size:
            self.kept.append(one)
        elif (place := self._random.randrange(self._seen)) < self._size:
            self.kept[place] = one


async def agreement(
    grader: GraderOptions,
    rubric: Rubric,
    sample: Sequence[GradedAnswer],
    folder: Path = Path(),
    keys: Collection[str] = (),
) -> Agreement:
    """Grade a sample again; an answer on which the grader fails is one with another grade."""
    if (asked := grader_that_asks(grader)) is not None:
        return Agreement(asked.kind, 0, 0, tried=False)
    async with GradingPool(grader, rubric, folder=folder, keys=keys) as pool:
        found = await asyncio.gather(*(_other(pool, rubric, one) for one in sample))
    others = [told for told in found if told is not None]
    return Agreement(getattr(grader, "kind", ""), len(sample), len(others), tuple(others[:SHOWN]))


async def agreeing_graders(
    graders: Mapping[str, type[GraderOptions]], rubric: Rubric, sample: Sequence[GradedAnswer]
) -> list[str]:
    """The graders that need no options, and give every answer of a sample the grade that it has."""
    plain = [one for one in graders.values() if not any(field.is_required() for field in one.model_fields.values())]
    tried = [options() for options in plain]
    able = [grader for grader in tried if not any(grader.key_problem(one.question) for one in sample)]
    found = [await agreement(grader, rubric, sample) for grader in able]
    return [one.grader for one in found if one.all_agree]


async def _other(pool: GradingPool, rubric: Rubric, one: GradedAnswer) -> str | None:
    """The grader's new finding on an answer; None if it is the grade that it has."""
    try:
        grade = await pool.grade(one.answer, one.question)
    except GraderError as error:
        said = f"no grade ({error})"
    else:
        if grade.category == one.category:
            return None
        graded = "no category yet" if grade.category is None else rubric.names[grade.category]
        said = f"{graded} (found {grade.extracted!r:.{CUT}})"
    text = one.answer.text.strip()
    cut = text if len(text) <= CUT else f"…{text[-CUT:]}"
    stored = rubric.names[one.category]
    return f"{cut!r} to question {one.question.id}, key {one.question.answer!r:.{CUT}}: stored {stored}, now {said}"
