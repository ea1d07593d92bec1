"""A run in MLflow: looks as metrics by step, settings as parameters, the ranking, figures and files as artifacts.

`MLFLOW_TRACKING_URI` and MLflow's other environment variables work as usual.
"""

import json
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.imports import load_extra
from adaptive_eval.report.view import RunView
from adaptive_eval.show.track.points import (
    COLUMNS,
    Point,
    TrackedRun,
    draw,
    flatten,
    ranking,
    settings,
    tracked_id,
    write_files,
)

EXPERIMENT = "adaptive-eval"
ID_TAG = "adaptive_eval.machine"
MAX_METRICS, MAX_PARAMS = 1000, 100
"""Limits of one request to MLflow."""
MAX_VALUE = 500
MS_PER_SECOND = 1000.0
RANKING = "ranking.json"
DEFAULT_STORE = "sqlite:///mlflow.db"
"""Default address: a file in the working directory."""


def _require_no_file_store(uri: str) -> None:
    """Raise `ConfigError` for a store in files, which MLflow no longer supports."""
    if uri.startswith("file:") or "://" not in uri and uri != "databricks":
        raise ConfigError(
            f"MLflow no longer supports a store in files such as {uri}; give a database, "
            f"--tracking-uri {DEFAULT_STORE}, or the address of a server"
        )


class Mlflow:
    """One run in MLflow."""

    def __init__(self, experiment: str | None, uri: str | None) -> None:
        # report an unreachable server instead of waiting for it
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        module = load_extra("mlflow", "mlflow", "runs in MLflow")
        self._entities = load_extra("mlflow.entities", "mlflow", "runs in MLflow")
        uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_STORE
        _require_no_file_store(uri)
        self._client: Any = module.MlflowClient(tracking_uri=uri)
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT

    def begin(self, view: RunView, created: float, directory: Path) -> TrackedRun:
        """Find the tracked run by its tag, or begin it."""
        client, name = self._client, tracked_id(view, created)
        existing = client.get_experiment_by_name(self._experiment)
        experiment = client.create_experiment(self._experiment) if existing is None else existing.experiment_id
        runs = client.search_runs([experiment], f"tags.`{ID_TAG}` = '{name}'", max_results=1)
        if runs:
            self._id, looks = runs[0].info.run_id, int(runs[0].data.metrics.get("look", 0))
            client.update_run(self._id, status="RUNNING")
        else:
            tags = {ID_TAG: name, "run_directory": str(directory.absolute())}
            self._id, looks = client.create_run(experiment, run_name=view.name, tags=tags).info.run_id, 0
            params = (self._entities.Param(key, value[:MAX_VALUE]) for key, value in flatten(settings(view)))
            while part := list(islice(params, MAX_PARAMS)):
                client.log_batch(self._id, params=part)
        uri = client.tracking_uri
        if uri.startswith("http"):
            return TrackedRun(looks, f"{uri.rstrip('/')}/#/experiments/{experiment}/runs/{self._id}")
        return TrackedRun(looks, f"experiment {self._experiment}, run {self._id}")

    def log(self, points: Sequence[Point]) -> None:
        metrics = (
            self._entities.Metric(key, value, int(MS_PER_SECOND * point.at), point.look)
            for point in points
            for key, value in point.values.items()
        )
        while part := list(islice(metrics, MAX_METRICS)):
            self._client.log_batch(self._id, metrics=part)

    def finish(self, view: RunView, status: str, directory: Path, folder: Path) -> None:
        client = self._client
        client.log_dict(self._id, {"columns": list(COLUMNS), "data": ranking(view)}, RANKING)
        client.set_tag(self._id, "mlflow.loggedArtifacts", json.dumps([{"path": RANKING, "type": "table"}]))
        for path in write_files(view, directory, folder):
            client.log_artifact(self._id, str(path))
        for path in draw(view, folder / "figures"):
            client.log_artifact(self._id, str(path), "figures")
        reason = None if view.results is None else view.results.run.reason
        client.set_tag(self._id, "status", status if reason is None else f"{status}: {reason}")
        client.set_terminated(self._id, "FINISHED" if status == "finished" else "KILLED")
