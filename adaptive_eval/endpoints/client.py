"""How one request reaches one server: the `Caller` protocol and its default, over the slot transport."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import httpx
import orjson
from pydantic import SecretStr

from adaptive_eval.endpoints.failures import SECRET_LENGTH, Failure, Kind, clean, error_in, status_of
from adaptive_eval.endpoints.http1 import Header
from adaptive_eval.endpoints.parsing import StreamReader, parsed
from adaptive_eval.endpoints.transport import Exchange, Origin, SlotTransport, Stalled, origin_of
from adaptive_eval.endpoints.types import EndpointConfig, Sampling
from adaptive_eval.endpoints.wire import PATHS
from adaptive_eval.errors import ConfigError

PROBE_SECONDS = 10.0
QUIET_SECONDS = 120.0
"""A stream without a byte for so long has stopped."""
BESIDE_SECONDS = 5.0
BESIDE_BYTES = 4 * 1024 * 1024


class Reply(NamedTuple):
    """What a server said to one request."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    """The error with its headers, where the status is one."""
    payload: object
    """The decoded response, where the status is 200."""
    latency: float
    ttft: float | None


class Caller(Protocol):
    """One way to speak to the servers of a model."""

    secrets: tuple[str, ...]
    """What must appear in no text that a person may read."""

    async def ask(self, base_url: str, body: Mapping[str, object]) -> Reply:
        """Send one request; raises `Failure` where no reply came."""
        ...

    async def models(self, base_url: str) -> Reply:
        """The list of models."""
        ...

    async def probe(self, base_url: str) -> str | None:
        """None for a sign of life, else what is wrong."""
        ...

    async def beside(self, base_url: str, path: str) -> tuple[int, bytes]:
        """Status and body of something that a server says of itself beside the API, such as `/metrics`."""
        ...

    async def close(self) -> None: ...


def payload_of(status: int, body: bytes, secrets: tuple[str, ...]) -> tuple[int, object]:
    """The status and the decoded body; a 200 that carries an error gets the error's status."""
    if status != 200:
        return status, None
    try:
        payload = parsed(body)
    except ValueError as error:
        start = clean(body[:200].decode("utf-8", "replace"), secrets)
        raise Failure(Kind.BAD_RESPONSE, f"the response is not JSON: {start!r}") from error
    if (carried := error_in(payload)) is not None:
        return status_of(carried), None
    return status, payload


def failure_of(error: httpx.HTTPError, secrets: tuple[str, ...]) -> Failure:
    """An httpx error by what it means for the request."""
    kind = Kind.RESET
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        kind = Kind.UNREACHABLE
    elif isinstance(error, Stalled):
        kind = Kind.STALLED
    elif isinstance(error, httpx.ReadTimeout):
        kind = Kind.TIMED_OUT
    elif isinstance(error, (httpx.RemoteProtocolError, httpx.DecodingError)):
        kind = Kind.BAD_RESPONSE
    return Failure(kind, clean(str(error), secrets))


def request_headers(config: EndpointConfig, sampling: Sampling) -> dict[str, str]:
    """The headers of the configuration, those of the sampling last, as they are sent."""
    headers = {**config.headers, **sampling.extra_headers}
    plain = {name: value.get_secret_value().strip() for name, value in headers.items()}
    if broken := [name for name, value in plain.items() if not value.isprintable()]:
        raise ConfigError(f"header {broken[0]!r} must be one line of text, but its value holds a control character")
    return plain


def secrets_of(headers: Mapping[str, str], key: SecretStr | None) -> tuple[str, ...]:
    """What to blot out of a server's texts: the key, and header values long enough to be one."""
    found = {value for value in headers.values() if len(value) >= SECRET_LENGTH}
    return tuple(found | ({key.get_secret_value()} if key is not None else set()))


