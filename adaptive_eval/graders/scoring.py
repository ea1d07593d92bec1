"""Grading by several criteria: every level has a worth, and the weighted sum is the score of an answer (D.2).

The categories of such a rubric are the possible sums. So the correlation of the criteria within an answer is kept: the
score of a model is the mean of the sums, and its interval accounts for their joint variation.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from pydantic import Field, field_validator

from adaptive_eval.base.sections import Section, refuse
from adaptive_eval.graders.ballots import REASONING, VERDICT, BallotField, Levels
from adaptive_eval.graders.judge_forms import JudgeForm, VoteResult
from adaptive_eval.graders.rubric import CategoryConfig, RubricConfig, SignalBounds
from adaptive_eval.graders.transcript import grading_words
from adaptive_eval.graders.types import ANSWER_SIGNALS, SignalValue

SCORE = "score"
DIGITS = 9
"""Digits of sums, which make them independent of the order of addition."""
LEAST_WEIGHT, WORTH_DIGITS = 0.001, 5
"""Smallest weight, and the digits by which the worths of levels are compared."""
MOST_SUMS = 64
"""Largest number of categories of a rubric."""
MOST_CRITERIA = 12
TASK = "You grade one answer to a question. Each criterion is a matter of its own."
_LEVEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _-]{0,39}")
_TAKEN = ANSWER_SIGNALS | {SCORE, VERDICT, REASONING, "agreement", "has_answer", "is_correct"}


class JudgeCriterion(Section):
    """A criterion by which an answer is scored."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")
    """Name of the criterion, and of the signal with its level: `when: {faithful: good}` in the rubric."""
    says: str = ""
    """Its description for the judge."""
    weight: float = 1.0
    """Weight in the sum; negative for faults."""
    levels: Mapping[str, float] = Field(default_factory=lambda: {"not met": 0.0, "met": 1.0})
    """Possible levels, with their scores."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name in _TAKEN or name.startswith("judge_"):
            raise refuse(f"may not be {name}, which is the name of another signal", "choose another name")
        return name

    @field_validator("weight")
    @classmethod
    def _check_weight(cls, weight: float) -> float:
        if not LEAST_WEIGHT <= abs(weight) < math.inf:
            raise refuse(
                f"must be a number other than zero, {LEAST_WEIGHT:g} at least", "leave out what does not count"
            )
        return weight

    @field_validator("levels")
    @classmethod
    def _check_levels(cls, levels: Mapping[str, float]) -> Mapping[str, float]:
        if len({round(worth, WORTH_DIGITS) for worth in levels.values()}) < 2 or not all(
            map(math.isfinite, levels.values())
        ):
            raise refuse("must be two or more, of different worth", "write {bad: 0, fair: 0.5, good: 1}")
        if len({name.casefold() for name in levels}) < len(levels):
            raise refuse("must have different names", "rename one of those that are equal")
        if bad := [name for name in levels if not _LEVEL.fullmatch(name)]:
            rule = f"must have names of up to 40 letters, digits, spaces, hyphens and underscores, not {bad[0]!r:.60}"
            raise refuse(rule, "rename it")
        return levels

    @property
    def in_order(self) -> tuple[str, ...]:
        """The levels of the criterion, in ascending order of worth."""
        return tuple(sorted(self.levels, key=lambda level: (self.levels[level], level)))

    @property
    def description(self) -> str:
        """Name and levels, as in a judge's instructions."""
        return f"{self.name} ({', '.join(self.in_order)})"


@dataclass(frozen=True)
class ByScores(JudgeForm):
    """The judge says how far an answer meets each of several criteria."""

    criteria: tuple[JudgeCriterion, ...]

    @property
    def ballot(self) -> tuple[BallotField, ...]:
        return tuple(BallotField(one.name, one.in_order) for one in self.criteria)

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({SCORE, *(one.name for one in self.criteria)})

    @property
    def own_rubric(self) -> RubricConfig | None:
        return None if self.needs_rubric else score_rubric(self.criteria)

    @property
    def needs_rubric(self) -> bool:
        return len(sums(self.criteria)) > MOST_SUMS

    def task(self, criteria: str) -> str:
        levels = [(one.description, one.says) for one in self.criteria]
        return grading_words(levels, criteria, "criteria, each with its levels,", TASK)

    def voted(self, votes: Sequence[Sequence[Levels]], wanted: int) -> VoteResult:
        said = [replies[0] for replies in votes]
        fields = zip(self.ballot, zip(*said, strict=True), strict=True)
        chosen = tuple(middle(levels, one.levels) for one, levels in fields)
        return VoteResult(chosen, sum(one == chosen for one in said) / wanted)

    def make_signals(self, said: Levels) -> dict[str, SignalValue]:
        levels = dict(zip((one.name for one in self.criteria), said or ("",) * len(self.criteria), strict=True))
        score = combined(self.criteria, said) if said else least(self.criteria)
        return {**levels, SCORE: score, "has_answer": bool(said)}


def combined(criteria: Sequence[JudgeCriterion], said: Levels) -> float:
    """The sum of weight * worth over the criteria."""
    parts = (one.weight * one.levels[level] for one, level in zip(criteria, said, strict=True))
    return round(math.fsum(parts), DIGITS)


def least(criteria: Sequence[JudgeCriterion]) -> float:
    """The lowest possible score, which an empty answer gets."""
    parts = (min(one.weight * worth for worth in one.levels.values()) for one in criteria)
    return round(math.fsum(parts), DIGITS)


def sums(criteria: Sequence[JudgeCriterion]) -> list[float]:
    """Every possible score in ascending order; incomplete if there are more than `MOST_SUMS`."""
    found = [0.0]
    for one in criteria:
        worths = {one.weight * worth for worth in one.levels.values()}
        found = _distinct_values(sorted(known + more for known, more in product(found, worths)))
        if len(found) > MOST_SUMS:
            break
    return [round(value, DIGITS) for value in found]


def score_rubric(criteria: Sequence[JudgeCriterion]) -> RubricConfig:
    """The rubric with a category for each possible score, whose weight is that score."""
    values = sums(criteria)
    categories = [
        CategoryConfig(name=_format_score(value), weight=value, when={SCORE: SignalBounds(above=(below + value) / 2.0)})
        for below, value in reversed(list(pairwise(values)))
    ]
    return RubricConfig(categories=(*categories, CategoryConfig(name=_format_score(values[0]), weight=values[0])))


def _format_score(value: float) -> str:
    return f"{value:.{DIGITS}g}"


def _distinct_values(values: Sequence[float]) -> list[float]:
    """Sorted values without those that equal the previous one up to rounding."""
    return [value for at, value in enumerate(values) if at == 0 or value - values[at - 1] > 10.0**-DIGITS]


def middle(levels: Sequence[str], in_order: Sequence[str]) -> str:
    """The median of several votes; the lower of two middle ones."""
    return sorted(levels, key=in_order.index)[(len(levels) - 1) // 2]
