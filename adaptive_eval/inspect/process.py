"""Start the process of Inspect: once to list a task's samples, and once per start of a run, to run them.

Code that a configuration names runs only in that process, in the folder and environment of the configuration.
"""

import asyncio
import json
import re
import subprocess
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from warnings import warn

from adaptive_eval.base.errors import ConfigError, Unavailable
from adaptive_eval.base.imports import python_command
from adaptive_eval.base.json_objects import as_object
from adaptive_eval.base.temporary_folders import VARIABLE, TemporaryFolder, clear_leftovers
from adaptive_eval.endpoints.redaction import Redactor, cannot_be_word, environment_secrets
from adaptive_eval.inspect.types import InspectModel, Place, SampleRequest, Setup
from adaptive_eval.questions.benchmark import BenchmarkConfig
from adaptive_eval.questions.readers import NO_HUB, hub_answers

BOOTSTRAP = "import sys; sys.path[:] = sys.argv[1:]; from adaptive_eval.inspect.worker import main; main()"
"""Program of the child: it uses the import path of this process, but does not import its main module."""
PACKAGE, MIN_VERSION = "inspect_ai", (0, 3, 285)
EVALS_PACKAGE = "inspect_evals"
TEMPORARY = "adaptive-eval-inspect-"
"""Prefix of temporary folders."""
MAX_LINE_BYTES = 64 * 2**20
LIST_TIMEOUT_SECONDS = 1800.0
"""Time for a task to load its samples, perhaps after a download."""
SHUTDOWN_TIMEOUT_SECONDS = 120.0
"""Time for Inspect to close its logs and sandboxes."""
MAX_TAIL = 600
PROBLEM_KEYS = frozenset({"error", "ended", "repeats"})
"""Keys of messages about problems."""


def require_inspect(task: str) -> None:
    """Raise `ConfigError` with the name of the package if one is missing."""
    try:
        installed = tuple(int(part) for part in version("inspect-ai").split(".")[:3] if part.isdecimal())
    except PackageNotFoundError:
        installed = ()
    if find_spec(PACKAGE) is None or installed < MIN_VERSION:
        needs = f"tasks of Inspect need inspect-ai {'.'.join(map(str, MIN_VERSION))} or newer"
        raise ConfigError(f"benchmark.inspect: {needs}; pip install 'adaptive-eval[inspect]'")
    if task.startswith(f"{EVALS_PACKAGE}/") and find_spec(EVALS_PACKAGE) is None:
        raise ConfigError(f"benchmark.inspect: {task} needs another package; pip install inspect_evals")


