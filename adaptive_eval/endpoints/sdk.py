"""The openai SDK as the client, for providers that need its authentication, proxies or headers.

It costs about twenty times the CPU of the default client per request (`benchmarks/throughput.md`). It only carries the
bytes: bodies, retries, time limits and the meaning of what comes back are the same as with the default.
"""

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import openai
from pydantic import SecretStr

from adaptive_eval.endpoints.client import PROBE_SECONDS, QUIET_SECONDS, Reply, payload_of, request_headers, secrets_of
from adaptive_eval.endpoints.failures import Failure, Kind, clean
from adaptive_eval.endpoints.parsing import StreamReader
from adaptive_eval.endpoints.transport import CONNECT_SECONDS
from adaptive_eval.endpoints.types import EndpointConfig, Sampling

_http: Any = import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])
"""httpx or httpx2, whichever this version of the SDK stands on."""

NO_KEY = "EMPTY"
"""The SDK insists on a key; servers without one ignore it."""


class SdkCaller:
    """One SDK client per replica; it never retries by itself."""

    def __init__(self, config: EndpointConfig, sampling: Sampling, key: SecretStr | None) -> None:
        headers = request_headers(config, sampling)
        self.secrets = secrets_of(headers, key)
        self._chat = config.api == "chat"
        self._stream = config.stream
        self._limit = sampling.timeout
        self._clock = asyncio.get_running_loop().time
        # without a stream the first byte comes with the last, so the limit on reading is the limit on the answer
        read = QUIET_SECONDS if config.stream else sampling.timeout
        timeout = openai.Timeout(None, connect=CONNECT_SECONDS, read=read)
        self._clients = {
            base_url: openai.AsyncOpenAI(
                api_key=key.get_secret_value() if key is not None else NO_KEY,
                base_url=base_url,
                default_headers=headers,
                max_retries=0,
                timeout=timeout,
                # the SDK's own client takes the key to wherever a server redirects it
                http_client=openai.DefaultAsyncHttpxClient(timeout=timeout, follow_redirects=False),
            )
            for base_url in config.replicas
        }

    async def ask(self, base_url: str, body: Mapping[str, object]) -> Reply:
        """Send one request through the SDK."""
        client = self._clients[base_url]
        resource: Any = client.chat.completions if self._chat else client.completions
        named = ("model", "messages", "prompt", "stream")
        arguments: dict[str, Any] = {name: body[name] for name in named if name in body}
        # what the SDK does not know (top_k, min_p, ...) it only sends in extra_body
        arguments["extra_body"] = {name: value for name, value in body.items() if name not in named}
        begun = self._clock()
        try:
            if body.get("stream"):
                return await self._streamed(resource, arguments, begun)
            response = await resource.with_raw_response.create(**arguments)
            return self._reply(response.status_code, response.headers, response.content, begun)
        except openai.APIStatusError as error:
            return self._reply(error.response.status_code, error.response.headers, error.response.content, begun)
        except openai.APIConnectionError as error:
            raise self._failure(error.__cause__ or error) from None

    async def _streamed(self, resource: Any, arguments: dict[str, Any], begun: float) -> Reply:
        reader = StreamReader(self._chat, self._clock)
        try:
            async with (
                asyncio.timeout(self._limit),
                resource.with_streaming_response.create(**arguments) as response,
            ):
                async for data in response.iter_bytes():
                    reader.feed(data)
        except TimeoutError:
            raise Failure(Kind.TIMED_OUT, f"no answer within {self._limit:g} s") from None
        except _http.HTTPError as error:
            raise self._failure(error) from None
        if (other := reader.instead()) is not None:
            return self._reply(200, response.headers, other, begun)
        ttft = None if reader.first_token_at is None else reader.first_token_at - begun
        return Reply(200, response.headers, b"", reader.payload(), self._clock() - begun, ttft)

    async def models(self, base_url: str) -> Reply:
        """The SDK's list of models."""
        begun = self._clock()
        models: Any = self._clients[base_url].models.with_raw_response
        try:
            response = await models.list(timeout=PROBE_SECONDS)
            return self._reply(response.status_code, response.headers, response.content, begun)
        except openai.APIStatusError as error:
            return self._reply(error.response.status_code, error.response.headers, error.response.content, begun)
        except openai.APIConnectionError as error:
            raise self._failure(error.__cause__ or error) from None

    async def probe(self, base_url: str) -> str | None:
        """Any answer with a status below 500 is a sign of life."""
        try:
            reply = await self.models(base_url)
        except Failure as failure:
            return str(failure)
        return None if reply.status < 500 else f"its list of models says HTTP {reply.status}"

    async def beside(self, base_url: str, path: str) -> tuple[int, bytes]:
        """Nothing: behind what the SDK is for, gateways and proxies, there is no server to look at."""
        return 404, b""

    async def close(self) -> None:
        """Close every client."""
        for client in self._clients.values():
            await client.close()

    def _reply(self, status: int, headers: Mapping[str, str], body: bytes, begun: float) -> Reply:
        status, payload = payload_of(status, body, self.secrets)
        return Reply(status, headers, body, payload, self._clock() - begun, None)

    def _failure(self, error: BaseException) -> Failure:
        kind = Kind.RESET
        if isinstance(error, (_http.ConnectError, _http.ConnectTimeout)):
            kind = Kind.UNREACHABLE
        elif isinstance(error, _http.ReadTimeout):
            kind = Kind.STALLED if self._stream else Kind.TIMED_OUT
        elif isinstance(error, _http.DecodingError):
            kind = Kind.BAD_RESPONSE
        return Failure(kind, clean(f"{type(error).__name__}: {error}", self.secrets))
