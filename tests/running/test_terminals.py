"""What happens to a run whose terminal, or the reader of its output, has gone."""

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

import pytest
from contrary_server import Asked, listening, write_config
from live_runs import ENDED, RunOutcome, Site, wait_for_trials
from patient_time import HANGS

from adaptive_eval.base.errors import ExitCode

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