class HttpCaller:
    """The default client: what is the same in every request is prepared once."""

    def __init__(self, config: EndpointConfig, sampling: Sampling, key: SecretStr | None) -> None:
        headers = request_headers(config, sampling)
        self.secrets = secrets_of(headers, key)
        if key is not None and "authorization" not in {name.lower() for name in headers}:
            headers["Authorization"] = f"Bearer {key.get_secret_value()}"
        headers = {"Accept-Encoding": "identity", "User-Agent": "adaptive-eval", **headers}
        self._transport = SlotTransport()
        # trust_env would put httpx's own pool in front of proxies; the openai client is the one that honours them
        self._http = httpx.AsyncClient(
            transport=self._transport, headers=headers, timeout=PROBE_SECONDS, trust_env=False
        )
        self._aside = SlotTransport(BESIDE_BYTES)
        self._http_aside = httpx.AsyncClient(
            transport=self._aside, headers=headers, timeout=PROBE_SECONDS, trust_env=False
        )
        self._chat = config.api == "chat"
        self._limit = sampling.timeout
        self._clock = asyncio.get_running_loop().time
        self._headers = headers
        self._origins: dict[str, Origin] = {}
        self._heads: dict[str, bytes] = {}
        for base_url in config.replicas:
            url = httpx.URL(base_url + PATHS[config.api])
            self._origins[base_url] = origin_of(url)
            self._heads[base_url] = _head(url, headers)
        self._health_urls: dict[str, str] = {}

    async def ask(self, base_url: str, body: Mapping[str, object]) -> Reply:
        """Send one request and wait for its whole response."""
        content = orjson.dumps(body)
        payload = b"%b%d\r\n\r\n%b" % (self._heads[base_url], len(content), content)
        reader = StreamReader(self._chat, self._clock) if body.get("stream") else None
        try:
            if reader is None:
                done = await self._transport.exchange(self._origins[base_url], payload, self._limit)
            else:
                done = await self._transport.exchange(
                    self._origins[base_url], payload, self._limit, QUIET_SECONDS, reader.feed
                )
        except httpx.HTTPError as error:
            raise failure_of(error, self.secrets) from None
        if reader is not None and done.status == 200:
            return self._streamed(reader, done)
        return self._whole(done.status, done.headers, done.body, done.latency)

    def _whole(self, status: int, headers: Sequence[Header], body: bytes, latency: float) -> Reply:
        status, payload = payload_of(status, body, self.secrets)
        if status == 200:
            return Reply(200, {}, b"", payload, latency, None)
        return Reply(status, httpx.Headers(list(headers)), body, None, latency, None)

    def _streamed(self, reader: StreamReader, done: Exchange) -> Reply:
        if (other := reader.instead()) is not None:
            return self._whole(200, done.headers, other, done.latency)
        first = reader.first_token_at
        ttft = None if first is None else first - done.sent_at
        return Reply(200, {}, b"", reader.payload(), done.latency, ttft)

    async def models(self, base_url: str) -> Reply:
        """GET /models."""
        begun = self._clock()
        try:
            response = await self._http_aside.get(base_url + "/models")
        except httpx.HTTPError as error:
            raise failure_of(error, self.secrets) from None
        return self._whole(response.status_code, response.headers.raw, response.content, self._clock() - begun)

    async def probe(self, base_url: str) -> str | None:
        """GET /health at the server's root, or /models where there is none; any status below 500 is a sign of life."""
        parts = urlsplit(base_url)
        root = f"{parts.scheme}://{parts.netloc}/health"
        try:
            response = await self._get(self._health_urls.get(base_url, root))
        except Failure as failure:
            return str(failure)
        if response.status_code == 404:
            self._health_urls[base_url] = base_url + "/models"
        return None if response.status_code < 500 else f"its health check says HTTP {response.status_code}"

    async def beside(self, base_url: str, path: str) -> tuple[int, bytes]:
        """GET a path beside the API's root, on a connection that no answer waits for, bounded in time and size."""
        url = httpx.URL(base_url.removesuffix("/v1") + path)
        # not through httpx, which would unpack whatever comes packed, to any size
        payload = b"\r\n".join([*_lines("GET", url, self._headers), b"", b""])
        try:
            async with asyncio.timeout(BESIDE_SECONDS):
                done = await self._aside.exchange(origin_of(url), payload)
        except (httpx.HTTPError, TimeoutError) as error:
            raise Failure(Kind.TIMED_OUT, f"{path} could not be read: {clean(str(error), self.secrets)}") from None
        return done.status, done.body

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()
        await self._http_aside.aclose()

    async def _get(self, url: str) -> httpx.Response:
        try:
            return await self._http.get(url)
        except httpx.HTTPError as error:
            raise failure_of(error, self.secrets) from None


def _head(url: httpx.URL, headers: Mapping[str, str]) -> bytes:
    """The head of every request to a URL, up to the number of its Content-Length."""
    lines = _lines("POST", url, {"Content-Type": "application/json", **headers})
    return b"\r\n".join([*lines, b"Content-Length: "])


def _lines(method: str, url: httpx.URL, headers: Mapping[str, str]) -> list[bytes]:
    """The lines of a request's head."""
    known = {"Host": url.netloc.decode("ascii"), **headers}
    return [b"%b %b HTTP/1.1" % (method.encode(), url.raw_path), *(f"{k}: {v}".encode() for k, v in known.items())]
