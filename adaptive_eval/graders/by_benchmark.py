"""The graders of a run that has several benchmarks, as one."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from adaptive_eval.graders.function import Python
from adaptive_eval.graders.keyed import ByKey
from adaptive_eval.graders.types import GraderOptions, Marks
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.questions.types import Question


class ByBenchmark(GraderOptions):
    """Each answer is graded by the grader of the benchmark that its question is of."""

    kind: Literal["by_benchmark"] = "by_benchmark"
    graders: Mapping[str, Annotated[ByKey | Python, Field(discriminator="kind")]] = Field(min_length=1)
    """By the name of the benchmark."""

    @model_validator(mode="after")
    def _bounds_are_those_of_all(self) -> "ByBenchmark":
        """One pool of processes grades: with the most time and memory that any of the graders asks for."""
        each = self.graders.values()
        workers = [one.workers for one in each if one.workers is not None]
        bounds = {
            "timeout": max(one.timeout for one in each),
            "memory": max(one.memory for one in each),
            "workers": min(workers, default=None),
        }
        same = all(getattr(self, name) == value for name, value in bounds.items())
        return self if same else self.model_copy(update=bounds)

    def of(self, question: Question) -> GraderOptions:
        """The grader of a question's benchmark."""
        return self.graders[benchmark_named(question.id)]

    @property
    def gives(self) -> frozenset[str]:
        """The signals that every grader gives; empty where one does not say."""
        return frozenset.intersection(*(one.gives for one in self.graders.values()))

    @property
    def functions(self) -> tuple[str, ...]:
        return tuple(name for one in self.graders.values() for name in one.functions)

    def quick(self, text: str, question: Question) -> Marks | None:
        return self.of(question).quick(text, question)

    def is_slow(self, text: str, question: Question) -> bool:
        return self.of(question).is_slow(text, question)

    def grade(self, text: str, question: Question) -> Marks:
        return self.of(question).grade(text, question)

    def warm_up(self) -> None:
        for one in self.graders.values():
            one.warm_up()

    def key_problem(self, question: Question) -> str | None:
        return self.of(question).key_problem(question)

    @property
    def knows_right_answers(self) -> bool:
        return all(one.knows_right_answers for one in self.graders.values())

    def right_answers(self, question: Question) -> Sequence[str]:
        return self.of(question).right_answers(question)
