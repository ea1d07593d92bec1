"""The simulated server over real sockets: the API, the protocol, the faults, its places and its batches."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx2
import numpy as np
import orjson
import pytest
from command_line import typed
from live_runs import small_world
from patient_time import HANGS

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.endpoints.load import ServerLoad, parse_load
from adaptive_eval.simulate.answering import Respondent
from adaptive_eval.simulate.api import Api
from adaptive_eval.simulate.faults import BatchHabits, Faults, TimeWindow, parse_habits
from adaptive_eval.simulate.replies import ServingSlots
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import Latency, World, binary

WORLD = World("two", binary(np.full((2, 4), 0.5)), models=("a", "b"), latency=Latency(0.002, 0.5, 2.0))


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=5.0, verify=False) as opened:
        yield opened


def chat(seed: int | None = 1, question: str = "q1", **values: Any) -> dict[str, Any]:
    body = {"model": "a", "messages": [{"role": "user", "content": f"[{question}] Which number?"}], **values}
    return body if seed is None else body | {"seed": seed}


async def ask(client: httpx2.AsyncClient, server: SimulatedServer, body: dict[str, Any]) -> dict[str, Any]:
    path = "/chat/completions" if "messages" in body else "/completions"
    response = await client.post(server.base_url + path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def text(payload: dict[str, Any], index: int = 0) -> str:
    choice = payload["choices"][index]
    return choice["message"]["content"] if "message" in choice else choice["text"]


async def test_n_answers_are_those_of_consecutive_seeds(client: httpx2.AsyncClient) -> None:
    async with SimulatedServer(WORLD) as server:
        together = await ask(client, server, chat(7, n=4))
        singly = [await ask(client, server, chat(seed)) for seed in range(7, 11)]
    assert [text(together, i) for i in range(4)] == [text(reply) for reply in singly]
    assert together["usage"]["completion_tokens"] == sum(reply["usage"]["completion_tokens"] for reply in singly)
    assert together["usage"]["prompt_tokens"] == singly[0]["usage"]["prompt_tokens"]


async def test_token_limits_and_stops_cut(client: httpx2.AsyncClient) -> None:
    async with SimulatedServer(WORLD) as server:
        uncut = await ask(client, server, chat(3))
        cut = await ask(client, server, chat(3, max_tokens=5))
        stopped = await ask(client, server, chat(3, stop=["seed", ""]))
    assert text(cut).split() == text(uncut).split()[:5]
    assert (cut["choices"][0]["finish_reason"], cut["usage"]["completion_tokens"]) == ("length", 5)
    assert text(uncut).startswith(text(stopped) + "seed")


async def test_logprobs_come_token_by_token_and_by_seed_and_of_the_prompt(client: httpx2.AsyncClient) -> None:
    async with SimulatedServer(WORLD) as server:
        reply = await ask(client, server, chat(3, logprobs=True, top_logprobs=2))
        again = await ask(client, server, chat(3, logprobs=True, top_logprobs=2))
        plain = await ask(client, server, chat(3))
        vllm = await ask(client, server, chat(3, prompt_logprobs=0))
        body = {"model": "a", "prompt": "[q1] Which number?", "seed": 3, "echo": True, "logprobs": 1}
        echoed = await ask(client, server, body)
    tokens = reply["choices"][0]["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens) == text(reply)
    assert len(tokens) == reply["usage"]["completion_tokens"]
    assert all(token["logprob"] < 0.0 and len(token["top_logprobs"]) == 1 for token in tokens)
    assert again["choices"][0]["logprobs"] == reply["choices"][0]["logprobs"]
    assert plain["choices"][0]["logprobs"] is None
    assert vllm["prompt_logprobs"][0] is None
    assert len(vllm["prompt_logprobs"]) == vllm["usage"]["prompt_tokens"] == 3
    values = echoed["choices"][0]["logprobs"]["token_logprobs"]
    assert len(values) == echoed["usage"]["prompt_tokens"] + echoed["usage"]["completion_tokens"]
    assert text(echoed).startswith("[q1] Which number?Take")


@pytest.mark.parametrize("usage", [True, False])
async def test_a_stream_says_the_same(client: httpx2.AsyncClient, usage: bool) -> None:
    async with SimulatedServer(WORLD) as server:
        reply = await ask(client, server, chat(3, n=2))
        options = {"stream_options": {"include_usage": True}} if usage else {}
        response = await client.post(server.base_url + "/chat/completions", json=chat(3, n=2, stream=True, **options))
    assert response.headers["content-type"] == "text/event-stream"
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    events = [orjson.loads(line) for line in lines]
    deltas = [choice for event in events for choice in event["choices"]]
    for index in range(2):
        mine = [choice for choice in deltas if choice["index"] == index]
        assert "".join(choice["delta"]["content"] for choice in mine) == text(reply, index)
        assert [choice["finish_reason"] for choice in mine[-2:]] == [None, "stop"]
    assert ("usage" in events[-1]) == usage
    assert not usage or events[-1]["usage"] == reply["usage"]


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "object"),
        (orjson.dumps(chat(model="c")), 404, "does not exist"),
        (orjson.dumps(chat(question="q99")), 400, "not a question of the world"),
        (orjson.dumps(chat(n=0)), 400, "n must be"),
        (orjson.dumps(chat(n="2")), 400, "n must be"),
        (orjson.dumps(chat(max_tokens=True)), 400, "max_tokens must be"),
        (orjson.dumps({"model": "a", "messages": []}), 400, "not empty"),
        (orjson.dumps({"model": "a", "messages": [{"role": "user", "content": None}]}), 400, "string"),
        (orjson.dumps({"model": "a", "messages": ["hi"]}), 400, "string"),
    ],
)
async def test_bad_requests_are_told_why(client: httpx2.AsyncClient, body: bytes, status: int, why: str) -> None:
    async with SimulatedServer(WORLD) as server:
        response = await client.post(server.base_url + "/chat/completions", content=body)
    assert response.status_code == status
    assert why in response.json()["error"]["message"]


# -- the protocol ------------------------------------------------------------------------------------------------


def port_of(base_url: str) -> int:
    return int(base_url.split(":")[2].removesuffix("/v1"))


async def test_it_listens_on_loopback_only() -> None:
    async with SimulatedServer(WORLD) as server:
        assert server.base_url.startswith("http://127.0.0.1:")
        port = port_of(server.base_url)
        with socket.socket() as other:
            # free on another address of this machine, so it is not bound to all of them
            other.bind(("127.0.0.2", port))


# -- faults ------------------------------------------------------------------------------------------------------


async def test_answers_are_the_same_whatever_went_wrong_before(client: httpx2.AsyncClient) -> None:
    faults = Faults(server_error=0.3, rate_limited=0.2, retry_after=0.5)
    async with SimulatedServer(WORLD) as calm, SimulatedServer(WORLD, faults=faults) as stormy:
        for seed in range(30):
            expected = text(await ask(client, calm, chat(seed)))
            while (got := await client.post(stormy.base_url + "/chat/completions", json=chat(seed))).status_code != 200:
                assert got.status_code in (429, 500)
                assert got.status_code == 500 or got.headers["retry-after"] == "0.5"
            assert text(got.json()) == expected
    assert stormy.counts["answered"] == 30
    assert stormy.counts["server_error"] > 0
    assert stormy.counts["rate_limited"] > 0


async def test_resets_and_hangs(client: httpx2.AsyncClient) -> None:
    async with SimulatedServer(WORLD, faults=Faults(reset=0.99)) as server:
        with pytest.raises(httpx2.ReadError):
            await ask(client, server, chat())
    async with SimulatedServer(WORLD, faults=Faults(hang=0.99)) as server:
        for body in (chat(), chat(stream=True)):
            with pytest.raises(httpx2.ReadTimeout):
                await client.post(server.base_url + "/chat/completions", json=body, timeout=0.1)


async def test_storms_and_stuck_engines_pass(client: httpx2.AsyncClient) -> None:
    faults = Faults(storm=(TimeWindow(0.0, 0.3),), stuck=(TimeWindow(0.3, 0.4),))
    async with SimulatedServer(WORLD, faults=faults) as server:
        root, url = server.base_url.removesuffix("/v1"), server.base_url + "/chat/completions"
        assert (await client.post(url, json=chat())).status_code == 429
        assert (await client.get(root + "/health")).status_code == 200
        await asyncio.sleep(0.35)
        assert (await client.get(root + "/health")).status_code == 503
        with pytest.raises(httpx2.ReadTimeout):
            await client.post(url, json=chat(), timeout=0.05)
        await asyncio.sleep(0.4)
        assert (await client.get(root + "/health")).status_code == 200
        await ask(client, server, chat())


async def test_a_replica_goes_down_and_comes_back_on_its_port(client: httpx2.AsyncClient, unused_tcp_port: int) -> None:
    faults = Faults(down=(TimeWindow(0.1, 0.3),))
    async with SimulatedServer(WORLD, port=unused_tcp_port, faults=faults) as server:
        before = await ask(client, server, chat())
        await asyncio.sleep(0.2)
        with pytest.raises(httpx2.ConnectError):
            await ask(client, server, chat())
        await asyncio.sleep(0.35)
        assert text(await ask(client, server, chat())) == text(before)


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_is_just_being_accepted_is_broken_too(turns: int) -> None:
    """In whichever turn of the loop a server dies, it leaves no connection open."""
    server = SimulatedServer(WORLD)
    async with server:
        port = port_of(server.base_url)
        with socket.create_connection(("127.0.0.1", port)) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.die()
            client.setblocking(False)
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""


# -- in a thread -------------------------------------------------------------------------------------------------


def test_it_serves_from_a_thread_of_its_own() -> None:
    before = threading.active_count()
    with serving(SimulatedServer(WORLD)) as base_url:
        assert httpx2.get(base_url + "/models", timeout=HANGS).status_code == 200
    assert threading.active_count() == before
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(base_url + "/models", timeout=HANGS)


ONE_MODEL = World("one", binary(np.full((1, 2), 0.5)), models=("m",), latency=Latency(0.15, 0.0, 1.0))


def body(seed: int, **values: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "[q1] Which?"}], "seed": seed, **values}


async def ask_one(client: httpx2.AsyncClient, server: SimulatedServer, seed: int, **values: Any) -> httpx2.Response:
    return await client.post(server.base_url + "/chat/completions", json=body(seed, **values))


async def load(client: httpx2.AsyncClient, server: SimulatedServer) -> ServerLoad | None:
    return parse_load((await client.get(server.base_url.removesuffix("/v1") + "/metrics")).content)


async def test_a_leaving_request_gives_up_its_places_and_its_turn() -> None:
    places, begun = ServingSlots(2), []
    first = places.enter([60.0] * 3, lambda: begun.append("first"))
    places.enter([60.0], lambda: begun.append("second"))
    places.leave(first)
    places.leave(first)
    assert (begun, places.running, places.waiting) == (["second"], 1, 0)


async def test_the_server_says_what_runs_and_what_waits(client: httpx2.AsyncClient) -> None:
    async with SimulatedServer(ONE_MODEL, max_num_seqs=4) as server:
        assert await load(client, server) == ServerLoad(0.0, 0.0)
        begun = asyncio.get_running_loop().time()
        asked = [asyncio.create_task(ask_one(client, server, seed)) for seed in range(6)]
        asked.append(asyncio.create_task(ask_one(client, server, 10, n=3, stream=True)))
        for _ in range(10):
            if (now := await load(client, server)) is not None and now.running + now.waiting == 9.0:
                break
        assert now == ServerLoad(4.0, 5.0)
        replies = await asyncio.gather(*asked)
        # nine sequences of 0.15 s at four places
        assert asyncio.get_running_loop().time() - begun >= 0.42
        assert await load(client, server) == ServerLoad(0.0, 0.0)
    assert {reply.status_code for reply in replies} == {200}


async def test_answers_are_what_they_would_be_with_places_for_all(client: httpx2.AsyncClient) -> None:
    async with SimulatedServer(ONE_MODEL, max_num_seqs=1) as few, SimulatedServer(ONE_MODEL) as many:
        waited = await asyncio.gather(*(ask_one(client, few, seed) for seed in range(3)))
        at_once = await asyncio.gather(*(ask_one(client, many, seed) for seed in range(3)))
        assert await load(client, many) is None
    choices = [[reply.json()["choices"] for reply in replies] for replies in (waited, at_once)]
    assert choices[0] == choices[1]


async def test_a_client_that_goes_away_frees_its_place(client: httpx2.AsyncClient) -> None:
    async with SimulatedServer(
        World("slow", ONE_MODEL.p, latency=Latency(60.0, 0.0, 1.0), models=("m",)), max_num_seqs=1
    ) as server:
        assert server.places is not None
        async with httpx2.AsyncClient(verify=False) as other:
            for seed in range(2):
                with pytest.raises(httpx2.ReadTimeout):
                    await other.post(server.base_url + "/chat/completions", json=body(seed), timeout=0.1)
        for _ in range(100):
            await asyncio.sleep(0.01)
            if not server.places.running:
                break
        assert (server.places.running, server.places.waiting) == (0, 0)


pytestmark = pytest.mark.patient(settle=0.0)  # nothing goes through sockets


class Clocked:
    """The service at a time set by the test."""

    def __init__(self, **habits: float) -> None:
        self.now = 0.0
        self.api = Api(Respondent(small_world()), Faults(), lambda: self.now, habits=BatchHabits(**habits))  # type: ignore[arg-type]

    def call(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        reply = self.api.handle(method, path, raw)
        return reply.status, orjson.loads(reply.parts[0][1])

    def batch(self, number: int = 4) -> str:
        """A batch of so many requests."""
        lines = (
            {"custom_id": f"r{seed}", "body": {"model": "ada", "messages": [{"content": "[q1]"}], "seed": seed}}
            for seed in range(number)
        )
        part = b'--b\r\nContent-Disposition: form-data; filename="f"\r\n\r\n%b\r\n--b--\r\n'
        file = self.call("POST", "/v1/files", part % b"\n".join(map(orjson.dumps, lines)))[1]["id"]
        request = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        status, reply = self.call("POST", "/v1/batches", request)
        assert status == 200
        return str(reply["id"])

    def results(self, name: str) -> list[dict[str, Any]]:
        """What the batch has answered."""
        file = self.call("GET", f"/v1/batches/{name}")[1]["output_file_id"]
        reply = self.api.handle("GET", f"/v1/files/{file}/content", b"")
        return [orjson.loads(line) for line in reply.parts[0][1].splitlines()]


def test_invalid_batch_calls_are_refused_with_a_reason() -> None:
    service = Clocked(seconds=100.0)
    assert service.call("GET", "/v1/batches/none")[0] == 404
    assert service.call("GET", "/v1/messages/batches/none/results")[0] == 404
    for path, body in (
        ("/v1/batches", {"input_file_id": "none", "completion_window": "24h"}),
        ("/v1/batches", b"{"),
        ("/v1/messages/batches", {"requests": [{"custom_id": "a", "params": {"seed": 1, "max_tokens": 4}}]}),
        ("/v1/messages/batches", {"requests": [{"custom_id": "a", "params": {"messages": []}}]}),
    ):
        assert service.call("POST", path, body)[0] == 400


def test_batch_habits_are_parsed_and_unknown_ones_refused() -> None:
    assert parse_habits(["seconds=20", "expired=0.5"]) == BatchHabits(seconds=20.0, expired=0.5)
    for text, why in (
        ("haste=1", "known are seconds"),
        ("expired=often", "needs a number"),
        ("expired=2", "from 0 to 1"),
    ):
        with pytest.raises(ConfigError, match=why):
            parse_habits([text])
    assert "unknown batch 'haste'" in typed("simulate", "coins", "--batch", "haste=1", code=2).stderr
