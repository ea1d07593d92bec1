"""Runs against a simulated server: in this process and in others."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from command_line import Codes, typed
from patient_time import HANGS
from typer.testing import Result
from warm_start import WarmProcess

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.worlds import Latency, World, binary, with_mean
from adaptive_eval.store.locate import has_database

MODELS = ("ada", "bob", "cyd")
PAID = {"batch", "gpus", "launch"}
"""Options of a model that say what is paid for it, by which a pace is chosen."""
FAST = Latency(median=0.004)
ENDED = {ExitCode.REACHED, ExitCode.SPENT}
"""How a run ends that nothing has stopped."""


def small_world() -> World:
    """Three models on eight questions of all difficulties; the first two are told apart after some looks."""
    profile = np.linspace(0.02, 0.98, 8)
    p = binary(np.array([with_mean(profile, mean) for mean in (0.7, 0.5, 0.2)]))
    return World("small", p, latency=FAST, models=MODELS, questions=tuple(f"q{i}" for i in range(8)))


def models_at(url: str, *names: str, **fields: object) -> list[dict[str, Any]]:
    """Models at one server; all of the small world unless some are named."""
    return [{"name": name, "base_url": url, **fields} for name in names or MODELS]


def judge_at(url: str, **options: object) -> dict[str, Any]:
    """A judge at a server."""
    return {"kind": "judge", "server": {"base_url": url, "model": "judge"}, **options}


@dataclass(frozen=True)
class Site:
    """A folder with questions and configurations, and the server that they name."""

    folder: Path
    base_url: str
    processes: "list[WarmProcess | subprocess.Popen[str]]" = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path, base_url: str) -> "Site":
        """A folder with the questions in it."""
        rows = (json.dumps(row) for row in question_rows(small_world()))
        (folder / "questions.jsonl").write_text("\n".join(rows))
        return cls(folder, base_url)

    def at(self, url: str) -> "Site":
        """The same folder, and another server."""
        return replace(self, base_url=url)

    def gated_benchmarks(self) -> Path:
        """A configuration of two benchmarks beside a baseline: `easy` has a gate of its own, `hard` has none."""
        rows = list(question_rows(small_world()))
        for name, part in (("easy", rows[3:]), ("hard", rows[:3])):
            (self.folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, part)))
        config = self.config(
            benchmarks=[
                {"name": "easy", "gate": "10%", "questions": "easy.jsonl"},
                {"name": "hard", "questions": "hard.jsonl"},
            ],
            objective={"kind": "baseline", "baseline": "bob", "gate": True},
            stopping={"delta": "70%"},
            trials={"min": 4, "max": 120},
        )
        del config["questions"]
        path = self.folder / "run.yaml"
        path.write_text(json.dumps(config))
        return path

    def config(self, **changes: object) -> dict[str, object]:
        """A configuration for this server, with some sections replaced; unless a pace is given, or follows from how
        models are paid for, one at which servers are asked for nothing but what rounds want, however fast they are."""
        settings: dict[str, object] = {
            "questions": "questions.jsonl",
            "models": models_at(self.base_url),
            "sampling": {"temperature": 0.6, "max_tokens": 2000},
            "grader": "numeric",
            "trials": {"min": 4, "max": 30},
            "concurrency": 8,
        }
        merged = settings | changes
        models, trials = merged["models"], merged["trials"]
        if not (isinstance(models, list) and isinstance(trials, dict)) or any(model.keys() & PAID for model in models):
            return merged
        return merged | {"trials": {"optimize": "cost", **trials}}

    def write(self, name: str = "run", **changes: object) -> Path:
        """The same as a file."""
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(self.config(**changes)))
        return path

    def start(self, config: Path, *options: str, script: Path | None = None) -> WarmProcess:
        """`adaptive-eval run` in a process of its own, called by the script if there is one."""
        process = WarmProcess(["run", str(config), "--display", "plain", *options], self.folder, script)
        self.processes.append(process)
        return process

    def run(self, config: Path, *options: object, code: Codes = None) -> Result:
        """`adaptive-eval run` in this process, to its end, with one of these exit codes if any is given."""
        folder = ["--run-dir", self.directory()] if "--run-dir" not in options else []
        return typed("run", config, "--display", "plain", *folder, *options, code=code)

    def finished(self, name: str = "run", **changes: object) -> "RunOutcome":
        """The outcome of the run of that name with that configuration, which must end by itself."""
        self.run(self.write(name, **changes), "--run-dir", self.directory(name), code=ENDED)
        return RunOutcome.of(self.directory(name))

    def directory(self, name: str = "run") -> Path:
        """Where the run of that name lies."""
        return self.folder / "runs" / name

    def results(self, name: str = "run") -> dict[str, Any]:
        """What its results.json says."""
        document: dict[str, Any] = json.loads((self.directory(name) / "results.json").read_bytes())
        return document

    def report(self, form: str = "md", name: str = "run") -> str:
        """`adaptive-eval report` of it."""
        written = typed("report", self.directory(name), "--format", form, "--output", "-", code=0)
        return written.stdout


@dataclass(frozen=True)
class EndedRuns:
    """Runs that have ended, to be read: each is made once, and whoever asks gets a copy."""

    folder: Path

    def copy(self, site: Site, directory: Path | None = None, **changes: object) -> Path:
        """Where the run of that configuration lies now, in a directory of that name."""
        directory = directory or site.directory()
        config = site.write(directory.name, **changes)
        cached = self.folder / blake2b(config.name.encode() + config.read_bytes(), digest_size=8).hexdigest()
        if not cached.exists():
            cached.mkdir()
            once = Site.make(cached, site.base_url)
            once.run(once.write(directory.name, **changes), "--run-dir", str(cached / directory.name), code=ENDED)
        shutil.copytree(cached / directory.name, directory)
        return directory


def trials_in(directory: Path) -> int:
    """How many trials a run has stored, also while it runs; 0 before it has begun."""
    if not has_database(directory):
        return 0
    try:
        with closing(RunReader.open(directory)) as reader:
            return reader.trial_count()
    except Exception:  # it is being created at this moment
        return 0


def wait_for_trials(
    directory: Path, number: int, process: "WarmProcess | subprocess.Popen[str] | None" = None, seconds: float = HANGS
) -> bool:
    """Whether the run reached so many trials before its process ended; where it has none of its own, it must."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if trials_in(directory) >= number:
            return True
        if process is not None and process.poll() is not None:
            return False
        time.sleep(0.005)
    raise TimeoutError(f"no {number} trials within {seconds} s")


