"""A run that an error has ended says so to later readers, without secrets."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_runs import MODELS, Site
from patient_time import HANGS
from small_http import JsonHandler, ThreadedServer, serving_in_a_thread
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.machine import machine
from adaptive_eval.notes import Event, RunResumed, RunStarted, RunStopped
from adaptive_eval.report.ending import find_fatal_error
from adaptive_eval.report.view import read_view

KEY = "sk-never-to-be-seen-0123456789"


class Refusing(JsonHandler):
    """Refuses every request, and repeats the key that it was given."""

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.reply({"error": {"message": f"no such key: {self.headers['Authorization']}"}}, 401)


@pytest.fixture
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("SOME_KEY", KEY)
    monkeypatch.setattr(machine, "REFUSALS_SECONDS", HANGS)  # until all were heard: else what is cut off may be lost
    with serving_in_a_thread(ThreadedServer(Refusing)) as server:
        yield Site.make(tmp_path, server.base_url)


def keyed(site: Site) -> list[dict[str, str]]:
    return [{"name": name, "base_url": site.base_url, "api_key_env": "SOME_KEY"} for name in MODELS]


@pytest.mark.usefixtures("short_pauses")
def test_a_run_that_was_refused_says_so_and_keeps_the_key(refusing: Site) -> None:
    ended = refusing.run(refusing.write(models=keyed(refusing)))
    assert ended.exit_code == ExitCode.ENDPOINTS and "the variable SOME_KEY" in ended.stderr
    run = refusing.directory()
    looked = CliRunner().invoke(app, ["monitor", str(run), "--once", "--display", "plain"])
    assert looked.exit_code == ExitCode.ENDPOINTS
    assert "Stopped by an error: ada: " in looked.stdout and "check the variable SOME_KEY" in looked.stdout
    written = CliRunner().invoke(app, ["report", str(run), "--format", "md", "-o", "-"]).stdout
    assert "Stopped by an error: ada: " in written
    assert "stopped by an error" in written.split("Events:")[1]
    for path in run.iterdir():
        assert KEY.encode() not in path.read_bytes(), path.name
    assert KEY not in written + looked.stdout + ended.output


@pytest.mark.slow
@pytest.mark.usefixtures("short_pauses")
def test_a_resume_clears_the_error_and_its_event_stays(refusing: Site, base_url: str) -> None:
    one_at_a_time = {"concurrency": 1}  # else the first refusal may leave other requests in flight, which are lost
    refusing.run(refusing.write(models=keyed(refusing), **one_at_a_time))
    models = [{"name": name, "base_url": base_url} for name in MODELS]
    refusing.run(refusing.write(models=models, **one_at_a_time))
    view = read_view(refusing.directory())
    assert "error" not in str(view.ended) and view.results is not None and view.results.run.status == "finished"
    assert [event.kind for event in view.events if event.kind not in ("configured", "settled")] == [
        "started",
        "stopped",
        "resumed",
        "finished",
    ]


def stopped_by(error: str, reason: str) -> RunStopped:
    return RunStopped(error, reason, ExitCode.FAILED)


def test_a_fatal_error_holds_until_the_run_goes_on() -> None:
    events: list[Event] = [RunStarted(), stopped_by("RuntimeError", "an unexpected error")]
    assert find_fatal_error(events) == ("an unexpected error", ExitCode.FAILED)
    assert find_fatal_error([*events, RunResumed(trials=0)]) is None


def test_the_headline_is_the_first_line() -> None:
    error = find_fatal_error([stopped_by("GraderError", "it fails\nTraceback")])
    assert error is not None and error.headline == "it fails"


def test_a_stop_by_the_user_is_no_error() -> None:
    assert find_fatal_error([RunStopped()]) is None
