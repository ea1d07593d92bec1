"""A grader of the user's own that tells which of some variables it has."""

import os

from adaptive_eval.questions.types import Question


def grade(text: str, question: Question) -> dict[str, object]:
    """The names, of those in the answer, that are in the environment."""
    return {"is_correct": True, "extracted": " ".join(name for name in text.split() if name in os.environ)}
