"""Dead, stuck and restarting replicas: noticed by their health, not by the time limit of an answer."""

import asyncio
from contextlib import AbstractAsyncContextManager

import numpy as np
import pytest
from endpoint_opener import Opener, Served, ask, hang
from patient_time import until
from raw_servers import CHAT, Exchange, RawServer, raw_server, replying

from adaptive_eval.base.errors import Unavailable
from adaptive_eval.endpoints import client
from adaptive_eval.endpoints.replica import ProbeTrouble
from adaptive_eval.endpoints.settings import DEFAULT
from adaptive_eval.endpoints.types import Message, Prompt
from adaptive_eval.simulate.faults import Faults, TimeWindow
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import Latency, World, binary

WORLD = World("two", binary(np.full((2, 4), 0.5)), models=("m", "other"), latency=Latency(0.05, 0.3, 2.0))


def question(index: int) -> Prompt:
    return Prompt(messages=(Message("user", f"[q{index}] Which number?"),))


async def test_a_request_in_flight_on_a_stuck_replica_is_sent_elsewhere(endpoint: Opener) -> None:
    async with (
        SimulatedServer(WORLD, faults=Faults(stuck=(TimeWindow(0.0, 60.0),))) as stuck,
        SimulatedServer(WORLD) as well,
    ):
        model = endpoint(stuck.base_url, well.base_url, timeout=60.0, retry_for=60.0)
        begun = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*(model.sample(question(1), range(i, i + 1)) for i in range(8)))
        assert asyncio.get_running_loop().time() - begun < 5.0
    assert {answer[0].replica for answer in answers} == {well.base_url}
    assert model.stats.errors["replica_lost"] == stuck.counts["hang"] > 0
    lost, kept = model.stats.replicas
    assert lost.trouble and not lost.healthy and kept.healthy and not kept.trouble


async def test_a_single_replica_that_restarts_is_waited_for(endpoint: Opener, unused_tcp_port: int) -> None:
    async with SimulatedServer(WORLD, port=unused_tcp_port) as server:
        model = endpoint(server.base_url, in_flight=4, attempts=2, retry_for=30.0)
        await model.sample(question(1), range(1))
        work = [asyncio.create_task(model.sample(question(1), range(i, i + 1))) for i in range(30)]
        await asyncio.sleep(0.02)
        await server.die()
        await asyncio.sleep(0.5)
        assert not any(task.done() and task.exception() for task in work)
        await server.listen()
        answers = await asyncio.gather(*work)
    assert [answer[0].seed for answer in answers] == list(range(30))


@pytest.mark.parametrize(("ready", "retry_for"), [(False, 3600.0), (True, 0.4)])
async def test_a_model_that_never_answered_gets_no_patience_unless_it_was_known_to_be_ready(
    endpoint: Opener, unused_tcp_port: int, ready: bool, retry_for: float
) -> None:
    model = endpoint(f"http://127.0.0.1:{unused_tcp_port}/v1", retry_for=retry_for, ready=ready)
    began = asyncio.get_running_loop().time()
    with pytest.raises(Unavailable, match="no connection"):
        await asyncio.wait_for(model.sample(question(1), range(1)), 10.0)
    assert (asyncio.get_running_loop().time() - began >= 0.4) is ready


# -- servers that are slow, and not dead ----------------------------------------------------------------------------


class Starved:
    """A server of a machine that gets no processor for a while: it takes connections, and says nothing."""

    def __init__(self) -> None:
        self.awake = asyncio.Event()

    async def answer(self, asked: Exchange) -> None:
        await self.awake.wait()
        await asyncio.sleep(0.06)
        await asked.answer("42")

    async def health(self, asked: Exchange) -> None:
        await self.awake.wait()
        await asked.reply(200, b"", "Connection: close")

    def server(self) -> AbstractAsyncContextManager[RawServer]:
        return raw_server(self.answer, pages={"/health": self.health})


