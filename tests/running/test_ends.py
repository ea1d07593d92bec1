"""How runs end: before a look, with answers that are waited for, without a server, a terminal or their files."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import pytest
from contrary_server import Asked, listening, write_config
from gated import GatedServer
from live_runs import ENDED, MODELS, RunOutcome, Site, kill, small_world, trials_in, wait_for_trials
from patient_time import HANGS
from ports import HOST, held_port
from stored_runs import events_in
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.notes import RunFinished
from adaptive_eval.report.looks import read_look
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.rescore import rescore
from adaptive_eval.report.results import UNJUDGED_FORMAT
from adaptive_eval.report.results_file import RESULTS_FILE, read_results
from adaptive_eval.report.stored import open_run
from adaptive_eval.simulate.server import SimulatedServer, serving

TRIALS = {"min": 4, "max": 30}
AHEAD = {**TRIALS, "optimize": "time"}


@pytest.mark.slow
def test_scores_count_the_answers_waited_for_also_when_computed_again(site: Site) -> None:
    config = site.write("late", trials=AHEAD, concurrency=64)
    directory = site.directory("late")
    assert site.run(config, "--run-dir", str(directory)).exit_code in ENDED
    published, judged = models_of(directory), judged_trials(directory)
    assert set(ended(directory).waited_for or ()) == judged.keys()
    counted = {name: row["trials"] for name, row in published.items()}
    assert sum(counted.values()) == len(RunOutcome.of(directory).outcomes) > sum(judged.values())
    with open_run(directory) as stored:
        anew = stored.results(running=False)
    assert anew is not None
    assert {row.name: (row.score, row.trials) for row in anew.models} == {
        name: (row["score"], row["trials"]) for name, row in published.items()
    }
    (rubric, *_) = rescore(directory).rubrics
    assert {row.name: row.score for row in rubric.models} == pytest.approx(
        {n: row["score"] for n, row in published.items()}
    )
    assert site.run(config, "--run-dir", str(directory)).exit_code in ENDED
    assert models_of(directory) == published


@pytest.mark.slow
def test_scores_of_a_killed_run_count_only_judged_answers(site: Site) -> None:
    """The requests in flight then were slow ones, and their answers are unknown."""
    directory = site.directory("cut")
    with serving(GatedServer(small_world(), 60)) as url:
        models = [{"name": name, "base_url": url} for name in MODELS]
        process = site.start(site.write("cut", models=models, trials=AHEAD), "--run-dir", str(directory))
        assert wait_for_trials(directory, 40, process)
        kill(process)
    assert site.run(site.write("cut", trials=AHEAD), "--run-dir", str(directory)).exit_code in ENDED
    assert ended(directory).waited_for is None
    assert site.results("cut")["run"]["kills"] == 1
    assert {name: row["trials"] for name, row in models_of(directory).items()} == judged_trials(directory)


def models_of(directory: Path) -> dict[str, Any]:
    """The published results of each model."""
    rows = json.loads((directory / "results.json").read_text())["models"]
    return {row["name"]: row for row in rows}


def judged_trials(directory: Path) -> dict[str, int]:
    """Trials of each model that the last look has judged."""
    with closing(RunReader.open(directory)) as reader:
        models, look = read_look(reader.looks()[-1])
        return dict(zip(models, look.trials, strict=True))


def ended(directory: Path) -> RunFinished:
    return events_in(directory, RunFinished)[-1]


TOO_LITTLE = {"budget": {"trials": 10}}
NOTHING = "No answers were requested: the budget does not cover the first round."


def left_by(directory: Path) -> dict[str, Any]:
    """The file, which is no results of a look."""
    assert read_results(directory) is None
    document = json.loads((directory / RESULTS_FILE).read_text())
    assert document["format"] == UNJUDGED_FORMAT
    return dict(document)


def output_of(command: str, directory: Path, *options: str) -> str:
    """What a command that reads a run says of it."""
    result = CliRunner().invoke(app, [command, str(directory), *options])
    assert result.exit_code in (ExitCode.REACHED, ExitCode.SPENT), result.output
    return result.output


@pytest.mark.slow
def test_every_reader_of_a_run_says_that_its_cap_refused_the_first_round(site: Site) -> None:
    ended = site.run(site.write(**TOO_LITTLE))
    assert ended.exit_code == ExitCode.SPENT and NOTHING in ended.stdout
    document = left_by(site.directory())
    assert (document["run"]["status"], document["run"]["reason"], document["why"]) == ("finished", "budget", NOTHING)
    assert document["models"] == ["ada", "bob", "cyd"]
    assert document["trials"] == 0
    assert NOTHING in output_of("report", site.directory(), "--format", "md", "--output", "-")
    assert NOTHING in output_of("monitor", site.directory(), "--once")
    assert "intact" in output_of("verify", site.directory())
    assert "hint" not in output_of("plan", site.write(store=str(site.folder / "runs"), **TOO_LITTLE))
    page = output_of("report", site.directory(), "--format", "html", "--output", "-")
    assert NOTHING in page
    # what it says can be done is done, and the file is that of the run
    assert site.run(site.write(budget={"trials": 200})).exit_code in ENDED
    results = read_results(site.directory())
    assert results is not None and results.cost.trials >= 96


@pytest.fixture
def dead_url() -> Iterator[str]:
    with held_port() as port:
        yield f"http://{HOST}:{port}/v1"


def models(*urls: str) -> list[dict[str, str]]:
    return [{"name": name, "base_url": url} for name, url in zip(MODELS, urls, strict=False)]


@pytest.mark.usefixtures("short_pauses")
def test_a_dead_server_ends_a_new_run_before_any_model_is_asked(site: Site, dead_url: str) -> None:
    server = SimulatedServer(small_world())
    with serving(server) as url:
        ended = site.run(site.write(models=models(url, dead_url, url)))
    assert ended.exit_code == ExitCode.ENDPOINTS
    assert f"bob: cannot connect to its server: {dead_url}" in ended.stderr
    assert not server.counts and not trials_in(site.directory())


@pytest.mark.usefixtures("short_pauses")
def test_a_model_with_answers_is_set_aside_and_the_other_is_asked_no_further_round(site: Site, dead_url: str) -> None:
    server = SimulatedServer(small_world())
    with serving(server) as url:
        budget = {"trials": 72}
        first = site.run(site.write(models=models(url, url), budget=budget))
        assert first.exit_code == ExitCode.SPENT
        asked = server.counts["answered"]
        again = site.run(site.write(models=models(url, dead_url)))
        assert again.exit_code == ExitCode.ENDPOINTS
        assert server.counts["answered"] <= asked + 8, "the batch of the round that was composed"
    assert "cannot connect to its server" in again.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("short_pauses")
def test_a_run_can_be_stopped_while_it_looks_for_servers(site: Site, dead_url: str) -> None:
    config: Path = site.write(models=models(dead_url, dead_url))
    process = site.start(config)
    assert process.stdout is not None
    while "promise" not in process.stdout.readline():  # then it looks for servers
        pass
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode in (ExitCode.STOPPED, ExitCode.ENDPOINTS)


COMMAND = [sys.executable, "-m", "adaptive_eval", "run"]
ONCE = {"min": 4, "max": 4}


def closed_pipe() -> BinaryIO:
    """The writing end of a pipe whose reader has left."""
    read, write = os.pipe()
    os.close(read)
    return os.fdopen(write, "wb")


@pytest.mark.slow
@pytest.mark.parametrize("display", ["plain", "json"])
def test_a_reader_that_leaves_does_not_end_the_run(site: Site, display: str) -> None:
    config = site.write(trials=ONCE)
    with closed_pipe() as pipe:
        command = [*COMMAND, str(config), "--display", display]
        done = subprocess.run(
            command, cwd=site.folder, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=HANGS, check=False
        )
    assert done.returncode in ENDED, done.stderr
    assert "nothing more is shown (Broken pipe); the run goes on" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert RunOutcome.of(site.directory()).outcomes
    with closed_pipe() as pipe:
        command = [*COMMAND[:-1], "monitor", str(site.directory()), "--display", display]
        watched = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=HANGS, check=False)
    assert not watched.stderr, "the run is over"


@pytest.mark.slow
def test_standard_output_may_be_closed_from_the_beginning(site: Site) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, str(site.write(trials=ONCE))]
    done = subprocess.run(command, cwd=site.folder, stderr=subprocess.PIPE, text=True, timeout=HANGS, check=False)
    assert done.returncode in ENDED, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_terminal_of_ascii_shows_any_name(site: Site) -> None:
    models = [{"name": f"{name}-größer-模型", "model": name, "base_url": site.base_url} for name in ("ada", "bob")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    command = [*COMMAND, str(site.write(models=models, trials=ONCE)), "--display", "plain"]
    done = subprocess.run(
        command, cwd=site.folder, env=environment, capture_output=True, text=True, timeout=HANGS, check=False
    )
    assert done.returncode == ExitCode.REACHED, done.stderr
    assert "gr\\xf6\\xdfer" in done.stdout


@dataclass(frozen=True)
class Gated:
    """A run whose server answers some requests, and the others when the gate is open."""

    config: Path
    gate: threading.Event

    TRIALS: ClassVar = 12


@pytest.fixture
def gated(site: Site) -> Iterator[Gated]:
    gate, asked = threading.Event(), itertools.count(1)

    def script(_: Asked) -> None:
        if next(asked) > Gated.TRIALS:
            gate.wait(HANGS)

    with listening(script) as server:
        yield Gated(write_config(site.folder, server), gate)
        gate.set()


@pytest.mark.slow
def test_a_terminal_that_is_closed_stops_the_run_as_sigterm_does(site: Site, gated: Gated) -> None:
    process = site.start(gated.config)
    assert wait_for_trials(site.directory(), Gated.TRIALS, process)
    process.send_signal(signal.SIGHUP)
    assert process.stdout is not None
    while "stopping: waiting for" not in process.stdout.readline():
        assert process.poll() is None
    gated.gate.set()
    out, err = process.communicate(timeout=HANGS)
    assert process.returncode == ExitCode.STOPPED, err
    assert "Stopped. The same command continues" in out


@pytest.mark.slow
def test_a_run_under_nohup_goes_on(site: Site, gated: Gated) -> None:
    command = ["nohup", *COMMAND, str(gated.config), "--display", "plain"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=site.folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
    site.processes.append(process)
    assert wait_for_trials(site.directory(), Gated.TRIALS, process)
    process.send_signal(signal.SIGHUP)
    gated.gate.set()
    _, err = process.communicate(timeout=HANGS)
    assert process.returncode == ExitCode.REACHED, err


@pytest.mark.parametrize(
    "how", ["folder", *(pytest.param(how, marks=pytest.mark.slow) for how in ("file", "replaced"))]
)
def test_a_run_whose_store_is_removed_says_what_is_lost(site: Site, how: str, tmp_path: Path) -> None:
    server, directory = GatedServer(small_world(), 30), site.directory()
    with serving(server) as url:
        process = site.start(replace(site, base_url=url).write())
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
