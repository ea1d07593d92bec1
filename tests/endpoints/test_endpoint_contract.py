"""What counts as an answer, and what is asked again: the same for both clients, whole or streamed."""

import asyncio
from codecs import BOM_UTF8
from typing import Any

import orjson
import pytest
from endpoint_opener import CLIENTS, EACH_CLIENT, Opener, Served, ask, first
from raw_servers import CHAT, Exchange, raw_server, replying
from thoroughness import in_turns

from adaptive_eval.base.errors import Copied, LaunchFailed, Rejected
from adaptive_eval.endpoints.failures import Failure
from adaptive_eval.endpoints.response_ids import MAX_IDS, REPEATED, ResponseIds
from adaptive_eval.endpoints.traffic import AttemptedRequest
from adaptive_eval.endpoints.types import Message, Notice, Prompt
from adaptive_eval.launch.server import read_version, wait_until_ready

WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
USAGE = {"prompt_tokens": 5, "completion_tokens": 3}


def choice(content: str | None, reason: str | None, **fields: object) -> dict[str, object]:
    return {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": reason, **fields}


def as_events(payload: dict[str, Any]) -> bytes:
    """A response in one event, and the end of the stream."""
    choices = [
        {("delta" if key == "message" else key): value for key, value in entry.items()} for entry in payload["choices"]
    ]
    return b"data: %b\n\ndata: [DONE]\n\n" % orjson.dumps(payload | {"choices": choices})


async def reply(asked: Exchange, payload: dict[str, Any]) -> None:
    await asked.reply(200, as_events(payload) if asked.body.get("stream") else payload)


async def right(asked: Exchange) -> None:
    await reply(asked, {"choices": [choice("42", "stop")], "usage": USAGE})


NO_ANSWERS: dict[str, dict[str, Any]] = {
    "out of resources": {"choices": [choice("half an ans", "insufficient_system_resource")]},
    "unfinished": {"choices": [choice("half an ans", None)]},
    "error in a choice": {"choices": [choice("half", "stop", error={"message": "upstream", "code": 502})]},
    "null, and no tokens": {"choices": [choice(None, "stop")], "usage": USAGE | {"completion_tokens": 0}},
}


@pytest.mark.parametrize(("name", "client", "stream"), in_turns(NO_ANSWERS, EACH_CLIENT, [False, True]))
async def test_what_is_not_finished_is_asked_again(endpoint: Opener, client: str, stream: bool, name: str) -> None:
    async with raw_server(first(1, lambda asked: reply(asked, NO_ANSWERS[name]), right)) as server:
        model = endpoint(server.base_url, client=client, stream=stream)
        (answer,) = await model.sample(CHAT, range(9, 10))
        assert len({asked.raw for asked in server.seen}) == 1
    assert (answer.text, answer.attempts) == ("42", 2)
    assert sum(model.stats.errors.values()) == 1


STREAMS = {
    "event error": b'event: error\ndata: {"message": "engine died"}\n\ndata: [DONE]\n\n',
    "error field": b'error: {"code": 500, "message": "engine died"}\n\n',
    "no reason": b"data: [DONE]\n\n",
    "no end": b"",
    "garbage": b"data: {broken\n\n",
    "error": b'data: {"error": {"message": "engine died", "code": 500}}\n\n',
}


@pytest.mark.parametrize(("name", "client"), in_turns(STREAMS, EACH_CLIENT))
async def test_a_stream_that_does_not_end_well_is_asked_again(endpoint: Opener, client: str, name: str) -> None:
    begun = b'data: {"choices": [{"index": 0, "delta": {"content": "41"}, "finish_reason": null}]}\n\n'
    broken = replying(begun + STREAMS[name], "Content-Type: text/event-stream")
    async with raw_server(first(1, broken, right)) as server:
        (answer,) = await endpoint(server.base_url, client=client, stream=True).sample(CHAT, range(1))
    assert (answer.text, answer.attempts) == ("42", 2)


@CLIENTS
@WAYS
async def test_an_unknown_finish_reason_of_all_is_named_at_once(
    endpoint: Opener, served: Served, client: str, stream: bool
) -> None:
    strange = {"choices": [choice("42", "flux-capacitor")], "model": "m"}
    async with served(lambda asked: reply(asked, strange), client=client, stream=stream) as (server, model):
        with pytest.raises(Rejected, match=r"'flux_capacitor'.*set `finish_reasons: \[flux_capacitor\]` on this model"):
            await model.sample(CHAT, range(1))
        assert model.stats.lost == len(server.seen) == 2, "whether it is finished nobody knows: it is paid, twice"
        health = await model.check()
        assert not health.ok
        assert "finish_reasons: [flux_capacitor]" in health.replicas[0].detail
        declared = endpoint(server.base_url, client=client, stream=stream, finish_reasons=("Flux_Capacitor",))
        assert (await declared.check()).ok
        (answer,) = await declared.sample(CHAT, range(1))
    assert (answer.text, answer.finish_reason) == ("42", "flux-capacitor")


@pytest.mark.parametrize(("reason", "client", "stream"), in_turns(["preempted", ""], EACH_CLIENT, [False, True]))
async def test_rare_finish_reasons_cost_one_answer(served: Served, client: str, stream: bool, reason: str) -> None:
    """The first answer and another one end so once, a third at every attempt."""
    odd = {0: 1, 7: 1, 11: 1000}

    async def script(asked: Exchange) -> None:
        seed = int(str(asked.body["seed"]))
        odd[seed] = odd.get(seed, 0) - 1
        await reply(asked, {"choices": [choice("42", reason if odd[seed] >= 0 else "stop")], "model": "m"})

    async with served(script, client=client, stream=stream, in_flight=2, retry_for=300.0) as (_, model):
        answers = [(await model.sample(CHAT, range(seed, seed + 1)))[0] for seed in range(11)]
        later = await ask(model, 29, 11)
    assert [answer.text for answer in answers] == ["42"] * 11
    assert [answers[at].attempts for at in (0, 1, 7)] == [2, 1, 2]
    (unanswered,) = [answer for answer in later if answer.signals]
    assert (unanswered.seed, unanswered.text, unanswered.signals) == (11, "", {"unanswered"})
    assert " finish reason" in unanswered.finish_reason and "finish_reasons:" not in unanswered.finish_reason


@CLIENTS
async def test_a_streamed_answer_says_which_model_it_is_from(endpoint: Opener, client: str) -> None:
    """Where the list of models has other names, the name of the answer decides; and an exchanged model is noticed."""

    async def script(asked: Exchange) -> None:
        await reply(asked, {"choices": [choice("42", "stop")], "model": "m-2026" if asked.index < 2 else "m-2027"})

    async with raw_server(script, pages={"/v1/models": replying({"data": [{"id": "other"}]})}) as server:
        model = endpoint(server.base_url, client=client, stream=True)
        for seed in range(3):
            await model.sample(CHAT, range(seed, seed + 1))
    assert [notice.kind for notice in model.stats.notices] == ["no_usage", "renamed"]
    assert "'m-2027'" in model.stats.notices[1].text and "'m-2026'" in model.stats.notices[1].text


@pytest.mark.parametrize(("code", "client", "stream"), in_turns([301, 302, 303, 307, 308], EACH_CLIENT, [False, True]))
async def test_no_redirect_is_followed(served: Served, client: str, stream: bool, code: int) -> None:
    """Neither answers nor the list of models nor health nor load are asked for where a server points to."""
    async with raw_server(lambda asked: reply(asked, {"choices": [choice("42", "stop")]})) as other:
        redirect = replying(b"", f"Location: {other.base_url}/chat/completions", status=code)
        pages = dict.fromkeys(("/v1/models", "/health", "/metrics"), redirect)
        async with served(redirect, pages=pages, client=client, stream=stream, key="sk-123456789") as (_, model):
            host = other.base_url.removeprefix("http://").removesuffix("/v1")
            with pytest.raises(Rejected, match=f"HTTP {code}.*redirects to {host}.*give the base_url at {host}"):
                await model.sample(CHAT, range(1))
            assert not (await model.check()).ok
        assert other.connections == 0


async def test_a_server_that_is_started_is_not_looked_for_elsewhere() -> None:
    elsewhere = replying({"version": "1"})
    async with raw_server(elsewhere, pages={"/health": elsewhere, "/version": elsewhere}) as other:

        async def redirect(asked: Exchange) -> None:
            await asked.reply(307, b"", f"Location: {other.base_url.removesuffix('/v1')}{asked.path}")

        async with raw_server(redirect, pages=dict.fromkeys(("/health", "/v1/models", "/version"), redirect)) as server:
            root = server.base_url.removesuffix("/v1")
            with pytest.raises(LaunchFailed, match="HTTP 307; /health"):
                await wait_until_ready(root, asyncio.get_running_loop().create_future(), 30.0)
            assert await read_version(root) is None
        assert other.connections == 0


def question(number: int) -> Prompt:
    return Prompt(messages=(Message("user", f"question {number}"),))


def response(name: str | None, text: str) -> dict[str, object]:
    named = {} if name is None else {"id": name}
    return named | {"choices": [choice(text, "stop")], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}


def asked_number(asked: Exchange) -> int:
    messages = asked.body["messages"]
    assert isinstance(messages, list)
    return int(str(messages[-1]["content"]).split()[-1])


class Received:
    """Which responses count, by their ids."""

    def __init__(self, most_copies: int | None = None) -> None:
        self.notices: list[Notice] = []
        self.ids = ResponseIds(self.notices.append, most_copies)
        self.requests: dict[int, AttemptedRequest] = {}

    def counts(self, name: str | None, text: str, number: int, *, replica: str = "a") -> bool:
        """Whether a response to the request of this number counts."""
        request = self.requests.setdefault(number, AttemptedRequest(question(number), range(1), {}, None))
        try:
            self.ids.require_new(replica, response(name, text), request)
        except Failure:
            return False
        return True


def test_a_response_to_another_request_is_refused_once() -> None:
    came = Received()
    assert came.counts("x1", "A", 1) and came.counts("x2", "A", 2)
    assert not came.counts("x2", "A", 3) and came.notices == [REPEATED]
    assert not came.counts("x1", "A", 3), "of yet another request"
    assert came.counts("x3", "A", 3), "its own"
    assert not came.counts("x1", "A", 4)
    assert came.counts("x1", "A", 4), "there is no other"


def test_no_answer_of_a_cache_counts_where_answers_must_be_independent() -> None:
    came = Received(most_copies=3)
    assert came.counts("x", "A", 0) and not came.counts("x", "A", 1) and came.counts("x", "A", 1), "perhaps its only id"
    assert came.counts("y", "B", 2) and not any(came.counts("x", "A", 3) for _ in range(4))
    assert came.counts("z", "A", 4)
    with pytest.raises(Copied, match="switch off its cache"):
        came.counts("x", "A", 3)


def test_ids_that_mean_nothing_refuse_nothing_for_long() -> None:
    for missing in (None, ""):
        came = Received()
        assert all(came.counts(missing, "A", number) for number in range(20))
    one_for_all = Received()
    assert one_for_all.counts("chatcmpl-1", "A", 0)
    assert not one_for_all.counts("chatcmpl-1", "A", 1) and one_for_all.counts("chatcmpl-1", "A", 1), "asked again once"
    assert all(one_for_all.counts("chatcmpl-1", text, number) for number, text in enumerate("BAAA", 2))
    two_contents = Received()
    assert all(two_contents.counts(name, f"{number}", number) for number, name in enumerate(("1", "2", "1", "2")))
    assert all(two_contents.counts("2", "A", number) for number in range(5))


def test_few_ids_are_kept_and_replicas_number_theirs_apart() -> None:
    came = Received()
    for number, name in enumerate(("1", "2", "3")):
        assert came.counts(name, "A", number) and came.counts(name, "A", 10 + number, replica="b")
    came = Received()
    assert all(came.counts(f"x{number}", "A", number) for number in range(MAX_IDS + 1))
    assert came.counts("x0", "A", -1), "forgotten"
    assert not came.counts(f"x{MAX_IDS}", "A", -2)


@CLIENTS
@WAYS
async def test_proxy_that_doubles_responses_adds_no_answer(served: Served, client: str, stream: bool) -> None:
    """Each third response comes again in place of the next one."""
    previous: list[dict[str, object]] = []

    async def script(asked: Exchange) -> None:
        number = asked_number(asked)
        correct = response(f"id-{number}", f"answer {number}")
        repeated = asked.index % 3 == 2
        await reply(asked, previous[-1] if repeated else correct)
        previous.append(correct)

    async with served(script, client=client, stream=stream) as (server, asking):
        answers = [(await asking.sample(question(number), range(number, number + 1)))[0] for number in range(9)]
        assert [answer.text for answer in answers] == [f"answer {number}" for number in range(9)]
        assert len(server.seen) > 9
        assert REPEATED in asking.stats.notices and asking.stats.lost == len(server.seen) - 9


PAGE = b"<!DOCTYPE html>\n<html><head><title>Welcome to\n nginx!</title></head><body>It works</body></html>"


@pytest.mark.parametrize(("before", "client", "stream"), in_turns([b"", BOM_UTF8 + b" \n"], EACH_CLIENT, [True, False]))
async def test_web_page_ends_at_once(served: Served, client: str, stream: bool, before: bytes) -> None:
    script = replying(before + PAGE, "Content-Type: text/html")
    async with served(script, pages={"/v1/models": script}, client=client, stream=stream) as (_, asking):
        with pytest.raises(Rejected, match=r"HTTP 200 with a web page \('Welcome to nginx!'\).*check base_url"):
            await asking.sample(CHAT, range(1))
        health = await asking.check()
        assert not health.ok and health.replicas[0].refuses and "web page" in health.replicas[0].detail