@pytest.fixture
def short_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of silence is long."""
    monkeypatch.setattr(client, "PROBE_SECONDS", 0.05)


async def test_a_slow_server_keeps_its_requests_where_nobody_else_can(endpoint: Opener, short_probes: None) -> None:
    """Silent for most of the time, it has answered in the end all that it was asked, once each."""
    starved = Starved()
    async with starved.server() as server:
        model = endpoint(server.base_url, timeout=1800.0, retry_for=300.0, in_flight=4)
        work = asyncio.create_task(ask(model, 40))
        for _ in range(3):
            await asyncio.sleep(1.0)
            assert not model.stats.replicas[0].healthy
            starved.awake.set()
            await asyncio.sleep(0.1)
            starved.awake.clear()
        starved.awake.set()
        answers = await work
        assert len(server.seen) == 40
    assert {answer.attempts for answer in answers} == {1}
    assert model.stats.errors == {} and model.stats.lost == 0


async def test_what_silent_ones_kept_goes_elsewhere(endpoint: Opener, short_probes: None, unused_tcp_port: int) -> None:
    async with Starved().server() as silent, SimulatedServer(WORLD, port=unused_tcp_port) as other:
        model = endpoint(silent.base_url, other.base_url, timeout=1800.0, retry_for=300.0)
        await other.die()
        asking = asyncio.create_task(model.sample(question(1), range(1)))
        await asyncio.sleep(1.0)
        assert not any(replica.healthy for replica in model.stats.replicas)
        await other.listen()
        (answer,) = await asking
        assert answer.replica == other.base_url and model.stats.errors["replica_lost"] == len(silent.seen) == 1


async def test_a_silent_server_is_given_up_with_all_that_it_has(endpoint: Opener, short_probes: None) -> None:
    async with Starved().server() as server:
        model = endpoint(server.base_url, timeout=1800.0, retry_for=3.0)
        begun = asyncio.get_running_loop().time()
        with pytest.raises(Unavailable, match="is lost.*no answer within"):
            await model.sample(CHAT, range(1))
        assert 3.0 <= asyncio.get_running_loop().time() - begun < 5.0


@pytest.mark.slow
async def test_answers_are_signs_of_life_where_no_health_check_is(served: Served, short_probes: None) -> None:
    """They take 8 s together, and the model's patience is 3."""

    async def slowly(asked: Exchange) -> None:
        await asyncio.sleep(2.0 * (asked.index + 1))
        await asked.answer("42")

    async with served(slowly, pages={"/health": Starved().health}, timeout=1800.0, retry_for=3.0) as (_, model):
        assert [answer.attempts for answer in await ask(model, 4)] == [1] * 4


@pytest.mark.slow
async def test_requests_ended_once_get_twice_as_many_probes(endpoint: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two servers on a starved machine, one speaks while the other one is silent."""
    silences: list[str] = []

    async with Starved().server() as first, Starved().server() as second:
        model = endpoint(first.base_url, second.base_url, timeout=1800.0, retry_for=300.0)

        async def probe(url: str) -> ProbeTrouble | None:
            asked = first if len(second.seen) == 0 else second if len(first.seen) == 1 else None
            await asyncio.sleep(0.05)
            if asked is None or url != asked.base_url:
                return None
            silences.append(url)
            return ProbeTrouble("no answer", is_silent=True)

        monkeypatch.setattr(model._context.caller, "probe", probe)
        asking = asyncio.create_task(model.sample(CHAT, range(1)))
        await until(lambda: len(first.seen) == 2)
        asking.cancel()
    assert silences == [first.base_url] * DEFAULT.probe_misses + [second.base_url] * 2 * DEFAULT.probe_misses


async def test_a_server_without_health_lives_by_its_models(served: Served) -> None:
    async def slowly(asked: Exchange) -> None:
        await asyncio.sleep(0.4)
        await asked.answer("42")

    async with served(slowly, health=404) as (_, model):
        assert (await model.sample(CHAT, range(1)))[0].text == "42"
        assert model.stats.errors == {}


async def test_a_health_check_that_breaks_gives_the_model_up(
    endpoint: Opener, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by an error of a plug-in that signs requests: nobody waits for a replica that nobody watches."""
    model = endpoint(f"http://127.0.0.1:{unused_tcp_port}/v1", retry_for=3600.0)

    async def broken(url: str) -> ProbeTrouble | None:
        raise ValueError("no signature")

    monkeypatch.setattr(model._context.caller, "probe", broken)
    with pytest.raises(Unavailable, match="its health check broke: ValueError"):
        await model.sample(question(1), range(1))


# -- check -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["http", "openai"])
async def test_check_says_what_is_wrong(endpoint: Opener, client: str, unused_tcp_port: int) -> None:
    nobody = f"http://127.0.0.1:{unused_tcp_port}/v1"
    refuse = replying({"error": {"message": "no such key: sk-12345678"}}, status=401)
    async with SimulatedServer(WORLD) as server, raw_server(refuse) as refusing:
        health = await endpoint(server.base_url, nobody, client=client, model="x").check()
        refused = await endpoint(refusing.base_url, client=client, key="sk-12345678").check()
        well = await endpoint(server.base_url, client=client).check()
    assert well.ok and not health.ok
    unknown, unreached = health.replicas
    assert unknown.detail.startswith("its server has no model 'x', only m, other: set `model` to one of these")
    assert "connect" in unreached.detail.lower()
    assert "no such key: ***" in refused.replicas[0].detail


async def test_check_does_not_wait_for_a_silent_server(endpoint: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptive_eval.endpoints.endpoint.CHECK_SECONDS", 0.2)
    async with raw_server(hang) as server:
        health = await endpoint(server.base_url, timeout=60.0).check()
    assert health.replicas[0].detail == "no answer within 0.2 s"
