"""Where a golden run is played: a folder, servers on loopback, and the command line."""

import json
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import yaml
from contrary_server import Asked, Reply, listening
from gated import GatedServer
from live_runs import kill, wait_for_trials
from typer.testing import CliRunner
from warm_start import WarmProcess

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.endpoints import settings
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import Latency, World, binary, with_mean

MODELS = ("ada", "bob", "cyd")
FAST = Latency(median=0.001)
QUESTIONS = 8
ENDED = (ExitCode.REACHED, ExitCode.SPENT)


def fast(world: World) -> World:
    """The same world, whose answers take no time."""
    return replace(world, latency=FAST)


def small_world(means: tuple[float, ...] = (0.68, 0.5, 0.25), models: tuple[str, ...] = MODELS) -> World:
    """Models with these scores on eight questions of all difficulties."""
    profile = np.linspace(0.02, 0.98, QUESTIONS)
    p = binary(np.array([with_mean(profile, mean) for mean in means]))
    return World("golden", p, latency=FAST, models=models, questions=tuple(f"q{i}" for i in range(QUESTIONS)))


@dataclass
class Stage:
    """A folder with configurations and runs; servers live as long as it does."""

    folder: Path
    exits: ExitStack
    servers: list[SimulatedServer] = field(default_factory=list)
    """All servers of this stage."""

    # -- servers -----------------------------------------------------------------------------------------------------

    def serve(self, world: World | None = None, **habits: Any) -> str:
        """Address of a simulated server; the questions of its world are in `questions.jsonl`."""
        return self._serve(SimulatedServer(world or small_world(), **habits), world)

    def gate(self, answers: int, world: World | None = None, **habits: Any) -> GatedServer:
        """A server that gives a number of answers and verdicts, and then none."""
        server = GatedServer(world or small_world(), answers, **habits)
        self._serve(server, world)
        return server

    def short_pauses(self) -> None:
        """Failed requests are repeated at once: how long the pauses are has tests of its own."""
        short = settings.EndpointSettings(tick=0.02, backoff=0.01, longest_backoff=0.02)
        self.exits.enter_context(patch.object(settings, "DEFAULT", short))

    def short_polls(self) -> None:
        """Batches are polled as soon as they may have ended."""
        from adaptive_eval.supplies.batches.calls import BatchCalls  # an extra, which other runs do without

        for name in ("first_poll", "longest_poll", "retry_pause"):
            self.exits.enter_context(patch.object(BatchCalls, name, 0.02))

    def own_places(self) -> None:
        """Servers wait for no place that another run on this machine holds."""
        self.exits.enter_context(patch.dict(os.environ, TMPDIR=str(self.folder)))
        self.exits.enter_context(patch.object(tempfile, "tempdir", str(self.folder)))

    def script(self, script: Callable[[Asked], Reply | None]) -> str:
        """Address of a server of ada and bob that does what a script says."""
        rows = [{"id": f"q{i}", "prompt": f"Question {i}: how much is it?", "answer": "7"} for i in range(6)]
        self.write_questions(rows)
        return self.exits.enter_context(listening(script)).base_url

    def _serve(self, server: SimulatedServer, world: World | None) -> str:
        self.write_questions(question_rows(world or small_world()))
        self.servers.append(server)
        return self.exits.enter_context(serving(server))

    def write_questions(self, rows: Iterable[Mapping[str, Any]], name: str = "questions.jsonl") -> None:
        (self.folder / name).write_text("\n".join(map(json.dumps, rows)) + "\n")

    @property
    def asked(self) -> dict[str, int]:
        """Requests for answers and verdicts, by what they got."""
        return dict(sum((server.counts for server in self.servers), Counter()))

    # -- configurations and commands ---------------------------------------------------------------------------------

    def config(self, url: str, name: str = "run", models: Sequence[Any] = MODELS, **changes: Any) -> Path:
        """A configuration that sets every value whose default may change; `changes` go into its sections."""
        settings: dict[str, Any] = {
            "name": name,
            "seed": 7,
            "questions": "questions.jsonl",
            "models": [{"name": model, "base_url": url} if isinstance(model, str) else model for model in models],
            "prompt": "{prompt}",
            "sampling": {"temperature": 0.6, "max_tokens": 2000},
            "grader": "numeric",
            "objective": {"kind": "ranking"},
            "stopping": {
                "rule": "optimal",
                "confidence": 0.9,
                "delta": 0.0,
                "familywise": "none",
                "on_alarm": "never",
            },
            "trials": {
                "min": 4,
                "max": 16,
                "optimize": "cost",
                "policy": "weighted",
                "seeds": "hashed",
            },
            "concurrency": 8,
        }
        for key, value in changes.items():
            if key in ("stopping", "trials", "sampling"):
                settings[key] = settings[key] | value
            else:
                settings[key] = value
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path

    def directory(self, name: str = "run") -> Path:
        return self.folder / "runs" / name

    def run(self, config: Path, name: str = "run", codes: tuple[ExitCode, ...] = ENDED) -> None:
        """`adaptive-eval run` to its end."""
        self.command("run", config, "--display", "plain", "--run-dir", self.directory(name), codes=codes)

    def command(self, *words: object, codes: tuple[ExitCode, ...] = (ExitCode.REACHED,)) -> str:
        """Any command, which must end with one of these codes."""
        ended = CliRunner().invoke(app, [*map(str, words)])
        assert ended.exit_code in codes, f"{words}: exit code {ended.exit_code}\n{ended.output}\n{ended.exception!r}"
        return ended.output

    def killed(self, config: Path, trials: int, name: str = "run") -> None:
        """`adaptive-eval run` in a process of its own, killed once that many trials are stored."""
        kill(self._until(config, trials, name))

    def stopped(self, config: Path, trials: int, open_gate: Callable[[], None], name: str = "run") -> None:
        """The same, interrupted as by Ctrl-C; the server answers what is in flight."""
        process = self._until(config, trials, name)
        process.send_signal(signal.SIGINT)
        open_gate()
        process.communicate()

    def _until(self, config: Path, trials: int, name: str) -> WarmProcess:
        words = ["run", str(config), "--display", "plain", "--run-dir", str(self.directory(name))]
        process = WarmProcess(words, self.folder)
        assert wait_for_trials(self.directory(name), trials, process), process.communicate()
        return process
