"""The section `benchmark` of the configuration, and the lines of JSON that the process of Inspect is sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from pydantic import Field

from adaptive_eval.graders.types import MarkedAnswer
from adaptive_eval.sections import Price, Section

LOGS = "logs/inspect"
"""The folder in a run's directory that has Inspect's logs: one of each model for each start of the run."""


class BenchmarkConfig(Section):
    """A task of Inspect: its samples are the questions, its solver asks the models and its scorer grades."""

    inspect: str = Field(min_length=1, max_length=500)
    """The task: one of an installed package, such as inspect_evals/gpqa_diamond, or of a file in the folder of the
    configuration, such as my_task.py@name."""
    args: Mapping[str, Any] = Field(default_factory=dict)
    """Arguments of the task, as after -T."""
    solver: str | None = None
    """Another solver or agent than the task's own: its name, or file.py@name."""
    solver_args: Mapping[str, Any] = Field(default_factory=dict)
    """Arguments of that solver, as after -S."""
    sandbox: str | None = None
    """Another sandbox than the task's own, such as docker, local or docker:compose.yaml."""
    scorer: str | None = None
    """The scorer that counts, where a task has several; `name.key` where it gives several values."""
    roles: Mapping[str, str] = Field(default_factory=dict)
    """Other models that the task calls, by their roles, such as {grader: openai/gpt-x}."""
    prices: Mapping[str, Price] = Field(default_factory=dict)
    """Prices of other models that a sample calls, by their names in Inspect; a cap on USD needs them."""
    message_limit: int | None = Field(None, ge=1)
    """Messages after which Inspect ends a sample. Like every limit it gives an answer, which is scored as it stands."""
    time_limit: int | None = Field(None, ge=1)
    """Seconds after which Inspect ends a sample."""


@dataclass(frozen=True, slots=True)
class SampleAnswer(MarkedAnswer):
    """The answer of a sample, with its marks; its tokens are those of all models that the sample called."""

    own: tuple[int, int] = (0, 0)
    """Tokens that the model itself has read and written."""
    usd_of_others: float = 0.0
    """What the other models cost that the sample called, such as a judge."""


class InspectModel(TypedDict):
    """A model that the process of Inspect asks."""

    name: str
    inspect: str
    config: dict[str, Any]
    args: dict[str, Any]
    slots: int
    token_limit: int | None


class Setup(TypedDict):
    """The first line that the process of Inspect is sent; without models it lists the samples and ends."""

    task: dict[str, Any]
    models: list[InspectModel]
    log_dir: str


class SampleRequest(TypedDict):
    """One sample to be run."""

    model: int
    question: str
    id: str
    seed: int
