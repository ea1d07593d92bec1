"""Sampling through real sockets: seeds, failures of every kind, time limits, n."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from endpoint_opener import CLIENTS, Opener, Served, ask, first, hang
from raw_servers import CHAT, TEXT, Exchange, Script, raw_server, replying

from adaptive_eval.base.errors import ConfigError, Rejected, Unavailable
from adaptive_eval.endpoints.endpoint import ModelEndpoint, open_endpoint
from adaptive_eval.endpoints.types import EndpointConfig, Limits, Sampling


async def by_seed(asked: Exchange) -> None:
    """One answer per seed: `#seed`."""
    seed, n = asked.body["seed"], asked.body.get("n", 1)
    assert isinstance(seed, int) and isinstance(n, int)
    await asked.answer(*(f"#{seed + child}" for child in range(n)))


def failing(times: int, failure: Script) -> Script:
    """A script that fails so many times before it answers."""
    return first(times, failure, by_seed)


@CLIENTS
async def test_an_answer(served: Served, client: str) -> None:
    async def thoughtfully(asked: Exchange) -> None:
        await asyncio.sleep(0.25)
        await by_seed(asked)

    async with served(thoughtfully, client=client, key="sk-123456", temperature=0.5, top_k=7) as (server, model):
        (answer,) = await model.sample(CHAT, range(9, 10))
        (asked,) = server.seen
    assert (answer.text, answer.seed, answer.attempts, answer.replica) == ("#9", 9, 1, server.base_url)
    assert answer.latency == pytest.approx(0.25)
    assert (asked.path, asked.headers["authorization"]) == ("/v1/chat/completions", "Bearer sk-123456")
    assert {"temperature": 0.5, "top_k": 7, "seed": 9, "model": "m"}.items() <= asked.body.items()
    assert model.stats.requests == 1
    assert (model.stats.prompt_tokens, model.stats.completion_tokens, model.stats.retries) == (5, 3, 0)


@CLIENTS
async def test_text_completions(endpoint: Opener, client: str) -> None:
    async with raw_server(replying({"choices": [{"index": 0, "text": "42", "finish_reason": "stop"}]})) as server:
        (answer,) = await endpoint(server.base_url, client=client, api="completions").sample(TEXT, range(1))
        assert (server.seen[0].path, server.seen[0].body["prompt"]) == ("/v1/completions", TEXT.text)
    assert answer.text == "42"


def refusing(status: int) -> Script:
    return replying({"error": {"message": "not now"}}, status=status)


async def reset(asked: Exchange) -> None:
    asked.reset()


FAILURES: dict[str, tuple[Script, str]] = {
    "rate limited": (refusing(429), "rate_limited"),
    "server error": (refusing(500), "server_error"),
    "overloaded": (refusing(503), "overloaded"),
    "reset": (reset, "reset"),
    "web page": (replying(b"<html><body>Bad gateway</body></html>"), "refused"),
    "no choices": (replying({"choices": []}), "bad_response"),
    "no HTTP": (lambda asked: asked.send(b"\x00\x01\x02\x03 this is not HTTP\r\n\r\n"), "bad_response"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failed_request_is_repeated_with_the_same_body(served: Served, name: str) -> None:
    async with served(failing(2, FAILURES[name][0]), attempts=5) as (server, model):
        (answer,) = await model.sample(CHAT, range(9, 10))
        assert (answer.text, answer.attempts) == ("#9", 3)
        assert len({asked.raw for asked in server.seen}) == 1
    assert model.stats.errors == {FAILURES[name][1]: 2}
    assert model.stats.retries == 2


@pytest.mark.parametrize("name", ["server error", "reset", "no HTTP"])
async def test_failures_use_up_the_attempts(endpoint: Opener, waits: list[float], name: str) -> None:
    async with raw_server(failing(99, FAILURES[name][0])) as server:
        with pytest.raises(Unavailable, match="after 3 attempts"):
            await endpoint(server.base_url, attempts=3).sample(CHAT, range(1))
        assert len(server.seen) == 3
    assert all(0.0 <= wait <= bound for wait, bound in zip(waits, (1.0, 2.0), strict=True))


@CLIENTS
async def test_errors_that_are_answers(served: Served, client: str) -> None:
    async def script(asked: Exchange) -> None:
        code = ("context_length_exceeded", "content_filter")[asked.index]
        await asked.reply(400, {"error": {"message": "no", "code": code}})

    async with served(script, client=client) as (_, model):
        answers = [await model.sample(CHAT, range(seed, seed + 1)) for seed in (5, 6)]
    expected = [({"context_length"}, "", 5), ({"content_filter"}, "", 6)]
    assert [(answer.signals, answer.text, answer.seed) for (answer,) in answers] == expected


# -- waiting as told ---------------------------------------------------------------------------------------------


async def test_retry_after_is_honoured_by_everyone(served: Served) -> None:
    times: list[float] = []
    refused_once = failing(1, replying(b"{}", "Retry-After: 0.3", status=429))

    async def script(asked: Exchange) -> None:
        times.append(asyncio.get_running_loop().time())
        await refused_once(asked)

    async with served(script) as (_, model):
        refused = asyncio.create_task(model.sample(CHAT, range(1)))
        await asyncio.sleep(0.1)
        await asyncio.gather(refused, ask(model, 4, 1))
    assert all(at - times[0] >= 0.29 for at in times[1:])


async def test_refusals_are_waited_out_however_many_attempts_it_takes(endpoint: Opener, waits: list[float]) -> None:
    async with raw_server(failing(6, FAILURES["rate limited"][0])) as server:
        (answer,) = await endpoint(server.base_url, attempts=2, timeout=60.0).sample(CHAT, range(1))
    assert answer.attempts == 7
    assert len(waits) == 6


async def test_requests_per_minute(endpoint: Opener, waits: list[float]) -> None:
    async with raw_server(by_seed) as server:
        await ask(endpoint(server.base_url, requests_per_minute=60.0), 5)
    assert sorted(waits) == pytest.approx([1.0, 2.0, 3.0, 4.0], abs=0.05)


async def test_tokens_per_minute_follow_what_is_used(served: Served, waits: list[float]) -> None:
    async with served(by_seed, tokens_per_minute=60.0 * 80) as (_, model):
        for i in range(4):
            await model.sample(CHAT, range(i, i + 1))
    # 8 tokens an answer at 80 a second; the first guess was corrected before it could hurt
    assert all(wait < 0.3 for wait in waits)
    assert waits


# -- time limits -------------------------------------------------------------------------------------------------


@CLIENTS
async def test_over_the_time_limit_it_is_asked_again_and_then_an_answer(served: Served, client: str) -> None:
    async with served(hang, client=client, timeout=0.1, attempts=3) as (server, model):
        (answer,) = await model.sample(CHAT, range(8, 9))
        assert len(server.seen) == 3
        assert len({asked.raw for asked in server.seen}) == 1
    assert (answer.signals, answer.text, answer.seed, answer.attempts) == ({"timed_out"}, "", 8, 3)
    assert model.stats.errors == {"timed_out": 3}


async def test_time_in_the_queue_is_not_counted(served: Served) -> None:
    async def slowly(asked: Exchange) -> None:
        await asyncio.sleep(0.1)
        await by_seed(asked)

    async with served(slowly, timeout=0.3, in_flight=1) as (_, model):
        assert [answer.text for answer in await ask(model, 8)] == [f"#{seed}" for seed in range(8)]
    assert model.stats.errors == {}


# -- n > 1 -------------------------------------------------------------------------------------------------------


@CLIENTS
async def test_several_answers_travel_together(served: Served, client: str) -> None:
    async with served(by_seed, client=client, samples_per_request=4) as (server, model):
        answers = await model.sample(CHAT, range(10, 20))
        assert sorted((asked.body["seed"], asked.body.get("n")) for asked in server.seen) == [(10, 4), (14, 4), (18, 2)]
    assert [(answer.text, answer.seed) for answer in answers] == [(f"#{seed}", seed) for seed in range(10, 20)]


async def test_a_server_that_ignores_n_is_found_out(served: Served) -> None:
    async with served(lambda asked: asked.answer(f"#{asked.body['seed']}"), samples_per_request=4) as (server, model):
        first = await model.sample(CHAT, range(10, 14))
        assert [asked.body.get("n", 1) for asked in server.seen] == [4, 1, 1, 1]
        second = await model.sample(CHAT, range(20, 24))
        assert all("n" not in asked.body for asked in server.seen[4:])
    assert [answer.text for answer in first + second] == [f"#{seed}" for seed in (*range(10, 14), *range(20, 24))]


@pytest.mark.parametrize("fails_first", [False, True])
async def test_a_server_that_refuses_n_is_asked_singly(served: Served, fails_first: bool) -> None:
    async def no_n(asked: Exchange) -> None:
        if asked.index == 0 and fails_first:
            await refusing(503)(asked)
        elif "n" in asked.body:
            await asked.reply(400, {"error": {"message": "n must be 1"}})
        else:
            await by_seed(asked)

    async with served(no_n, samples_per_request=3) as (server, model):
        answers = await model.sample(CHAT, range(3))
    assert [answer.text for answer in answers] == ["#0", "#1", "#2"]
    (notice,) = model.stats.notices
    assert notice.text == "its server refuses n = 3: HTTP 400: n must be 1; it is asked for 1 at a time"


async def test_one_long_answer_does_not_take_the_others_with_it(served: Served) -> None:
    async def long_seed_two(asked: Exchange) -> None:
        if asked.body.get("n", 1) == 4 or asked.body["seed"] == 2:
            await asyncio.sleep(5)
        await by_seed(asked)

    async with served(long_seed_two, samples_per_request=4, timeout=0.1, attempts=2) as (_, model):
        answers = await model.sample(CHAT, range(4))
    assert [answer.text for answer in answers] == ["#0", "#1", "", "#3"]
    assert answers[2].signals == {"timed_out"}


async def test_one_failure_among_several_requests_leaves_none_behind(served: Served) -> None:
    async def seed_one_fails(asked: Exchange) -> None:
        if asked.body["seed"] == 1:
            await refusing(401)(asked)
        else:
            await asyncio.sleep(0.05)
            await by_seed(asked)

    async with served(seed_one_fails) as (_, model):
        with pytest.raises(Rejected):
            await model.sample(CHAT, range(4))
        assert model.stats.in_flight == 0


# -- streams -----------------------------------------------------------------------------------------------------


def event(content: bytes, reason: bytes = b"null") -> bytes:
    return b'data: {"choices": [{"index": 0, "delta": {"content": "%b"}, "finish_reason": %b}]}\n\n' % (content, reason)


@CLIENTS
async def test_a_streamed_answer_has_a_time_to_its_first_token(endpoint: Opener, client: str) -> None:
    async def script(asked: Exchange) -> None:
        assert asked.body["stream"] is True
        await asyncio.sleep(0.05)
        await asked.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + event(b"4"))
        await asyncio.sleep(0.1)
        await asked.send(event(b"2", b'"stop"') + b"data: [DONE]\n\n")
        asked.close()

    async with raw_server(script) as server:
        (answer,) = await endpoint(server.base_url, client=client, stream=True).sample(CHAT, range(1))
    assert (answer.text, answer.finish_reason) == ("42", "stop")
    assert answer.ttft == pytest.approx(0.05)
    assert answer.latency == pytest.approx(0.15)


# -- opening -----------------------------------------------------------------------------------------------------


PROVIDERS_KEY = {"OPENAI_API_KEY": "sk-of-another-1"}


@asynccontextmanager
async def opened_with_keys(base_url: str, client: str, named: dict[str, str]) -> AsyncIterator[ModelEndpoint]:
    config = EndpointConfig.model_validate({"base_url": base_url, "model": "m", "client": client, **named})
    model = open_endpoint(config, Sampling(), Limits(), keys=PROVIDERS_KEY)
    try:
        yield model
    finally:
        await model.close()


@pytest.mark.parametrize("client", ["http", "openai"])
@pytest.mark.parametrize(
    ("named", "sent", "why"),
    [
        ({}, False, "no key was sent: name the variable .* api_key_env .*OPENAI_API_KEY"),
        ({"api_key_env": "OPENAI_API_KEY"}, True, "the key was refused: check the variable OPENAI_API_KEY"),
    ],
)
async def test_the_key_of_a_provider_goes_where_it_is_named_and_a_server_that_refuses_names_the_option(
    client: str, named: dict[str, str], sent: bool, why: str
) -> None:
    async with raw_server(by_seed) as server, opened_with_keys(server.base_url, client, named) as model:
        await model.sample(CHAT, range(1))
        await model.check()
    assert server.seen and {PROVIDERS_KEY["OPENAI_API_KEY"] in str(asked.headers) for asked in server.seen} == {sent}
    async with raw_server(refusing(401)) as server, opened_with_keys(server.base_url, client, named) as model:
        with pytest.raises(Rejected, match=why):
            await model.sample(CHAT, range(1))


@pytest.mark.parametrize("broken", ["sk-“12345678”", "sk-1234\n5678"])
async def test_a_key_that_is_not_set_or_that_no_request_can_carry_is_refused_at_once(broken: str) -> None:
    config = EndpointConfig(base_url="http://a/v1", model="m", api_key_env="MY_KEY")
    with pytest.raises(ConfigError, match="MY_KEY"):
        open_endpoint(config, Sampling(), Limits(), keys={})
    with pytest.raises(ConfigError, match="MY_KEY must hold a key") as caught:
        open_endpoint(config, Sampling(), Limits(), keys={"MY_KEY": broken})
    assert "1234" not in str(caught.value)
    config = EndpointConfig.model_validate({"base_url": "http://a/v1", "model": "m", "headers": {"X-Org": broken}})
    with pytest.raises(ConfigError, match="'X-Org' must be one line of ASCII text") as caught:
        open_endpoint(config, Sampling(), Limits(), keys={})
    assert "1234" not in str(caught.value)


async def test_an_authorization_header_of_the_user_goes_before_the_key(endpoint: Opener) -> None:
    async with raw_server(by_seed) as server:
        await endpoint(server.base_url, key="sk-123456", headers={"authorization": "Basic abc\n"}).sample(
            CHAT, range(1)
        )
    assert server.seen[0].headers["authorization"] == "Basic abc"


async def test_as_many_files_may_be_open_as_requests_in_flight_need() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        model = open_endpoint(EndpointConfig(base_url="http://a/v1", model="m"), Sampling(), Limits(), keys={})
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(hard, 2048)
        await model.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_seeds_of_many_requests_at_once_stay_with_their_answers(endpoint: Opener) -> None:
    async def shuffled(asked: Exchange) -> None:
        await asyncio.sleep(hash(asked.raw) % 20 / 1000)
        await by_seed(asked)

    async with raw_server(shuffled) as server:
        answers = await ask(endpoint(server.base_url, in_flight=50), 200)
        # and those for what the server says of itself, and for a health check where this takes longer than it should
        assert server.connections <= 53
    assert [(answer.text, answer.seed) for answer in answers] == [(f"#{seed}", seed) for seed in range(200)]
