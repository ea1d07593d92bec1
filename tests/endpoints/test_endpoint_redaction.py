"""A key shows in no text: those that servers and models send back are found in every form, and no cut leaves half."""

import json
import logging
import traceback
from base64 import b64encode
from urllib.parse import quote

import pytest
from endpoint_opener import CLIENTS, EACH_CLIENT, Opener, Served
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import SecretStr
from raw_servers import CHAT, Exchange, raw_server
from thoroughness import in_turns

from adaptive_eval.base.errors import EndpointError
from adaptive_eval.endpoints.failures import MAX_READ_CHARS, error_signal, safe_excerpt
from adaptive_eval.endpoints.redaction import Redactor, request_redactor, sent_secrets
from adaptive_eval.endpoints.types import EndpointConfig

KEY = "sk-a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6"
ODD = 'pa+s/w&r"d 1=2%3'
LEFT = 12
"""So many characters of a key may be left by a cut."""


def pieces(key: str, length: int = LEFT) -> list[str]:
    return [key[at : at + length] for at in range(len(key) - length + 1)]


def shows(text: str, key: str = KEY) -> bool:
    return any(piece in text for piece in pieces(key))


@pytest.mark.parametrize("key", [KEY, ODD])
@given(before=st.binary(max_size=40), after=st.binary(max_size=40))
def test_a_key_is_found_in_every_form(key: str, before: bytes, after: bytes) -> None:
    redact = Redactor([key]).text
    around = b64encode(before + key.encode() + after).decode()
    alone = b64encode(key.encode()).decode().rstrip("=")
    for form in (key, quote(key, safe=""), json.dumps(key)[1:-1]):
        assert redact(f"it is {form}, is it not") == "it is ***, is it not"
    inner = alone[2:-4]
    assert inner not in redact(around) and inner not in redact(f"key={alone}")
    for start in range(3):
        assert b64encode(bytes(start) + key.encode()).decode()[4:-4] not in redact(around)


@given(space=st.integers(0, 2 * MAX_READ_CHARS), spaces=st.integers(0, 400), length=st.integers(1, 400))
@example(space=MAX_READ_CHARS - 20, spaces=MAX_READ_CHARS - 20, length=400)
@example(space=4096 - 20, spaces=4096 - 20, length=1)
def test_no_cut_leaves_half_a_key(space: int, spaces: int, length: int) -> None:
    filler = " " * min(space, spaces) + "x" * max(0, space - spaces)
    for text in (filler + KEY + "y" * length, (filler + KEY) * 3, KEY * 1000, filler + KEY[:length]):
        assert not shows(safe_excerpt(text, Redactor([KEY])))


def test_an_error_that_is_no_json_shows_no_part_of_a_key() -> None:
    for padding in (*range(150, 230, 3), *range(4040, 4100, 3), 16_370, 65_500):
        body = b" " * padding + b"bad key " + KEY.encode() + b" was sent" * 2
        with pytest.raises(EndpointError) as refused:
            error_signal(400, body, {}, redactor=Redactor([KEY]))
        assert not shows(str(refused.value)), padding


@pytest.mark.parametrize(
    ("kind", "client"), in_turns(["no json", "no http", "chunk", "header", "redirect", "finish", "retry"], EACH_CLIENT)
)
async def test_no_answer_of_a_server_shows_half_a_key(served: Served, kind: str, client: str) -> None:
    async def echo(asked: Exchange) -> None:
        key = asked.headers["authorization"].removeprefix("Bearer ").encode()
        choice = {"index": 0, "message": {"content": "42"}, "finish_reason": key.decode()}
        responses = {
            "no json": b"HTTP/1.1 200 OK\r\nContent-Length: 230\r\n\r\n" + b" " * 187 + key + b" " * 20,
            "no http": key + b" " * 40 + b"\r\n\r\n",
            "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + key + b"\r\n\r\n",
            "header": b"HTTP/1.1 200 OK\r\n " + key + b"\r\n\r\n",
            "redirect": b"HTTP/1.1 302 OK\r\nContent-Length: 0\r\nLocation: http://" + key + b".example/\r\n\r\n",
            "retry": b"HTTP/1.1 429 No\r\nContent-Length: 0\r\nRetry-After: " + key + b"\r\n\r\n",
        }
        if kind == "finish":
            await asked.reply(200, {"choices": [choice]})
        elif kind == "retry" and asked.index > 2:
            await asked.reply(403, b"no " + key)
        else:
            await asked.send(responses[kind])
        asked.close()

    async with served(echo, client=client, key=KEY, attempts=1) as (server, model):
        with pytest.raises(EndpointError) as caught:
            await model.sample(CHAT, range(1))
        assert len(server.seen) >= 1
        assert not shows(str(caught.value) + repr(model.stats))


