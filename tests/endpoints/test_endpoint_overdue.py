"""An answer that will not come is noticed early, and none that comes late is lost for it."""

import asyncio

import pytest
from endpoint_opener import Opener
from hypothesis import given
from hypothesis import strategies as st
from patient_time import HANGS, until
from raw_servers import CHAT, Exchange, raw_server
from thoroughness import first_of

from adaptive_eval.endpoints import load, overdue, replicas
from adaptive_eval.endpoints.overdue import KNOWN, LEAST, QUIET_SECONDS, SAFETY, Heartbeat, ResponseTimes
from adaptive_eval.endpoints.time_limit import EndableBlock
from adaptive_eval.endpoints.traffic import AttemptedRequest

TIMEOUT = 1800.0
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def piece(text: str, reason: str = "null") -> bytes:
    return chunk(
        b'data: {"choices": [{"index": 0, "delta": {"content": "%s"}, "finish_reason": %s}]}\n\n'
        % (text.encode(), reason.encode())
    )


END = piece(" 42", '"stop"') + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def told(times: ResponseTimes, tokens: int, seconds: float, first: float | None = None, gap: float = 0.0) -> None:
    pulse = Heartbeat(0.0, first is not None, 0)
    if first is not None:
        pulse.beat(first)
        pulse.beat(first + gap)
    times.on_answer(tokens, pulse, seconds)


def test_until_answers_are_known_nothing_is_cut_before_its_time_limit() -> None:
    times = ResponseTimes(TIMEOUT, 4000)
    for _ in range(KNOWN - 1):
        told(times, 100, 1.0, first=0.1, gap=0.1)
    assert (times.whole(), times.first(), times.silence()) == (TIMEOUT, TIMEOUT, QUIET_SECONDS)
    told(times, 100, 1.0, first=0.1, gap=0.1)
    assert (times.whole(), times.first(), times.silence()) == (SAFETY * 40.0, LEAST, LEAST)


