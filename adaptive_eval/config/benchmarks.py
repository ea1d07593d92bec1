"""Several benchmarks in a run: their section, and the weights of their questions.

In a file each entry of `benchmarks` has its own questions, grader and prompt. `RunConfig` joins their questions and
graders into one section each, so that the rest of the program has one set of questions, whose ids begin with the
benchmark's name, and one grader.
"""

import re
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from adaptive_eval.base.sections import Section, Share, config_error
from adaptive_eval.questions.benchmark import BenchmarkConfig
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.questions.prompts import PromptConfig
from scorio.moments import FloatArray

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


def _check_name(name: str) -> str:
    if not re.fullmatch(NAME, name):
        rule = "must consist of letters, digits, dots, underscores and hyphens"
        raise config_error(rule, "write it with hyphens, as in `name: my-benchmark`")
    return name


PlainName = Annotated[str, Field(max_length=100, json_schema_extra={"pattern": NAME}), AfterValidator(_check_name)]
"""A name that may be that of a folder."""


class BenchmarkPart(Section):
    """One of several benchmarks."""

    name: PlainName
    """Prefix of the ids of its questions in results: NAME/id."""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Weight of its mean score, relative to the other benchmarks."""
    gate: Share | None = Field(None, ge=0)
    """A gate in addition to `objective.gate`: how much worse than the baseline a model may be here, 0.05 or "5%". A
    model passes if it passes all gates, and fails if it fails any."""
    benchmark: BenchmarkConfig | None = None
    """A task of Inspect, or {lm_eval: TASK}, instead of questions and grader."""
    prompt: PromptConfig = PromptConfig()
    """Keys that override the prompt of the run and of the models."""

    def complete_prompt(self, prompt: PromptConfig) -> PromptConfig:
        """The model's prompt with the keys of this section."""
        overrides = {key: getattr(self.prompt, key) for key in self.prompt.model_fields_set}
        return prompt.model_copy(update=overrides)


class Weighing(NamedTuple):
    """Weight and benchmark of each question, in a run with several benchmarks."""

    question_weights: FloatArray
    benchmark_of: NDArray[np.int64]
    """The index of each question's benchmark."""
    gates: tuple[tuple[int, float], ...]
    """Index and delta of each benchmark with its own gate."""

    def reordered(self, order: NDArray[np.int64]) -> "Weighing":
        """The same with the questions in another order."""
        return Weighing(self.question_weights[order], self.benchmark_of[order], self.gates)


def weigh_questions(benchmarks: Sequence[BenchmarkPart], questions: Sequence[str]) -> Weighing | None:
    """Divide each benchmark's weight equally among its questions, given by id; None without several benchmarks."""
    if not benchmarks:
        return None
    numbers = {part.name: number for number, part in enumerate(benchmarks)}
    benchmark_of = np.array([numbers[benchmark_named(question)] for question in questions], dtype=np.int64)
    present, benchmark_of = np.unique(benchmark_of, return_inverse=True)
    share = np.array([part.weight for part in benchmarks])[present] / np.bincount(benchmark_of)
    deltas = enumerate(benchmarks[number].gate for number in present.tolist())
    gates = tuple((label, delta) for label, delta in deltas if delta is not None)
    return Weighing(share[benchmark_of], benchmark_of.astype(np.int64), gates)
