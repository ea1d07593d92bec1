"""The section `benchmark` of the configuration: a task of Inspect, or one of lm-evaluation-harness."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from adaptive_eval.sections import Price, Section


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


class LmEvalConfig(Section):
    """A task of lm-evaluation-harness: its prompts are the questions, and its own filters and metrics grade."""

    lm_eval: str = Field(min_length=1, max_length=500)
    """The task, as `lm_eval ls tasks` names it: one that generates text."""
    num_fewshot: int | None = Field(None, ge=0)
    """Examples before each question; default: the task's own number."""
    include_path: str | None = None
    """A folder with tasks of your own, from the folder of the configuration."""
    limit: int | None = Field(None, ge=1)
    """Ask the first so many."""
    metric: str | None = None
    """What counts where a task has several: a metric, or metric,filter as the harness prints them; default: its
    first."""
