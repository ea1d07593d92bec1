"""Messages between a head and a site, on connections of their own."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from patient_time import HANGS

from adaptive_eval.sites.messages import CONNECTION_ERRORS, SiteAddress, SiteConnections, listen


class Site:
    """Replies in capitals; to "later" when it is asked "now"."""

    def __init__(self) -> None:
        self.now = asyncio.Event()

    async def respond(self, message: bytes) -> bytes:
        if message == b"later":
            await self.now.wait()
        if message == b"now":
            self.now.set()
        return message.upper()


async def opened(address: SiteAddress) -> SiteConnections:
    connections = SiteConnections(address)
    await connections.add()
    return connections


@pytest.fixture
async def address() -> AsyncIterator[SiteAddress]:
    server, address = await listen("127.0.0.1", Site().respond)
    async with server:
        yield address


async def test_each_message_gets_its_reply_whatever_their_order(address: SiteAddress) -> None:
    connections = await opened(address)
    long = b"x" * 2**20
    async with asyncio.timeout(HANGS):
        replies = await asyncio.gather(*map(connections.exchange, (b"later", long, b"now")))
    assert replies == [b"LATER", long.upper(), b"NOW"]
    connections.close()


async def test_clients_without_the_secret_get_no_reply(address: SiteAddress) -> None:
    host, port, secret = address
    connections = await opened((host, port, secret[::-1]))
    for _ in range(2):
        with pytest.raises(CONNECTION_ERRORS):
            await asyncio.wait_for(connections.exchange(b"now"), HANGS)


async def test_a_reply_that_nobody_waits_for_any_more_is_not_taken_for_another(address: SiteAddress) -> None:
    connections = await opened(address)
    waiting = asyncio.create_task(connections.exchange(b"later"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(HANGS):
        assert await connections.exchange(b"now") == b"NOW"
    connections.close()
