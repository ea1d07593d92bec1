"""All graders by name, and the type of the `grader` section of the configuration."""

from typing import Annotated, Literal, get_args

from pydantic import Field

from adaptive_eval.base.errors import GraderError
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.by_benchmark import ByBenchmark, InspectScores
from adaptive_eval.graders.function import Python
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.keyed import ByKey
from adaptive_eval.graders.reported import Reported
from adaptive_eval.graders.types import GraderOptions, Marks
from adaptive_eval.graders.verifier import Verifier
from adaptive_eval.questions.types import Question


class Logged(GraderOptions):
    """Placeholder for the unknown grader of imported logs, which cannot grade new answers.

    It occurs only in stored runs; to resume one, choose a grader that gives the same grades.
    """

    reads_key = False
    kind: Literal["logged"] = "logged"
    judged_by: Literal["judge", "verifier"] | None = None
    """The kind of grader in the configuration of the import, if it is one that only runs can ask."""

    def grade(self, text: str, question: Question) -> Marks:
        raise GraderError("is unknown: the stored grades come from the logs; choose a grader in a configuration")


GraderConfig = Annotated[
    ByKey | Python | Judge | Verifier | Reported | Logged | InspectScores | ByBenchmark, Field(discriminator="kind")
]
"""Any grader, selected by its `kind`. Add a new one that reads the answer key to `ByKey`, any other here."""
STORED_ONLY = ("logged", "inspect", "by_benchmark")
"""Kinds that users cannot choose: they occur in stored runs, or follow from benchmarks."""
GRADERS: dict[str, type[GraderOptions]] = {
    grader.model_fields["kind"].default: grader
    for grader in get_args(get_args(GraderConfig)[0])
    if grader.model_fields["kind"].default not in STORED_ONLY
    and not issubclass(grader, AskedGrader)
    and not grader.comes_with_answer
}
"""The graders of texts without a server that users can choose."""
