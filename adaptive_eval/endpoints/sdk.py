"""Client based on the openai SDK, for features that only it has.

It costs several times the CPU of the default client per request (`benchmarks/throughput.md`). It only carries the
bytes, over the same kind of session: bodies, retries, time limits and the interpretation of replies are the same.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import openai
import orjson

from adaptive_eval.endpoints.client import Caller, read_to_end
from adaptive_eval.endpoints.parsing import StreamReader
from adaptive_eval.endpoints.traffic import Attempt
from adaptive_eval.endpoints.transport import (
    MAX_BYTES_EXTENSION,
    ExchangeError,
    Incoming,
    httpx_timeouts,
    incoming_response,
)
from adaptive_eval.endpoints.types import EndpointConfig, Sampling
from adaptive_eval.endpoints.wire import longest_response

NO_KEY = "EMPTY"
"""The SDK insists on a key; the headers have the real one."""


class SdkCaller(Caller):
    """One SDK client per replica, without retries of its own; only requests for answers go through it."""

    def __init__(self, config: EndpointConfig, sampling: Sampling, keys: Mapping[str, str], folder: Path) -> None:
        super().__init__(config, sampling, keys, folder)
        self._health_urls = {base_url: f"{base_url}/models" for base_url in config.replicas}
        self._http.event_hooks = {"request": [_bound]}
        self._clients = {
            base_url: openai.AsyncOpenAI(
                api_key=NO_KEY,
                base_url=base_url,
                default_headers=self._headers,
                max_retries=0,
                http_client=self._http,
            )
            for base_url in config.replicas
        }

    async def _exchange(
        self, base_url: str, body: Mapping[str, object], reader: StreamReader | None, attempt: Attempt | None
    ) -> tuple[Incoming, bytes]:
        """Send one request through the SDK."""
        client = self._clients[base_url]
        resource: Any = client.chat.completions if self._chat else client.completions
        sdk_arguments = ("model", "messages", "prompt", "stream")
        arguments: dict[str, Any] = {name: body[name] for name in sdk_arguments if name in body}
        # settings unknown to the SDK (top_k, min_p, ...) must go in extra_body
        arguments["extra_body"] = {name: value for name, value in body.items() if name not in sdk_arguments}
        timeout = httpx2.Timeout(**httpx_timeouts(self._limit))
        try:
            async with resource.with_streaming_response.create(**arguments, timeout=timeout) as opened:
                response = incoming_response(opened.http_response)
                return response, await read_to_end(response, reader, attempt)
        except openai.APIStatusError as error:
            response = incoming_response(error.response)
            return response, response.body  # already read by the SDK
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, (ExchangeError, httpx2.HTTPError)):
                raise error.__cause__ from None
            raise

    async def fetch_outside_api(self, base_url: str, path: str) -> bytes:
        """Nothing: the SDK is for gateways and proxies, which hide their servers."""
        return b""


async def _bound(request: httpx2.Request) -> None:
    """Limit the size of the response according to the request."""
    request.extensions[MAX_BYTES_EXTENSION] = longest_response(orjson.loads(request.content), len(request.content))
