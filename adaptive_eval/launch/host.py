"""Places where servers run: one model with its own place, or several models that share a place, one at a time.

A place, such as a GPU, belongs to one of a user's runs on this machine at a time. A run takes a place when it first
serves a model there, and keeps it until its last server there has ended: if runs alternated, both would pay for a swap
at every turn. A run that uses several places takes them in the order of their names, so that runs cannot deadlock.

A place is a locked file, in a folder that only its user can write. The keeper of a server holds the lock as well: if a
run is killed, the place becomes free when its server has ended.
"""

import asyncio
import os
import socket
import stat
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from adaptive_eval.base.errors import EndpointError, LaunchFailed
from adaptive_eval.base.files import FileLock, is_locked, read_holder
from adaptive_eval.launch.hosts import OnEvent, OnLost, ServerHost
from adaptive_eval.launch.server import LaunchedServer
from adaptive_eval.notes import PlaceAwaited, ServerReleased

POLL_SECONDS = 0.5


class ExclusivePlaces:
    """The places of one run, by name."""

    def __init__(self, names: Iterable[str], run: str, *, patient: bool = True) -> None:
        self._names = sorted(set(names))
        self._run = run
        self._patient = patient
        """Whether to wait for a place that another run holds, instead of failing."""
        self._locks: dict[str, FileLock] = {}
        self._turns = {word: asyncio.Lock() for word in self._names}

    async def take(self, place: str, report_holder: Callable[[str, str], None]) -> int:
        """Take this place, and return the descriptor of its lock. Raises `LaunchFailed`.

        `report_holder` is called with the awaited place and its holder, whenever the holder changes.
        """
        for name in self._names[: self._names.index(place) + 1]:
            async with self._turns[name]:
                if name not in self._locks:
                    self._locks[name] = await self._reserve_place(name, report_holder)
        return self._locks[place].descriptor

    def release(self) -> None:
        """Release all places."""
        for lock in self._locks.values():
            lock.close()
        self._locks.clear()

    async def _reserve_place(self, place: str, report_holder: Callable[[str, str], None]) -> FileLock:
        path, reported_holder = reservation_file(place), None
        while True:
            try:
                return FileLock.take(path, run=self._run)
            except BlockingIOError:
                holder = _describe_holder(path)
            except OSError as error:
                raise LaunchFailed(
                    f"cannot reserve {place} ({path}: {error.strerror}); set TMPDIR to a folder of yours"
                ) from error
            if not self._patient:
                raise LaunchFailed(f"cannot be started: {holder} has {place}; wait until it has ended")
            if holder != reported_holder:
                report_holder(place, holder)
                reported_holder = holder
            await asyncio.sleep(POLL_SECONDS)


def find_holder(word: str) -> str | None:
    """Describe the run that has a place now; None if it is free. Raises `LaunchFailed`."""
    path = reservation_file(word)
    return _describe_holder(path) if is_locked(path) else None


def _describe_holder(path: Path) -> str:
    """Describe the run that holds a place."""
    holder = read_holder(path)
    return (
        f"the run {holder.get('run')} (process {holder['pid']}, since {holder['since']})" if holder else "another run"
    )


def reservation_file(word: str) -> Path:
    """Path of a place's file; machines that share the folder have different files."""
    digest = blake2b(f"{socket.gethostname()}\0{word}".encode(), digest_size=16).hexdigest()
    return _private_folder() / f"{digest}.lock"


def _private_folder() -> Path:
    """A folder where only this user can reserve places; raises `LaunchFailed` if there is none."""
    folder = Path(tempfile.gettempdir()) / f"adaptive-eval-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise LaunchFailed(
            f"cannot reserve a place in {folder}: {error.strerror}; set TMPDIR to a folder of yours"
        ) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        hint = "remove it, or set TMPDIR to a folder of yours"
        raise LaunchFailed(f"cannot reserve a place: {folder} is not a folder that only you can write; {hint}")
    return folder


MIN_REPORTED_WAIT = 0.1
"""Shortest wait that is reported; a free place takes less."""


