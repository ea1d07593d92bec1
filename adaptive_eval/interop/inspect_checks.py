"""Settings of Inspect under which a comparison would hang or mislead: they are refused before a sample is run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adaptive_eval.errors import ConfigError

if TYPE_CHECKING:
    from inspect_ai.log import EvalSpec


def require_usable(task: "EvalSpec", names: Sequence[str]) -> None:
    """Raise `ConfigError` for what cannot work."""
    config = task.config
    if task.model not in names:
        raise ConfigError(f"{task.model} is none of the manager's models, {', '.join(names)}; name it there")
    if len(names) > 1 and (config.max_tasks or 1) < len(names):
        raise ConfigError(
            f"{len(names)} models must run at the same time, since a look needs all of them, but max_tasks is "
            f"{config.max_tasks or 1}; run them in one call, eval(task, model=[...]), and leave max_tasks out"
        )
    if config.log_samples is False:
        raise ConfigError("log_samples is off, and then Inspect does not ask which samples to skip; leave it on")
    if config.retry_on_error:
        raise ConfigError(
            "retry_on_error puts a sample behind all that are held, where its turn may never come; leave it out: the "
            "next epoch serves the trial of one that failed"
        )
    if config.score_on_error:
        raise ConfigError("score_on_error would count failures as answers; leave it out")
    if (seed := task.model_generate_config.seed) is not None:
        raise ConfigError(
            f"{task.model} has seed={seed}, which Inspect sends in every epoch, so that the trials of a question would "
            "be one and the same; leave it out"
        )
