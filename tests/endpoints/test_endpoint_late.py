"""What takes far longer than any answer, or stops, is cancelled and sent again; no long answer is lost for it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from math import inf, sqrt
from typing import Any

import pytest
from endpoint_opener import Opener, Served
from hypothesis import given
from hypothesis import strategies as st
from patient_time import HANGS, PatientLoop, until
from raw_servers import CHAT, Exchange, raw_server
from thoroughness import first_of

from adaptive_eval.base.errors import RetryNotAllowed
from adaptive_eval.endpoints.client import Reply
from adaptive_eval.endpoints.context import EndpointContext
from adaptive_eval.endpoints.endpoint import ModelEndpoint
from adaptive_eval.endpoints.late import ResponseTimes
from adaptive_eval.endpoints.redaction import EMPTY_REDACTOR
from adaptive_eval.endpoints.replica import ProbeTrouble, Replica
from adaptive_eval.endpoints.settings import DEFAULT, EndpointSettings
from adaptive_eval.endpoints.traffic import Attempt, AttemptedRequest
from adaptive_eval.endpoints.types import Answer, EarlierTimes, EndpointConfig, Limits, Sampling

Times = Callable[[int, int], float]
"""Seconds of a request, by its seed and how often it was sent before; infinite if it hangs."""
PIECE = 0.25
KNOWN, LEAST = DEFAULT.late_after, DEFAULT.min_late
SECONDS, LATE = 2.0, 2.0 * sqrt(1.0 / (DEFAULT.late_share * KNOWN))
"""What answers take, and when one is late after `KNOWN` others."""
LOOK = 2.0
"""More than passes until what is late is noticed."""
LONG = 40.0


class Wire:
    """The client of a server that takes these times; its text says which of the attempts was answered."""

    redactor = EMPTY_REDACTOR
    unauthorized = ""

    def __init__(self, times: Times, counts: bool) -> None:
        """`counts`: it has /metrics."""
        self.times = times
        self.sent: Counter[int] = Counter()
        self.streamed: Counter[int] = Counter()
        self.dropped = 0
        """Requests that were cancelled."""
        self.running = 0
        self.counts = counts

    async def ask(self, base_url: str, body: Mapping[str, Any]) -> Reply:
        return await self.send(base_url, body)

    async def send(self, base_url: str, body: Mapping[str, Any], pulse: Attempt | None = None) -> Reply:
        loop, seed = asyncio.get_running_loop(), body["seed"]
        attempt = self.sent[seed]
        self.sent[seed] += 1
        self.streamed[seed] += bool(body.get("stream"))
        begun, self.running = loop.time(), self.running + 1
        try:
            await self._generate(self.times(seed, attempt), pulse if body.get("stream") else None)
        except asyncio.CancelledError:
            self.dropped += 1
            raise
        finally:
            self.running -= 1
        choice = {"index": 0, "message": {"content": f"{seed} at {attempt}"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": 3}
        return Reply(200, {}, b"", {"choices": [choice], "usage": usage}, loop.time() - begun, None)

    async def _generate(self, seconds: float, pulse: Attempt | None) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while pulse is not None and loop.time() + PIECE < ends:
            await asyncio.sleep(PIECE)
            pulse.record_piece(loop.time())
            if seconds == inf:
                break
        if seconds == inf:
            await asyncio.Event().wait()
        await asyncio.sleep(ends - loop.time())

    async def models(self, base_url: str) -> Reply:
        return Reply(200, {}, b"", {"data": [{"id": "m"}]}, 0.0, None)

    async def probe(self, base_url: str) -> ProbeTrouble | None:
        return None

    async def fetch_outside_api(self, base_url: str, path: str) -> bytes:
        load = b"vllm:num_requests_running %d\nvllm:num_requests_waiting 0\n" % self.running
        return load if self.counts else b""

    async def close(self) -> None:
        return None


class Asked:
    """A model whose first `KNOWN` answers have come."""

    def __init__(self, wire: Wire, model: ModelEndpoint) -> None:
        self.wire, self.model = wire, model

    async def answer(self, seed: int, again: Callable[[], Awaitable[bool]] | None = None) -> Answer:
        (answer,) = await self.model.sample(CHAT, range(seed, seed + 1), again)
        return answer


def carry_out(
    test: Callable[[Asked], Coroutine[Any, Any, None]],
    times: Times,
    *,
    stream: bool | None = False,
    places: int = 8,
    counts: bool = False,
    max_tokens: int = 32768,
    settings: EndpointSettings = DEFAULT,
    earlier: EarlierTimes | None = None,
    **sampling: Any,
) -> float:
    """How long this takes in virtual time after answers of two seconds, which are of an `earlier` start if given."""

    async def run() -> float:
        wire = Wire(lambda seed, attempt: SECONDS if seed < KNOWN else times(seed, attempt), counts)
        config = EndpointConfig.model_validate({"base_url": "http://one/v1", "model": "m", "stream": stream})
        values, limits = Sampling(max_tokens=max_tokens, **sampling), Limits(in_flight=places)
        model = ModelEndpoint(EndpointContext(config, values, limits, wire, settings=settings, earlier=earlier))  # type: ignore[arg-type]
        asked = Asked(wire, model)
        if earlier is None:
            await asyncio.gather(*map(asked.answer, range(KNOWN)))
        begun = asyncio.get_running_loop().time()
        try:
            await test(asked)
            return asyncio.get_running_loop().time() - begun
        finally:
            await model.close()

    with asyncio.Runner(loop_factory=lambda: PatientLoop(settle=0.0)) as runner:
        return runner.run(run())


def once(seconds: float) -> Times:
    """The first attempt takes this long, others as long as usual."""
    return lambda seed, attempt: SECONDS if attempt else seconds


@pytest.mark.parametrize("stream", [False, True])
def test_what_hangs_is_answered_when_it_is_sent_again(stream: bool) -> None:
    async def test(asked: Asked) -> None:
        answer = await asked.answer(KNOWN)
        stats = asked.model.stats
        assert (answer.text, answer.attempts, answer.latency) == (f"{KNOWN} at 1", 2, pytest.approx(SECONDS))
        assert (stats.lost, stats.errors, stats.retries) == (1, {"stalled": 1}, 1)
        assert [notice.kind for notice in stats.notices] == ["sent_again"]
        assert (asked.wire.running, stats.in_flight) == (0, 0)

    limit = LEAST + PIECE if stream else LATE * SECONDS / 2.0
    assert carry_out(test, once(inf), stream=stream) <= limit + LOOK + SECONDS


def test_what_hangs_after_a_resume_is_late_by_the_answers_of_earlier_starts() -> None:
    async def test(asked: Asked) -> None:
        hung, other = await asyncio.gather(asked.answer(KNOWN), asked.answer(KNOWN + 1))
        assert (hung.attempts, other.attempts) == (2, 1)

    def hangs_once(seed: int, attempt: int) -> float:
        return inf if (seed, attempt) == (KNOWN, 0) else SECONDS

    earlier = EarlierTimes(KNOWN, SECONDS)
    assert carry_out(test, hangs_once, earlier=earlier) <= LATE * SECONDS / 2.0 + LOOK + SECONDS


@pytest.mark.parametrize(("more", "timeout"), [(2.0 * SECONDS, 1800.0), (SECONDS, LEAST)])
def test_nothing_is_late_because_this_process_did_not_run(more: float, timeout: float) -> None:
    stopped = 2.0 * LEAST

    async def test(asked: Asked) -> None:
        answering = asyncio.create_task(asked.answer(KNOWN))
        await asyncio.sleep(SECONDS / 2.0)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PatientLoop)
        loop.skip(stopped)
        assert (await answering).attempts == 1
        assert (asked.wire.sent[KNOWN], asked.model.stats.notices) == (1, ())

    # with the shorter limit it comes a moment after this process goes on, when its time is over
    earlier = EarlierTimes(10_000, SECONDS)
    carry_out(test, once(stopped + more - PIECE), earlier=earlier, timeout=timeout)


@pytest.mark.parametrize(
    ("times", "options", "sent"),
    [
        pytest.param(lambda seed, attempt: 25.0, {}, 2, id="as long again"),
        pytest.param(lambda seed, attempt: 200.0, {}, 5, id="far longer"),
        pytest.param(lambda seed, attempt: 200.0, {"timeout": 50.0}, 7, id="longer than the time limit"),
        pytest.param(once(1000.0), {"stream": True}, 1, id="a stream goes on"),
        pytest.param(once(LONG), {"counts": True}, 1, id="its server counts it"),
        pytest.param(lambda seed, attempt: inf if attempt < 2 else SECONDS, {}, 3, id="two hang"),
    ],
)
def test_a_cancelled_request_is_lost_once_and_the_next_longer(times: Times, options: dict[str, Any], sent: int) -> None:
    """So a long answer comes within the time limit."""

    async def test(asked: Asked) -> None:
        answer = await asked.answer(KNOWN)
        has_timed_out = "timeout" in options
        assert answer.text == ("" if has_timed_out else f"{KNOWN} at {sent - 1}")
        assert (answer.signals == {"timed_out"}) == has_timed_out
        stats = asked.model.stats
        assert (asked.wire.sent[KNOWN], stats.lost, asked.wire.running) == (sent, sent - (not has_timed_out), 0)

    carry_out(test, times, **options)


def test_what_takes_as_long_again_is_not_counted_as_replaced() -> None:
    """So others are still sent again."""

    async def test(asked: Asked) -> None:
        for seed, seconds in enumerate((LONG, 10.0 * LONG, inf), KNOWN):
            asked.wire.times = once(inf) if seconds == inf else lambda *_, seconds=seconds: seconds
            assert (await asked.answer(seed)).attempts > 1
        assert [notice.kind for notice in asked.model.stats.notices] == ["sent_again"]

    carry_out(test, once(0.0), settings=replace(DEFAULT, late_free=0))


def test_after_one_that_was_late_by_its_age_answers_are_streamed_where_the_configuration_leaves_it_open() -> None:
    """So a long answer is told from one that hangs."""

    async def test(asked: Asked) -> None:
        assert (await asked.answer(KNOWN)).text == f"{KNOWN} at 1"
        answer = await asked.answer(KNOWN + 1)
        assert (answer.text, asked.wire.sent[KNOWN + 1]) == (f"{KNOWN + 1} at 0", 1)
        assert [asked.wire.streamed[seed] for seed in range(KNOWN + 2)] == [0] * KNOWN + [1, 1]

    carry_out(test, once(200.0), stream=None, max_tokens=256)


@pytest.mark.parametrize("changes", [{"stream": False}, {"stream": None, "logprobs": True}])
def test_what_must_be_in_one_piece_stays_so_after_one_that_was_late(changes: dict[str, Any]) -> None:
    async def test(asked: Asked) -> None:
        await asked.answer(KNOWN)
        await asked.answer(KNOWN + 1)
        assert not asked.wire.streamed.total()

    carry_out(test, once(100.0), max_tokens=256, **changes)


def test_a_server_that_stalls_as_a_whole_is_not_sent_everything_again() -> None:
    async def test(asked: Asked) -> None:
        loop = asyncio.get_running_loop()
        over = loop.time() + 35.0
        asked.wire.times = lambda seed, attempt: max(0.0, over - loop.time()) + SECONDS + attempt
        answers = await asyncio.gather(*map(asked.answer, range(KNOWN, KNOWN + 7)))
        assert sorted(answer.attempts for answer in answers) == [1] * 6 + [2]

    carry_out(test, once(0.0))


def test_after_one_that_hung_a_server_that_stalls_is_not_sent_everything_again_either() -> None:
    async def test(asked: Asked) -> None:
        assert (await asked.answer(KNOWN)).attempts == 2
        loop = asyncio.get_running_loop()
        over = loop.time() + 300.0
        asked.wire.times = lambda seed, attempt: max(0.0, over - loop.time()) + SECONDS
        answers = await asyncio.gather(*map(asked.answer, range(KNOWN + 1, KNOWN + 65)))
        assert sum(answer.attempts > 1 for answer in answers) <= 5

    carry_out(test, once(inf), places=64, settings=replace(DEFAULT, late_free=100))


MANY = {"places": 16, "settings": replace(DEFAULT, late_free=100)}


@pytest.mark.parametrize(
    ("options", "most"),
    [
        # after the first of them was answered, the others are sent
        pytest.param(MANY, LATE * SECONDS / 2.0 + LOOK + 2.0 * (SECONDS + LOOK), id="several"),
        # answers of three tokens at most, and of two seconds: none takes longer than eight
        pytest.param({"max_tokens": 3}, 60.0, id="longer than any answer can take"),
    ],
)
def test_all_that_hang_are_soon_sent_again(options: dict[str, Any], most: float) -> None:
    async def test(asked: Asked) -> None:
        answers = await asyncio.gather(*map(asked.answer, range(KNOWN, KNOWN + 7)))
        assert [answer.attempts for answer in answers] == [2] * 7

    assert carry_out(test, once(inf), **options) <= most


def test_few_answers_are_of_requests_that_were_late_by_age_and_the_user_is_told() -> None:
    async def test(asked: Asked) -> None:
        asking = [asyncio.create_task(asked.answer(seed)) for seed in range(KNOWN, KNOWN + 7)]
        await asyncio.sleep(300.0)
        assert len([task.result() for task in asking if task.done()]) == DEFAULT.late_free + 1
        assert [notice.kind for notice in asked.model.stats.notices] == ["sent_again", "many_late"]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    carry_out(test, once(inf))


def test_a_cancelled_request_is_lost_before_the_caps_are_asked_and_not_sent_again_if_they_forbid_it() -> None:
    async def test(asked: Asked) -> None:
        counted = list[int]()

        async def again(allowed: bool) -> bool:
            counted.append(asked.model.stats.lost)
            return allowed

        with pytest.raises(RetryNotAllowed):
            await asked.answer(KNOWN, lambda: again(False))
        assert (await asked.answer(KNOWN + 1, lambda: again(True))).text == f"{KNOWN + 1} at 1"
        assert (counted, asked.wire.sent[KNOWN], asked.wire.running) == ([1, 2], 1, 0)

    carry_out(test, once(inf))


# -- when an answer is late --------------------------------------------------------------------------------------


def times_after(
    number: int, max_tokens: int | None = 4000, tokens: int = 100, seconds: float = 1.0, **stream: float
) -> ResponseTimes:
    """After so many answers; `first` and `gap` are seconds of a stream."""
    times = ResponseTimes(max_tokens, DEFAULT, EarlierTimes())
    for _ in range(number):
        record(times, tokens, seconds, **stream)
    return times


def record(times: ResponseTimes, tokens: int, seconds: float, *, first: float | None = None, gap: float = 0.0) -> None:
    attempt = Attempt(AttemptedRequest(CHAT, range(1), {}, None), Replica("http://one/v1", 1), 0.0)
    attempt.send(0.0, first is not None)
    if first is not None:
        attempt.record_piece(first)
        attempt.record_piece(first + gap)
    times.on_answer(tokens, attempt, seconds)


@pytest.mark.parametrize(
    ("number", "factor"), [(KNOWN, sqrt(1.0 / (DEFAULT.late_share * KNOWN))), (1000, DEFAULT.late_factor)]
)
def test_the_fewer_answers_are_known_the_longer_one_may_take(number: int, factor: float) -> None:
    assert times_after(number, seconds=10.0).response_limit == pytest.approx(10.0 * factor)


def test_the_first_pieces_of_streams_say_when_one_is_late_unless_they_are_held_back() -> None:
    assert ResponseTimes(4000, DEFAULT, EarlierTimes()).first_piece_limit == inf
    times = ResponseTimes(4000, DEFAULT, EarlierTimes(1000, 30.0, 1000, 10.0))
    assert (times.first_piece_limit, times.response_limit) == (20.0, 60.0)
    assert times.longest_plausible == inf  # their pace is not known
    times = times_after(KNOWN, first=0.99)
    assert times.is_buffered and times.first_piece_limit == times.response_limit


def test_until_answers_are_known_only_a_silent_stream_is_late() -> None:
    times = times_after(KNOWN - 1, first=0.1, gap=0.1)
    assert {times.response_limit, times.first_piece_limit, times.longest_plausible} == {inf}
    assert times.silence_limit == DEFAULT.late_stream
    record(times, 100, 1.0, first=0.1, gap=0.1)
    assert max(times.response_limit, times.first_piece_limit, times.silence_limit) < 10.0
    assert times.longest_plausible == 4.0 * 40.0


@given(
    answers=st.lists(st.tuples(st.integers(1, 4000), st.floats(0.001, 0.2)), min_size=KNOWN, max_size=600),
    slowest=st.floats(0.001, 0.2),
)
def test_no_full_answer_at_the_slowest_known_pace_is_hopeless(answers: list[tuple[int, float]], slowest: float) -> None:
    times = ResponseTimes(4000, DEFAULT, EarlierTimes())
    for tokens, pace in answers:
        record(times, tokens, tokens * max(pace, slowest))
    assert times.longest_plausible >= 4000 * slowest


SOON = EndpointSettings(tick=0.02, backoff=0.01, min_late=0.2, probe_every=0.1, probe_again=0.02)
"""Silence is noticed after a fraction of a second."""
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def piece(text: str, reason: str = "null") -> bytes:
    return chunk(
        b'data: {"choices": [{"index": 0, "delta": {"content": "%s"}, "finish_reason": %s}]}\n\n'
        % (text.encode(), reason.encode())
    )


END = piece(" 42", '"stop"') + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


@pytest.mark.parametrize("pings", [False, True])
@pytest.mark.parametrize("client", first_of(["http", "httpx2", "openai"], 1))
async def test_a_stream_that_stops_while_others_speak_is_asked_again(served: Served, client: str, pings: bool) -> None:
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

    async with served(script, client=client, stream=None, timeout=1800.0, settings=SOON) as (_, model):
        for seed in range(KNOWN):
            await model.sample(CHAT, range(seed, seed + 1))
        (answer,) = await asyncio.wait_for(model.sample(CHAT, range(KNOWN, KNOWN + 1)), 20.0)
    assert (answer.text, answer.attempts, answer.signals) == ("6 times 7 is 42", 3, frozenset())
    assert (model.stats.errors, model.stats.lost) == ({"stalled": 2}, 2)


@pytest.mark.parametrize(("silent", "attempts"), [(True, 1), (False, 2)])
async def test_time_in_which_a_server_is_silent_makes_none_late(endpoint: Opener, silent: bool, attempts: int) -> None:
    """As of a machine that stood still: neither others nor the health check heard of it. Of one that answers
    health checks meanwhile, a request that hangs is sent again."""
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
        model = endpoint(server.base_url, timeout=1800.0, retry_for=300.0, max_tokens=100)
        for seed in range(KNOWN):
            await model.sample(CHAT, range(seed, seed + 1))
        assert model._sender._late.times.response_limit == DEFAULT.min_late
        asking = asyncio.create_task(model.sample(CHAT, range(KNOWN, KNOWN + 1)))
        await asyncio.sleep(2.0 * DEFAULT.min_late)
        awake.set()
        (answer,) = await asking
    assert (answer.text, answer.attempts) == ("42", attempts)


async def test_it_is_known_how_long_the_oldest_attempt_has_been_waited_for(served: Served) -> None:
    over = asyncio.Event()

    async def script(asked: Exchange) -> None:
        await over.wait()
        await asked.answer("42")

    async with served(script, timeout=1800.0) as (_, model):
        assert model.stats.oldest == 0.0
        first = asyncio.create_task(model.sample(CHAT, range(1)))
        await asyncio.sleep(3.0)
        second = asyncio.create_task(model.sample(CHAT, range(1, 2)))
        await asyncio.sleep(1.0)
        assert 3.9 < model.stats.oldest < 4.1
        over.set()
        await asyncio.gather(first, second)
        assert model.stats.oldest == 0.0


@pytest.mark.parametrize(("breaks", "streamed"), [(False, [True, True, False, False, False]), (True, None)])
async def test_where_streams_break_none_is_asked_for(served: Served, breaks: bool, streamed: list[bool] | None) -> None:
    async def script(asked: Exchange) -> None:
        if "stream" not in asked.body:
            await asked.answer("42")
        elif breaks:
            await asked.send(STREAM_HEAD + piece("6 times") + b"0\r\n\r\n")
            asked.close()
        else:
            await asked.reply(400, {"error": {"message": "stream_options is not supported"}})

    async with served(script, stream=None) as (server, model):
        for seed in range(3):
            assert (await model.sample(CHAT, range(seed, seed + 1)))[0].text == "42"
    assert streamed in (None, ["stream" in asked.body for asked in server.seen])


async def test_what_failed_before_it_was_known_that_its_server_streams_is_streamed_again(served: Served) -> None:
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

    async with served(script, stream=None, timeout=1800.0) as (_, model):
        both = asyncio.gather(*(model.sample(CHAT, range(seed, seed + 1)) for seed in range(2)))
        answers = await asyncio.wait_for(both, HANGS)
    assert [answer.text for (answer,) in answers] == ["6 times 7 is 42"] * 2
    assert bodies[0] and bodies[2]
