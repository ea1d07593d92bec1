"""`adaptive-eval` in processes that begin at once: the standard library forks them from one that has loaded it already.

To load it takes a second of the processor, as much as such a run, and most tests of processes are about what happens
later. What such a process does, and how it ends, is as ever; tests of how one begins start Python themselves.
"""

import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.forkserver import ensure_running, set_forkserver_preload
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import warm_inspect

HERE = Path(__file__).parent
LOADED = "warm_loaded"
"""The module of tests that loads it."""


class WarmProcess:
    """The command line with these arguments, in a folder, or a script that changes something first and then calls it;
    to be used like a `subprocess.Popen` with pipes of text."""

    def __init__(self, arguments: Sequence[str], folder: Path, script: Path | None = None) -> None:
        _begin_fork_server()
        context = get_context("forkserver")
        (out, out_end), (err, err_end) = context.Pipe(duplex=False), context.Pipe(duplex=False)
        self._process = context.Process(
            target=_run, args=(arguments, folder, script, dict(os.environ), out_end, err_end)
        )
        self._process.start()
        self.stdout, self.stderr = _as_text(out), _as_text(err)
        out_end.close()
        err_end.close()
        self.pid = int(self._process.pid or 0)

    @property
    def returncode(self) -> int | None:
        """As it was when somebody last asked; a signal is a negative number."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("adaptive-eval", timeout or 0.0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Everything that it has printed, once it has ended."""
        with ThreadPoolExecutor(1) as beside:
            output = self.stdout.read(), beside.submit(self.stderr.read).result()
        self.wait(timeout)
        self.stdout.close()
        self.stderr.close()
        return output

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stdout.close()
        self.stderr.close()
        self.wait()


@cache
def _begin_fork_server() -> None:
    """The server finds what it loads first by its environment alone; its processes have those that they are given."""
    set_forkserver_preload([LOADED])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (HERE, HERE.parent, *filter(None, [before]))))
    try:
        ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _as_text(end: Connection) -> IO[str]:
    """What comes out of a pipe; the end itself is closed."""
    with end:
        return os.fdopen(os.dup(end.fileno()), encoding="utf-8")


def _run(
    arguments: Sequence[str],
    folder: Path,
    script: Path | None,
    environment: dict[str, str],
    out: Connection,
    err: Connection,
) -> None:
    """In the new process: what `python -m adaptive_eval` has, and then the same."""
    assert LOADED in sys.modules, "the server could not load it"
    for end, number in ((out, 1), (err, 2)):
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None  # others may be meant by this environment
    sys.argv, sys.path[:0] = ["adaptive-eval", *arguments], [str(folder)]
    if warm_inspect.VARIABLE in environment:
        from adaptive_eval.inspect import process

        process.BOOTSTRAP = warm_inspect.BOOT
    if script is not None:
        runpy.run_path(str(script), run_name="__main__")
        return
    from adaptive_eval.__main__ import main

    main()
