"""What is found out about a server before it is asked, and the habits of llama-server."""

import asyncio
from typing import Any

import numpy as np
import orjson
import pytest
from endpoint_opener import Opener, Served, ask
from raw_servers import CHAT, Exchange, Script, raw_server, replying

from adaptive_eval.base.errors import Rejected
from adaptive_eval.endpoints.servers import is_same_model
from adaptive_eval.endpoints.types import EndpointConfig, Message, Prompt, Sampling
from adaptive_eval.endpoints.wire import SERVER_DEFAULT, sent_sampling
from adaptive_eval.simulate.faults import Faults
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import Latency, World, binary

WORLD = World("one", binary(np.full((1, 4), 0.5)), models=("m",), latency=Latency(0.002, 0.8, 1.0))
QUESTION = Prompt(messages=(Message("user", "[q1] Which number?"),))


def models(*entries: dict[str, Any]) -> dict[str, Script]:
    return {"/v1/models": replying({"data": list(entries)})}


def naming(name: str) -> Script:
    """Answers whatever is asked for, and says from which model."""

    async def write(asked: Exchange) -> None:
        n = int(str(asked.body.get("n", 1)))
        choices = [{"index": i, "message": {"content": "42"}, "finish_reason": "stop"} for i in range(n)]
        usage = {"prompt_tokens": 5, "completion_tokens": n}
        await asked.reply(200, {"model": name, "choices": choices, "usage": usage})

    return write


PROPS = {"default_generation_settings": {"params": {"top_k": 20, "top_p": 0.95, "min_p": 0.0}}}


def llama(props: Script = replying(PROPS)) -> dict[str, Script]:  # noqa: B008
    """The pages of llama-server."""
    return {**models({"id": "llama", "aliases": ["llama", "m"], "owned_by": "llamacpp"}), "/props": props}


# -- whether it serves the model -----------------------------------------------------------------------------------


async def test_a_model_that_is_not_on_the_list_is_refused_though_it_would_be_answered(served: Served) -> None:
    async with served(naming("other"), pages=models({"id": "other"}, {"id": "third"})) as (server, model):
        for _ in range(2):
            with pytest.raises(
                Rejected, match="has no model 'm', only other, third: set `model` to one.*names 'other'"
            ):
                await model.sample(CHAT, range(1))
        health = await model.check()
    assert not health.ok and "has no model 'm'" in health.replicas[0].detail
    assert model.stats.prompt_tokens == 0
    assert len(server.seen) == 4, "once each time, and a check asks twice"


async def test_a_replica_that_serves_another_model_is_set_aside_until_it_serves_this_one(endpoint: Opener) -> None:
    served = [{"id": "other"}]

    async def listed(asked: Exchange) -> None:
        await asked.reply(200, {"data": served})

    async with raw_server(naming("m")) as right, raw_server(naming("other"), pages={"/v1/models": listed}) as wrong:
        model = endpoint(right.base_url, wrong.base_url, in_flight=4)
        await ask(model, 40)
        assert [replica.healthy for replica in model.stats.replicas] == [True, False]
        (notice,) = model.stats.notices
        assert notice.kind == "replica_refuses"
        assert wrong.base_url in notice.text and "has no model 'm', only other" in notice.text
        assert len(right.seen) == 40
        served[:] = [{"id": "m"}]
        async with asyncio.timeout(10.0):
            while not model.stats.replicas[1].healthy:
                await ask(model, 8)
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("named", ["m", "m-2026-01-01"])
async def test_a_list_may_leave_out_what_is_served_all_the_same(served: Served, named: str) -> None:
    async with served(naming(named), pages=models({"id": "other"})) as (_, model):
        assert (await model.sample(CHAT, range(1)))[0].text == "42"
        assert (await model.check()).ok
    assert model.stats.notices == ()


@pytest.mark.parametrize(
    ("named", "asked", "same"),
    [
        ("m", "m", True),
        ("gpt-4.1-mini-2025-04-14", "gpt-4.1-mini", True),
        ("Qwen3-8B", "Qwen/Qwen3-8B", True),
        ("qwen3-8b", "Qwen/Qwen3-8B", True),
        ("llama", "a", False),
        ("Qwen3-8", "Qwen3-8B", False),
        ("step-1000", "step-10", False),
        ("", "m", False),
    ],
)
def test_names_stand_for_each_other(named: str, asked: str, same: bool) -> None:
    assert is_same_model(named, asked) is is_same_model(asked, named) is same


NO_LISTS = [({"error": "not found"}, 404), ({"error": "broken"}, 500), ({"data": "m"}, 200), ({"data": []}, 200)]


@pytest.mark.parametrize(("content", "status"), [*NO_LISTS, ({"data": [None, {"name": "m"}]}, 200)])
async def test_a_server_without_a_list_is_asked(endpoint: Opener, content: dict[str, Any], status: int) -> None:
    async with raw_server(naming("m"), pages={"/v1/models": replying(content, status=status)}) as server:
        assert (await endpoint(server.base_url).sample(CHAT, range(1)))[0].text == "42"


async def test_a_list_is_asked_for_once_however_many_begin(endpoint: Opener) -> None:
    asked_for = 0

    async def listed(asked: Exchange) -> None:
        nonlocal asked_for
        asked_for += 1
        await asyncio.sleep(0.05)
        await asked.reply(200, {"data": [{"id": "m"}]})

    async with raw_server(naming("m"), pages={"/v1/models": listed}) as server:
        await ask(endpoint(server.base_url), 20)
    assert asked_for == 1


