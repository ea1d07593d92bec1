"""Sends one request to one server."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter  # the loop's time may have a resolution of milliseconds
from urllib.parse import urlsplit

import httpx2
import orjson
from yarl import URL

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.json_objects import as_object, objects_in
from adaptive_eval.endpoints.failures import (
    MAX_READ_CHARS,
    Failure,
    FailureKind,
    error_status,
    find_error,
    safe_excerpt,
    web_page,
)
from adaptive_eval.endpoints.parsing import TEXT_FIELDS, Reply, StreamReader, is_comment, parse_server_json
from adaptive_eval.endpoints.redaction import Redactor, request_redactor
from adaptive_eval.endpoints.replica import ProbeTrouble
from adaptive_eval.endpoints.server_access import ServerAccess, direct_transport
from adaptive_eval.endpoints.traffic import Attempt
from adaptive_eval.endpoints.transport import (
    CONNECT_SECONDS,
    MAX_BYTES_EXTENSION,
    ExchangeError,
    Incoming,
    httpx_timeouts,
    incoming_response,
    refusal_reason,
)
from adaptive_eval.endpoints.types import DEFAULT_KEY, EndpointConfig, Sampling
from adaptive_eval.endpoints.wire import ANY_BODY, PATHS, longest_response

PROBE_SECONDS = CONNECT_SECONDS
"""Limit on the time of a request that is not for answers."""


def is_success(status: int) -> bool:
    """Whether a status is a success; gateways send 201, or 203 after changing a header."""
    return 200 <= status < 300


def decode_payload(status: int, body: bytes, redactor: Redactor) -> tuple[int, object]:
    """Status and decoded body of a success; an error within a success has its own status.

    Raises `Failure` for a success that is not JSON, and `WebPage` for a web page.
    """
    if not is_success(status):
        return status, None
    try:
        payload = parse_server_json(body)
    except ValueError as error:
        if (page := web_page(status, body, redactor)) is not None:
            raise page from error
        excerpt = safe_excerpt(body[: 4 * MAX_READ_CHARS].decode("utf-8", "replace"), redactor)
        raise Failure(FailureKind.BAD_RESPONSE, f"the response is not JSON: {excerpt!r}") from error
    if (embedded_error := find_error(payload)) is not None:
        return error_status(embedded_error), payload
    return 200, payload


NOT_SENDABLE = "a control character or one that is not ASCII"


def is_sendable(value: str) -> bool:
    """Whether a text can be sent as the value of a header."""
    return value.isascii() and value.isprintable()


class RequestHeaders:
    """The headers of every request to the servers of one model, and what may be said about them."""

    def __init__(
        self,
        config: EndpointConfig,
        keys: Mapping[str, str],
        own: Mapping[str, str] | None = None,
        key_header: str | None = None,
    ) -> None:
        """`keys` is the environment; `own` are headers of an API. The key is sent in `key_header`, or else as a bearer
        token. Raises `ConfigError` if the key is missing, or if it or a header cannot be sent."""
        key, chosen = _key(config, keys), _configured_headers(config)
        names = {name.lower() for name in chosen}
        self.redactor = request_redactor(chosen, key)
        """Removes the secrets sent to its servers from their messages."""
        self.unauthorized = _unauthorized_hint(config, names, key)
        """What to do after a 401."""
        if key is not None and config.auth is None and not names & {"authorization", key_header}:
            chosen |= {key_header: key} if key_header else {"Authorization": f"Bearer {key}"}
        self.values = {"Accept-Encoding": "identity", "User-Agent": "adaptive-eval", **(own or {}), **chosen}


def _key(config: EndpointConfig, keys: Mapping[str, str]) -> str | None:
    if (problem := config.missing_key(keys)) is not None:
        raise ConfigError(problem)
    # a key read from a file often ends in a line break
    key = keys.get(config.key_variable or "", "").strip()
    if not is_sendable(key):
        raise ConfigError(f"{config.key_variable} must hold a key, but its value has {NOT_SENDABLE}")
    return key or None


def _configured_headers(config: EndpointConfig) -> dict[str, str]:
    plain = {name: value.get_secret_value().strip() for name, value in config.headers.items()}
    for name, value in plain.items():
        if not is_sendable(value):
            raise ConfigError(f"header {name!r} must be one line of ASCII text, but its value holds {NOT_SENDABLE}")
    return plain


def _unauthorized_hint(config: EndpointConfig, names: Collection[str], key: str | None) -> str:
    """A hint after a 401, depending on what was sent."""
    if config.auth is not None:
        return f"the signature of {config.auth} was refused: check it"
    if "authorization" in names:
        return "the authorization was refused: check the header of that name"
    if key is not None:
        return f"the key was refused: check the variable {config.key_variable}"
    if config.key_variable is not None:
        return f"no key was sent: set the variable {config.key_variable}, or name another as api_key_env"
    example = f"such as `api_key_env: {DEFAULT_KEY}`"
    return f"no key was sent: name the variable that holds one as api_key_env of this model, {example}"


class Caller:
    """HTTP client for the servers of one model; prepares the constant part of requests once."""

    def __init__(self, config: EndpointConfig, sampling: Sampling, keys: Mapping[str, str], folder: Path) -> None:
        """`keys` is the environment; `folder` has the plug-ins named in `config`."""
        sent = RequestHeaders(config, keys)
        self.redactor, self.unauthorized, self._headers = sent.redactor, sent.unauthorized, sent.values
        access = ServerAccess(config, folder)
        self._http = access.client(self._headers)
        self._aux_http = access.client(self._headers)
        self._chat = config.api == "chat"
        self._limit = sampling.timeout
        post_headers = httpx2.Headers({"Content-Type": "application/json", **self._headers})
        self._posters = {
            base_url: access.poster(self._http, base_url + PATHS[config.api], post_headers, sampling.timeout)
            for base_url in config.replicas
        }
        self._health_urls: dict[str, str] = {}

    async def ask(self, base_url: str, body: Mapping[str, object]) -> Reply:
        """Send one request, within the time limit; raises `Failure` without a reply."""
        with converted_failures(self.redactor, self._limit):
            async with asyncio.timeout(self._limit):
                return await self.send(base_url, body)

    async def send(self, base_url: str, body: Mapping[str, object], attempt: Attempt | None = None) -> Reply:
        """Send one request, without a time limit; `attempt` records each piece of a stream."""
        reader = StreamReader(self._chat, perf_counter) if body.get("stream") else None
        started = perf_counter()
        with converted_failures(self.redactor, self._limit):
            response, body_bytes = await self._exchange(base_url, body, reader, attempt)
        return _make_reply(response, body_bytes, reader, started, self.redactor)

    async def _exchange(
        self, base_url: str, body: Mapping[str, object], reader: StreamReader | None, attempt: Attempt | None
    ) -> tuple[Incoming, bytes]:
        """Send one request and read its response; returns it with the part of its body that was not fed to `reader`."""
        content = orjson.dumps(body)
        response = await self._posters[base_url](content, longest_response(body, len(content)))
        return response, await read_to_end(response, reader, attempt)

    async def models(self, base_url: str) -> Reply:
        """GET /models."""
        started = perf_counter()
        response = incoming_response(await self._get(base_url + "/models"))
        return _make_reply(response, response.body, None, started, self.redactor)

    async def probe(self, base_url: str) -> ProbeTrouble | None:
        """Probe a server: None for a sign of life, else the trouble.

        GET /health at the server's root, or /models if that is missing; any status below 500 is a sign of life.
        """
        parts = urlsplit(base_url)
        root = f"{parts.scheme}://{parts.netloc}/health"
        try:
            response = await self._get(self._health_urls.get(base_url, root))
        except Failure as failure:
            return ProbeTrouble(str(failure), is_silent=failure.kind is FailureKind.TIMED_OUT)
        if response.status_code == 404:
            self._health_urls[base_url] = base_url + "/models"
        status = response.status_code
        return None if status < 500 else ProbeTrouble(f"its health check says HTTP {status}")

    async def connect_trouble(self, base_url: str) -> str | None:
        """Why no connection to a server can be made; None if one can, or if it is unknown, as behind a proxy."""
        if (transport := direct_transport(self._http, httpx2.URL(base_url))) is None:
            return None
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await transport.connect(URL(base_url))
        except TimeoutError:
            return None  # it may only be slow
        except OSError as error:  # an ssl.SSLError is one
            return safe_excerpt(refusal_reason(error), self.redactor)
        return None

    async def fetch_outside_api(self, base_url: str, path: str) -> bytes:
        """GET a path outside the API's root, bounded in time and size; nothing unless the status is 200."""
        response = await self._get(base_url.removesuffix("/v1") + path)
        return response.content if response.status_code == 200 else b""

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()
        await self._aux_http.aclose()

    async def _get(self, url: str) -> httpx2.Response:
        """The whole response to a short request."""
        with converted_failures(self.redactor, PROBE_SECONDS):
            async with asyncio.timeout(PROBE_SECONDS):
                extensions = {"timeout": httpx_timeouts(PROBE_SECONDS), MAX_BYTES_EXTENSION: ANY_BODY}
                return await self._aux_http.get(url, extensions=extensions)


