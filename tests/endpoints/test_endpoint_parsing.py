"""JSON with flaws that a model's text or a Python server puts into it is read; what is no JSON is not."""

import math
from typing import Any

import pytest
from endpoint_opener import CLIENTS
from raw_servers import CHAT, Exchange, raw_server

from adaptive_eval.endpoints.parsing import parse_server_json


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (rb'{"a": "\ud800x"}', {"a": "?x"}),
        (rb'{"a": "x\udc00"}', {"a": "x?"}),
        (rb'{"\ud800": 1}', {"?": 1}),
        (rb'{"a": "\ud83d\ude00\ud800"}', {"a": "\U0001f600?"}),
        (b'{"a": "caf\xe9"}', {"a": "caf\ufffd"}),
        (b'{"a": -Infinity}', {"a": -math.inf}),
    ],
)
def test_flaws_are_read_over(body: bytes, value: object) -> None:
    assert parse_server_json(body) == value


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"a": [', b"[" * 100_000, b"\xff"])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        parse_server_json(body)


@CLIENTS
@pytest.mark.parametrize("stream", [False, True])
async def test_half_a_surrogate_pair_is_an_answer(endpoint: Any, client: str, stream: bool) -> None:
    part = b"delta" if stream else b"message"
    payload = rb'{"choices": [{"index": 0, "%s": {"content": "\ud800 42"}, "finish_reason": "stop"}]}' % part

    async def script(exchange: Exchange) -> None:
        if stream:
            await exchange.reply(200, b"data: %s\n\ndata: [DONE]\n\n" % payload, "Content-Type: text/event-stream")
        else:
            await exchange.reply(200, payload, "Content-Type: application/json")

    async with raw_server(script) as server:
        opened = endpoint(server.base_url, key="k", client=client, stream=stream)
        (answer,) = await opened.sample(CHAT, range(7, 8))
    assert answer.text == "? 42"
    assert answer.attempts == 1
