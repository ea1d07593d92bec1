"""A run in W&B and MLflow: what is told of it. With the real packages, offline: `pytest -m tracking tests/show`."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_runs import MODELS, Site, kill, wait_for_trials

from adaptive_eval.base.errors import ConfigError, ExitCode
from adaptive_eval.report.view import EventView, read_view
from adaptive_eval.show.track.points import flatten, points, ranking, series_names, settings
from adaptive_eval.show.track.to_mlflow import _require_no_file_store

HOSTILE = ["../../etc", "a/b", "a b", "A b", "", "💥", "x" * 300, "x" * 299 + "y", "score/other", "..", "$(id)"]
KEY = "sk-proj-" + "Secret0123456789" * 3


@given(st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=30)), unique=True, max_size=12))
def test_model_names_are_no_paths_and_stay_distinct(models: list[str]) -> None:
    names = series_names(models)
    assert len({name.lower() for name in names.values()}) == len(models)
    for name in names.values():
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,90}", name) and ".." not in name


@pytest.mark.slow
def test_every_look_is_a_point_with_what_was_used_by_then(site: Site) -> None:
    site.run(site.write(seed=2, trials={"min": 2, "max": 6}))
    view = read_view(site.directory())
    tracked_points = points(view)
    assert [point.look for point in tracked_points] == [look.look for look in view.looks]
    assert view.results is not None
    last = tracked_points[-1].values
    for row in view.results.models:
        assert row.score is not None and row.lo is not None
        assert last[f"score/{row.name}"] == pytest.approx(row.score) and last[f"lo/{row.name}"] == pytest.approx(row.lo)
        assert last[f"trials/{row.name}"] == row.trials
    assert last["trials"] == view.results.cost.trials and last["spent/tokens"] > 0
    counted = sum(value for key, value in last.items() if key.startswith("comparisons/"))
    assert counted == len(view.results.pairs)
    assert [row[2] for row in ranking(view)] == [row.name for row in view.results.models]
    assert dict(flatten(settings(view)))["trials.max"] == "6"
    body = {"model": MODELS[0], "answers": 3, "tokens": 50, "usd": 0.25, "gpu_seconds": 36.0}
    lost = EventView(view.looks[-1].at, "answers_lost", body, None)
    first, *_, end = points(replace(view, events=(*view.events, lost)))
    assert (first.values["lost_answers"], end.values["lost_answers"]) == (0, 3)
    assert end.values["spent/tokens"] == last["spent/tokens"] + 50
    assert end.values["spent/gpu_hours"] == pytest.approx(last["spent/gpu_hours"] + 0.01)


@pytest.mark.parametrize("uri", ["mlruns", "/data/mlruns", "file:///data/mlruns"])
def test_a_store_in_files_is_refused_with_what_mlflow_takes_instead(uri: str) -> None:
    with pytest.raises(
        ConfigError, match=r"no longer supports a store in files .*; give a database, --tracking-uri sqlite:///"
    ):
        _require_no_file_store(uri)
    for location in ("sqlite:///mlflow.db", "http://host:5000", "databricks", "postgresql://host/db"):
        _require_no_file_store(location)


# -- with the real packages, offline ---------------------------------------------------------------------------------


def tracked(site: Site, **environment: str) -> dict[str, str]:
    """The environment of a run that is told to both, offline."""
    return {
        **os.environ,
        "WANDB_MODE": "offline",
        "MLFLOW_TRACKING_URI": f"sqlite:///{site.folder}/m.db",
        "MY_MODEL_KEY": KEY,
        **environment,
    }


def config(site: Site) -> Path:
    models = [{"name": name, "base_url": site.base_url, "api_key_env": "MY_MODEL_KEY"} for name in ("ada", "bob")]
    models.append({"name": "../../c y/d", "model": "cyd", "base_url": site.base_url, "api_key_env": "MY_MODEL_KEY"})
    return site.write(models=models, seed=2, trials={"min": 2, "max": 12})


def started(site: Site, environment: dict[str, str], *words: str) -> "subprocess.Popen[str]":
    """A command in a process of its own."""
    command, pipe = [sys.executable, "-m", "adaptive_eval", *words], subprocess.PIPE
    process = subprocess.Popen(command, cwd=site.folder, env=environment, stdout=pipe, stderr=pipe, text=True)
    site.processes.append(process)
    return process


def ended(processes: "Sequence[subprocess.Popen[str]]") -> list[tuple[int, str]]:
    """How they have ended, and what they said of trouble."""
    errors = [process.communicate(timeout=600)[1] for process in processes]
    return [(process.returncode, error) for process, error in zip(processes, errors, strict=True)]


@pytest.mark.tracking
@pytest.mark.filterwarnings("ignore")  # of packages that the tracker's own package uses
def test_a_killed_run_goes_on_in_the_same_tracked_run(site: Site) -> None:
    pytest.importorskip("wandb")
    mlflow = pytest.importorskip("mlflow")
    environment, path = tracked(site), config(site)
    run_words = ("run", str(path), "--display", "plain")
    track_words = [("track", str(site.directory()), tracker) for tracker in ("--wandb", "--mlflow")]
    first = started(site, environment, *run_words)
    assert wait_for_trials(site.directory(), 80, first)
    followers = [started(site, environment, *words) for words in track_words]
    kill(first)
    assert [code for code, _ in ended(followers)] == [0, 0], "each ends with the run that it follows"
    ((code, error),) = ended([started(site, environment, *run_words)])
    assert code in (0, 3), error
    again = ended([started(site, environment, *words) for words in track_words])
    assert [code for code, _ in again] == [0, 0], again
    client = mlflow.MlflowClient(tracking_uri=environment["MLFLOW_TRACKING_URI"])
    (run,) = client.search_runs([client.get_experiment_by_name("adaptive-eval").experiment_id])
    view = read_view(site.directory())
    history = client.get_metric_history(run.info.run_id, "look")
    assert sorted(metric.step for metric in history) == [look.look for look in view.looks]
    assert run.info.status == "FINISHED" and run.data.params["trials.max"] == "12"
    assert {artifact.path for artifact in client.list_artifacts(run.info.run_id)} >= {
        "ranking.json",
        "report.md",
        "results.json",
    }
    offline = list((site.directory() / "logs" / "wandb").glob("offline-run-*"))
    assert offline and len({folder.name.rsplit("-", 1)[1] for folder in offline}) == 1
    for file in site.folder.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file


@pytest.mark.tracking
def test_an_unreachable_tracker_is_reported_without_its_password(site: Site) -> None:
    pytest.importorskip("mlflow")
    site.run(site.write(seed=2, trials={"min": 2, "max": 4}))
    environment = tracked(site, MLFLOW_TRACKING_URI="http://me:secret@127.0.0.1:9")
    ((code, error),) = ended([started(site, environment, "track", str(site.directory()), "--mlflow")])
    assert code == ExitCode.FAILED and "error: mlflow: " in error, error
    assert "secret" not in error
