"""Checks on a sample whether a grader reproduces the stored grades of answers.

Mixing the grades of two graders in one score is unfair: a model whose later answers are graded more strictly falls.
"""

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.base.errors import GraderError
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.by_benchmark import grader_that_asks
from adaptive_eval.graders.pool import GradingPool
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.questions.types import Question

SAMPLE = 256
"""Answers that are graded again: if one in a hundred grades differs, only 8 of 100 samples agree entirely."""
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
    """Number of answers that got another grade."""
    examples: tuple[str, ...] = ()
    tried: bool = True
    """False for a judge or a verifier, which only runs ask: nothing is known then."""

    @property
    def all_agree(self) -> bool:
        """Whether every answer got its stored grade."""
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
    """Draws a uniform sample of a stream of answers, reproducibly."""

    def __init__(self, size: int = SAMPLE) -> None:
        self.kept: list[GradedAnswer] = []
        self._size, self._seen, self._random = size, 0, random.Random(0)

    def take(self, one: GradedAnswer) -> None:
        """Offer an answer, which may become part of the sample."""
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
    """Grade a sample again; an answer on which the grader fails counts as one with another grade."""
    if (asked := grader_that_asks(grader)) is not None:
        return Agreement(asked.kind, 0, 0, tried=False)
    async with GradingPool(grader, rubric, folder=folder, keys=keys) as pool:
        found = await asyncio.gather(*(_describe_difference(pool, rubric, one) for one in sample))
    others = [told for told in found if told is not None]
    return Agreement(getattr(grader, "kind", ""), len(sample), len(others), tuple(others[:SHOWN]))


async def find_agreeing_graders(
    graders: Mapping[str, type[GraderOptions]], rubric: Rubric, sample: Sequence[GradedAnswer]
) -> list[str]:
    """The kinds of graders without required options that give every answer of a sample its stored grade."""
    plain = [one for one in graders.values() if not any(field.is_required() for field in one.model_fields.values())]
    tried = [options() for options in plain]
    able = [grader for grader in tried if not any(grader.key_problem(one.question) for one in sample)]
    found = [await agreement(grader, rubric, sample) for grader in able]
    return [one.grader for one in found if one.all_agree]


async def _describe_difference(pool: GradingPool, rubric: Rubric, one: GradedAnswer) -> str | None:
    """Describe the new grade of an answer; None if it is the stored one."""
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
