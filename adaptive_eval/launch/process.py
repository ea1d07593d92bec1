"""A command as a process group, whose keeper ensures that it never outlives the run.

The output of a server goes to a log file, whose last lines are reported when it fails.
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.endpoints.redaction import EMPTY_REDACTOR, Redactor
from adaptive_eval.launch import keeper

MAX_LAST_LINES = 12
LAST_BYTES = 8192
MAX_LINE_CHARS = 240
MAX_SECRET_CHARS = 2048
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class ServerLog:
    """The log file of one server, over all its starts."""

    def __init__(self, path: Path, redactor: Redactor = EMPTY_REDACTOR) -> None:
        self.path = path
        self._redactor = redactor
        self._start = 0

    def begin(self, line: str) -> None:
        """Write a line that marks a start of the server."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(f"--- {line}\n".encode(errors="replace"))
            self._start = file.tell()

    def last_lines(self) -> tuple[str, ...]:
        """Last lines that the server has printed since its start, safe for a terminal and without secrets."""
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                begin = file.seek(max(self._start, end - LAST_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:  # the file could not be created
            return ()
        if begin > self._start:
            text = text[MAX_SECRET_CHARS:]  # a secret that is cut off would not be recognised
        return last_lines(text, self._redactor)


def last_lines(text: str, redactor: Redactor) -> tuple[str, ...]:
    """The last lines of a program's output, safe for a terminal and without secrets."""
    lines = (CONTROL.sub(" ", ESCAPES.sub("", line)).rstrip() for line in re.split(r"\r?\n|\r", text))
    return tuple(redactor.message(line)[:MAX_LINE_CHARS] for line in lines if line.strip())[-MAX_LAST_LINES:]


class KeptProcess:
    """The process group of a started command, whose keeper ends it at the latest when this process ends."""

    def __init__(self, keeper: asyncio.subprocess.Process, pid: int) -> None:
        self.pid = pid
        """Id of the command's process, and of its group."""
        self._keeper = keeper
        self.status = asyncio.create_task(self._wait())
        """Its result is the exit status of the command, negative for a signal; None if it was stopped."""

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        errors: int,
        streams: tuple[int, int] | None = None,
        holds: Sequence[int] = (),
        grace: float,
    ) -> Self:
        """Start a command in `folder`. Raises `LaunchFailed`.

        `streams` are descriptors for its standard input and output; without them it reads nothing, and all its output
        goes to the descriptor `errors`. The keeper holds the descriptors `holds` open until the command has ended,
        however this process ends. `grace`: seconds between asking the group to end and killing it.
        """
        numbers = "-" if streams is None else ",".join(map(str, streams))
        starting = asyncio.create_task(
            asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", keeper.__file__, str(grace), numbers, *command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=environment,
                start_new_session=True,
                pass_fds=(*holds, *(streams or ())),
            )
        )
        try:
            started = await asyncio.shield(starting)
            word, _, detail = (await _read_line(started)).partition(" ")
        except OSError as error:
            raise LaunchFailed(f"cannot be started: {error}") from error
        except asyncio.CancelledError:
            with suppress(OSError):  # asyncio would kill the keeper, and leave what the command has started
                started = await starting
                _close_stdin(started, at_once=True)
                await started.wait()
            raise
        if word != "pid":
            await started.wait()
            raise LaunchFailed(f"cannot be started: {detail or 'the process that watches over it was killed'}")
        return cls(started, int(detail))

    async def stop(self, *, at_once: bool = False) -> None:
        """End the command and all processes that it started, and wait for their end."""
        if at_once:
            self.kill()
        _close_stdin(self._keeper)
        try:
            await self._keeper.wait()
        except asyncio.CancelledError:
            self.kill()
            await self._keeper.wait()
            raise

    def kill(self) -> None:
        """Send SIGKILL to the whole group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        _close_stdin(self._keeper, at_once=True)

    async def _wait(self) -> int | None:
        report = (await _read_line(self._keeper)).split()
        match report:
            case ["exit", code]:
                return int(code)
            case ["signal", number]:
                return -int(number)
            case _:
                if await self._keeper.wait():  # the keeper was killed before it ended the command
                    self.kill()
                return None


def exit_words(status: int | None) -> str:
    """How a process ended, by its exit status, which is negative for a signal; None if it was stopped."""
    if status is None:
        return "was stopped"
    return f"was killed by {_signal_name(-status)}" if status < 0 else f"exited with status {status}"


async def _read_line(process: asyncio.subprocess.Process) -> str:
    """Read the next line of a keeper; empty if it has ended."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode(errors="replace").rstrip("\n")


def _close_stdin(process: asyncio.subprocess.Process, *, at_once: bool = False) -> None:
    """Close the keeper's standard input, which makes it end the server."""
    assert process.stdin is not None
    if at_once and not process.stdin.is_closing():
        process.stdin.write(b"!")
    process.stdin.close()


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
