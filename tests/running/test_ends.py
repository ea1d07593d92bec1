"""How runs end: before a look, without a server, a terminal or their files; and the command that is told of it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from command_line import typed
from gated import GatedServer
from live_runs import ENDED, MODELS, RunOutcome, Site, kill, small_world, trials_in, wait_for_trials
from patient_time import HANGS
from stored_runs import events_in, stored_results

from adaptive_eval.base.errors import ConfigError, ExitCode
from adaptive_eval.config.load import load_config
from adaptive_eval.notes import AnswersLost, Event, RunFinished, RunResumed, RunStarted, RunStopped, TrialsImported
from adaptive_eval.report.looks import read_look
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.rescore import rescore
from adaptive_eval.report.results import UNJUDGED_FORMAT
from adaptive_eval.report.results_file import read_results
from adaptive_eval.report.stored import open_run
from adaptive_eval.running.settings_of_run import awaited_models
from adaptive_eval.simulate.server import SimulatedServer, serving

TRIALS = {"min": 4, "max": 30}
AHEAD = {**TRIALS, "optimize": "time"}


@pytest.mark.slow
def test_scores_count_the_answers_waited_for_also_when_computed_again(site: Site) -> None:
    settings, directory = {"trials": AHEAD, "concurrency": 64}, site.directory("late")
    outcome = site.finished("late", **settings)
    published, judged = models_of(directory), judged_trials(directory)
    assert set(ended(directory).waited_for or ()) == judged.keys()
    assert sum(row["trials"] for row in published.values()) == len(outcome.outcomes) > sum(judged.values())
    with open_run(directory) as stored:
        anew = stored.results(running=False)
    assert anew is not None
    for row in anew.models:
        assert (row.score, row.trials) == (published[row.name]["score"], published[row.name]["trials"])
    (rubric, *_) = rescore(directory).rubrics
    scores = {name: row["score"] for name, row in published.items()}
    assert {row.name: row.score for row in rubric.models} == pytest.approx(scores)
    site.finished("late", **settings)
    assert models_of(directory) == published


@pytest.mark.slow
def test_scores_of_a_killed_run_count_only_judged_answers(site: Site) -> None:
    """The requests in flight then were slow ones, and their answers are unknown."""
    directory = site.directory("cut")
    with serving(GatedServer(small_world(), 60)) as url:
        process = site.start(site.at(url).write("cut", trials=AHEAD), "--run-dir", str(directory))
        assert wait_for_trials(directory, 40, process)
        kill(process)
    site.finished("cut", trials=AHEAD)
    assert ended(directory).waited_for is None
    assert site.results("cut")["run"]["kills"] == 1
    assert {name: row["trials"] for name, row in models_of(directory).items()} == judged_trials(directory)


WAITED, LOST = RunStopped(waited_for=("a", "b")), AnswersLost("a", 2, discarded=True)


@pytest.mark.parametrize(
    ("events", "awaited"),
    [
        ([RunStarted(0), WAITED], [0, 1]),
        ([RunStarted(0), RunStopped(waited_for=("b",))], [1]),
        ([RunStarted(0)], []),
        ([RunStarted(0), WAITED, RunResumed(40)], [0, 1]),
        ([RunStarted(0), WAITED, RunResumed(40), RunStopped()], [0, 1]),
        ([RunStarted(0), WAITED, RunResumed(30)], []),
        ([RunStarted(0), WAITED, RunResumed(30), RunResumed(40)], []),
        ([RunStarted(0), RunResumed(0), WAITED], [0, 1]),
        ([RunStarted(0), WAITED, RunResumed(40), LOST], []),
        ([RunStarted(0), WAITED, RunResumed(30, longest_prompts={"a": 9})], [1]),
        ([TrialsImported(40), RunStopped()], []),
    ],
)
def test_a_start_leaves_out_answers_ahead_if_it_has_some_and_not_all(events: list[Event], awaited: list[int]) -> None:
    assert awaited_models(events, {"a": 0, "b": 1}, trials=40) == awaited


def models_of(directory: Path) -> dict[str, Any]:
    """The published results of each model."""
    rows = json.loads((directory / "results.json").read_text())["models"]
    return {row["name"]: row for row in rows}


def judged_trials(directory: Path) -> dict[str, int]:
    """Trials of each model that the last look has judged."""
    with closing(RunReader.open(directory)) as reader:
        models, look = read_look(reader.log.looks()[-1])
        return dict(zip(models, look.trials, strict=True))


def ended(directory: Path) -> RunFinished:
    return events_in(directory, RunFinished)[-1]


TOO_LITTLE = {"budget": {"trials": 10}}
NOTHING = "No answers were requested: the budget does not cover the first round."


@pytest.mark.slow
def test_every_reader_of_a_run_says_that_its_cap_refused_the_first_round(site: Site) -> None:
    assert NOTHING in site.run(site.write(**TOO_LITTLE), code=ExitCode.SPENT).stdout
    assert read_results(site.directory()) is None
    document = site.results()
    assert document["format"] == UNJUDGED_FORMAT
    assert (document["run"]["status"], document["run"]["reason"], document["why"]) == ("finished", "budget", NOTHING)
    assert document["models"] == ["ada", "bob", "cyd"] and document["trials"] == 0
    assert NOTHING in site.report("md") and NOTHING in site.report("html")
    assert NOTHING in typed("monitor", site.directory(), "--once", code=ENDED).output
    assert typed("verify", site.directory()).output.endswith("intact\n")
    assert "hint" not in typed("plan", site.write(store=str(site.folder / "runs"), **TOO_LITTLE)).output
    # what it says can be done is done, and the file is that of the run
    site.finished(budget={"trials": 200})
    assert stored_results(site.directory()).cost.trials >= 96


@pytest.fixture
def dead_url(unused_tcp_port: int) -> str:
    return f"http://127.0.0.1:{unused_tcp_port}/v1"


def models(*urls: str) -> list[dict[str, str]]:
    return [{"name": name, "base_url": url} for name, url in zip(MODELS, urls, strict=False)]


@pytest.mark.usefixtures("short_pauses")
def test_a_dead_server_ends_a_new_run_before_any_model_is_asked(site: Site, dead_url: str) -> None:
    server = SimulatedServer(small_world())
    with serving(server) as url:
        ended = site.run(site.write(models=models(url, dead_url, url)), code=ExitCode.ENDPOINTS)
    assert f"bob: cannot connect to its server: {dead_url}" in ended.stderr
    assert not server.counts and not trials_in(site.directory())


@pytest.mark.usefixtures("short_pauses")
def test_a_model_with_answers_is_set_aside_and_the_other_is_asked_no_further_round(site: Site, dead_url: str) -> None:
    server = SimulatedServer(small_world())
    with serving(server) as url:
        assert site.run(site.write(models=models(url, url), budget={"trials": 72})).exit_code == ExitCode.SPENT
        asked = server.counts["answered"]
        again = site.run(site.write(models=models(url, dead_url)), code=ExitCode.ENDPOINTS)
        assert server.counts["answered"] <= asked + 8, "the batch of the round that was composed"
    assert "cannot connect to its server" in again.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("short_pauses")
def test_a_run_can_be_stopped_while_it_looks_for_servers(site: Site, dead_url: str) -> None:
    process = site.start(site.write(models=models(dead_url, dead_url)))
    while "promise" not in process.stdout.readline():  # then it looks for servers
        pass
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode in (ExitCode.STOPPED, ExitCode.ENDPOINTS)


COMMAND = [sys.executable, "-m", "adaptive_eval", "run"]
ONCE = {"min": 4, "max": 4}
BEFORE = 12
"""Answers that a server gives before it is let go on."""


def finished(command: Sequence[str | Path], site: Site, **options: Any) -> "subprocess.CompletedProcess[str]":
    """A process that has ended, in the folder of the site."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(command, cwd=site.folder, text=True, timeout=HANGS, check=False, **pipes)


