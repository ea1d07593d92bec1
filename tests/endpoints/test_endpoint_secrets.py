"""A key must show in no text: not in errors, not in representations, not in logs, not in tracebacks."""

import logging
import traceback

import pytest
from endpoint_opener import CLIENTS, Opener
from pydantic import SecretStr
from raw_servers import CHAT, Exchange, raw_server

from adaptive_eval.base.errors import EndpointError

KEY = "sk-secret-0123456789"
HEADER = "header-secret-0123456789"


async def echo_the_key(asked: Exchange) -> None:
    text = f"key {asked.headers['authorization']} and {asked.headers['x-org']} are not welcome"
    await asked.reply((400, 500, 200)[asked.index % 3], text.encode())


@CLIENTS
async def test_no_secret_in_any_text(endpoint: Opener, client: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    async with raw_server(echo_the_key) as server:
        model = endpoint(
            server.base_url, client=client, key=KEY, headers={"X-Org": SecretStr(HEADER)}, attempts=1, model="m"
        )
        for _ in range(3):
            with pytest.raises(EndpointError) as caught:
                await model.sample(CHAT, range(1))
            texts += [str(caught.value), repr(caught.value), *traceback.format_exception(caught.value)]
        texts += [repr(model), repr(model.stats), repr(await model.check()), repr(vars(model))]
        assert all(asked.headers["authorization"] == f"Bearer {KEY}" for asked in server.seen)
        assert all(asked.headers["x-org"] == HEADER for asked in server.seen)
    texts += [record.getMessage() for record in caplog.records]
    assert any("***" in text for text in texts)
    for text in texts:
        assert KEY not in text
        assert HEADER not in text


async def test_a_short_header_is_no_secret(endpoint: Opener) -> None:
    async def refuse(asked: Exchange) -> None:
        await asked.reply(400, b"version 1 is too old")

    async with raw_server(refuse) as server:
        with pytest.raises(EndpointError, match="version 1 is"):
            await endpoint(server.base_url, headers={"X-Version": "1"}).sample(CHAT, range(1))
