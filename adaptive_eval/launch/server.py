"""The server of one model: started, awaited, restarted when it dies, and stopped."""

import asyncio
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import orjson

from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.endpoints.redaction import EMPTY_REDACTOR, Redactor
from adaptive_eval.endpoints.types import Endpoint, Health
from adaptive_eval.launch.command import is_free
from adaptive_eval.launch.endpoint import ServedPlace
from adaptive_eval.launch.hosts import OnEvent
from adaptive_eval.launch.process import KeptProcess, ServerLog, exit_words
from adaptive_eval.launch.types import GRACE_SECONDS, HOST
from adaptive_eval.notes import ServerDied, ServerLaunched, ServerLaunching

POLL_SECONDS = 0.25
PROBE_SECONDS = 10.0
VERSION_SECONDS = 10.0
SLEEP_SECONDS = 120.0
"""Timeout to fall asleep or wake up; a slower server is stopped, and started at its next turn."""
WAKE_UP: Mapping[int, Sequence[tuple[str, Mapping[str, str] | None]]] = {
    1: [("/wake_up", None)],
    2: [
        ("/wake_up?tags=weights", None),
        ("/collective_rpc", {"method": "reload_weights"}),
        ("/wake_up?tags=kv_cache", None),
    ],
}
"""Requests that wake vLLM up, by level. After level 2 the memory of the weights has anything in it until they are read
again, and the server answers nonsense."""
VERSION_PATHS = (("/version", "version"), ("/props", "build_info"))
"""Paths and fields with the versions of vLLM and llama-server."""
MAX_VERSION_CHARS = 100
MAX_VERSION_BYTES = 2**20
"""Limit for a response with a version; llama-server's has a whole chat template."""


HEALTH, MODELS = "/health", "/v1/models"
"""Health check paths; the first one that a server supports returns 200 when it is ready."""


async def wait_until_ready(root: str, exited: "asyncio.Future[int | None]", seconds: float) -> None:
    """Wait until a server is ready; raises `LaunchFailed` if it ends before, or takes too long."""
    state, path = "it did not answer", HEALTH
    try:
        async with asyncio.timeout(seconds), _client(root) as client:
            while not exited.done():
                with suppress(httpx2.HTTPError):
                    # the body is not read, since it might be endless
                    async with client.stream("GET", path) as answer:
                        status = answer.status_code
                    if status == 200:
                        return
                    state = f"its {path} returned HTTP {status}"
                    if 300 <= status < 400 or status in (404, 405):  # redirects are not followed
                        if path == MODELS:
                            hint = f"{HEALTH} or {MODELS} must return 200 when it is ready"
                            raise LaunchFailed(f"has no health check: {state}; {hint}")
                        path = MODELS
                await asyncio.wait([exited], timeout=POLL_SECONDS)
    except TimeoutError:
        hint = "raise launch.timeout if that is too short"
        raise LaunchFailed(f"was not ready within {seconds:g} s: {state}; {hint}") from None
    raise LaunchFailed(f"{_end_words(exited.result())} before it was ready")


def _end_words(status: int | None) -> str:
    """How a server has ended."""
    hint = " (a command must run as long as its server does)" if status == 0 else ""
    return exit_words(status) + hint


async def read_version(root: str, redactor: Redactor = EMPTY_REDACTOR) -> str | None:
    """Read the version that the server reports, without secrets; None if it reports none."""
    with suppress(TimeoutError):  # a server may send anything for an unknown path, even an endless stream
        async with asyncio.timeout(VERSION_SECONDS), _client(root) as client:
            for path, key in VERSION_PATHS:
                with suppress(httpx2.HTTPError, ValueError):
                    payload = orjson.loads(await _read_beginning(client, path))
                    if isinstance(payload, dict) and isinstance(payload.get(key), str):
                        return redactor.message(payload[key])[:MAX_VERSION_CHARS]
    return None


async def _read_beginning(client: httpx2.AsyncClient, path: str) -> bytes:
    """Read the beginning of the server's response."""
    body = b""
    async with client.stream("GET", path) as answer:
        async for chunk in answer.aiter_raw():
            body += chunk
            if len(body) > MAX_VERSION_BYTES:
                break
    return body


def _client(root: str) -> httpx2.AsyncClient:
    plain = {"Accept-Encoding": "identity"}
    # plain HTTP to this machine: loading certificates would take longer than everything else
    return httpx2.AsyncClient(base_url=root, timeout=PROBE_SECONDS, trust_env=False, verify=False, headers=plain)


