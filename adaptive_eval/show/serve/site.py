"""The monitor's site: the page of a run with its assets, view, answers, and progress while it is live.

One thread reads the run, which keeps the loop free and bounds the load of a monitor.

Against DNS rebinding, only requests to an IP address, to `localhost`, or to this machine's name are served. Files are
looked up by name in the package: no path comes from a request.
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
from typing import TypeVar

from aiohttp import web

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.base.http_server import PageServer
from adaptive_eval.show.page.documents import MONITOR_POLICY, assets, monitor_page
from adaptive_eval.show.serve.feed import Feed
from adaptive_eval.show.serve.page_state import PageState

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
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")

HTML, JSON = "text/html; charset=utf-8", "application/json"

T = TypeVar("T")


class Site:
    """Answers requests about a run; `host` is the address that it listens on."""

    def __init__(self, feed: Feed, host: str) -> None:
        self._state = PageState(feed)
        self._page = monitor_page(feed.directory.resolve().name)
        self._names = {"localhost", socket.gethostname().lower(), host.lower()}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="run-reader")
        self._assets = {name: (kind, text.encode()) for name, (kind, text) in assets().items()}

    def close(self) -> None:
        """Wait for the reading thread."""
        self._thread.shutdown()

    async def warm_up(self) -> None:
        """Make the view before the first request, since that of a large run takes half a second."""
        with suppress(StoreError):
            await self._read(self._state.view)

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
                return ok(self._page.encode(), HTML, REVALIDATE)
            case ["assets", name] if name in self._assets:
                kind, body = self._assets[name]
                return _conditional(request, body, kind, f'"{blake2b(body, digest_size=12).hexdigest()}"')
            case ["api", "view"]:
                view, etag = await self._read(self._state.view)
                return _conditional(request, view, JSON, etag)
            case ["api", "progress"]:
                return ok(await self._read(self._state.progress))
            case ["api", "question", index] if numbers := _integers(index, request.query):
                answers = await self._read(partial(self._state.answers, *numbers))
                return problem(404, "not found") if answers is None else ok(answers)
        return problem(404, "not found")

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _integers(question: str, query: Mapping[str, str]) -> list[int] | None:
    """Numbers of a question, a model, and the trial after which answers are asked for, which may be missing; None
    unless each has up to nine digits, or is -1."""
    texts = question, query.get("model", ""), query.get("after", "-1")
    return [*map(int, texts)] if all(re.fullmatch(r"-1|[0-9]{1,9}", text) for text in texts) else None


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


def ok(body: bytes, kind: str = JSON, headers: Mapping[str, str] = PRIVATE) -> web.Response:
    """Build a response with this body."""
    return web.Response(body=body, headers={"Content-Type": kind, **headers})


def problem(status: int, what: str) -> web.Response:
    """Build an error response."""
    return web.Response(status=status, text=f"{what}\n", headers=PRIVATE)


LOOPBACK = "127.0.0.1"


async def serve(feed: Feed, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the page of a run until Ctrl-C or SIGTERM; `ready` gets the address.

    Port 0 takes any free port. Raises `ConfigError` if the port is not available.
    """
    site, over = Site(feed, host), asyncio.Event()
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