@given(
    answers=st.lists(st.tuples(st.integers(1, 4000), st.floats(0.001, 0.2)), min_size=KNOWN, max_size=600),
    slowest=st.floats(0.001, 0.2),
)
def test_no_full_length_answer_at_the_slowest_known_speed_is_cut(
    answers: list[tuple[int, float]], slowest: float
) -> None:
    """However many answers there are, and whatever of them is forgotten."""
    times = ResponseTimes(TIMEOUT, 4000)
    for tokens, pace in answers:
        told(times, tokens, tokens * max(pace, slowest))
    longer = sorted(answers)[len(answers) // 2 :]
    assert times.whole() >= min(TIMEOUT, 4000 * slowest)
    if len(answers) <= overdue.KEPT:
        assert times.whole() >= min(TIMEOUT, 4000 * max(min(pace for _, pace in longer), slowest))


def test_without_a_longest_answer_a_whole_response_has_the_time_limit() -> None:
    times = ResponseTimes(TIMEOUT, None)
    for _ in range(KNOWN):
        told(times, 100, 1.0)
    assert times.whole() == TIMEOUT


def test_streams_that_are_held_back_until_the_end_are_given_the_time_of_a_whole_response() -> None:
    times = ResponseTimes(TIMEOUT, 4000)
    for _ in range(KNOWN):
        told(times, 100, 1.0, first=0.99)
    assert times.first() == times.whole() == SAFETY * 40.0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is noticed after a fraction of a second."""
    monkeypatch.setattr(overdue, "LEAST", 0.2)
    monkeypatch.setattr(overdue, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(overdue, "SAFETY", 0.0)


def test_it_is_known_how_long_the_oldest_attempt_has_been_waited_for() -> None:
    now = 100.0
    watch = overdue.OverdueWatch(ResponseTimes(TIMEOUT, None), TIMEOUT, lambda replica: False, lambda: now)
    replica = replicas.Replica("http://one/v1", 8)
    leases, request = [EndableBlock(), EndableBlock()], AttemptedRequest(CHAT, range(1), {}, None)
    assert watch.oldest == 0.0
    for sent_at, lease in zip((60.0, 90.0), leases, strict=True):
        watch.enter(lease, replica, Heartbeat(sent_at, False, 0), request)
    assert watch.oldest == 40.0
    watch.leave(leases[0])
    assert watch.oldest == 10.0


@pytest.mark.parametrize("pings", [False, True])
@pytest.mark.parametrize("client", first_of(["http", "httpx2", "openai"], 1))
async def test_a_stream_that_stops_is_asked_again_while_others_speak(
    endpoint: Opener, quick: None, client: str, pings: bool
) -> None:
    """Comments that a proxy sends for a server that hangs are no sign of life."""
    hung: list[int] = []

    async def script(asked: Exchange) -> None:
        seed = int(str(asked.body["seed"]))
        await asked.send(STREAM_HEAD + piece("6 times 7 is"))
        if seed == KNOWN and len(hung) < 2:
            hung.append(asked.index)
            for _ in range(1200):
                await asyncio.sleep(0.05)
                if pings:
                    await asked.send(chunk(b": ping\n\n"))
        await asked.send(END)

    async with raw_server(script) as server:
        model = endpoint(server.base_url, client=client, stream=None, timeout=1800.0)
        for seed in range(KNOWN):
            await model.sample(CHAT, range(seed, seed + 1))
        (answer,) = await asyncio.wait_for(model.sample(CHAT, range(KNOWN, KNOWN + 1)), 20.0)
    assert (answer.text, answer.attempts, answer.signals) == ("6 times 7 is 42", 3, frozenset())
    assert model.stats.errors == {"stalled": 2}


async def test_a_slow_answer_gets_twice_the_time_at_each_attempt_and_is_not_lost(endpoint: Opener, quick: None) -> None:
    """The second attempt outlasts the limit that cut the first."""

    async def script(asked: Exchange) -> None:
        if asked.index >= KNOWN:
            await asyncio.sleep(0.6)
        await asked.answer("42")

    async with raw_server(script) as server:
        model = endpoint(server.base_url, max_tokens=100, timeout=1800.0)
        for seed in range(KNOWN):
            await model.sample(CHAT, range(seed, seed + 1))
        (answer,) = await asyncio.wait_for(model.sample(CHAT, range(KNOWN, KNOWN + 1)), 20.0)
    assert (answer.text, answer.signals) == ("42", frozenset())
    assert answer.attempts > 2


@pytest.mark.parametrize(("silent", "attempts"), [(True, 1), (False, 2)])
async def test_a_request_is_not_cut_for_a_time_in_which_its_server_said_nothing_at_all(
    endpoint: Opener, monkeypatch: pytest.MonkeyPatch, silent: bool, attempts: int
) -> None:
    """As of a machine that stood still: neither others nor the health check heard of it. Of one that answers health
    checks meanwhile a request is cut that hangs."""
    monkeypatch.setattr(replicas, "SILENCE", 1.0)
    awake = asyncio.Event()

    async def script(asked: Exchange) -> None:
        if asked.index == KNOWN:
            await awake.wait()
            await asyncio.sleep(1.0)
        await asked.answer("42")

    async def health(asked: Exchange) -> None:
        if silent and len(server.seen) > KNOWN:
            await awake.wait()
        await asked.reply(200, b"", "Connection: close")

    async with raw_server(script, pages={"/health": health}) as server:
        model = endpoint(server.base_url, timeout=1800.0, patience=300.0, max_tokens=100)
        for seed in range(KNOWN):
            await model.sample(CHAT, range(seed, seed + 1))
        assert model._sender._times.first() == LEAST
        asking = asyncio.create_task(model.sample(CHAT, range(KNOWN, KNOWN + 1)))
        await asyncio.sleep(2.0 * LEAST)
        awake.set()
        (answer,) = await asking
    assert (answer.text, answer.attempts) == ("42", attempts)


async def test_a_server_that_refuses_streams_is_asked_without_from_then_on(endpoint: Opener) -> None:
    async def script(asked: Exchange) -> None:
        if "stream" in asked.body:
            await asked.reply(400, {"error": {"message": "stream_options is not supported"}})
        else:
            await asked.answer("42")

    async with raw_server(script) as server:
        model = endpoint(server.base_url, stream=None)
        for seed in range(3):
            assert (await model.sample(CHAT, range(seed, seed + 1)))[0].text == "42"
    assert ["stream" in asked.body for asked in server.seen] == [True, True, False, False, False]


@pytest.mark.parametrize("status", [500, 400])
async def test_what_failed_before_it_was_known_that_its_server_refuses_streams_is_asked_without(
    endpoint: Opener, status: int
) -> None:
    async def script(asked: Exchange) -> None:
        if "stream" in asked.body:
            model._sender.streaming = False  # as an answer to another request shows
            code = 400 if asked.index else status
            await asked.reply(code, {"error": {"message": "stream_options is not supported"}})
        else:
            await asked.answer("42")

    async with raw_server(script) as server:
        model = endpoint(server.base_url, stream=None)
        assert (await model.sample(CHAT, range(1)))[0].text == "42"
    assert ["stream" in asked.body for asked in server.seen] == [True, False]


async def test_a_server_whose_streams_break_is_asked_without(endpoint: Opener) -> None:
    async def script(asked: Exchange) -> None:
        if "stream" in asked.body:
            await asked.send(STREAM_HEAD + piece("6 times") + b"0\r\n\r\n")
            asked.close()
        else:
            await asked.answer("42")

    async with raw_server(script) as server:
        model = endpoint(server.base_url, stream=None)
        assert (await model.sample(CHAT, range(1)))[0].text == "42"


async def test_what_failed_before_it_was_known_that_its_server_streams_is_streamed_again(endpoint: Opener) -> None:
    """A request that is asked for in one piece would hang unseen until its time limit."""
    asked_twice = asyncio.Event()
    bodies: list[bool] = []

    async def script(asked: Exchange) -> None:
        if asked.body["seed"] == 1:
            bodies.append("stream" in asked.body)
            if len(bodies) == 2:
                asked_twice.set()
                await until(lambda: bool(model._sender.streaming))
            if len(bodies) < 3:
                await asked.reply(500, {"error": {"message": "overloaded"}})
                return
        else:
            await asked_twice.wait()
        await asked.send(STREAM_HEAD + piece("6 times 7 is") + END)

    async with raw_server(script) as server:
        model = endpoint(server.base_url, stream=None, timeout=1800.0)
        both = asyncio.gather(*(model.sample(CHAT, range(seed, seed + 1)) for seed in range(2)))
        answers = await asyncio.wait_for(both, HANGS)
    assert [answer.text for (answer,) in answers] == ["6 times 7 is 42"] * 2
    assert bodies[0] and bodies[2]


async def test_one_answer_retry_unstreamed_says_nothing_of_streams_while_one_is_awaited(endpoint: Opener) -> None:
    """It was asked for so because its streams had failed twice, which may be chance."""
    answered = asyncio.Event()
    failed = 0

    async def script(asked: Exchange) -> None:
        nonlocal failed
        if asked.body["seed"] == 1 and "stream" in asked.body:
            failed += 1
            await asked.reply(500, {"error": {"message": "overloaded"}})
        elif asked.body["seed"] == 1:
            await asked.answer("42")
        else:
            await answered.wait()
            await asked.send(STREAM_HEAD + piece("6 times 7 is") + END)

    async with raw_server(script) as server:
        model = endpoint(server.base_url, stream=None, timeout=1800.0)
        other = asyncio.create_task(model.sample(CHAT, range(1)))
        await until(lambda: bool(server.seen))
        await model.sample(CHAT, range(1, 2))
        assert model._sender.streaming is None and failed == 2
        answered.set()
        await other
        assert model._sender.streaming is True


def idle_metrics(running: int) -> bytes:
    return b"vllm:num_requests_running %d\nvllm:num_requests_waiting 0\n" % running


@pytest.mark.parametrize(
    ("counted", "believed"), [(8, True), (4, False), pytest.param(7, True, marks=pytest.mark.slow)]
)
async def test_what_a_server_without_anything_to_do_was_sent_is_asked_again(
    endpoint: Opener, monkeypatch: pytest.MonkeyPatch, counted: int, believed: bool
) -> None:
    """It is believed where it has counted most of what it had, for some may hang; else it may be one of several."""
    monkeypatch.setattr(load, "READ_EVERY", 0.02)
    monkeypatch.setattr(overdue, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(overdue, "IDLE_SECONDS", 0.2)
    over = asyncio.Event()
    read = 0

    async def script(asked: Exchange) -> None:
        if asked.index < 8:
            await over.wait()
        await asked.answer("42")

    async def metrics(asked: Exchange) -> None:
        nonlocal read
        read += len(server.seen) == 8
        busy = counted if read < 5 else 0
        await asked.reply(200, idle_metrics(busy if server.seen else 0), "Connection: close")
        if read == 100:
            over.set()

    async with raw_server(script, pages={"/metrics": metrics}) as server:
        model = endpoint(server.base_url, timeout=1800.0, max_tokens=32768, in_flight=8)
        asking = asyncio.gather(*(model.sample(CHAT, range(seed, seed + 1)) for seed in range(8)))
        answers = await asyncio.wait_for(asking, HANGS)
        over.set()
    assert [answer.attempts for (answer,) in answers] == [2 if believed else 1] * 8
    assert model.stats.errors == ({"stalled": 8} if believed else {})


async def test_of_those_in_flight_the_one_that_its_server_does_not_count_is_asked_again(
    endpoint: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside it go on a longer answer, which was sent before, and shorter ones."""
    monkeypatch.setattr(load, "READ_EVERY", 0.02)
    monkeypatch.setattr(overdue, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(overdue, "IDLE_SECONDS", 0.2)
    hangs, over = KNOWN + 5, asyncio.Event()
    running: set[int] = set()
    hung = readings = 0

    async def script(asked: Exchange) -> None:
        nonlocal hung
        seed = int(str(asked.body["seed"]))
        if seed == hangs and not hung:
            hung += 1
            await over.wait()
        running.add(asked.index)
        if KNOWN <= seed < hangs:
            await over.wait()
        running.discard(asked.index)
        await asked.answer("42")

    async def metrics(asked: Exchange) -> None:
        nonlocal readings
        readings += 1
        await asked.reply(200, idle_metrics(len(running)), "Connection: close")

    async with raw_server(script, pages={"/metrics": metrics}) as server:
        model = endpoint(server.base_url, timeout=1800.0, max_tokens=32768, in_flight=8)
        for seed in range(KNOWN):
            await model.sample(CHAT, range(seed, seed + 1))
        long = [asyncio.create_task(model.sample(CHAT, range(seed, seed + 1))) for seed in range(KNOWN, hangs)]
        await until(lambda: len(running) == len(long))
        before = readings
        await until(lambda: readings > before + 2)  # they are known to be there
        (answer,) = await asyncio.wait_for(model.sample(CHAT, range(hangs, hangs + 1)), HANGS)
        over.set()
        others = [one[0].attempts for one in await asyncio.gather(*long)]
    assert (answer.attempts, others) == (2, [1] * len(long))
    assert model.stats.errors == {"stalled": 1}
