"""The monitor's site: pages with their assets, views, answers, and messages of live runs.

A page on another site could let its name resolve to this machine, and then read data here as its own. So only requests
to an IP address, to `localhost`, or to this machine's name are served. Runs are found only by name in the folder, and
files only by name in the package: no path comes from a request.
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
from adaptive_eval.show.serve.http1 import HttpServer, PageRequest, PageResponse, requested_host
from adaptive_eval.show.serve.page_state import to_json

HEADERS = {
    "Content-Security-Policy": MONITOR_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
REVALIDATE = {"Cache-Control": "no-cache"}
"""The browser asks again each time; with an ETag the response may be that nothing has changed."""
PRIVATE = {"Cache-Control": "no-store"}
MAX_IDLE_CHANNELS = 8
"""Runs whose latest view is kept while nobody watches them."""

HTML, JSON, EVENTS = "text/html; charset=utf-8", "application/json", "text/event-stream"

T = TypeVar("T")


class Site:
    """Answers requests about the runs of a folder; `host` is the address that it listens on."""

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
        """Read a run before the first request, since a large one takes half a second."""
        with suppress(StoreError):
            if self._folder.is_run and (channel := await self._channel(self._folder.path.name)) is not None:
                await channel.view()

    async def answer(self, request: PageRequest) -> PageResponse:
        """Respond to a request."""
        host = requested_host(request)
        if host not in self._names and not is_ip_address(host):
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
                return await _answer_about_run(channel, what, request)
        return problem(404, "there is nothing here")

    async def _channel(self, name: str) -> Channel | None:
        """Channel of the run with this name; None if there is no such run."""
        path = (await self._read(self._folder.runs)).get(name)
        if path is None:
            self._channels.pop(name, None)
            return None
        if name not in self._channels:
            idle = [known for known, channel in self._channels.items() if channel.idle]
            for known in idle[: len(idle) - MAX_IDLE_CHANNELS + 1]:
                del self._channels[known]
            self._channels[name] = Channel(path, self._thread)
        return self._channels[name]

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


async def _answer_about_run(channel: Channel, what: list[str], request: PageRequest) -> PageResponse:
    match what:
        case ["view"]:
            view = await channel.view()
            return _conditional(request, view.body, JSON, view.etag)
        case ["live"]:
            return PageResponse(kind=EVENTS, headers=PRIVATE, events=channel.listen())
        case ["question", index]:
            found = await _read_by_numbers(channel.answers, index, request, "after")
        case ["transcript", index]:
            found = await _read_by_numbers(channel.transcript, index, request, "trial")
        case _:
            found = None
    if found is not None:
        return PageResponse(body=found, kind=JSON, headers=PRIVATE)
    return problem(404, "there is nothing here")


async def _read_by_numbers(
    read: Callable[[int, int, int], Awaitable[bytes | None]], question: str, request: PageRequest, trial: str
) -> bytes | None:
    """Call `read` with question, model and trial; None unless all are numbers."""
    texts = (question, request.query.get("model"), request.query.get(trial, "-1"))
    numbers = [_parse_integer(text) for text in texts]
    return None if None in numbers else await read(*cast(list[int], numbers))


def _parse_integer(text: str | None) -> int | None:
    """Parse an integer of up to nine digits or -1; None if the text is not one."""
    return int(text) if text is not None and re.fullmatch(r"-1|[0-9]{1,9}", text) else None


def is_ip_address(host: str) -> bool:
    """Whether a host is an IP address, and not a name that might resolve to one."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _conditional(request: PageRequest, body: bytes, kind: str, etag: str) -> PageResponse:
    """Send the body, or status 304 if the client has it."""
    headers = {**REVALIDATE, "ETag": etag}
    if request.headers.get("if-none-match") == etag:
        return PageResponse(304, headers=headers)
    return PageResponse(body=body, kind=kind, headers=headers)


def _page(html: str) -> PageResponse:
    return PageResponse(body=html.encode(), kind=HTML, headers=REVALIDATE)


def problem(status: int, what: str) -> PageResponse:
    """Build a response that says what is wrong."""
    return PageResponse(status, f"{what}\n".encode(), headers=PRIVATE)


LOOPBACK = "127.0.0.1"


async def serve(path: Path, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the run or the folder at `path` until Ctrl-C or SIGTERM; `ready` gets the address.

    Port 0 takes any free port. Raises `ConfigError` if the port is not available.
    """
    site = Site(path, host)
    with closing(site):
        async with listen_at(HttpServer(site.answer, HEADERS), host, port) as bound:
            ready(f"http://{f'[{host}]' if ':' in host else host}:{bound}/")
            await asyncio.gather(site.warm_up(), wait_for_signal())


@asynccontextmanager
async def listen_at(server: HttpServer, host: str, port: int) -> AsyncIterator[int]:
    """Let a server listen, and yield its port; raises `ConfigError` if the port is not available."""
    try:
        bound = await server.listen(host, port)
    except OSError as error:
        place = f"port {port} on {host}"
        raise ConfigError(f"{place} cannot be used ({error.strerror or error}); give another --port") from error
    try:
        yield bound
    finally:
        await server.close()


async def wait_for_signal() -> None:
    """Wait for Ctrl-C or SIGTERM."""
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    try:
        await asked.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def is_loopback(host: str) -> bool:
    """Whether the address can be reached from this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
