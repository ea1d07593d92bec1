"""The section `benchmark` of the configuration: a task of Inspect or of lm-evaluation-harness."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator

from adaptive_eval.base.sections import Price, Section, config_error

INSPECT_LOGS = "logs/inspect"
"""The folder of Inspect's logs in a run directory, with one log per model and start of the run."""


def sample_name(question: str, trial: int, attempt: int) -> str:
    """The id of a trial's sample in Inspect's logs."""
    return f"{question}#{trial}" + (f"~{attempt}" if attempt > 1 else "")


def parse_sample_name(sample: str) -> tuple[str, int] | None:
    """Parse an id of `sample_name` into question and trial; None for other ids."""
    match = re.fullmatch(r"(.+)#(\d{1,9})(?:~\d+)?", sample, re.DOTALL)
    return None if match is None else (match[1], int(match[2]))


MODEL_OF_RUN = "adaptive_eval_model"
"""Metadata key in a run's Inspect logs for the number of the model; `model` has its name."""
BENCHMARK_OF_RUN = "adaptive_eval_benchmark"
"""Metadata key for the name of the benchmark, if the run has several."""


ADAPTIVE = "adaptive-eval"
"""Tag of a run's Inspect logs, and metadata key for a note to their readers."""
ADAPTIVE_NOTE = (
    "Sampled adaptively by adaptive-eval. A sample id is QUESTION#TRIAL, with ~ATTEMPT after a failure: trials are "
    "repeated samples of a question, not further questions, and questions have unequal numbers of them. Accuracy and "
    "stderr of this log are not those of the run, which are in its report and results.json."
)


SAMPLE_LIMITS = ("message_limit", "time_limit", "working_limit")
"""Inspect's names of the limits on a sample."""


class BenchmarkConfig(Section):
    """A task of Inspect: its samples are the questions, its solver asks the models and its scorer grades."""

    inspect: str = Field(min_length=1, max_length=500)
    """The task: from an installed package, such as inspect_evals/gpqa_diamond, or from a file in the folder of the
    configuration, such as my_task.py@name."""
    args: Mapping[str, Any] = Field(default_factory=dict)
    """Arguments of the task, as with -T."""
    solver: str | Mapping[str, Any] | None = None
    """A solver or agent to replace the task's own: its name, or file.py@name. With arguments, as with -S:
    {name: file.py@name, attempts: 3}."""
    sandbox: str | None = None
    """A sandbox to replace the task's own, such as docker, local or docker:compose.yaml."""
    scorer: str | None = None
    """The scorer that counts, if the task has several; `name.key` if it returns several values."""
    roles: Mapping[str, str] = Field(default_factory=dict)
    """Other models that the task calls, by role, such as {grader: openai/gpt-x}."""
    prices: Mapping[str, Price] = Field(default_factory=dict)
    """Prices of other models that the task calls, by their names in Inspect; a limit on USD needs them."""
    limits: Mapping[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Limits at which Inspect ends a sample and scores it as it is: {message_limit: 50, time_limit: 600}."""

    @field_validator("solver")
    @classmethod
    def _check_solver(cls, solver: str | Mapping[str, Any] | None) -> str | Mapping[str, Any] | None:
        if isinstance(solver, Mapping) and not isinstance(solver.get("name"), str):
            raise config_error("must have the name of the solver", "write {name: file.py@name, and its arguments}")
        return solver

    @field_validator("limits")
    @classmethod
    def _check_limits(cls, limits: Mapping[str, float]) -> Mapping[str, float]:
        if unknown := sorted(limits.keys() - set(SAMPLE_LIMITS)):
            hint = "set sampling.max_tokens of a model" if unknown == ["token_limit"] else "remove it"
            raise config_error(f"must not have {unknown[0]}; the limits are {', '.join(SAMPLE_LIMITS)}", hint)
        return limits


LM_EVAL_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "max_gen_toks": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_tokens": "max_tokens",
}
"""Our names for the sampling settings in a task's `generation_kwargs`."""


class LmEvalConfig(Section):
    """A task of lm-evaluation-harness: its prompts are the questions, and its own filters and metrics grade."""

    lm_eval: str = Field(min_length=1, max_length=500)
    """The name of the task in `lm_eval ls tasks`; it must generate text."""
    num_fewshot: int | None = Field(None, ge=0)
    """Examples before each question; default: the task's own number."""
    include_path: str | None = None
    """A folder with your own tasks, relative to the folder of the configuration."""
    metric: str | None = None
    """The metric that counts, or metric,filter as printed by the harness; default: the task's first metric."""
