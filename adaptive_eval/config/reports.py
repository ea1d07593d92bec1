"""The section `report` of the configuration: what reports show, and which trackers follow the run."""

from typing import Annotated

from pydantic import AfterValidator, Field

from adaptive_eval.config.metrics import NAMES, read_metric
from adaptive_eval.sections import Section, refuse


class WandbConfig(Section):
    """A run in W&B; keys and modes come from its own variables, such as WANDB_API_KEY and WANDB_MODE."""

    project: str | None = Field(None, min_length=1, max_length=128)
    """Default: WANDB_PROJECT, or adaptive-eval."""
    entity: str | None = Field(None, min_length=1, max_length=128)
    """The team or user; default: WANDB_ENTITY, or that of the key."""
    group: str | None = Field(None, min_length=1, max_length=128)
    """Runs of one group stand together."""


class MlflowConfig(Section):
    """A run in MLflow; keys come from its own variables, such as MLFLOW_TRACKING_TOKEN."""

    experiment: str | None = Field(None, min_length=1, max_length=256)
    """Default: MLFLOW_EXPERIMENT_NAME, or adaptive-eval."""
    tracking_uri: str | None = Field(None, pattern=r"^[^@\s]+$", max_length=2000)
    """A server, or sqlite:///file.db; default: MLFLOW_TRACKING_URI. One with a password goes into the variable."""


def _is_metric(name: str) -> str:
    if read_metric(name) is None:
        raise refuse("must be a metric", f"write it as {NAMES}")
    return name


class ReportConfig(Section):
    """What reports show besides the ranking."""

    metrics: tuple[Annotated[str, Field(max_length=40), AfterValidator(_is_metric)], ...] = ()
    """Metrics of k draws, beside the score: pass@8, pass^4, maj@5, g-pass@4, g-pass@4:0.5 (with its threshold),
    mg-pass@4. For rubrics of two categories."""
    by: tuple[str, ...] = ()
    """Fields of the questions' metadata, such as topic or level, by which scores are broken down."""
    wandb: WandbConfig | None = None
    """A tracker that follows the run while it goes on, and that it never waits for: pip install
    'adaptive-eval[wandb]'."""
    mlflow: MlflowConfig | None = None
    """The same for MLflow: pip install 'adaptive-eval[mlflow]'."""
