"""One run and everyone who watches it: read once for all of them, and only while somebody watches.

One thread does all the reading for all runs, which keeps the loop free and bounds the load of a monitor. Reading takes
at most `SHARE_OF_TIME`: on a machine that is busy with the run itself it takes longer, and is done less often.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from adaptive_eval.errors import StoreError
from adaptive_eval.record.transcripts import transcript_ends
from adaptive_eval.show.serve.page_state import PageState, PublishedView, to_json

PULSE_SECONDS = 1.0
SHARE_OF_TIME = 0.03
HEARTBEAT_SECONDS = 15.0
"""Silence after which an empty line is sent, so that a client that is gone is noticed."""
MAX_QUEUED = 16
"""A listener with so many unread messages is dropped; it reconnects by itself, and gets the current state."""
RETRY = b"retry: 2000\n\n"
HEARTBEAT = b": nothing new\n\n"

T = TypeVar("T")


class Channel:
    """Sends the messages of one run to everyone who watches it."""

    def __init__(self, directory: Path, thread: Executor) -> None:
        self.directory = directory
        self._state = PageState(directory)
        self._thread = thread
        self._one_log = asyncio.Lock()
        self._listeners: set[asyncio.Queue[bytes | None]] = set()
        self._following: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether nobody listens."""
        return not self._listeners

    async def view(self) -> PublishedView:
        """The current view."""
        return await self._read(self._state.view)

    async def answers(self, question: int, model: int, after: int) -> bytes | None:
        """A page of answers as JSON; None if there is no such question or model."""
        return await self._read(lambda: self._state.answers(question, model, after))

    async def transcript(self, question: int, model: int, trial: int) -> bytes | None:
        """The last message of a trial that Inspect ran, as JSON; None if there is no such trial. One log at a time."""
        record = await self._read(lambda: self._state.record(question, model, trial))
        if record is None:
            return None
        async with self._one_log:
            (end,) = await asyncio.to_thread(transcript_ends, self.directory, [record])
        return to_json(end)

    async def listen(self) -> AsyncGenerator[bytes, None]:
        """Server-sent events, until the listener is gone or too slow."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_QUEUED)
        yield RETRY
        greeting = await self._read(lambda: self._state.greeting(alone=self.idle))
        # in the same step of the loop, so that no message precedes the greeting or is missed after it
        self._listeners.add(queue)
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow())
        try:
            for told in greeting:
                yield told
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        message = await queue.get()
                except TimeoutError:
                    message = HEARTBEAT
                if message is None:
                    return
                yield message
        finally:
            self._listeners.discard(queue)

    async def _follow(self) -> None:
        try:
            with suppress(StoreError):  # its directory was moved or deleted
                await self._send_changes()
        finally:
            self._drop(*self._listeners)

    async def _send_changes(self) -> None:
        loop = asyncio.get_running_loop()
        while self._listeners:
            began = loop.time()
            if message := await self._read(self._state.changes):
                self._broadcast(b"".join(message))
            await asyncio.sleep(max(PULSE_SECONDS, (loop.time() - began) / SHARE_OF_TIME))

    def _broadcast(self, message: bytes) -> None:
        for queue in list(self._listeners):
            try:
                queue.put_nowait(message)
            except asyncio.QueueFull:
                self._drop(queue)

    def _drop(self, *queues: asyncio.Queue[bytes | None]) -> None:
        for queue in queues:
            self._listeners.discard(queue)
            while not queue.empty():
                queue.get_nowait()
            queue.put_nowait(None)

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
