"""A run in W&B or MLflow while it goes on: a process of its own follows it, `adaptive-eval track`.

Whatever a tracker or its network does is no concern of the run: it reads what the run has stored, so nothing waits for
it but the end, and that not for long. It has the environment without the models' keys.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

from adaptive_eval.config.document import read_environment
from adaptive_eval.config.reports import ReportConfig
from adaptive_eval.config.run import RunConfig
from adaptive_eval.endpoints.secrets import keyless
from adaptive_eval.errors import ConfigError
from adaptive_eval.record.status import Status
from adaptive_eval.running.serving import LOGS
from adaptive_eval.running.watching import IdleWatcher

AT_THE_END = 60.0
"""Seconds that a run that has ended waits for its trackers."""
OWN_VARIABLES = {
    "wandb": ("WANDB_",),
    "mlflow": ("MLFLOW_", "DATABRICKS_", "AWS_", "AZURE_", "GOOGLE_"),  # stores of artifacts too
}
"""Prefixes of the variables that are a tracker's own, keys among them."""


def open_tracking(config: RunConfig, directory: Path) -> "Tracking | None":
    """Open the followers for the trackers that the configuration names; raises `ConfigError` if an extra is missing."""
    asked = options(config.report)
    if not asked:
        return None
    environment = {**read_environment(config.folder), **os.environ}
    followers = []
    for name, words in asked.items():
        if find_spec(name) is None:
            raise ConfigError(f"report.{name} needs an extra; pip install 'adaptive-eval[{name}]'")
        followers.append(FollowerProcess(name, words, directory, _environment(name, environment, config)))
    return Tracking(followers)


def options(report: ReportConfig) -> Mapping[str, Sequence[str]]:
    """Options of `adaptive-eval track` for each tracker."""
    found = {}
    for name in ("wandb", "mlflow"):
        section = getattr(report, name)
        if section is not None:
            given = section.model_dump(exclude_none=True).items()
            found[name] = [f"--{name}", *(f"--{key.replace('_', '-')}={value}" for key, value in given)]
    return found


def _environment(name: str, environment: Mapping[str, str], config: RunConfig) -> dict[str, str]:
    named = config.keys | {"" if config.notify is None else config.notify.webhook_env or ""}
    own = {key: value for key, value in environment.items() if key.startswith(OWN_VARIABLES[name])}
    return keyless(os.environ, named) | {key: value for key, value in own.items() if key not in named}


class FollowerProcess:
    """One process, from `start` on."""

    def __init__(self, name: str, words: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
        self._name, self._directory, self._environment = name, directory, environment
        self._words = ["track", str(directory.absolute()), *words]
        self._thread: Thread | None = None
        self._hurried = False

    def start(self) -> None:
        """Begin to follow; what cannot be started is told."""
        self._log = self._directory / LOGS / f"tracking-{self._name}.log"
        try:
            self._log.parent.mkdir(exist_ok=True)
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "adaptive_eval", *self._words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=self._environment,
                    start_new_session=True,  # Ctrl-C is for the run
                )
        except OSError as error:
            self._warn(f"could not be started ({error.strerror})")
            return
        self._thread = Thread(target=self._watch, name=f"tracking-{self._name}", daemon=True)
        self._thread.start()

    def close(self, deadline: float) -> None:
        """Wait until everything is told, or too much time has passed."""
        if self._thread is None:
            return
        self._thread.join(max(deadline - time.monotonic(), 0.0))
        if self._thread.is_alive():
            self._hurried = True
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._warn(f"has not taken everything within {AT_THE_END:.0f} s")

    def _watch(self) -> None:
        """Say where the run can be seen, and once if that came to nothing."""
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                text = line.decode("utf-8", "replace").strip()
                print(f"{self._name}: {text}", file=sys.stderr, flush=True)
        if self._process.wait() and not self._hurried:
            self._warn(f"has failed: {self._why()}")

    def _why(self) -> str:
        with suppress(OSError):
            lines = self._log.read_bytes()[-20_000:].decode("utf-8", "replace").splitlines()
            errors = [line for line in lines if line.startswith("error: ")]
            if errors:
                return "".join(char for char in errors[-1] if char.isprintable()).removeprefix("error: ")
        return f"see {self._log}"

    def _warn(self, what: str) -> None:
        again = f"adaptive-eval track {self._directory} --{self._name}"
        print(
            f"warning: tracking: {self._name} {what}; the run goes on without it, and `{again}` tells the rest",
            file=sys.stderr,
            flush=True,
        )


class Tracking(IdleWatcher):
    """Starts the followers when the run is there to be followed."""

    def __init__(self, followers: Sequence[FollowerProcess]) -> None:
        self._followers = followers

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        for follower in self._followers:
            follower.start()

    def close(self) -> None:
        """Wait for all of them together; the run must be closed by now."""
        deadline = time.monotonic() + AT_THE_END
        for follower in self._followers:
            follower.close(deadline)