class Host(ServerHost):
    """Serves one of its models (by index) at a time."""

    has_place = True
    """Always true: this machine cannot be lost."""

    def __init__(self, place: str | None, servers: Mapping[int, LaunchedServer], places: ExclusivePlaces) -> None:
        self.servers = servers
        self.own = place is None and len(servers) == 1
        self._place = place
        """Name of the place that the models share, such as gpu0; None for a model with its own place."""
        self._places = places
        self._loaded: LaunchedServer | None = None
        self._stopping: set[asyncio.Future[Any]] = set()
        """Servers that are still stopping after the task that stops them was cancelled."""

    @property
    def models(self) -> Sequence[int]:
        return tuple(self.servers)

    @property
    def up(self) -> bool:
        """Whether a model is served."""
        return self._loaded is not None

    async def acquire(self, model: int, on_event: OnEvent, on_lost: OnLost) -> None:
        """Return at once: this machine is always available, and `load` takes the place."""

    async def load(self, model: int, on_event: OnEvent) -> None:
        """Serve a model instead of the previous one; raises `LaunchFailed`."""
        server = self.servers[model]
        locks, waited = await self._take_place(on_event)
        await asyncio.gather(*self._stopping)  # the next one may need their memory
        previous, self._loaded = self._loaded, None
        if previous is not None:
            await self._vacate(previous, on_event)
        on_event(server.launching(waited))
        started = time.monotonic()  # until now the previous model held the place
        try:
            await self._start(server, on_event, locks)
        except LaunchFailed:
            on_event(ServerReleased(server.spec.model, self._place))
            raise
        self._loaded = server
        on_event(server.launched(time.monotonic() - started))

    async def _start(self, server: LaunchedServer, on_event: OnEvent, locks: Sequence[int]) -> None:
        """Start a server; raises `LaunchFailed`.

        Sleeping servers keep some memory of the place. If the start fails, they are stopped, and it is tried again.
        """
        sleeping = [other for other in self.servers.values() if other.asleep and other is not server]
        try:
            await server.start(on_event, locks, restarts=not sleeping)
        except LaunchFailed:
            if not sleeping:
                raise
            await self._finish(asyncio.gather(*(other.stop() for other in sleeping)))
            await server.start(on_event, locks)

    async def release(self, model: int, on_event: OnEvent) -> None:
        if self._loaded is self.servers[model]:
            self._loaded = None
            await self._finish(self.servers[model].stop())
            on_event(ServerReleased(self.servers[model].spec.model, self._place))

    async def suspend(self, model: int, on_event: OnEvent) -> None:
        if self._loaded is self.servers[model]:
            self._loaded = None
            await self._vacate(self.servers[model], on_event)

    def abandon(self, model: int, error: EndpointError) -> None:
        self.servers[model].served.give_up(str(error))

    async def unload(self, *, at_once: bool = False) -> None:
        self._loaded = None
        await asyncio.gather(*self._stopping, *(server.stop(at_once=at_once) for server in self.servers.values()))

    def kill(self) -> None:
        for server in self.servers.values():
            server.kill()

    async def _vacate(self, server: LaunchedServer, on_event: OnEvent) -> None:
        """Free the place of a server."""
        await self._finish(server.make_room())
        on_event(ServerReleased(server.spec.model, self._place))

    async def _finish(self, stopping: Awaitable[Any]) -> None:
        """Wait until servers have ended; if this task is cancelled, they still get their grace period."""
        ending = asyncio.ensure_future(stopping)
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            self._stopping.add(ending)
            ending.add_done_callback(self._stopping.discard)
            raise

    async def _take_place(self, on_event: OnEvent) -> tuple[Sequence[int], float | None]:
        """Take the shared place, if there is one: descriptors of its lock, and seconds waited if it was not free."""
        if self._place is None:
            return (), None
        started = time.monotonic()
        descriptor = await self._places.take(self._place, lambda place, holder: on_event(PlaceAwaited(place, holder)))
        waited = time.monotonic() - started
        return (descriptor,), waited if waited >= MIN_REPORTED_WAIT else None
