"""What is known of the servers of one model, and what should be said of them."""

import asyncio
from collections.abc import Awaitable, Callable

from adaptive_eval.endpoints.failures import Failure
from adaptive_eval.endpoints.servers import Server, alike
from adaptive_eval.endpoints.types import Notice


class Acquaintance:
    """Meets each server before it is asked for the first time, and again after it was gone."""

    def __init__(self, model: str, meet: Callable[[str], Awaitable[Server]]) -> None:
        self._model = model
        self._meet = meet
        self._servers: dict[str, Server] = {}
        self._meetings: dict[str, asyncio.Task[Server]] = {}
        self._names = {model}
        """What the model is called by those that serve it."""
        self._named: set[str] = set()
        self._notices: dict[Notice, None] = {}

    def known(self, url: str) -> Server | None:
        """The server, if it has been met."""
        return self._servers.get(url)

    async def of(self, url: str) -> Server:
        """The server; everyone who asks while it is being met waits for the same answer, and a refusal is final."""
        meeting = self._meetings.get(url)
        if meeting is None:
            meeting = self._meetings[url] = asyncio.create_task(self._met(url))
        return await asyncio.shield(meeting)

    def forget(self, url: str) -> None:
        """It is gone: who comes back may be another."""
        if self._servers.pop(url, None) is not None:
            del self._meetings[url]

    def answered_as(self, named: str | None) -> None:
        """A server has named an answer after a model."""
        if named in self._names:
            named = self._model
        if named is None or named in self._named:
            return
        if self._named:
            others = ", ".join(map(repr, sorted(self._named)))
            self.note(Notice("renamed", f"some of its answers are named {named!r}, others {others}: was it exchanged?"))
        elif not alike(named, self._model):
            self.note(Notice("named", f"its answers are named {named!r}, and it was asked for {self._model!r}"))
        self._named.add(named)

    def note(self, notice: Notice) -> None:
        """Say this of the model, once."""
        self._notices.setdefault(notice)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Everything to be said so far."""
        return tuple(self._notices)

    def fewer(self, together: int) -> int:
        """How many answers to ask for at a time where so many were refused: as many as there are slots, or one."""
        slots = [server.slots for server in self._servers.values() if server.slots]
        return min(slots) if slots and min(slots) < together else 1

    async def close(self) -> None:
        """Stop meeting anyone."""
        meetings = list(self._meetings.values())
        for meeting in meetings:
            meeting.cancel()
        await asyncio.gather(*meetings, return_exceptions=True)

    async def _met(self, url: str) -> Server:
        try:
            server = self._servers[url] = await self._meet(url)
        except Failure:
            del self._meetings[url]
            raise
        self._names |= server.names
        for notice in server.notices:
            self.note(notice)
        return server
