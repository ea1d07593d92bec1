"""What becomes of a run whose terminal, or whoever read its output, has gone."""

import os
import signal
import subprocess
import sys

import pytest
from live_runs import Found, Site, wait_for_trials

from adaptive_eval.errors import ExitCode

COMMAND = [sys.executable, "-m", "adaptive_eval", "run"]


@pytest.mark.parametrize("display", ["plain", "json"])
def test_a_reader_that_leaves_does_not_end_the_run(site: Site, display: str) -> None:
    config = site.write()
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        command = [*COMMAND, str(config), "--display", display]
        done = subprocess.run(
            command, cwd=site.folder, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == ExitCode.REACHED, done.stderr
    assert "nothing more is shown (Broken pipe); the run goes on" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert Found.of(site.directory()).outcomes


def test_standard_output_may_be_closed_from_the_beginning(site: Site) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, str(site.write())]
    done = subprocess.run(command, cwd=site.folder, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.REACHED, done.stderr
    assert "Traceback" not in done.stderr


def test_a_terminal_of_ascii_shows_any_name(site: Site) -> None:
    models = [{"name": f"{name}-größer-模型", "model": name, "base_url": site.base_url} for name in ("ada", "bob")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    command = [*COMMAND, str(site.write(models=models)), "--display", "plain"]
    done = subprocess.run(
        command, cwd=site.folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == ExitCode.REACHED, done.stderr
    assert "gr\\xf6\\xdfer" in done.stdout


def test_a_terminal_that_is_closed_stops_the_run_as_sigterm_does(site: Site) -> None:
    config = site.write(concurrency=2)
    process = site.start(config)
    assert wait_for_trials(site.directory(), 10, process)
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=60)
    assert process.returncode == ExitCode.STOPPED, err
    assert "Stopped. Every answer that was graded is stored." in out


def test_under_nohup_it_goes_on(site: Site) -> None:
    config = site.write(concurrency=2)
    command = ["nohup", *COMMAND, str(config), "--display", "plain"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=site.folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
    site.processes.append(process)
    assert wait_for_trials(site.directory(), 10, process)
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=120)
    assert process.returncode == ExitCode.REACHED, err