MAX_RESTARTS = 3
"""Restarts of a server in one start of the run, after deaths or failed restarts, before it is given up."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """Process to start for a model at a port, and its health check."""

    model: str
    port: int
    """Port of this machine to listen on."""
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    folder: Path
    log: Path
    timeout: float
    place: str | None = None
    """The place that it shares with others, if any."""
    sleep_level: int = 0
    """How deeply vLLM sleeps while other models use its place: 1 keeps the weights in main memory, 2 discards them; 0:
    it cannot sleep."""
    alternatives: bool = False
    """Whether the model may also be served at other places."""
    redactor: Redactor = field(default=EMPTY_REDACTOR, repr=False)
    """Removes the server's secrets from error messages."""

    @property
    def root(self) -> str:
        """The server's address, such as http://127.0.0.1:20123."""
        return f"http://{HOST}:{self.port}"


class LaunchedServer:
    """One model's server at one place.

    Its port is the next of `ports`, or a later one if another program already listens there.
    """

    def __init__(
        self, spec_at: Callable[[int], ServerSpec], ports: Iterator[int], open_endpoint: Callable[[str, bool], Endpoint]
    ) -> None:
        """`open_endpoint` takes the server's address, and whether the model has answered before."""
        self.spec = spec_at(next(ports))
        self._open: Callable[[str], Endpoint] = lambda root: open_endpoint(root, self.served.has_answered())
        self.served = ServedPlace()
        self.version: str | None = None
        self._spec_at, self._ports = spec_at, ports
        self._log = ServerLog(self.spec.log, self.spec.redactor)
        self._process: KeptProcess | None = None
        self._watch: asyncio.Task[None] | None = None
        self._was_up = False
        self._deaths = 0
        self._holds: Sequence[int] = ()
        self.asleep = False
        """Whether it sleeps, and so keeps some memory of its place."""

    async def start(self, on_event: OnEvent, holds: Sequence[int] = (), *, restarts: bool = True) -> None:
        """Start it and wait until it is ready; raises `LaunchFailed`. From then on it is restarted when it dies.

        The descriptors `holds` stay open until it has ended. Without `restarts` a server that was up before fails at
        its first failed start.
        """
        self._holds = holds
        try:
            process = await self._wake_up() or await self._bring_up()
        except LaunchFailed as error:
            if not self._was_up or not restarts:  # if it never worked, a restart would fail again
                raise
            process = await self._restart(str(error), on_event)
        self._watch = asyncio.create_task(self._keep_up(process, on_event))
        self._watch.add_done_callback(self._on_watch_end)

    async def make_room(self) -> None:
        """Free the place for another model: put the server to sleep if it can sleep, else stop it."""
        if level := self.spec.sleep_level:
            process = await self._withdraw("its server was put to sleep")
            self.asleep = process is not None and await self._post(f"/sleep?level={level}")
        if not self.asleep:
            await self.stop()

    async def stop(self, *, at_once: bool = False) -> None:
        """Stop it and all processes that it started, if it is up."""
        process = await self._withdraw("its server was stopped")
        if process is not None:
            await process.stop(at_once=at_once)
            self._process, self.asleep = None, False

    async def _withdraw(self, reason: str) -> KeptProcess | None:
        """Send no more requests, and do not restart it; returns its process, if it is up."""
        process = self._process
        try:
            if self._watch is not None:
                self._watch.cancel()
                await asyncio.gather(self._watch, return_exceptions=True)
            await self.served.end()
            self.served.give_up(reason)
        except BaseException:
            if process is not None:
                process.kill()
            raise
        return self._process

    async def _wake_up(self) -> KeptProcess | None:
        """Wake it up, and return its process; None if it was not asleep, or did not wake up and was stopped."""
        process, asleep, self.asleep = self._process, self.asleep, False
        if process is None or not asleep:
            return None
        if await self._restore():
            with suppress(LaunchFailed):
                await wait_until_ready(self.spec.root, process.status, self.spec.timeout)
                self.served.begin(self._open(self.spec.root))
                return process
        await process.stop(at_once=True)
        self._process = None
        return None

    async def _restore(self) -> bool:
        """Restore its memory; returns whether everything succeeded."""
        for path, body in WAKE_UP[self.spec.sleep_level]:
            if not await self._post(path, body):
                return False
        return True

    async def _post(self, path: str, body: Mapping[str, str] | None = None) -> bool:
        """POST to the server, and return whether it answered 200."""
        with suppress(TimeoutError, httpx2.HTTPError):
            async with (
                asyncio.timeout(SLEEP_SECONDS),
                _client(self.spec.root) as client,
                client.stream("POST", path, json=body, timeout=SLEEP_SECONDS) as answer,
            ):
                return answer.status_code == 200
        return False

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()

    async def _bring_up(self) -> KeptProcess:
        """Start it at a free port; raises `LaunchFailed`."""
        if not is_free(self.spec.port):
            self.spec = self._spec_at(next(self._ports))
        process = await self._start_process()
        self._process, self._was_up = process, True
        self.served.begin(self._open(self.spec.root))
        return process

    async def _start_process(self) -> KeptProcess:
        """Start the process and wait until it is ready; on `LaunchFailed` it is gone."""
        spec, process = self.spec, None
        try:
            self._log.begin(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {shlex.join(spec.command)}")
            with spec.log.open("ab") as output:
                process = await KeptProcess.start(
                    spec.command,
                    environment=spec.environment,
                    folder=spec.folder,
                    errors=output.fileno(),
                    holds=self._holds,
                    grace=GRACE_SECONDS,
                )
            await wait_until_ready(spec.root, process.status, spec.timeout)
            if spec.alternatives:
                for replica in (await self.check()).replicas:
                    if replica.refuses:  # it may lack the model, and another place may have it
                        raise LaunchFailed(f"is up and refuses requests: {replica.detail}")
            self.version = await read_version(spec.root, spec.redactor)
        except BaseException as error:
            if process is not None:
                await process.stop(at_once=True)
            if isinstance(error, LaunchFailed | OSError):
                raise LaunchFailed(self._with_last_lines(str(error))) from None
            raise
        return process

    async def check(self) -> Health:
        """Ask the server, which is up, for a tiny answer."""
        endpoint = self._open(self.spec.root)
        try:
            return await endpoint.check()
        finally:
            await endpoint.close()

    async def _keep_up(self, process: KeptProcess, on_event: OnEvent) -> None:
        while True:
            silence = self.served.silence
            ends: set[asyncio.Future[Any]] = {process.status, silence}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            hangs = not process.status.done()
            reason = f"no longer answers: {silence.result()}" if hangs else _end_words(process.status.result())
            reason = self._with_last_lines(reason)
            await self.served.end()
            await process.stop()  # remaining processes may hold memory that the next one needs
            self._process = None
            started = time.monotonic()
            process = await self._restart(reason, on_event)
            on_event(self.launched(time.monotonic() - started))

    async def _restart(self, reason: str, on_event: OnEvent) -> KeptProcess:
        """Restart a server that was up; raises `LaunchFailed` after `MAX_RESTARTS` attempts."""
        while self._deaths < MAX_RESTARTS:
            self._deaths += 1
            on_event(ServerDied(self.spec.model, reason, self._deaths, MAX_RESTARTS, self.spec.place))
            try:
                return await self._bring_up()
            except LaunchFailed as error:
                reason = str(error)
        first, *lines = reason.split("\n")
        raise LaunchFailed("\n".join([f"{first}, after it was started again {MAX_RESTARTS} times", *lines]))

    def launching(self, waited: float | None) -> ServerLaunching:
        """Event of a server that is starting, or waking up."""
        spec, wakes = self.spec, self.asleep or None
        return ServerLaunching(spec.model, spec.command, self.version, str(spec.log), spec.place, waited, wakes)

    def launched(self, seconds: float) -> ServerLaunched:
        """Event of a server that is ready."""
        spec = self.spec
        return ServerLaunched(spec.model, spec.command, self.version, str(spec.log), spec.place, seconds)

    def _with_last_lines(self, problem: str) -> str:
        """Add the last lines of the server's log to a message."""
        lines = (f"  {line}" for line in self._log.last_lines())
        return "\n".join([f"its server {problem} (log: {self.spec.log})", *lines])

    def _on_watch_end(self, task: asyncio.Task[None]) -> None:
        """Fail all requests that wait for a server that is no longer watched."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.served.give_up(
                str(error) if isinstance(error, LaunchFailed) else f"watching its server failed: {error!r}"
            )
