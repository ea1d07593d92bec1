"""From what is known of an answer to its category, with what goes by thresholds that are frozen."""

from typing import NamedTuple

from adaptive_eval.graders.frozen import LENGTH_RATIO, Facts, with_length_ratio
from adaptive_eval.graders.rubric import Rubric


class Categorised(NamedTuple):
    """The category that a rubric gives to signals."""

    category: int | None
    """None: it waits for thresholds."""
    measured: Facts
    """Besides these signals, what goes by the thresholds."""


def categorised(facts: Facts, rubric: Rubric, question: str) -> Categorised:
    """The category of an answer to a question; `GraderError` names a signal that is missing."""
    if rubric.lacks:
        return Categorised(None, {})
    whole = with_length_ratio(facts, question, rubric.medians)
    measured = {LENGTH_RATIO: whole[LENGTH_RATIO]} if rubric.medians and LENGTH_RATIO in whole else {}
    return Categorised(rubric.category(whole), measured)