def list_task(
    name: str, benchmark: BenchmarkConfig, folder: Path, environment: Mapping[str, str]
) -> Sequence[Mapping[str, Any]]:
    """List a question for each sample of a benchmark's task; raises `ConfigError` if it cannot be loaded."""
    redactor = Redactor(environment_secrets(environment))
    section = f"benchmarks.{name}" if name else "benchmark"
    require_inspect(benchmark.inspect)
    setup = Setup(
        tasks={"": benchmark.model_dump(mode="json")},
        models=[],
        log_dir="",
        secrets=sorted(redactor.secrets),
        max_retries=None,
    )
    try:
        done = subprocess.run(
            python_command(BOOTSTRAP),
            input=_encode_line(setup),
            capture_output=True,
            cwd=folder,
            env=_environment(environment),
            timeout=LIST_TIMEOUT_SECONDS,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        late = f"{benchmark.inspect} did not load within {LIST_TIMEOUT_SECONDS:.0f} s"
        raise ConfigError(f"{section}.inspect: {late}") from error
    reply = _parse_line(redactor.data(done.stdout.decode(errors="replace")))
    if "" not in reply:
        why = reply.get("problem") or _tail(done.stderr) or f"its process ended with {done.returncode}"
        why = redactor.message(why)
        hub = f"; {NO_HUB}" if _is_hub_unreachable() else ""
        raise ConfigError(f"{section}.inspect: {benchmark.inspect} cannot be loaded: {why}{_task_hint(why)}{hub}")
    _require_scorer(section, benchmark, reply[""]["scorers"])
    if note := _epochs_note(reply[""]["epochs"], reply[""]["reducers"]):
        warn(f"{section}.inspect: {note}", stacklevel=2)
    rows: Sequence[Mapping[str, Any]] = reply[""]["rows"]
    return rows


def _epochs_note(epochs: int, reducers: Sequence[str]) -> str:
    """Note that the task's own repetitions are ignored; empty if it has none."""
    others = [name for name in reducers if name != "mean"]
    if others:
        return (
            f"the task scores a sample by {' and '.join(others)} over {epochs} epochs, which is ignored: scores are "
            "means over single trials, and differ from those of `inspect eval`"
        )
    return f"the task's {epochs} epochs are ignored: the run decides how often a sample is asked" * (epochs > 1)


def _task_hint(why: str) -> str:
    """A hint on how to find a task that is not there, or how to give missing arguments of one."""
    if "there is no task" in why or why.startswith("PrerequisiteError: Task named"):
        return "; `inspect list tasks FOLDER` lists the tasks of a folder"
    called = re.match(r"TypeError: \w+\(\) missing \d+ required .*?arguments?: ([^;\n]*)", why)
    names = re.findall(r"'(\w+)'", called[1]) if called else []
    options = " ".join(f"--task-arg {name}=VALUE" for name in names)
    keys = ", ".join(f"{name}: VALUE" for name in names)
    return f"; give `{options}`, or in a configuration `args: {{{keys}}}`" if names else ""


def _tail(output: bytes) -> str:
    return output.decode(errors="replace").strip()[-MAX_TAIL:]


def _require_scorer(section: str, benchmark: BenchmarkConfig, scorers: Sequence[str]) -> None:
    """Raise `ConfigError` unless the configuration determines one score."""
    named = None if benchmark.scorer is None else benchmark.scorer.partition(".")[0]
    listed = ", ".join(scorers)
    if not scorers:
        raise ConfigError(f"{section}.inspect: {benchmark.inspect} has no scorer, so its answers cannot be graded")
    if named is None and (len(scorers) > 1 or "." in listed):
        raise ConfigError(f"{section}.scorer must name one of the task's scorers: {listed}")
    if named is not None and named not in scorers and benchmark.scorer not in scorers:
        raise ConfigError(f"{section}.scorer: {named} is not a scorer of the task; it has {listed}")


class InspectProcess:
    """The process that runs the samples of all models in one start of a run; started by the first request."""

    def __init__(
        self,
        tasks: Mapping[str, BenchmarkConfig | None],
        models: Sequence[InspectModel],
        folder: Path,
        environment: Mapping[str, str],
        log_dir: Path,
        errors: Path,
        max_retries: int | None,
        redactor: Redactor,
    ) -> None:
        """`tasks`: those of all benchmarks, by name. `errors`: the file for their output."""
        self._redactor = redactor
        tasks_by_name = {name: None if task is None else task.model_dump(mode="json") for name, task in tasks.items()}
        self._names = [task.inspect for task in tasks.values() if task is not None]
        logs = str(log_dir.absolute())
        secrets = sorted(redactor.secrets)
        self._setup = Setup(
            tasks=tasks_by_name, models=list(models), log_dir=logs, secrets=secrets, max_retries=max_retries
        )
        self._folder, self._environment, self._errors = folder, environment, errors.absolute()
        self._process: Process | None = None
        self._temporary: TemporaryFolder | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._pending: dict[tuple[Place, str], asyncio.Future[Mapping[str, Any]]] = {}
        self._ended: dict[Place, str] = {}
        """Reasons of tasks that have ended."""
        self.on_repeat: dict[int, Callable[[str], None]] = {}
        """Callbacks by model, called with the reason when Inspect retries a request."""

    async def run(self, request: SampleRequest) -> Mapping[str, Any]:
        """Run a sample, and return its result; raises `Unavailable` if its task has ended."""
        async with self._starting:
            if self._process is None:
                await self._start()
        place = (request["benchmark"], request["model"])
        if place in self._ended:
            raise Unavailable(self._ended[place])
        result: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending[place, request["id"]] = result
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(_encode_line(request))
        try:
            return await result
        finally:
            self._pending.pop((place, request["id"]), None)

    async def close(self) -> None:
        """End the evaluation: Inspect closes its logs and sandboxes."""
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        try:
            async with asyncio.timeout(SHUTDOWN_TIMEOUT_SECONDS):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading
        if self._temporary is not None:
            await asyncio.to_thread(self._temporary.remove)

    async def _start(self) -> None:
        for name in self._names:
            require_inspect(name)
        self._errors.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(clear_leftovers, TEMPORARY)
        self._temporary = TemporaryFolder(TEMPORARY)
        environment = _environment(self._environment)
        with self._errors.open("ab") as errors:
            process = self._process = await asyncio.create_subprocess_exec(
                *python_command(BOOTSTRAP),
                stdin=PIPE,
                stdout=PIPE,
                stderr=errors,
                cwd=self._folder,
                env={**environment, VARIABLE: str(self._temporary.path)},
                pass_fds=(self._temporary.lock,),
                limit=MAX_LINE_BYTES,
                start_new_session=True,  # a signal from the terminal is for this process alone
            )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(_encode_line(self._setup))
        reply = _parse_line(await process.stdout.readline())
        if "ready" not in reply:
            await process.wait()
            why = self._redactor.message(reply.get("problem") or self._exit_text(process))
            raise ConfigError(f"benchmark.inspect: the task cannot be run: {why}")
        keys = (environment[name].strip() for name in reply["keys"] if name in environment)
        self._redactor.add(filter(cannot_be_word, keys))
        self._reading = asyncio.create_task(self._read(process))

    async def _read(self, process: Process) -> None:
        """Deliver results until the process ends, and then fail all pending samples."""
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                self._handle_message(_parse_line(line))
        except ValueError:  # a line that is too long
            with suppress(ProcessLookupError):
                process.terminate()
        await process.wait()
        why = self._redactor.message(self._exit_text(process))
        for number in range(len(self._setup["models"])):
            for name in self._setup["tasks"]:
                self._fail_all((name, number), why)

    def _exit_text(self, process: Process) -> str:
        """The exit code and last line of the process, since a dry run does not keep the file."""
        with self._errors.open("rb") as errors:
            errors.seek(max(0, self._errors.stat().st_size - MAX_TAIL))
            lines = _tail(errors.read()).splitlines()
        last = next((line for line in reversed(lines) if any(map(str.isalnum, line))), "nothing")
        return f"the process of Inspect ended with {process.returncode}; its last line: {last} ({self._errors.name})"

    def _handle_message(self, message: Mapping[str, Any]) -> None:
        """Deliver a message: a result, or a problem, from whose text secrets are removed."""
        message = {
            name: self._redactor.message(value) if name in PROBLEM_KEYS else value for name, value in message.items()
        }
        place = (str(message.get("benchmark")), int(message.get("model", -1)))
        if "ended" in message:
            self._fail_all(
                place, f"{f'benchmark {place[0]}: ' * bool(place[0])}{message['ended']}; Inspect's log has more"
            )
        if "repeats" in message:
            self.on_repeat[place[1]](message["repeats"])
        result = self._pending.get((place, str(message.get("id"))))
        if result is not None and not result.done():
            result.set_result(message)

    def _fail_all(self, place: Place, why: str) -> None:
        self._ended.setdefault(place, why)
        for (pending_place, _), result in list(self._pending.items()):
            if pending_place == place and not result.done():
                result.set_exception(Unavailable(why))


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment of Inspect; it uses only its cache if the hub with the data is unreachable."""
    offline = {"HF_HUB_OFFLINE": "1"} if _is_hub_unreachable() else {}
    return {**environment, "INSPECT_DISPLAY": "none", **offline}


@cache
def _is_hub_unreachable() -> bool:
    return find_spec("huggingface_hub") is not None and not hub_answers()


def _encode_line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _parse_line(line: bytes | str) -> dict[str, Any]:
    """Parse a line of the process; empty if it is not a JSON object."""
    try:
        return as_object(json.loads(line))
    except ValueError:
        return {}
