"""How a run has ended, by exit codes for scripts, by its file before the first look, and to later readers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import typed
from live_runs import MODELS, Site
from patient_time import HANGS
from small_http import JsonHandler, ThreadedServer, serving_in_a_thread

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.decisions import Decisions
from adaptive_eval.core.types import NO_COST, Reason
from adaptive_eval.machine import machine
from adaptive_eval.notes import (
    AnswersLost,
    BatchEnded,
    Event,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
    ServerReleased,
    TrialsRegraded,
)
from adaptive_eval.report.build import build_unjudged
from adaptive_eval.report.ending import Ending, find_ending, find_fatal_error, status_at_end
from adaptive_eval.report.results import UNJUDGED_FORMAT
from adaptive_eval.report.results_file import RESULTS_FILE, is_intact, read_results, write_results
from adaptive_eval.report.snapshot import RunSubject
from adaptive_eval.report.view import read_view


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.SETTLED, ExitCode.REACHED),
        (Reason.OUT_OF_REACH, ExitCode.SPENT),
        (Reason.BUDGET, ExitCode.SPENT),
        (Reason.WALL_TIME, ExitCode.SPENT),
        (Reason.BLOCKED, ExitCode.ENDPOINTS),
        (None, ExitCode.STOPPED),
    ],
)
def test_only_runs_that_have_decided_everything_have_their_objective(reason: Reason | None, code: ExitCode) -> None:
    assert Ending(reason=reason, results=None, trials=0).exit_code == code


@pytest.mark.parametrize(
    "later",
    [BatchEnded("ada", "k", "completed"), ServerReleased("ada"), AnswersLost("ada", 1, NO_COST)],
    ids=lambda event: event.KIND,
)
def test_what_supplies_note_after_the_end_changes_nothing_about_it(later: Event) -> None:
    events = [RunStarted(), RunFinished(Reason.WALL_TIME), later]
    assert find_ending(events, None, 72, Decisions()).exit_code == ExitCode.SPENT
    assert status_at_end(events, 72) == ("finished", "wall_time")
    events = [RunStarted(), RunFinished(Reason.WALL_TIME), TrialsRegraded(72)]
    assert find_ending(events, None, 72, Decisions()).exit_code == ExitCode.STOPPED, "graded again, it is no more"
    status, why = status_at_end(events, 72)
    assert status == "stopped" and "graded again" in str(why)
    assert status_at_end([], 0) == ("killed", None), "nothing is stored of its first start"
    assert find_ending([], None, 0, Decisions()).why.startswith("Killed: ")


def test_before_the_first_look_the_file_says_how_the_run_has_ended(tmp_path: Path) -> None:
    subject = RunSubject("run", ("ada", "bob"), ("q1", "q2"), (None, None), 0.0)
    ending = Ending(reason=Reason.BUDGET, results=None, trials=4, short_caps={"trials": 9.0})
    write_results(tmp_path, build_unjudged(subject, ending, elapsed=1.5, now=60.0))
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert (written["format"], written["models"], written["trials"]) == (UNJUDGED_FORMAT, ["ada", "bob"], 4)
    assert (written["run"]["status"], written["why"]) == ("finished", ending.why)
    assert is_intact(tmp_path) and read_results(tmp_path) is None


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
    looked = typed("monitor", run, "--once", "--display", "plain", code=ExitCode.ENDPOINTS)
    assert "Stopped by an error: ada: " in looked.stdout and "check the variable SOME_KEY" in looked.stdout
    written = refusing.report()
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
    kinds = [event.kind for event in view.events if event.kind not in ("configured", "settled")]
    assert kinds == ["started", "stopped", "resumed", "finished"]


def test_a_fatal_error_holds_until_the_run_goes_on() -> None:
    events: list[Event] = [RunStarted(), RunStopped("RuntimeError", "an error\nTraceback", ExitCode.FAILED)]
    error = find_fatal_error(events)
    assert error == ("an error\nTraceback", ExitCode.FAILED) and error.headline == "an error"
    assert find_fatal_error([*events, RunResumed(trials=0)]) is None
    assert find_fatal_error([RunStopped()]) is None, "a stop by the user is no error"
