"""Several benchmarks in a run: their section, and the weights of their questions.

In a file each entry of `benchmarks` has its own questions, grader and prompt. `RunConfig` joins their questions and
graders into one section each, so that the rest of the program has one set of questions, whose ids begin with the
benchmark's name, and one grader.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from adaptive_eval.base.sections import Section, Share, refuse
from adaptive_eval.questions.benchmark import BenchmarkConfig
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.questions.prompts import PromptConfig
from adaptive_eval.questions.types import Question
from scorio.moments import FloatArray

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"


class BenchmarkPart(Section):
    """One of several benchmarks, whose mean is a part of the score."""

    name: str = Field(max_length=100, json_schema_extra={"pattern": f"^{NAME}$"})
    """Prefix of the ids of its questions in results: NAME/id."""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Weight of its mean in the score, relative to the others."""
    gate: Share | None = Field(None, ge=0)
    """A further gate beside `objective.gate`: how much worse than the baseline a model may be here, 0.05 or "5%". A
    model passes if it passes all gates, and fails if it fails one."""
    benchmark: BenchmarkConfig | None = None
    """A task of Inspect, or {lm_eval: TASK}, instead of questions and grader."""
    prompt: PromptConfig = PromptConfig()
    """Keys that override the prompt of the run and of the models."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if re.fullmatch(NAME, name) is None:
            raise refuse("must be made of letters, digits, dots, underscores and hyphens", "write it as aime-2024")
        return name

    def complete_prompt(self, own: PromptConfig) -> PromptConfig:
        """The model's own prompt with the keys of this section."""
        named = {key: getattr(self.prompt, key) for key in self.prompt.model_fields_set}
        return own.model_copy(update=named)


class Weighing(NamedTuple):
    """Weight and benchmark of each question, in a run with several benchmarks."""

    question_weights: FloatArray
    benchmark_of: NDArray[np.int64]
    """The index of each question's benchmark."""
    gates: tuple[tuple[int, float], ...]
    """Index and delta of each benchmark with its own gate."""

    def reordered(self, order: NDArray[np.int64]) -> "Weighing":
        """The same for the questions in this order."""
        return Weighing(self.question_weights[order], self.benchmark_of[order], self.gates)


def weigh_questions(benchmarks: Sequence[BenchmarkPart], questions: Sequence[str]) -> Weighing | None:
    """Divide each benchmark's weight equally among its questions, given by id; None without several benchmarks."""
    if not benchmarks:
        return None
    numbers = {one.name: number for number, one in enumerate(benchmarks)}
    of = np.array([numbers[benchmark_named(question)] for question in questions], dtype=np.int64)
    there, of = np.unique(of, return_inverse=True)
    share = np.array([one.weight for one in benchmarks])[there] / np.bincount(of)
    deltas = enumerate(benchmarks[number].gate for number in there.tolist())
    gates = tuple((label, delta) for label, delta in deltas if delta is not None)
    return Weighing(share[of], of.astype(np.int64), gates)


def prompt_for(model: PromptConfig, question: Question, benchmarks: Iterable[BenchmarkPart]) -> PromptConfig:
    """The prompt for a question and a model with this prompt."""
    name = benchmark_named(question.id)
    part = next((one for one in benchmarks if one.name == name), None)
    return model if part is None else part.complete_prompt(model)
