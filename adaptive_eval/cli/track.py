"""`adaptive-eval track RUN`: log a run to W&B or MLflow, during the run or afterwards."""

import os
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.cli.shared import Run, report_errors
from adaptive_eval.endpoints.redaction import Redactor, environment_secrets
from adaptive_eval.report.lines import safe_line
from adaptive_eval.show.serve.attach import open_feed
from adaptive_eval.show.track.points import Tracker, exclusive_follower, follow
from adaptive_eval.store.lock import require_no_links

PATIENCE_SECONDS = 10.0
Text = str | None


def track(
    run: Run,
    wandb: Annotated[bool, typer.Option("--wandb", help="Log it to W&B.")] = False,
    project: Annotated[Text, typer.Option(help="With --wandb; default: WANDB_PROJECT, or adaptive-eval.")] = None,
    entity: Annotated[Text, typer.Option(help="With --wandb: the team or user.")] = None,
    group: Annotated[Text, typer.Option(help="With --wandb: the group of the run.")] = None,
    mlflow: Annotated[bool, typer.Option("--mlflow", help="Log it to MLflow.")] = False,
    experiment: Annotated[
        Text, typer.Option(help="With --mlflow; default: MLFLOW_EXPERIMENT_NAME, or adaptive-eval.")
    ] = None,
    tracking_uri: Annotated[Text, typer.Option(help="With --mlflow; default: MLFLOW_TRACKING_URI.")] = None,
) -> None:
    """Send RUN to W&B or MLflow, during the run or afterwards.

    It logs scores, intervals, verdicts and spending at each look, then ranking, report and figures. A run in progress
    is followed until its end. If it was tracked before, only what is missing is added.
    """
    with report_errors(run):
        if wandb == mlflow:
            raise ConfigError("give either --wandb or --mlflow: one tracker at a time")
        if (project or entity or group) and mlflow or (experiment or tracking_uri) and wandb:
            raise ConfigError(
                "--project, --entity and --group are for --wandb, --experiment and --tracking-uri for --mlflow"
            )
        feed = open_feed(run, PATIENCE_SECONDS, lambda: None)
        name, redactor = "wandb" if wandb else "mlflow", Redactor(environment_secrets(os.environ))
        require_no_links(run)
        with exclusive_follower(run / "logs" / f"tracking-{name}.lock"):
            feed.poll()
            try:
                tracker = _tracker(wandb, (project, entity, group), (experiment, tracking_uri))
                follow(feed, tracker, lambda address: typer.echo(safe_line(redactor.message(address), 400)))
            except (ConfigError, StoreError):
                raise
            except Exception as error:  # a tracker's library may raise anything
                message = safe_line(redactor.message(" ".join(str(error).split())), 300)
                raise StoreError(f"{name}: {type(error).__name__}: {message}") from error


def _tracker(wandb: bool, at_wandb: tuple[Text, Text, Text], at_mlflow: tuple[Text, Text]) -> Tracker:
    # imported here: each needs an extra
    if wandb:
        from adaptive_eval.show.track.to_wandb import Wandb

        return Wandb(*at_wandb)
    from adaptive_eval.show.track.to_mlflow import Mlflow

    return Mlflow(*at_mlflow)
