"""Messages between the head of a run and its sites, and the connections that carry them.

Requests and answers are sent many in one message: a message costs as much as fifty of them. Each connection carries one
message in bytes at a time, and its reply: a Ray call takes many times the CPU. A site listens on its node's address,
and accepts only clients with a secret that is sent by a Ray call.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from hmac import compare_digest
from pathlib import Path
from typing import NamedTuple, Protocol

from adaptive_eval.base.errors import Copied, EndpointError, LaunchFailed, Rejected, RetryNotAllowed, Unavailable
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.endpoints.types import Answer, EndpointStats, Prompt
from adaptive_eval.graders.registry import GraderConfig
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.types import GradingLimits
from adaptive_eval.launch.endpoint import ServerGone
from adaptive_eval.launch.types import Pool
from adaptive_eval.notes import Event
from adaptive_eval.questions.types import Question

CONNECT_SECONDS = 5.0
SECRET_BYTES = 32
LENGTH_BYTES = 8
CONNECTION_ERRORS = (OSError, asyncio.IncompleteReadError)

SiteAddress = tuple[str, int, bytes]
"""Host, port and secret."""

MAX_PER_MESSAGE = 256
"""Maximum requests or answers in one message."""
GATHERING_SECONDS = 0.01
"""Time for which a message waits for more content."""
HEARTBEAT_SECONDS = 1.0
"""Interval at which a site with nothing to report sends a heartbeat."""


class SiteTimeouts(NamedTuple):
    """Timeouts between the head of a run and its sites, in seconds."""

    resources: float = 1800.0
    """Longest wait of a site for its resources; then its model is given up, unless other sites serve it."""
    heartbeat: float = 60.0
    """Time without a message from a site after which it is restarted, on any node with room."""


TIMEOUTS = SiteTimeouts()


class SiteGone(ServerGone):
    """A site no longer answers (with the reason); its requests must be repeated elsewhere."""


class SiteRequest(NamedTuple):
    """Request for answers to a question, by its number, with seeds `first` to `first + size - 1`."""

    number: int
    question: int
    first: int
    size: int
    guarded: bool
    """Whether it may be repeated only if the head allows it."""


class SiteOrder(NamedTuple):
    """A message from the head to a site."""

    requests: tuple[SiteRequest, ...] = ()
    allowed: tuple[tuple[int, bool], ...] = ()
    """Whether requests whose answers were lost may be repeated, by number."""
    dropped: tuple[int, ...] = ()
    """Cancelled requests."""


class SiteReply(NamedTuple):
    """Reply to a request: the answers in the order of their seeds, graded if the site grades, or the error."""

    number: int
    answers: tuple[Answer, ...] = ()
    error: EndpointError | None = None


class SiteReport(NamedTuple):
    """A message from a site to the head."""

    replies: tuple[SiteReply, ...] = ()
    retry_requests: tuple[int, ...] = ()
    """Requests whose answers were lost, and which may be repeated only if the head allows it."""
    events: tuple[Event, ...] = ()
    stats: EndpointStats = EndpointStats()


class SiteFacts(NamedTuple):
    """Facts that a site reports about itself."""

    node: str
    """The node's name."""
    pid: int
    version: str
    """Version of adaptive-eval."""
    devices: str = ""
    """Its GPUs, as in CUDA_VISIBLE_DEVICES."""
    node_id: str = ""
    """The cluster's id of the node."""
    address: SiteAddress | None = None
    """Address for messages; None if Ray calls must carry them."""


@dataclass(frozen=True, slots=True)
class SiteData:
    """Prompts, questions and everything for grading, shared by models with equal prompts."""

    prompts: tuple[Prompt, ...]
    questions: tuple[Question, ...]
    grader: GraderConfig | None
    """None: answers are graded on the head, for example by a judge."""
    rubric: Rubric
    limits: GradingLimits


@dataclass(frozen=True, slots=True)
class SiteSetup:
    """What a site serves, and how."""

    model: ModelConfig = field(repr=False)
    """The model, with its headers, which may be credentials."""
    keys: Mapping[str, str] = field(repr=False)
    """The key of the model's server, if it has one."""
    hidden: frozenset[str]
    """Environment variables that a grader's processes do not get."""
    run: str
    """Name of the run."""
    site: str
    """Name of the site in the run, such as "site 1"."""
    pool: Pool | None
    """The pool with its place, for which the GPUs assigned to it stand; None if it serves one model."""
    folder: Path
    logs: Path
    has_answered: bool = False
    """Whether the model has answered a request of the run, here or elsewhere."""


class SiteBegun(NamedTuple):
    """Result of `begin`: events so far, and the problem if the site cannot serve."""

    events: tuple[Event, ...] = ()
    problem: str | None = None


class SiteHandle(Protocol):
    """Handle of a site; all calls raise `SiteGone` if it is gone."""

    async def begin(self, setup: SiteSetup, site_data: SiteData) -> SiteBegun:
        """Serve a model instead of the previous one."""

    async def sync(self, order: SiteOrder) -> SiteReport:
        """Send an order, and return a report: when there is something to report, at the next heartbeat, or on another
        call."""

    async def end(self, at_once: bool) -> None:
        """Stop the site's server."""

    def kill(self) -> None:
        """Kill the site and its server."""


def sent_error(error: EndpointError) -> EndpointError:
    """An error as one of the types that messages carry: others may need more than a text to be made again."""
    types = (Copied, LaunchFailed, RetryNotAllowed, Rejected, Unavailable)
    return next((kind for kind in types if isinstance(error, kind)), Unavailable)(str(error))


async def listen(host: str, respond: Callable[[bytes], Awaitable[bytes]]) -> tuple[asyncio.Server, SiteAddress]:
    """Start to reply to messages."""
    secret = secrets.token_bytes(SECRET_BYTES)

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(*CONNECTION_ERRORS):
            is_authorized = compare_digest(await reader.readexactly(SECRET_BYTES), secret)
            while is_authorized:
                _send(writer, await respond(await _receive(reader)))

    server = await asyncio.start_server(converse, host)
    return server, (host, server.sockets[0].getsockname()[1], secret)


class SiteConnections:
    """The head's connections to a site."""

    def __init__(self, address: SiteAddress) -> None:
        self._address = address
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def add(self) -> None:
        """Make a further connection; raises `OSError`."""
        host, port, secret = self._address
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
        writer.write(secret)
        self._idle.append((reader, writer))

    async def exchange(self, message: bytes) -> bytes:
        """Send a message, and return its reply; raises one of `CONNECTION_ERRORS`."""
        if not self._idle:
            await self.add()
        reader, writer = self._idle.pop()
        try:
            _send(writer, message)
            reply = await _receive(reader)
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        return reply

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop()[1].close()


def _send(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(len(message).to_bytes(LENGTH_BYTES) + message)


async def _receive(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(LENGTH_BYTES)))
