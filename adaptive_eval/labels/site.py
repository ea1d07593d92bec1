"""The labelling page: one session, on this machine alone, at an address with a secret in it.

A page on another site, or another user of the machine, could send requests here too, but neither knows the secret,
which is part of every path. Nothing shown reveals the model or the grade.
"""

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hmac import compare_digest
from pathlib import Path

from aiohttp import web

from adaptive_eval.base.errors import AdaptiveEvalError
from adaptive_eval.base.http_server import PageServer
from adaptive_eval.labels.session import LabelSession
from adaptive_eval.show.page.documents import assets, fetching_page, script, style
from adaptive_eval.show.serve.page_state import to_json
from adaptive_eval.show.serve.site import (
    HEADERS,
    HTML,
    LOOPBACK,
    REVALIDATE,
    is_ip_address,
    listen_at,
    ok,
    problem,
    request_host,
    request_path,
    set_by_signals,
)

STATIC = Path(__file__).parent / "static"
LAST_RESPONSE_SECONDS = 0.2
"""Time for the last response to be sent."""


def label_assets() -> dict[str, tuple[str, str]]:
    """Type and text of each file under assets/ of the page, by name."""
    css = style() + (STATIC / "label.css").read_text("utf-8")
    code = ("text/javascript; charset=utf-8", script("label.js", STATIC))
    return {**assets(), "app.js": code, "style.css": ("text/css; charset=utf-8", css)}


def label_page() -> str:
    """The page, which fetches its content."""
    return fetching_page("Label answers · adaptive-eval")


def label_state(session: LabelSession) -> dict[str, object]:
    """Describe the answer to label now for the page (`LabelState` in label.js)."""
    current = session.current
    if current is None:
        return {"over": True, "place": 0, "number": 0, "given": None, "texts": [], "fields": []}
    return {
        "over": False,
        "place": session.place,
        "number": session.number,
        "given": session.earlier_label,
        "texts": [{"name": name, "text": text} for name, text in current.texts.items()],
        "fields": [field._asdict() for field in current.fields],
    }


class LabellingSite:
    """Answers requests about one session; `over` is called when the page ends it."""

    def __init__(self, session: LabelSession, on_end: Callable[[], None]) -> None:
        self.secret = secrets.token_urlsafe(16)
        self._session, self._on_end = session, on_end
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="labels")
        self._assets = {name: (kind, text.encode()) for name, (kind, text) in label_assets().items()}

    def close(self) -> None:
        """Wait for the thread that reads and writes."""
        self._thread.shutdown()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Respond to a request."""
        secret, *path = request_path(request)
        if not is_ip_address(request_host(request)):
            return problem(421, "this address is not served here; use the one that was printed")
        if not compare_digest(secret.encode(), self.secret.encode()):
            return problem(404, "there is nothing here")
        try:
            return await self._route(request, path)
        except AdaptiveEvalError as error:
            return problem(503, str(error))

    async def _route(self, request: web.BaseRequest, path: list[str]) -> web.Response:
        match request.method, path:
            case ("GET" | "HEAD", []):
                return web.Response(status=308, headers={"Location": f"/{self.secret}/"})
            case ("GET" | "HEAD", [""]):
                return ok(label_page().encode(), HTML, REVALIDATE)
            case ("GET" | "HEAD", ["assets", name]) if name in self._assets:
                kind, body = self._assets[name]
                return ok(body, kind, REVALIDATE)
            case ("GET" | "HEAD", ["now"]):
                return await self._respond()
            case ("POST", ["end"]):
                self._on_end()
                return ok(b"{}")
            case ("POST", ["label" | "skip" | "back" as action]):
                return await self._respond(action, request.query.get("place", ""), request.query.get("label", ""))
        return problem(404, "there is nothing here")

    async def _respond(self, action: str = "", place: str = "", label: str = "") -> web.Response:
        """Carry out an action, and send the state."""
        loop = asyncio.get_running_loop()
        state = await loop.run_in_executor(self._thread, self._carry_out, action, place, label)
        return ok(to_json(state))

    def _carry_out(self, action: str, place: str, label: str) -> dict[str, object]:
        """Act on the current answer; ignore an action on another place, for example from an outdated page."""
        if place == str(self._session.place):
            if action == "label":
                self._session.label(label)
            elif action == "skip":
                self._session.skip()
            elif action == "back":
                self._session.go_back()
        return label_state(self._session)


async def serve_labelling(session: LabelSession, port: int, ready: Callable[[str], None]) -> None:
    """Serve the page of a session until its end, Ctrl-C or SIGTERM; `ready` gets the address.

    Port 0 takes any free port. Raises `ConfigError` if the port is not available.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def end_soon() -> None:
        loop.call_later(LAST_RESPONSE_SECONDS, ended.set)

    site = LabellingSite(session, end_soon)
    server = PageServer(site.answer, HEADERS, methods=("GET", "HEAD", "POST"))
    with closing(site):
        async with listen_at(server, LOOPBACK, port) as bound:
            with set_by_signals(ended):
                ready(f"http://{LOOPBACK}:{bound}/{site.secret}/")
                await ended.wait()