def printed(process: "WarmProcess | subprocess.Popen[str]", word: str) -> str:
    """Read what a process prints until a line has this word."""
    assert process.stdout is not None and process.stderr is not None
    while word not in (line := process.stdout.readline()):
        assert line, process.stderr.read()
    return line


def wait_until(met: Callable[[], object], process: "WarmProcess | subprocess.Popen[str]") -> None:
    """Wait for what a process brings about, which must not end before."""
    deadline = time.monotonic() + HANGS
    while not met():
        assert process.poll() is None, f"it has ended before: {process.communicate()}"
        assert time.monotonic() < deadline, "it never comes"
        time.sleep(0.005)


def kill(process: "WarmProcess | subprocess.Popen[str]") -> None:
    """SIGKILL, and clear up."""
    process.send_signal(signal.SIGKILL)
    process.communicate()


@dataclass(frozen=True)
class RunOutcome:
    """What a run has found and decided: what must not depend on anything that happened on the way."""

    outcomes: dict[tuple[str, str, int], int | None]
    looks: list[dict[str, Any]]

    @classmethod
    def of(cls, directory: Path) -> "RunOutcome":
        with closing(RunReader.open(directory)) as reader:
            outcomes = {(trial.model, trial.question, trial.trial): trial.category for trial in reader.trials()}
            return cls(outcomes, [look.body for look in reader.log.looks()])


def stored(site: Site, name: str = "run") -> list[TrialRecord]:
    """Every trial of a run."""
    with closing(RunReader.open(site.directory(name))) as reader:
        return list(reader.trials())
