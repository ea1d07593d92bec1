"""The command `adaptive-eval` in processes of its own, each forked from one that has imported the package already.

Importing takes more of the processor than a small run does, and so does what each process makes once: the schema of a
configuration, parsers of events, and what takes options apart. The forked process calls the entry point of the command,
with arguments, folder and environment of its own. Several commands that only read can share a process.
"""

import gc
import importlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

PLANT = "PLANTED_FAULT"
"""The variable with the name of a fault that a command begins with."""
PATIENCE_SECONDS = 120.0
"""No command of a small run takes as long, unless it hangs."""

SOON = {"tick": 0.02, "backoff": 0.01, "longest_backoff": 0.04, "longest_pause": 0.02, "probe_again": 0.02}
"""Pauses of endpoints, by which no command should take long: how long they are has tests of its own."""


class Done(NamedTuple):
    """A command that has ended."""

    arguments: tuple[str, ...]
    code: int
    """A signal is a negative number."""
    out: str
    err: str
    seconds: float = 0.0
    """Of the processor, with all processes that it has waited for."""

    @property
    def line(self) -> str:
        return " ".join(("adaptive-eval", *self.arguments))


@dataclass
class Command:
    """A command that may still be running."""

    arguments: tuple[str, ...]
    pid: int
    _connection: socket.socket
    _folder: Path

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def interrupt(self) -> None:
        """Like Ctrl-C."""
        os.kill(self.pid, signal.SIGINT)

    def printed(self) -> str:
        """What it has printed so far."""
        return (self._folder / "out").read_text(errors="replace")

    def has_ended(self) -> bool:
        self._connection.setblocking(False)
        try:
            return bool(self._connection.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False
        finally:
            self._connection.setblocking(True)

    def wait(self) -> Done:
        self._connection.settimeout(PATIENCE_SECONDS)
        try:
            code, seconds = self._end()
        except TimeoutError:
            self.kill()
            code, seconds = self._end()
            with (self._folder / "err").open("a") as file:
                file.write(f"\nkilled: it hung for {PATIENCE_SECONDS:.0f} s\n")
        self._connection.close()
        out, err = ((self._folder / name).read_text(errors="replace") for name in ("out", "err"))
        shutil.rmtree(self._folder)
        return Done(self.arguments, code, out, err, seconds)

    def _end(self) -> tuple[int, float]:
        code, seconds = self._connection.makefile().readline().split()
        return int(code), float(seconds)


class Commands:
    """Begins commands in one folder."""

    def __init__(self, address: str, folder: Path, environment: Mapping[str, str]) -> None:
        self._address = address
        self._folder = folder
        self.environment = dict(environment)
        """Variables besides those of this process."""

    def begin(self, *arguments: str) -> Command:
        return self._begin(arguments)

    def _begin(self, arguments: Sequence[str] | Sequence[Sequence[str]]) -> Command:
        folder = Path(tempfile.mkdtemp())
        (folder / "out").touch()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        order = {
            "arguments": arguments,
            "folder": str(self._folder),
            "environment": {**os.environ, **self.environment},
            "streams": [str(folder / "out"), str(folder / "err")],
        }
        connection.sendall(json.dumps(order).encode() + b"\n")
        stream = connection.makefile()
        return Command(tuple(map(str, arguments)), int(stream.readline()), connection, folder)

    def run(self, *arguments: str) -> Done:
        return self.begin(*arguments).wait()

    def run_all(self, commands: Sequence[Sequence[str]]) -> list[Done]:
        """One after another in one process."""
        command = self._begin(commands)
        done_all = command.wait()
        if done_all.code:
            raise RuntimeError(f"{commands}: {done_all}")
        return [
            Done(tuple(arguments), *done) for arguments, done in zip(commands, json.loads(done_all.out), strict=True)
        ]


@contextmanager
def fork_server() -> Iterator[str]:
    """A process that has imported the package; its address."""
    with tempfile.TemporaryDirectory() as folder:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address := f"{folder}/commands")
            listener.listen(64)
            process = subprocess.Popen([sys.executable, __file__], stdin=listener, stdout=subprocess.DEVNULL)
        with process:
            try:
                yield address
            finally:
                process.kill()


def _serve() -> None:
    """Fork for each connection, and once more for whoever waits for the command's end."""
    sys.path.append(str(Path(__file__).parent.parent))
    importlib.import_module("made_once").make_once()
    sys.path.pop()
    settings = importlib.import_module("adaptive_eval.endpoints.settings")
    settings.DEFAULT = replace(settings.DEFAULT, **SOON)
    gc.collect()
    gc.freeze()  # else a collection in a forked process copies all of it
    listener = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection = listener.accept()[0]
        if os.fork():
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        stream = connection.makefile()
        order = json.loads(stream.readline())
        pid = os.fork()
        if pid == 0:
            stream.close()
            connection.close()
            _become(order)
            return
        connection.sendall(f"{pid}\n".encode())
        _, status, used = os.wait4(pid, 0)
        try:
            connection.sendall(f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime}\n".encode())
        finally:
            os._exit(0)


def _become(order: Mapping[str, object]) -> None:
    """In the new process: what `adaptive-eval` has, and then the same."""
    os.setsid()
    for number, path in enumerate(order["streams"], start=1):  # type: ignore[arg-type, var-annotated]
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    os.environ.clear()
    os.environ.update(order["environment"])  # type: ignore[arg-type, call-overload]
    os.chdir(str(order["folder"]))
    tempfile.tempdir = None
    sys.path[:] = [path for path in sys.path if Path(path) != Path(__file__).parent]
    if plant := os.environ.get(PLANT):
        sys.path.append(str(Path(__file__).parent))
        importlib.import_module("planted_faults").plant(plant)
        sys.path.pop()
    arguments: list[str] | list[list[str]] = order["arguments"]  # type: ignore[assignment]
    if isinstance(arguments[0], str):
        _call(arguments)  # type: ignore[arg-type]
    else:
        sys.stdout.write(json.dumps([_called(command) for command in arguments]))  # type: ignore[arg-type]


def _call(arguments: Sequence[str]) -> None:
    from adaptive_eval.__main__ import main

    sys.argv = ["adaptive-eval", *arguments]
    main()


def _called(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Its exit code and what it prints, in a process that goes on."""
    code, out, err = 0, io.BytesIO(), io.BytesIO()
    streams = [io.TextIOWrapper(stream, "utf-8", write_through=True) for stream in (out, err)]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        try:
            _call(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            code = 1
            traceback.print_exc()
    return code, out.getvalue().decode(), err.getvalue().decode()


def wait_until(condition: Callable[[], bool], command: Command) -> bool:
    """Whether the condition was met before the command ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if condition():
            return True
        if command.has_ended():
            return False
        time.sleep(0.003)
    raise TimeoutError(f"neither the condition nor the end of {command.arguments} in {PATIENCE_SECONDS} s")


if __name__ == "__main__":
    _serve()
