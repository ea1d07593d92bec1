"""From the score that another harness gave a sample to the category of a trial."""

import math

from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.importing.scores import LETTERS

SIGNALS = frozenset({"score", "is_correct", "has_answer"})
"""What a rubric may ask of a score: its number, whether that is 1, and whether there was an answer."""


def require_scorable(rubric: Rubric) -> None:
    """Raise `ConfigError` for a rubric that needs what a score does not have."""
    missing = sorted(rubric.needs - SIGNALS)
    if missing:
        raise ConfigError(
            f"the rubric needs the signal {missing[0]}, but a score of another harness has only "
            f"{', '.join(sorted(SIGNALS))}; declare categories by `score`"
        )


def category_of(value: object, rubric: Rubric, scorer: str) -> int | None:
    """The category of a score; None where the scorer has given none (nan): then there is no trial."""
    number = _number(value, scorer)
    if math.isnan(number):
        return None
    if "score" not in rubric.needs and number not in (0.0, 1.0):
        raise ConfigError(
            f"scorer {scorer} gave {value!r}, but the rubric knows right and wrong alone; declare what it is worth: "
            "rubric: {categories: [{name: half, weight: 0.5, when: {score: {at_least: 0.5, below: 1}}}, ...]}"
        )
    return rubric.category({"score": number, "is_correct": number == 1.0, "has_answer": value != "N"})


def _number(value: object, scorer: str) -> float:
    if isinstance(value, str) and value in LETTERS:
        return LETTERS[value]
    if isinstance(value, bool | int | float):
        return float(value)
    raise ConfigError(
        f"scorer {scorer} gave {value!r:.80}, but a trial needs one number, true or false, or C, P, I or N; "
        "name a scorer that gives that"
    )
