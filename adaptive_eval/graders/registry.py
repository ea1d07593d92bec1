"""Every grader by its name, and the section of the configuration that is one of them."""

from typing import Annotated, Literal, get_args

from pydantic import Field

from adaptive_eval.errors import GraderError
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.by_benchmark import ByBenchmark
from adaptive_eval.graders.function import Python
from adaptive_eval.graders.inspect_scores import InspectScores
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.keyed import ByKey
from adaptive_eval.graders.types import GraderOptions, Marks
from adaptive_eval.graders.verifier import Verifier
from adaptive_eval.questions.types import Question


class Logged(GraderOptions):
    """The grades of imported logs, which no grader here is known to give: no new answer can be graded so.

    It stands in stored runs alone; who goes on with one chooses a grader that gives the same grades.
    """

    reads_key = False
    kind: Literal["logged"] = "logged"

    def quick(self, text: str, question: Question) -> Marks | None:
        return self.grade(text, question)

    def grade(self, text: str, question: Question) -> Marks:
        raise GraderError("is not known: the stored grades are those of the logs; choose a grader in a configuration")


class AsTheyAre(GraderOptions):
    """No answer is right or wrong: others are compared with them.

    It stands in the first part of a run alone, in which its opponent is asked.
    """

    reads_key = False
    kind: Literal["as_they_are"] = "as_they_are"

    def quick(self, text: str, question: Question) -> Marks | None:
        return self.grade(text, question)

    def grade(self, text: str, question: Question) -> Marks:
        return Marks({}, None)


GraderConfig = Annotated[
    ByKey | Python | Judge | Verifier | Logged | AsTheyAre | InspectScores | ByBenchmark, Field(discriminator="kind")
]
"""Any grader, by its `kind`: one that reads no answer key has its line here, all others in `ByKey`."""
STORED_ONLY = ("logged", "as_they_are", "inspect", "by_benchmark")
"""The kinds that no file has to name, and no list offers: they stand in stored runs, or follow from benchmarks."""
GRADERS: dict[str, type[GraderOptions]] = {
    one.model_fields["kind"].default: one
    for one in get_args(get_args(GraderConfig)[0])
    if one.model_fields["kind"].default not in STORED_ONLY and not issubclass(one, AskedGrader)
}
"""The graders that read an answer by themselves; a judge and a verifier have to be asked."""
