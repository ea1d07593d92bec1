"""What `benchmark: {lm_eval: ...}` may say."""

from pydantic import Field

from adaptive_eval.sections import Section


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