def closed_pipe() -> BinaryIO:
    """The writing end of a pipe whose reader has left."""
    read, write = os.pipe()
    os.close(read)
    return os.fdopen(write, "wb")


@pytest.mark.slow
@pytest.mark.parametrize("display", ["plain", "json"])
def test_a_reader_that_leaves_does_not_end_the_run(site: Site, display: str) -> None:
    with closed_pipe() as pipe:
        done = finished([*COMMAND, site.write(trials=ONCE), "--display", display], site, stdout=pipe)
    assert done.returncode in ENDED, done.stderr
    assert "nothing more is shown (Broken pipe); the run goes on" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert RunOutcome.of(site.directory()).outcomes
    with closed_pipe() as pipe:
        watched = finished([*COMMAND[:-1], "monitor", site.directory(), "--display", display], site, stdout=pipe)
    assert not watched.stderr, "the run is over"


@pytest.mark.slow
def test_standard_output_may_be_closed_from_the_beginning(site: Site) -> None:
    done = finished(["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, site.write(trials=ONCE)], site)
    assert done.returncode in ENDED, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_terminal_of_ascii_shows_any_name(site: Site) -> None:
    models = [{"name": f"{name}-größer-模型", "model": name, "base_url": site.base_url} for name in ("ada", "bob")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    command = [*COMMAND, site.write(models=models, trials=ONCE), "--display", "plain"]
    done = finished(command, site, env=environment)
    assert done.returncode == ExitCode.REACHED, done.stderr
    assert "gr\\xf6\\xdfer" in done.stdout


@pytest.fixture
def gated(site: Site) -> Iterator[tuple[Path, GatedServer]]:
    """A run whose server answers some requests, and the others when it is let to."""
    server = GatedServer(small_world(), BEFORE)
    with serving(server) as url:
        yield site.at(url).write(trials=ONCE), server


@pytest.mark.slow
def test_a_terminal_that_is_closed_stops_the_run_as_sigterm_does(site: Site, gated: tuple[Path, GatedServer]) -> None:
    config, server = gated
    process = site.start(config)
    assert wait_for_trials(site.directory(), BEFORE, process)
    process.send_signal(signal.SIGHUP)
    while "stopping: waiting for" not in process.stdout.readline():
        assert process.poll() is None
    server.open()
    out, err = process.communicate(timeout=HANGS)
    assert process.returncode == ExitCode.STOPPED, err
    assert "Stopped. The same command continues" in out


@pytest.mark.slow
def test_a_run_under_nohup_goes_on(site: Site, gated: tuple[Path, GatedServer]) -> None:
    config, server = gated
    command, pipe = ["nohup", *COMMAND, str(config), "--display", "plain"], subprocess.PIPE
    process = subprocess.Popen(command, cwd=site.folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
    site.processes.append(process)
    assert wait_for_trials(site.directory(), BEFORE, process)
    process.send_signal(signal.SIGHUP)
    server.open()
    _, err = process.communicate(timeout=HANGS)
    assert process.returncode in ENDED, err


@pytest.mark.parametrize(
    "how", ["folder", *(pytest.param(how, marks=pytest.mark.slow) for how in ("file", "replaced"))]
)
def test_a_run_whose_store_is_removed_says_what_is_lost(site: Site, how: str, tmp_path: Path) -> None:
    server, directory = GatedServer(small_world(), 30), site.directory()
    with serving(server) as url:
        process = site.start(site.at(url).write())
        assert wait_for_trials(directory, 20, process)
        if how == "folder":
            directory.rename(tmp_path / "elsewhere")
        else:
            (directory / "run.sqlite").unlink()
        if how == "replaced":
            (directory / "run.sqlite").write_bytes(b"")
        server.open()
        _, errors = process.communicate(timeout=HANGS)
    assert process.returncode == ExitCode.FAILED, errors
    assert "was removed or replaced during the run" in errors and "--fresh" in errors
    assert "intact" not in errors and "Traceback" not in errors


Json = dict[str, Any]

TELL = """#!{python}
import json, os, sys
with open("told.json", "a") as file:
    file.write(json.dumps({{"text": sys.stdin.read(), "names": sorted(os.environ)}}) + "\\n")
"""


@pytest.fixture
def program(site: Site) -> list[str]:
    """A command that records how it is called."""
    path = site.folder / "tell"
    path.write_text(TELL.format(python=sys.executable))
    path.chmod(0o700)
    return ["./tell"]


def notifications(folder: Path) -> list[Json]:
    path = folder / "told.json"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_the_command_gets_the_end_without_keys(site: Site, program: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "one-that-nobody-else-may-see")
    assert site.run(site.write(notify=program)).exit_code == ExitCode.REACHED
    (message,) = notifications(site.folder)
    line, remainder = message["text"].split("\n")
    assert line.startswith("run: Finished: ") and "ada is best" in line and not remainder
    assert "PATH" in message["names"] and "SOME_API_KEY" not in message["names"]


@pytest.mark.parametrize(("delta", "outcome"), [("0.1%", "UNDECIDED"), ("90%", "PASS")])
def test_the_command_gets_the_outcome_of_a_gate_once(site: Site, program: list[str], delta: str, outcome: str) -> None:
    gate = {"objective": {"kind": "baseline", "baseline": "bob", "gate": True}, "stopping": {"delta": delta}}
    models = [{"name": name, "model": "bob", "base_url": site.base_url} for name in ("bob", "new")]
    site.run(site.write(models=models, trials={"min": 4, "max": 4}, notify=program, **gate))
    (message,) = notifications(site.folder)
    assert message["text"].count(f"{outcome}: new ") == 1


@pytest.mark.usefixtures("short_pauses")
def test_the_command_is_told_of_an_error_that_ends_a_run(site: Site, program: list[str]) -> None:
    models = [{"name": name, "model": f"no-{name}", "base_url": site.base_url} for name in ("ada", "bob")]
    assert site.run(site.write(models=models, notify=program)).exit_code == ExitCode.ENDPOINTS
    (message,) = notifications(site.folder)
    assert message["text"].startswith("run: Stopped by an error: ") and message["text"].count("\n") == 1


def test_unexpected_errors_are_not_quoted(site: Site, program: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(KEY)

    monkeypatch.setattr("adaptive_eval.running.start.setting_of_today", fail)
    with pytest.raises(RuntimeError):
        site.run(site.write(notify=program))
    (message,) = notifications(site.folder)
    (stopped,) = events_in(site.directory(), RunStopped)
    assert stopped.reason == "an unexpected error (RuntimeError)"
    assert "an unexpected error (RuntimeError)" in message["text"] and KEY not in message["text"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["no-such-program", "https://example.org/hook"], "could not be run"),
        ([sys.executable, "-c", "raise SystemExit(3)", "https://example.org/hook"], "exit code 3"),
    ],
)
def test_a_command_that_fails_is_a_warning(site: Site, command: list[str], message: str) -> None:
    result = site.run(site.write(notify=command, trials={"min": 2, "max": 2}))
    assert result.exit_code in ENDED and "warning: notify: " in result.stderr
    assert message in result.stderr and "example.org" not in result.stderr


KEY = "Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8"


@pytest.mark.parametrize(
    ("notify", "message"),
    [
        ([], "notify must not be empty"),
        (["curl", "--token=abc"], "has a secret"),
        (["curl", "-H", "Authorization: Bearer abc"], "has a secret"),
        (["curl", "https://me:word@a.com/b"], "has a secret"),
        (["curl", f"https://hooks.a.com/services/T0/{KEY}"], "let the command read it from a file"),
        (["curl", f"hooks.a.com/services/T0/{KEY}"], "has what looks like a key"),
        (["sh", "-c", f"curl -d @- 'https://a.com/{KEY}' > said"], "has what looks like a key"),
        (["curl", "${A_HOOK}"], "has what looks like a key"),
    ],
)
def test_secrets_in_notify_are_refused(site: Site, monkeypatch: pytest.MonkeyPatch, notify: Json, message: str) -> None:
    monkeypatch.setenv("A_HOOK", f"https://a.com/{KEY}")
    with pytest.raises(ConfigError) as refused:
        load_config(site.write(notify=notify))
    assert message in str(refused.value) and KEY not in str(refused.value) and "word" not in str(refused.value)


def test_a_command_without_a_secret_is_taken_as_it_is(site: Site) -> None:
    plain = ["curl", "-sS", "--fail", "-H", "Content-Type: application/json", "-d", "@-", "https://a.com/hook"]
    for command in (plain, ["curl", "--config", "hook.curl"], ["/opt/Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8/tell", "run"]):
        assert load_config(site.write(notify=command)).notify == tuple(command)
