"""One process of a command, from its question to its end; its output is bounded, and its whole group ends with it."""

import asyncio
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from adaptive_eval.graders.reported import MAX_LINE_CHARS
from adaptive_eval.launch.process import KeptProcess, exit_words

GRACE_SECONDS = 5.0
"""Time between asking a command to end and killing it."""
DRAIN_SECONDS = 5.0
"""Time to read what is left of the output of a command that has ended."""
CHUNK_BYTES = 2**16
HEAD_BYTES, TAIL_BYTES = 2**20, 2**20 + MAX_LINE_CHARS
"""Bytes that are kept of the beginning and of the end of what a command prints."""
MAX_PRINTED_BYTES = 2**30
"""A command that prints more is ended."""
ERROR_TAIL_BYTES = 8192
"""Bytes that are kept of the end of what it prints to standard error."""


class BoundedOutput:
    """The beginning and the end of a stream, which may be endless."""

    def __init__(self, head: int, tail: int) -> None:
        self._max_head, self._max_tail = head, tail
        self._head, self._tail = bytearray(), bytearray()
        self.size = 0
        """Bytes of the whole stream."""

    def add(self, chunk: bytes) -> None:
        """Take in the next bytes."""
        self.size += len(chunk)
        room = self._max_head - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._max_tail:
            del self._tail[: -self._max_tail]

    @property
    def text(self) -> str:
        """The output that is kept, with a line about what is left out."""
        tail = self._tail[-self._max_tail :]
        left_out = self.size - len(self._head) - len(tail)
        gap = f"\n[{left_out:,} bytes are left out]\n".encode() if left_out else b""
        return bytes(self._head + gap + tail).decode(errors="replace")


class EndedCommand(NamedTuple):
    """A command that has ended."""

    output: str
    errors: str
    """The end of what it has printed to standard error."""
    seconds: float
    problem: str | None
    """How it has failed, after "it"; None if it exited with status 0."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """How a command is started."""

    words: Sequence[str]
    environment: Mapping[str, str]
    timeout: float

    async def run(self, asked: bytes, folder: Path, holds: Sequence[int]) -> EndedCommand:
        """Run it in a folder, with this on its standard input; raises `LaunchFailed`.

        The descriptors `holds` are open until the last of its processes has ended.
        """
        started = time.monotonic()
        with _Stream(HEAD_BYTES, TAIL_BYTES) as output, _Stream(0, ERROR_TAIL_BYTES) as errors:
            process = await self._start(asked, folder, holds, output.writing_end, errors.writing_end)
            is_cut_off = True
            try:
                ends: set[asyncio.Future[Any]] = {process.status, output.flood, errors.flood}
                done, _ = await asyncio.wait(ends, timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
                seconds, is_cut_off = time.monotonic() - started, False
            finally:
                await process.stop(at_once=is_cut_off)
                await asyncio.wait([output.ended, errors.ended], timeout=DRAIN_SECONDS)
        problem: str | None = None
        if not done:
            problem = f"did not end within {self.timeout:g} s"
        elif process.status not in done:
            problem = f"printed more than {MAX_PRINTED_BYTES / 2**30:g} GiB"
        elif (status := process.status.result()) != 0:
            problem = exit_words(status)
        return EndedCommand(output.kept.text, errors.kept.text, seconds, problem)

    async def _start(self, asked: bytes, folder: Path, holds: Sequence[int], output: int, errors: int) -> KeptProcess:
        """Start it, and close the writing ends of its streams here."""
        try:
            with tempfile.TemporaryFile() as question:
                question.write(asked)
                question.seek(0)
                return await KeptProcess.start(
                    self.words,
                    environment=self.environment,
                    folder=folder,
                    errors=errors,
                    streams=(question.fileno(), output),
                    holds=holds,
                    grace=GRACE_SECONDS,
                )
        finally:
            os.close(output)
            os.close(errors)


class _Stream:
    """A stream that a command writes to, and what is kept of it; a context in which it is read.

    Its descriptor has one owner. A transport of uvloop would close it once more when another file may have its number.
    """

    def __init__(self, head: int, tail: int) -> None:
        self.kept = BoundedOutput(head, tail)
        self._loop = asyncio.get_running_loop()
        self._reading_end, self.writing_end = os.pipe()
        os.set_blocking(self._reading_end, False)
        self.flood, self.ended = self._loop.create_future(), self._loop.create_future()
        """Done if there is too much of it, and at its end."""

    def _read(self) -> None:
        """Take what can be read now."""
        try:
            chunk = os.read(self._reading_end, CHUNK_BYTES)
        except BlockingIOError:
            return
        self.kept.add(chunk)
        if self.kept.size > MAX_PRINTED_BYTES and not self.flood.done():
            self.flood.set_result(None)
        if not chunk:
            self._loop.remove_reader(self._reading_end)
            self.ended.set_result(None)

    def __enter__(self) -> Self:
        self._loop.add_reader(self._reading_end, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._reading_end)
        os.close(self._reading_end)
