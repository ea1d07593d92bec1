"""Runs of six models on a pool of two places of this machine, each served by llama-server while it has its turn."""

import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from tempfile import gettempdir

from engine_runs import RUN_SECONDS, Finished, Key, Workplace
from engine_servers import llama
from family import checkpoints, weights
from stored_runs import stored_events, stored_trials
from to_gguf import convert_weights

from adaptive_eval.base.errors import AdaptiveEvalError
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.notes import ServerLaunched, ServerLaunching, ServerReleased

SIX = (*checkpoints(), "abacus-900-tuned-250")
"""The whole models, and one that an adapter is merged into."""
PLACES = ("left", "right")
FIXED = {"trials": {"min": 80, "max": 80}}
"""What a fixed number of trials for everyone is to a run: one look."""


def pooled(workplace: Workplace, name: str, **changes: object) -> Path:
    """A run whose servers share two places; `changes` replaces whole sections."""
    return workplace.configure(
        name,
        [_served(checkpoint, workplace.folder) for checkpoint in SIX],
        pool=PLACES,
        **changes,
    )


def _served(name: str, folder: Path) -> dict[str, object]:
    path = folder / f"{name}.gguf"
    server = llama(path if path.exists() else convert_weights(name, weights(name), path), Path(gettempdir()) / "unused")
    command = ["{port}" if word == str(server.port) else word for word in server.command]
    return {"name": name, "launch": {"command": command}}


def killed_in_a_swap(workplace: Workplace, config: Path) -> dict[Key, Answer]:
    """Start a run, and kill it while the server of another model is on its way; gives what was stored by then."""
    process = workplace.start(config)
    try:
        _await_swap(workplace.directory(config), process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return {
        (trial.model, trial.question, trial.trial): trial.answer for trial in stored_trials(workplace.directory(config))
    }


def _await_swap(directory: Path, process: "subprocess.Popen[str]") -> None:
    """Return while a server comes up that takes the place of another."""
    deadline = time.monotonic() + RUN_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        kinds = _kinds(directory)
        if kinds[ServerLaunching.KIND] > max(kinds[ServerLaunched.KIND], len(PLACES)):
            return
        time.sleep(0.02)
    raise AssertionError("the run ended before it swapped")


def _kinds(directory: Path) -> "Counter[str]":
    try:
        return Counter(event.kind for event in stored_events(directory))
    except AdaptiveEvalError:  # it is not there yet
        return Counter()


def released_before_the_end(run: Finished) -> int:
    """Servers that were stopped while another one was still to be asked."""
    return run.events.count(ServerReleased.KIND)
