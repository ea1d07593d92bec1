"""Grading by several criteria: each level has a worth, and the weighted sum is the score of an answer (D.2).

The categories of such a rubric are the possible sums. This keeps the correlation of the criteria within an answer: a
model's score is the mean of the sums, and its interval accounts for their joint variation.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise, product

from pydantic import Field, field_validator

from adaptive_eval.base.sections import Section, config_error
from adaptive_eval.graders.ballots import REASONING, VERDICT, Levels
from adaptive_eval.graders.rubric import CategoryConfig, RubricConfig, SignalBounds
from adaptive_eval.graders.types import ANSWER_SIGNALS

SCORE = "score"
DIGITS = 9
"""Decimal digits of sums; rounding makes them independent of the order of addition."""
MIN_WEIGHT, WORTH_DIGITS = 0.001, 5
"""Smallest absolute weight, and the decimal digits to which the worths of levels must differ."""
MAX_WEIGHT = MAX_WORTH = 5_000.0
"""The largest absolute values: with twelve criteria their sums are weights that a rubric may have."""
MAX_SUMS = 64
"""Maximum number of possible sums that become categories."""
MAX_CRITERIA = 12
_LEVEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _-]{0,39}")
CRITERION_NAME = r"^[a-z][a-z0-9_]{0,39}$"
_RESERVED_NAMES = ANSWER_SIGNALS | {SCORE, VERDICT, REASONING, "agreement", "has_answer", "is_correct"}


class JudgeCriterion(Section):
    """A criterion by which an answer is scored."""

    name: str = Field(pattern=CRITERION_NAME)
    """Name of the criterion, and of the signal with its level: `when: {faithful: good}` in the rubric."""
    meaning: str = ""
    """Description for the judge."""
    weight: float = 1.0
    """Weight in the sum; negative for faults."""
    levels: Mapping[str, float] = Field(default_factory=lambda: {"not met": 0.0, "met": 1.0})
    """Possible levels, with their scores."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name in _RESERVED_NAMES or name.startswith("judge_"):
            raise config_error(f"must not be {name}, which is the name of another signal", "choose another name")
        return name

    @field_validator("weight")
    @classmethod
    def _check_weight(cls, weight: float) -> float:
        if not MIN_WEIGHT <= abs(weight) <= MAX_WEIGHT:
            raise config_error(
                f"must be a number of at least {MIN_WEIGHT:g} or at most -{MIN_WEIGHT:g}, and no larger than "
                f"{MAX_WEIGHT:g}",
                "remove a criterion that does not count",
            )
        return weight

    @field_validator("levels")
    @classmethod
    def _check_levels(cls, levels: Mapping[str, float]) -> Mapping[str, float]:
        if not all(abs(worth) <= MAX_WORTH for worth in levels.values()):
            raise config_error(f"must have scores from -{MAX_WORTH:g} to {MAX_WORTH:g}", "")
        if len({round(worth, WORTH_DIGITS) for worth in levels.values()}) < 2:
            raise config_error("must be two or more with different scores", "write {bad: 0, fair: 0.5, good: 1}")
        if len({name.casefold() for name in levels}) < len(levels):
            raise config_error("must have different names", "rename one of those that are equal")
        if bad := [name for name in levels if not _LEVEL.fullmatch(name)]:
            rule = f"must have names of up to 40 letters, digits, spaces, hyphens and underscores, not {bad[0]!r:.60}"
            raise config_error(rule, "rename it")
        return levels

    @property
    def sorted_levels(self) -> tuple[str, ...]:
        """The levels of the criterion, in ascending order of worth."""
        return tuple(sorted(self.levels, key=lambda level: (self.levels[level], level)))

    @property
    def description(self) -> str:
        """Name and levels, as in a judge's instructions."""
        return f"{self.name} ({', '.join(self.sorted_levels)})"


def weighted_sum(criteria: Sequence[JudgeCriterion], levels: Levels) -> float:
    """The sum of weight * worth over the criteria."""
    chosen = zip(criteria, levels, strict=True)
    return round(math.fsum(criterion.weight * criterion.levels[level] for criterion, level in chosen), DIGITS)


def lowest_score(criteria: Sequence[JudgeCriterion]) -> float:
    """The lowest possible score, which an empty answer gets."""
    parts = (min(criterion.weight * worth for worth in criterion.levels.values()) for criterion in criteria)
    return round(math.fsum(parts), DIGITS)


def possible_scores(criteria: Sequence[JudgeCriterion]) -> list[float]:
    """Every possible score in ascending order; incomplete if there are more than `MAX_SUMS`."""
    totals = [0.0]
    for criterion in criteria:
        worths = {criterion.weight * worth for worth in criterion.levels.values()}
        totals = _distinct_values(sorted(total + worth for total, worth in product(totals, worths)))
        if len(totals) > MAX_SUMS:
            break
    return [round(total, DIGITS) for total in totals]


def score_rubric(criteria: Sequence[JudgeCriterion]) -> RubricConfig:
    """The rubric with a category for each possible score, weighted by that score."""
    values = possible_scores(criteria)
    bounds = [SignalBounds(at_least=(below + value) / 2.0) for below, value in pairwise(values)]
    categories = [
        CategoryConfig(name=score_name(value), weight=value, when={SCORE: bound})
        for value, bound in reversed(list(zip(values[1:], bounds, strict=True)))
    ]
    return RubricConfig(categories=(*categories, CategoryConfig(name=score_name(values[0]), weight=values[0])))


def score_name(value: float) -> str:
    """The name of the category of a sum."""
    return f"{value:.{DIGITS}g}"


def _distinct_values(values: Sequence[float]) -> list[float]:
    """Sorted values without those that equal the previous one up to rounding."""
    return [value for at, value in enumerate(values) if at == 0 or value - values[at - 1] > 10.0**-DIGITS]
