"""Where servers run: a place of its own for each, or one that several models share, one at a time.

A place, such as a GPU, belongs to one at a time among all runs of a user on this machine. A run takes a place when it
first serves a model there, and keeps it until its last server there has ended: between two of its models nobody else
comes in, for that would cost both runs a swap at every turn. A run that uses several takes them in the order of their
names, and each only when it has those before it; so no two runs wait for each other.

A place is a locked file (`reserving`). The keeper of a server holds the lock as well: where a run is killed, the place
is free when its server has ended.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_eval.errors import EndpointError, LaunchFailed
from adaptive_eval.files import FileLock, holder_of, is_locked
from adaptive_eval.launch.reserving import reservation_file
from adaptive_eval.launch.server import LaunchedServer
from adaptive_eval.store import PlaceAwaited, ServerReleased
from adaptive_eval.supply.hosts import OnEvent, OnLost, ServerHost

POLL_SECONDS = 0.5


class ExclusivePlaces:
    """The places of one run, by the words that name them."""

    def __init__(self, words: Iterable[str], run: str, *, patient: bool = True) -> None:
        self._words = sorted(set(words))
        self._run = run
        self._patient = patient
        """Wait for a place that another run has, instead of failing."""
        self._locks: dict[str, FileLock] = {}
        self._turns = {word: asyncio.Lock() for word in self._words}

    async def take(self, word: str, tell: Callable[[str, str], None]) -> int:
        """Have this place; gives the descriptor that holds it. Raises `LaunchFailed`.

        `tell` hears of a place that has to be waited for, and of who has it, as often as that changes.
        """
        for before in self._words[: self._words.index(word) + 1]:
            async with self._turns[before]:
                if before not in self._locks:
                    self._locks[before] = await self._take_word(before, tell)
        return self._locks[word].descriptor

    def release(self) -> None:
        """Let go of every place."""
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()

    async def _take_word(self, word: str, tell: Callable[[str, str], None]) -> FileLock:
        path, told = reservation_file(word), None
        while True:
            try:
                return FileLock.take(path, run=self._run)
            except BlockingIOError:
                holder = _holder_text(path)
            except OSError as error:
                raise LaunchFailed(
                    f"cannot reserve {word} ({path}: {error.strerror}); set TMPDIR to a folder of yours"
                ) from error
            if not self._patient:
                raise LaunchFailed(f"cannot be started: {holder} has {word}; wait until it has ended")
            if holder != told:
                tell(word, holder)
                told = holder
            await asyncio.sleep(POLL_SECONDS)


def holder_of_place(word: str) -> str | None:
    """The run that has a place now; None where it is free. Raises `LaunchFailed`."""
    path = reservation_file(word)
    return _holder_text(path) if is_locked(path) else None


def _holder_text(path: Path) -> str:
    """Description of the run that holds a place."""
    holder = holder_of(path)
    return (
        f"the run {holder.get('run')} (process {holder['pid']}, since {holder['since']})" if holder else "another run"
    )


WAITED_SECONDS = 0.1
"""A place that is free is had in less."""


class _HeldPlace(NamedTuple):
    """A place that this run has."""

    by: Sequence[int] = ()
    """The descriptor that holds it."""
    waited: float | None = None
    """Seconds until it was had, where another run had it, or one that is taken before it."""


class Host(ServerHost):
    """Serves one of its models at a time, or two while the last answers of one still come; models are named by their
    numbers in the run."""

    has_place = True
    """This machine does not go away."""
    keeps_place = True
    """No other run gets it before this one ends."""

    def __init__(self, place: str | None, servers: Mapping[int, LaunchedServer], places: ExclusivePlaces) -> None:
        self.servers = servers
        self.own = place is None and len(servers) == 1
        self._place = place
        """What the models share, such as gpu0; None for a model with a place of its own."""
        self._places = places
        self._loaded: LaunchedServer | None = None
        self._left: set[asyncio.Task[None]] = set()
        """Servers that are still being stopped, though who has begun that was cancelled."""

    @property
    def models(self) -> Sequence[int]:
        return tuple(self.servers)

    @property
    def up(self) -> bool:
        """Whether a model is served."""
        return self._loaded is not None

    async def acquire(self, model: int, tell: OnEvent, lost: OnLost) -> None:
        """Return at once: the machine is there, and a place is taken when a model is served."""

    async def load(self, model: int, tell: OnEvent) -> None:
        """Serve this model, in place of the one before; raises `LaunchFailed`."""
        server = self.servers[model]
        held = await self._take(tell)
        await asyncio.gather(*self._left)  # they may have the memory that the next one needs
        before, self._loaded = self._loaded, None
        if before is not None:
            await self._vacate(before, tell)
        tell(server.launching(held.waited))
        began = time.monotonic()  # the one before has held the place until now
        try:
            await server.start(tell, held.by)
        except LaunchFailed:
            tell(ServerReleased(server.spec.model, self._place))
            raise
        self._loaded = server
        tell(server.launched(time.monotonic() - began))

    def has_room_for_both(self, model: int, other: int) -> bool:
        return self.servers[model].spec.overlaps and self.servers[other].spec.overlaps

    def retire(self, model: int) -> None:
        if self._loaded is self.servers[model]:
            self._loaded = None
        self.servers[model].served.retired = True

    def idle(self, model: int) -> bool:
        """Whether no answer of its server is awaited here."""
        return not self.servers[model].served.in_flight

    def leave(self, model: int, tell: OnEvent) -> Coroutine[Any, Any, None]:
        """Have the server of a retired model stopped, or asleep; from now on nobody is sent to it any more."""
        self.servers[model].served.give_up("its server was stopped")
        return self._vacate(self.servers[model], tell)

    async def release(self, model: int, tell: OnEvent) -> None:
        """Stop the server of this model, where it is up."""
        if self._loaded is self.servers[model]:
            self._loaded = None
            await self._let_end(self.servers[model].stop())
            tell(ServerReleased(self.servers[model].spec.model, self._place))

    async def rest(self, model: int, tell: OnEvent) -> None:
        if self._loaded is self.servers[model]:
            self._loaded = None
            await self._vacate(self.servers[model], tell)

    def abandon(self, model: int, error: EndpointError) -> None:
        self.servers[model].served.give_up(str(error))

    async def unload(self, *, at_once: bool = False) -> None:
        """Serve nothing, and stop what sleeps."""
        self._loaded = None
        await asyncio.gather(*self._left, *(server.stop(at_once=at_once) for server in self.servers.values()))

    def kill(self) -> None:
        """Make what is being stopped end at once."""
        for server in self.servers.values():
            server.kill()

    async def _vacate(self, server: LaunchedServer, tell: OnEvent) -> None:
        """Have its place for another one, or for nobody."""
        await self._let_end(server.make_room())
        tell(ServerReleased(server.spec.model, self._place))

    async def _let_end(self, stopping: Coroutine[Any, Any, None]) -> None:
        """Wait until a server has ended; who is cancelled meanwhile leaves it the time that servers have for that."""
        ending = asyncio.create_task(stopping)
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            self._left.add(ending)
            ending.add_done_callback(self._left.discard)
            raise

    async def _take(self, tell: OnEvent) -> _HeldPlace:
        """Have the place."""
        if self._place is None:
            return _HeldPlace()
        began = time.monotonic()
        descriptor = await self._places.take(self._place, lambda place, holder: tell(PlaceAwaited(place, holder)))
        waited = time.monotonic() - began
        return _HeldPlace((descriptor,), waited if waited >= WAITED_SECONDS else None)
