"""The monitor's site: pages and their parts, views, answers, and messages of live runs.

A page on another site could have its name resolve to this machine and then read what is here as if it were its own;
so only requests are served that were addressed to a number, to `localhost`, or to this machine by name. Runs are found
by their names in the folder alone, and files by theirs in the package: no path comes from a request.
"""

import asyncio
import re
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import quote

from adaptive_eval.errors import ConfigError, StoreError
from adaptive_eval.show.page.documents import MONITOR_POLICY, assets, monitor_page, runs_page
from adaptive_eval.show.serve.channel import Channel
from adaptive_eval.show.serve.folder import RunsFolder
from adaptive_eval.show.serve.http1 import HttpServer, PageRequest, PageResponse, asked_host
from adaptive_eval.show.serve.page_state import to_json

HEADERS = {
    "Content-Security-Policy": MONITOR_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
FRESH = {"Cache-Control": "no-cache"}
"""To be asked for again each time; with an ETag, the answer may be that nothing has changed."""
PRIVATE = {"Cache-Control": "no-store"}
KEPT = 8
"""Runs whose latest view is kept while nobody looks at them."""

HTML, JSON, EVENTS = "text/html; charset=utf-8", "application/json", "text/event-stream"

T = TypeVar("T")


class Site:
    """Answers requests about the runs of a folder; `host` is what it listens on."""

    def __init__(self, path: Path, host: str) -> None:
        self._folder = RunsFolder(path)
        self._names = {"localhost", socket.gethostname().lower(), host.lower()}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="run-reader")
        self._channels: dict[str, Channel] = {}
        self._assets = {name: (kind, text.encode()) for name, (kind, text) in assets().items()}

    def close(self) -> None:
        """Wait for the reading thread."""
        self._thread.shutdown()

    async def warm_up(self) -> None:
        """Read a run before somebody asks for it, since a large one takes half a second."""
        with suppress(StoreError):
            if self._folder.is_run and (channel := await self._channel(self._folder.path.name)) is not None:
                await channel.view()

    async def answer(self, request: PageRequest) -> PageResponse:
        """The response to any request."""
        host = asked_host(request)
        if host not in self._names and not is_number(host):
            return problem(421, "this address is not served here; use the one that the monitor has printed")
        try:
            return await self._route(request)
        except StoreError as error:
            return problem(503, str(error))

    async def _route(self, request: PageRequest) -> PageResponse:
        match request.path:
            case ("",):
                return _page(monitor_page(self._folder.path.name) if self._folder.is_run else runs_page())
            case ("assets", name) if name in self._assets:
                kind, body = self._assets[name]
                return _conditional(request, body, kind, f'"{blake2b(body, digest_size=12).hexdigest()}"')
            case ("api", "runs"):
                return PageResponse(body=to_json(await self._read(self._folder.briefs)), kind=JSON, headers=PRIVATE)
            case ("run", name, *rest) if rest in ([], [""]) and await self._channel(name) is not None:
                moved = PageResponse(308, headers={"Location": f"{quote(name, safe='')}/"})
                return _page(monitor_page(name, "../../")) if rest else moved
            case ("api", "run", name, *what) if (channel := await self._channel(name)) is not None:
                return await _about(channel, what, request)
        return problem(404, "there is nothing here")

    async def _channel(self, name: str) -> Channel | None:
        """The run of this name; None where there is none."""
        path = (await self._read(self._folder.runs)).get(name)
        if path is None:
            self._channels.pop(name, None)
            return None
        if name not in self._channels:
            idle = [known for known, channel in self._channels.items() if channel.idle]
            for known in idle[: len(idle) - KEPT + 1]:
                del self._channels[known]
            self._channels[name] = Channel(path, self._thread)
        return self._channels[name]

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


async def _about(channel: Channel, what: list[str], request: PageRequest) -> PageResponse:
    match what:
        case ["view"]:
            view = await channel.view()
            return _conditional(request, view.body, JSON, view.etag)
        case ["live"]:
            return PageResponse(kind=EVENTS, headers=PRIVATE, events=channel.listen())
        case ["question", index]:
            found = await _found(channel.answers, index, request, "after")
        case ["transcript", index]:
            found = await _found(channel.transcript, index, request, "trial")
        case _:
            found = None
    if found is not None:
        return PageResponse(body=found, kind=JSON, headers=PRIVATE)
    return problem(404, "there is nothing here")


async def _found(
    read: Callable[[int, int, int], Awaitable[bytes | None]], question: str, request: PageRequest, trial: str
) -> bytes | None:
    """What is read of a question, a model and a trial, which all are numbers."""
    texts = (question, request.query.get("model"), request.query.get(trial, "-1"))
    numbers = [_integer(text) for text in texts]
    return None if None in numbers else await read(*cast(list[int], numbers))


def _integer(text: str | None) -> int | None:
    """An integer of a sane length, or None."""
    return int(text) if text is not None and re.fullmatch(r"-1|[0-9]{1,9}", text) else None


def is_number(host: str) -> bool:
    """A host is an address, which no name can be made to resolve to."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _conditional(request: PageRequest, body: bytes, kind: str, etag: str) -> PageResponse:
    """The body, or status 304 if the client has it."""
    headers = {**FRESH, "ETag": etag}
    if request.headers.get("if-none-match") == etag:
        return PageResponse(304, headers=headers)
    return PageResponse(body=body, kind=kind, headers=headers)


def _page(html: str) -> PageResponse:
    return PageResponse(body=html.encode(), kind=HTML, headers=FRESH)


def problem(status: int, what: str) -> PageResponse:
    """A response that says what is wrong."""
    return PageResponse(status, f"{what}\n".encode(), headers=PRIVATE)


LOOPBACK = "127.0.0.1"


async def serve(path: Path, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the run or the folder at `path` until Ctrl-C or SIGTERM; `ready` gets the address.

    Port 0 is any that is free. Raises `ConfigError` where the port cannot be had.
    """
    site = Site(path, host)
    with closing(site):
        async with listening(HttpServer(site.answer, HEADERS), host, port) as bound:
            ready(f"http://{f'[{host}]' if ':' in host else host}:{bound}/")
            await asyncio.gather(site.warm_up(), asked_to_stop())


@asynccontextmanager
async def listening(server: HttpServer, host: str, port: int) -> AsyncIterator[int]:
    """Have a server listen, at the port that is given; raises `ConfigError` where the port cannot be had."""
    try:
        bound = await server.listen(host, port)
    except OSError as error:
        place = f"port {port} on {host}"
        raise ConfigError(f"{place} cannot be used ({error.strerror or error}); give another --port") from error
    try:
        yield bound
    finally:
        await server.close()


async def asked_to_stop() -> None:
    """Wait for Ctrl-C or SIGTERM."""
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    try:
        await asked.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def only_on_this_machine(host: str) -> bool:
    """Whether nobody on another machine can reach this address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
