"""The grader that stands for the scores of an Inspect task, which come with its samples."""

from typing import Literal

from adaptive_eval.errors import GraderError
from adaptive_eval.graders.types import GraderOptions, Marks
from adaptive_eval.questions.types import Question


class InspectScores(GraderOptions):
    """Uses the scores of an Inspect task, which come with its samples."""

    reads_key = False
    kind: Literal["inspect"] = "inspect"

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"score", "is_correct", "has_answer"})

    def grade(self, text: str, question: Question) -> Marks:
        raise GraderError("is a task of Inspect, which scores an answer only while it runs the sample")