async def test_a_server_that_was_gone_is_met_anew(endpoint: Opener) -> None:
    async with SimulatedServer(WORLD) as server:
        model = endpoint(server.base_url, retry_for=30.0)
        await model.sample(QUESTION, range(1))
        port = int(server.base_url.removesuffix("/v1").rpartition(":")[2])
    work = asyncio.create_task(model.sample(QUESTION, range(1, 2)))
    await asyncio.sleep(0.1)
    async with SimulatedServer(World("two", WORLD.p, models=("other",)), port=port):
        with pytest.raises(Rejected, match="has no model 'm', only other"):
            await asyncio.wait_for(work, 10.0)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("m-v2", True),
        ("quite-another", True),
        *((name, False) for name in ("m-2026-01-01", "org/m-001", "m-latest", "m.gguf")),
    ],
)
async def test_another_version_is_told_and_a_date_is_none(served: Served, named: str, expected: bool) -> None:
    async with served(naming(named)) as (_, model):
        await model.sample(CHAT, range(1))
    assert [notice.kind for notice in model.stats.notices] == ["named"] * expected


# -- llama-server --------------------------------------------------------------------------------------------------


async def test_its_defaults_that_cut_the_distribution_are_told(served: Served) -> None:
    async with served(naming("llama"), pages=llama(), top_p=0.9) as (_, model):
        await model.sample(CHAT, range(1))
        (replica,) = (await model.check()).replicas
    (notice,) = model.stats.notices
    assert notice.kind == "server_defaults"
    assert "(top_k 20)" in notice.text and "Set top_k: 0 to sample as vLLM does" in notice.text
    assert notice in replica.notices


@pytest.mark.parametrize(
    "values",
    [{"top_k": 0, "top_p": 1.0, "min_p": 0.0}, {"temperature": 0.0}, {"extra_body": {"top_k": 5}, "top_p": 1.0}],
)
async def test_nothing_is_told_where_nothing_is_left_to_it(served: Served, values: dict[str, Any]) -> None:
    async with served(naming("m"), pages=llama(), **values) as (_, model):
        await model.sample(CHAT, range(1))
    assert model.stats.notices == ()


@pytest.mark.parametrize("props", [replying({}, status=404), replying({"default_generation_settings": []})])
async def test_its_usual_defaults_are_told_where_it_does_not_say(served: Served, props: Script) -> None:
    async with served(naming("m"), pages=llama(props)) as (_, model):
        await model.sample(CHAT, range(1))
    (notice,) = model.stats.notices
    assert "(top_k 40, top_p 0.95, min_p 0.05)" in notice.text


async def spoken(asked: Exchange) -> None:
    """A stream as llama-server sends it: each choice, and after it its usage."""
    assert asked.body.get("stream") is True or "n" not in asked.body
    lines = []
    for index in range(int(str(asked.body.get("n", 1)))):
        delta = {"index": index, "delta": {"content": "42" * (index + 1)}, "finish_reason": None}
        end = {"index": index, "delta": {}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 3 + 7 * index}
        lines += [{"choices": [delta]}, {"choices": [end]}, {"choices": [], "usage": usage, "timings": {}}]
    body = b"".join(b"data: " + orjson.dumps(line | {"model": "m"}) + b"\n\n" for line in lines) + b"data: [DONE]\n\n"
    await asked.reply(200, body)


async def test_the_tokens_of_several_answers_are_counted_one_by_one(served: Served) -> None:
    async with served(spoken, pages=llama(), samples_per_request=4, top_k=0, top_p=1.0, min_p=0.0) as (_, model):
        answers = await model.sample(CHAT, range(4))
    assert [answer.completion_tokens for answer in answers] == [3, 10, 17, 24]
    assert sum(answer.prompt_tokens for answer in answers) == 9
    assert model.stats.completion_tokens == 54


@pytest.mark.parametrize(
    ("client", "logprobs", "stream"),
    [("http", False, False), ("http", True, True), ("openai", False, True), ("openai", True, False)],
)
async def test_together_and_alone_cost_the_same(endpoint: Opener, client: str, logprobs: bool, stream: bool) -> None:
    async with SimulatedServer(WORLD, faults=Faults(count_one=True)) as server:
        values: dict[str, Any] = {"client": client, "logprobs": logprobs, "stream": stream}
        together = await endpoint(server.base_url, samples_per_request=8, **values).sample(QUESTION, range(8))
        alone = await endpoint(server.base_url, **values).sample(QUESTION, range(8))
    assert [answer.completion_tokens for answer in together] == [answer.completion_tokens for answer in alone]
    assert [answer.text for answer in together] == [answer.text for answer in alone]
    assert len({answer.completion_tokens for answer in alone}) > 4


# -- what is recorded ----------------------------------------------------------------------------------------------


def test_what_is_left_to_the_server_is_said_to_be() -> None:
    config = EndpointConfig(base_url="http://a/v1", model="m")
    sampling = Sampling(temperature=0.6, top_k=0, logprobs=True, extra_body={"min_p": 0.1})
    sent = sent_sampling(config, sampling)
    assert (sent["temperature"], sent["top_k"], sent["min_p"], sent["logprobs"]) == (0.6, 0, 0.1, True)
    assert sent["top_p"] == sent["max_tokens"] == SERVER_DEFAULT
