"""The combined grader of a run with several benchmarks, and the placeholder for the scores of Inspect tasks."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from adaptive_eval.base.errors import GraderError
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.function import Python
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.keyed import ByKey
from adaptive_eval.graders.reported import Reported
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.graders.types import GraderOptions, Marks, SignalValue
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.questions.types import Question


class InspectScores(GraderOptions):
    """Uses the scores that come with the samples of an Inspect task."""

    reads_key = False
    comes_with_answer = True
    kind: Literal["inspect"] = "inspect"

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"score", "is_correct", "has_answer"})

    def stored_marks(self, answer: Answer, signals: Mapping[str, SignalValue], extracted: str | None) -> Marks | None:
        scores = {name: value for name, value in signals.items() if name in self.gives}
        return Marks(scores, extracted) if scores else None

    def grade(self, text: str, question: Question) -> Marks:
        raise GraderError("is an Inspect task, which scores an answer only while it runs the sample")


class ByBenchmark(GraderOptions):
    """Grades each answer with the grader of its question's benchmark."""

    kind: Literal["by_benchmark"] = "by_benchmark"
    graders: Mapping[str, Annotated[ByKey | Python | Reported | Judge | InspectScores, Field(discriminator="kind")]] = (
        Field(min_length=1)
    )
    """Graders by the name of the benchmark."""

    def for_question(self, question: Question) -> GraderOptions:
        """The grader of a question's benchmark."""
        return self.graders[benchmark_named(question.id)]

    @property
    def gives(self) -> frozenset[str]:
        """The signals that all graders give; empty if those of one grader are unknown."""
        return frozenset.intersection(*(grader.gives for grader in self.graders.values()))

    @property
    def functions(self) -> tuple[str, ...]:
        return tuple(name for grader in self.graders.values() for name in grader.functions)

    def quick(self, text: str, question: Question) -> Marks | None:
        return self.for_question(question).quick(text, question)

    def grade(self, text: str, question: Question) -> Marks:
        return self.for_question(question).grade(text, question)

    def warm_up(self) -> None:
        for grader in self.graders.values():
            grader.warm_up()

    def key_problem(self, question: Question) -> str | None:
        return self.for_question(question).key_problem(question)


def find_grader(grader: GraderOptions, question: Question) -> GraderOptions:
    """The grader of a question; with several benchmarks, that of its benchmark."""
    return grader.for_question(question) if isinstance(grader, ByBenchmark) else grader


def graders_by_benchmark(grader: GraderOptions) -> Mapping[str, GraderOptions]:
    """Graders by benchmark; the name is empty for a single grader."""
    return grader.graders if isinstance(grader, ByBenchmark) else {"": grader}


def graders_that_ask(grader: GraderOptions) -> Mapping[str, AskedGrader]:
    """Judges and verifiers by benchmark."""
    graders = graders_by_benchmark(grader)
    return {name: asked for name, asked in graders.items() if isinstance(asked, AskedGrader)}


def grader_that_asks(grader: GraderOptions) -> AskedGrader | None:
    """The first judge or verifier; None if there is none."""
    return next(iter(graders_that_ask(grader).values()), None)


def benchmark_questions(benchmark: str, questions: Sequence[Question]) -> Sequence[Question]:
    """The questions of a benchmark; all questions if the name is empty."""
    return [question for question in questions if benchmark_named(question.id) == benchmark] if benchmark else questions


def find_rubric(grader: GraderOptions, rubric: RubricConfig) -> RubricConfig:
    """The configured rubric, or if none is configured, the one that all its graders imply."""
    graders = graders_by_benchmark(grader).values()
    implied, *others = (asked.own_rubric if isinstance(asked, AskedGrader) else None for asked in graders)
    if rubric != RubricConfig() or implied is None or any(other != implied for other in others):
        return rubric
    return implied