async def test_names_that_a_server_gives_are_told_without_keys_and_not_without_end(served: Served) -> None:
    async def name_itself(asked: Exchange) -> None:
        choice = {"index": 0, "message": {"content": "42"}, "finish_reason": "stop"}
        named = f"{asked.headers['authorization'].removeprefix('Bearer ')}-{asked.index}-" + "x" * 10_000
        usage = {"prompt_tokens": 5, "completion_tokens": 10**6 + asked.index}
        await asked.reply(200, {"choices": [choice], "model": named, "usage": usage})

    async with served(name_itself, key=KEY, max_tokens=10) as (_, model):
        for seed in range(60):
            await model.sample(CHAT, range(seed, seed + 1))
        notices = model.stats.notices
    assert any(notice.kind == "renamed" for notice in notices)
    assert len(notices) <= 40 and sum(len(notice.text) for notice in notices) < 40_000
    assert not shows(repr(notices)) and "***" in repr(notices)


def test_a_message_loses_pieces_and_keeps_words() -> None:
    basic = b64encode(b"me:" + KEY.encode()).decode()
    redact = request_redactor({"HTTP-Referer": "https://example.org", "Authorization": f"Basic {basic}"}, KEY).text
    assert redact("see https://docs.example for Basic use") == "see https://docs.example for Basic use"
    assert request_redactor({"X-Version": "1"}, KEY).text("version 1 is too old") == "version 1 is too old"
    assert not shows(redact(f"it begins with b'{KEY[:20]}' ... {KEY[-20:]}"))


def test_a_piece_that_a_model_writes_goes_and_its_words_stay() -> None:
    redact = Redactor([KEY, "token-abc123", "correcthorsebatterystaple"]).text
    assert (
        redact(f"it starts with {KEY[:20]}..., and ends with {KEY[-9:]}!")
        == "it starts with ***..., and ends with ***!"
    )
    text = "a token-level answer, sk- and token-ab, correct: 42 horses, 123"
    assert redact(text) == text
    assert Redactor(["abc12345", "abc12345-and-more"]).text("abc12345-and-more") == "***"


@given(st.text(), st.text(), st.integers(0, 34), st.integers(0, 34))
def test_no_text_keeps_a_long_piece_from_either_end(before: str, after: str, start: int, end: int) -> None:
    for piece in (KEY[:end], KEY[start:], KEY[start:] + KEY[:end]):
        shown = Redactor([KEY]).text(before + piece + after)
        assert not any(part in shown for part in (KEY[:LEFT], KEY[-LEFT:]))


def test_what_is_kept_from_answers_is_what_can_be_no_word() -> None:
    def secrets_of(key: str, **headers: str) -> frozenset[str]:
        secret = {name: SecretStr(value) for name, value in headers.items()}
        config = EndpointConfig(base_url="http://a/v1", model="m", api_key_env="THE_KEY", headers=secret)
        return sent_secrets([config], {"THE_KEY": key})

    for word in ("EMPTY", "x", "not-needed", "placeholder", "12345678", ""):
        assert not secrets_of(word)
    assert "184467440737095516" in secrets_of("184467440737095516")
    assert KEY in secrets_of(KEY) and "correcthorsebatterystaple" in secrets_of("correcthorsebatterystaple")
    assert secrets_of("", Accept="application/json; version=2024", Referer="https://example.org/bench") == frozenset()
    assert "s3cret-value" in secrets_of("", **{"X-Api-Key": "s3cret-value"})
    assert "s3cret-value" in secrets_of("", Cookie="session=s3cret-value; lang=en")
    assert "s3cret-value" in secrets_of("", Authorization="Bearer s3cret-value")


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