# -- shared by both clients --------------------------------------------------------------------------------------


async def read_to_end(response: Incoming, reader: StreamReader | None, attempt: Attempt | None) -> bytes:
    """Read a response to its end: a stream of events is fed to the reader as it arrives, any other body is returned."""
    if reader is None or not is_success(response.status):
        return await response.read()
    if response.stream is None:
        _feed(reader, response.body, attempt)
        return b""
    try:
        async for chunk in response.stream:
            _feed(reader, chunk, attempt)
    finally:
        await response.stream.aclose()
    return b""


def _feed(reader: StreamReader, chunk: bytes, attempt: Attempt | None) -> None:
    """Feed a chunk to the reader and record its arrival in `attempt`, unless it has only comments (`: ping`): a proxy
    sends them for a server that hangs."""
    reader.feed(chunk)
    if attempt is not None and reader.first_token_at is not None and not is_comment(chunk):
        attempt.record_piece(asyncio.get_running_loop().time())


def _make_reply(
    response: Incoming, body: bytes, reader: StreamReader | None, started: float, redactor: Redactor
) -> Reply:
    """Build the reply after the response is read; `body` is the part that was not fed to the reader."""
    latency = perf_counter() - started
    if reader is not None and is_success(response.status):
        replacement = reader.replacement()
        if replacement is None:
            ttft = None if reader.first_token_at is None else reader.first_token_at - started
            return Reply(200, {}, b"", reader.payload(), latency, ttft)
        body = replacement
    status, payload = decode_payload(response.status, body, redactor)
    if status == 200:
        return Reply(200, {}, b"", payload, latency, None)
    has_begun = (reader is not None and reader.first_token_at is not None) or has_answer(payload)
    return Reply(status, httpx2.Headers(list(response.headers)), body, None, latency, None, has_begun)


def has_answer(payload: object) -> bool:
    """Whether a response with an error reports tokens, or has a text."""
    response = as_object(payload)
    if any(isinstance(number, int) and number > 0 for number in as_object(response.get("usage")).values()):
        return True
    parts = objects_in(response.get("choices"))
    parts += [as_object(part.get("message")) for part in parts]
    return any(part.get(name) for part in parts for name in TEXT_FIELDS)


@contextmanager
def converted_failures(redactor: Redactor, limit: float) -> Iterator[None]:
    """A block that raises connection errors and timeouts as `Failure`; `limit` is the timeout in seconds."""
    try:
        yield
    except TimeoutError:
        raise Failure(FailureKind.TIMED_OUT, f"no answer within {limit:g} s") from None
    except ExchangeError as error:
        raise Failure(error.kind, safe_excerpt(str(error), redactor)) from None
    except httpx2.HTTPError as error:  # of requests that a plug-in makes
        raise Failure(FailureKind.RESET, safe_excerpt(str(error) or type(error).__name__, redactor)) from None
