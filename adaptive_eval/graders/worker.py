"""One worker process, as the event loop holds it: start, send, receive, end."""

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from adaptive_eval.config.secrets import keyless
from adaptive_eval.graders.process import LENGTH, Done, Failed, frame

BOOT = "import sys; sys.path[:] = sys.argv[1:]; from adaptive_eval.graders.process import main; main()"
"""The child imports what this process would, but not its main module, as `multiprocessing` does."""
LATE = 0.2
"""Seconds that an answer may take through the event loop once it lies in the pipe."""
END_LIMIT = 2.0


class Hung(Exception):
    """The worker said nothing for longer than it may."""


class Dead(Exception):
    """The worker ended before it had answered."""


def _import_paths() -> list[str]:
    """Where this process imports from, whatever folder the worker runs in."""
    return [str(Path(entry).absolute()) for entry in sys.path]


class Worker:
    """A process that grades."""

    def __init__(self, process: Process) -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    @classmethod
    async def start(cls, folder: Path, keys: Collection[str] = ()) -> "Worker":
        """Start a process in `folder`, where plug-ins are looked for first, without the variables that hold `keys`."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", BOOT, *_import_paths()),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            cwd=folder,
            env=keyless(os.environ, keys),
            start_new_session=True,  # a signal from the terminal is for this process alone
        )
        return cls(process)

    async def send(self, value: object) -> None:
        """Hand something over; whether it arrived, `receive` says."""
        with suppress(ConnectionError):
            self._stdin.write(frame(value))
            await self._stdin.drain()

    async def receive(self, limit: float) -> Done | Failed:
        """The next reply, for which the worker has `limit` seconds."""
        reading = asyncio.ensure_future(self._read())
        try:
            await asyncio.wait({reading}, timeout=limit)
            if not reading.done():
                # this loop may have been held up itself, and the reply be waiting in the pipe
                await asyncio.wait({reading}, timeout=LATE)
            if not reading.done():
                raise Hung(f"was silent for {limit:g} s and was killed")
            return reading.result()
        except asyncio.IncompleteReadError:
            raise Dead(f"died (exit status {await self._process.wait()})") from None
        finally:
            reading.cancel()

    async def _read(self) -> Done | Failed:
        length = int.from_bytes(await self._stdout.readexactly(LENGTH), "big")
        reply: Done | Failed = pickle.loads(await self._stdout.readexactly(length))
        return reply

    async def end(self) -> None:
        """Close its input, and kill it if that does not end it."""
        self._stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), END_LIMIT)
        except TimeoutError:
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            self._process.kill()
