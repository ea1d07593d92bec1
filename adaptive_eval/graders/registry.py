"""All graders by name, and the type of the `grader` section of the configuration."""

from typing import Annotated, Literal, get_args

from pydantic import Field

from adaptive_eval.base.errors import GraderError
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.by_benchmark import ByBenchmark, InspectScores
from adaptive_eval.graders.function import Python
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.keyed import ByKey
from adaptive_eval.graders.types import GraderOptions, Marks
from adaptive_eval.graders.verifier import Verifier
from adaptive_eval.questions.types import Question


class Logged(GraderOptions):
    """Stands for the unknown grader of imported logs, with which no new answer can be graded.

    It occurs only in stored runs; to resume one, a grader must be chosen that gives the same grades.
    """

    reads_key = False
    kind: Literal["logged"] = "logged"

    def quick(self, text: str, question: Question) -> Marks | None:
        return self.grade(text, question)

    def grade(self, text: str, question: Question) -> Marks:
        raise GraderError("is not known: the stored grades are those of the logs; choose a grader in a configuration")


GraderConfig = Annotated[
    ByKey | Python | Judge | Verifier | Logged | InspectScores | ByBenchmark, Field(discriminator="kind")
]
"""Any grader, selected by its `kind`; a new one that reads the answer key is added to `ByKey`, any other here."""
STORED_ONLY = ("logged", "inspect", "by_benchmark")
"""Kinds that users do not choose: they occur in stored runs, or follow from benchmarks."""
GRADERS: dict[str, type[GraderOptions]] = {
    one.model_fields["kind"].default: one
    for one in get_args(get_args(GraderConfig)[0])
    if one.model_fields["kind"].default not in STORED_ONLY and not issubclass(one, AskedGrader)
}
"""The graders that users can choose and that ask no server."""
