"""Whoever stops a command while it begins gets the exit code and the word of whoever stops it later."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patient_time import HANGS

from adaptive_eval.base.errors import ExitCode

WATCH = """
import sys

# some modules run code that they make of a text, and Python treats Ctrl-C there in its own way
TEXT = "import os; os.kill(os.getpid(), {number}); any(_ for _ in range(9))"

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            exec(TEXT)

sys.meta_path.insert(0, Watch())
"""
"""A signal that comes when a module is about to be imported."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "module"),
    [
        (signal.SIGINT, "typer"),
        (signal.SIGINT, "scipy"),
        (signal.SIGTERM, "adaptive_eval.running.start"),
        pytest.param(signal.SIGHUP, "typer", marks=pytest.mark.release),
        pytest.param(signal.SIGTERM, "adaptive_eval.cli.run", marks=pytest.mark.release),
        pytest.param(signal.SIGINT, "adaptive_eval.show.displays", marks=pytest.mark.release),
    ],
)
def test_a_signal_while_a_command_begins_stops_it_as_any_other(tmp_path: Path, number: int, module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(WATCH.format(number=int(number), module=module))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "adaptive_eval", "run", "missing.yaml"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANGS, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.STOPPED, "", "stopped\n")
