"""Combines the graders of a run with several benchmarks into one, and stands for the scores of Inspect tasks."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from adaptive_eval.base.errors import GraderError
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.function import Python
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.keyed import ByKey
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.graders.types import GraderOptions, Marks
from adaptive_eval.questions.load import benchmark_named
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


class ByBenchmark(GraderOptions):
    """Each answer is graded by the grader of its question's benchmark."""

    kind: Literal["by_benchmark"] = "by_benchmark"
    graders: Mapping[str, Annotated[ByKey | Python | Judge | InspectScores, Field(discriminator="kind")]] = Field(
        min_length=1
    )
    """Graders by the name of the benchmark."""

    @model_validator(mode="after")
    def _share_largest_bounds(self) -> "ByBenchmark":
        """Set the largest time and memory limits of all graders, since they share one pool of processes."""
        each = self.graders.values()
        workers = [one.workers for one in each if one.workers is not None]
        bounds = {
            "timeout": max(one.timeout for one in each),
            "memory": max(one.memory for one in each),
            "workers": min(workers, default=None),
        }
        same = all(getattr(self, name) == value for name, value in bounds.items())
        return self if same else self.model_copy(update=bounds)

    def for_question(self, question: Question) -> GraderOptions:
        """The grader of a question's benchmark."""
        return self.graders[benchmark_named(question.id)]

    @property
    def gives(self) -> frozenset[str]:
        """The signals that every grader gives; empty if one does not say."""
        return frozenset.intersection(*(one.gives for one in self.graders.values()))

    @property
    def functions(self) -> tuple[str, ...]:
        return tuple(name for one in self.graders.values() for name in one.functions)

    def quick(self, text: str, question: Question) -> Marks | None:
        return self.for_question(question).quick(text, question)

    def is_slow(self, text: str, question: Question) -> bool:
        return self.for_question(question).is_slow(text, question)

    def grade(self, text: str, question: Question) -> Marks:
        return self.for_question(question).grade(text, question)

    def warm_up(self) -> None:
        for one in self.graders.values():
            one.warm_up()

    def key_problem(self, question: Question) -> str | None:
        return self.for_question(question).key_problem(question)

    @property
    def knows_right_answers(self) -> bool:
        return all(one.knows_right_answers for one in self.graders.values())

    def right_answers(self, question: Question) -> Sequence[str]:
        return self.for_question(question).right_answers(question)


def find_grader(grader: GraderOptions, question: Question) -> GraderOptions:
    """The grader of a question: that of its benchmark if there are several."""
    return grader.for_question(question) if isinstance(grader, ByBenchmark) else grader


def graders_by_benchmark(grader: GraderOptions) -> Mapping[str, GraderOptions]:
    """Graders by the name of their benchmark, which is empty for a single grader."""
    return grader.graders if isinstance(grader, ByBenchmark) else {"": grader}


def graders_that_ask(grader: GraderOptions) -> Mapping[str, AskedGrader]:
    """Graders that ask servers, by the name of their benchmark."""
    return {name: one for name, one in graders_by_benchmark(grader).items() if isinstance(one, AskedGrader)}


def grader_that_asks(grader: GraderOptions) -> AskedGrader | None:
    """The first grader that asks a server; None if there is none."""
    return next(iter(graders_that_ask(grader).values()), None)


def benchmark_questions(benchmark: str, questions: Sequence[Question]) -> Sequence[Question]:
    """The questions of a benchmark; all of them if the name is empty."""
    return [one for one in questions if benchmark_named(one.id) == benchmark] if benchmark else questions


def find_rubric(grader: GraderOptions, rubric: RubricConfig) -> RubricConfig:
    """The rubric that a configuration declares, or else the one that all its graders imply."""
    each = graders_by_benchmark(grader).values()
    own, *others = (one.own_rubric if isinstance(one, AskedGrader) else None for one in each)
    return rubric if own is None or any(one != own for one in others) or rubric != RubricConfig() else own
