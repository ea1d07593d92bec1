"""The monitor's site: pages with their assets, views, answers, and progress of live runs.

One thread reads all runs, which keeps the loop free and bounds the load of a monitor.

Against DNS rebinding, only requests to an IP address, to `localhost`, or to this machine's name are served. Runs are
looked up by name in the folder, and files by name in the package: no path comes from a request.
"""

import asyncio
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import quote

from aiohttp import web

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.base.http_server import PageServer
from adaptive_eval.show.page.documents import MONITOR_POLICY, assets, monitor_page, runs_page
from adaptive_eval.show.serve.folder import RunsFolder
from adaptive_eval.show.serve.page_state import PageState, to_json

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
MAX_STATES = 8
"""Runs whose latest view is cached: the most recently requested."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")

HTML, JSON = "text/html; charset=utf-8", "application/json"

T = TypeVar("T")


class Site:
    """Answers requests about the runs of a folder; `host` is the address that it listens on."""

    def __init__(self, path: Path, host: str) -> None:
        self._folder = RunsFolder(path)
        self._names = {"localhost", socket.gethostname().lower(), host.lower()}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="run-reader")
        self._states: dict[str, PageState] = {}
        self._assets = {name: (kind, text.encode()) for name, (kind, text) in assets().items()}

    def close(self) -> None:
        """Wait for the reading thread."""
        self._thread.shutdown()

    async def warm_up(self) -> None:
        """Read a run before the first request, since a large one takes half a second."""
        with suppress(StoreError):
            if self._folder.is_run and (state := await self._state(self._folder.path.name)) is not None:
                await self._read(state.view)

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Respond to a request."""
        host = request_host(request)
        if host not in self._names and not is_ip_address(host):
            return problem(421, "this address is not served here; use the address that the monitor printed")
        try:
            return await self._route(request)
        except StoreError as error:
            return problem(503, str(error))

    async def _route(self, request: web.BaseRequest) -> web.Response:
        match request_path(request):
            case [""]:
                return _page(monitor_page(self._folder.path.name) if self._folder.is_run else runs_page())
            case ["assets", name] if name in self._assets:
                kind, body = self._assets[name]
                return _conditional(request, body, kind, f'"{blake2b(body, digest_size=12).hexdigest()}"')
            case ["api", "runs"]:
                return ok(to_json(await self._read(self._folder.briefs)))
            case ["run", name, *rest] if rest in ([], [""]) and await self._state(name) is not None:
                moved = web.Response(status=308, headers={"Location": f"{quote(name, safe='')}/"})
                return _page(monitor_page(name, "../../")) if rest else moved
            case ["api", "run", name, *what] if (state := await self._state(name)) is not None:
                return await self._answer_about_run(state, what, request)
        return problem(404, "not found")

    async def _state(self, name: str) -> PageState | None:
        """State of the run with this name; None if there is no such run."""
        path = (await self._read(self._folder.runs)).get(name)
        state = self._states.pop(name, None)
        if path is None:
            return None
        while len(self._states) >= MAX_STATES:
            del self._states[next(iter(self._states))]
        self._states[name] = state or PageState(path)
        return self._states[name]

    async def _answer_about_run(self, state: PageState, what: list[str], request: web.BaseRequest) -> web.Response:
        body: bytes | None = None
        match what:
            case ["view"]:
                view, etag = await self._read(state.view)
                return _conditional(request, view, JSON, etag)
            case ["progress"] if (numbers := _integers(request, "after")) is not None:
                body = await self._read(partial(state.progress, *numbers))
            case ["question", index] if (numbers := _integers(request, "model", "after", question=index)) is not None:
                body = await self._read(partial(state.answers, *numbers))
        return problem(404, "not found") if body is None else ok(body)

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _integers(request: web.BaseRequest, *names: str, question: str | None = None) -> list[int] | None:
    """Parse numbers of the query, and of a question; None unless each has up to nine digits, or is -1.

    The last one may be missing.
    """
    texts = [*(() if question is None else (question,)), *(request.query.get(name) for name in names[:-1])]
    texts.append(request.query.get(names[-1], "-1"))
    if all(text is not None and re.fullmatch(r"-1|[0-9]{1,9}", text) for text in texts):
        return [int(cast(str, text)) for text in texts]
    return None


def request_path(request: web.BaseRequest) -> list[str]:
    """The decoded parts of the path between the slashes; none is used as a path of the file system."""
    return list(request.rel_url.parts[1:])


def request_host(request: web.BaseRequest) -> str:
    """The host name or address of a request, in lower case, without brackets; "" if it is neither."""
    named = _HOST.fullmatch(request.headers.get("Host", ""))
    return "" if named is None else named[1].strip("[]").lower()


def is_ip_address(host: str) -> bool:
    """Whether a host is an IP address, and not a name that might resolve to one."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _conditional(request: web.BaseRequest, body: bytes, kind: str, etag: str) -> web.Response:
    """Send the body, or status 304 if the client has it."""
    headers = {**REVALIDATE, "ETag": etag}
    if request.headers.get("if-none-match") == etag:
        return web.Response(status=304, headers=headers)
    return ok(body, kind, headers)


def _page(html: str) -> web.Response:
    return ok(html.encode(), HTML, REVALIDATE)


def ok(body: bytes, kind: str = JSON, headers: Mapping[str, str] = PRIVATE) -> web.Response:
    """Build a response with this body."""
    return web.Response(body=body, headers={"Content-Type": kind, **headers})


def problem(status: int, what: str) -> web.Response:
    """Build an error response."""
    return web.Response(status=status, text=f"{what}\n", headers=PRIVATE)


LOOPBACK = "127.0.0.1"


async def serve(path: Path, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the run or the folder at `path` until Ctrl-C or SIGTERM; `ready` gets the address.

    Port 0 takes any free port. Raises `ConfigError` if the port is not available.
    """
    site, over = Site(path, host), asyncio.Event()
    with closing(site):
        async with listen_at(PageServer(site.answer, HEADERS), host, port) as bound:
            with set_by_signals(over):
                ready(f"http://{f'[{host}]' if ':' in host else host}:{bound}/")
                await asyncio.gather(site.warm_up(), over.wait())


@asynccontextmanager
async def listen_at(server: PageServer, host: str, port: int) -> AsyncIterator[int]:
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


@contextmanager
def set_by_signals(over: asyncio.Event) -> Iterator[None]:
    """Have Ctrl-C and SIGTERM set an event of the running loop."""
    loop, signals = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, over.set)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def is_loopback(host: str) -> bool:
    """Whether the address can be reached only from this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
