"""A request that its server fails every time, while it answers others: it has no answer, and the model goes on."""

import asyncio
import math

import pytest
from conftest import QUICK
from endpoint_opener import CLIENTS, Opener, Served, answer, ask, first, hang
from patient_time import HANGS
from raw_servers import CHAT, Exchange, Script, raw_server, replying

from adaptive_eval.base.errors import RetryNotAllowed, Unavailable
from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.retry import Retries
from adaptive_eval.endpoints.settings import EndpointSettings
from adaptive_eval.endpoints.traffic import Traffic
from adaptive_eval.endpoints.types import Limits, RetryGate

WORDS = {"error": {"message": "does not match the expected format", "code": 500}}
BAD = 3


def failing(*seeds: int) -> Script:
    """A script that fails these seeds for ever."""

    async def script(asked: Exchange) -> None:
        fails = asked.body["seed"] in seeds and asked.body["max_tokens"] == 500
        await (asked.reply(500, WORDS) if fails else answer(asked))

    return script


class Leave:
    """Gives leave so often."""

    def __init__(self, times: float = math.inf) -> None:
        self.times = times
        self.asked = 0

    async def __call__(self) -> bool:
        self.asked += 1
        return self.asked <= self.times


@CLIENTS
async def test_it_has_no_answer_and_others_have_theirs(served: Served, client: str) -> None:
    async with served(failing(BAD), client=client, in_flight=2, max_tokens=500, retry_for=300.0) as (_, model):
        answers = await ask(model, 40)
    (unanswered,) = [answer for answer in answers if answer.signals]
    assert (unanswered.seed, unanswered.text, unanswered.signals) == (BAD, "", {"unanswered"})
    assert unanswered.finish_reason == "HTTP 500: does not match the expected format"
    assert 5 <= unanswered.attempts <= 12
    assert [answer.text for answer in answers if not answer.signals] == ["42"] * 39
    assert model.stats.stuck_requests == 0


@pytest.mark.parametrize("at_an_earlier_start", [False, True])
async def test_where_nothing_else_is_asked_a_tiny_request_is(served: Served, at_an_earlier_start: bool) -> None:
    async with served(failing(BAD), max_tokens=500, retry_for=300.0, has_answered=at_an_earlier_start) as (_, model):
        if not at_an_earlier_start:
            await model.sample(CHAT, range(1))
        (answer,) = await model.sample(CHAT, range(BAD, BAD + 1))
    assert answer.signals == {"unanswered"} and answer.attempts <= 12


async def test_answers_that_come_while_a_tiny_request_is_asked_count(served: Served) -> None:
    another = BAD + 1
    failed, is_asked, may_end, is_over = {BAD: 0, another: 0}, asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def script(asked: Exchange) -> None:
        seed = asked.body["seed"]
        if asked.body["max_tokens"] != 500:
            is_asked.set()
            await may_end.wait()
        if asked.body["max_tokens"] != 500 or seed not in failed:
            await asked.answer("42")
            return
        failed[seed] += 1
        if (seed, failed[seed]) == (another, 2):
            may_end.set()
        if failed[seed] == 3:
            is_over.set() if seed == BAD else await is_over.wait()
        await asked.reply(500, WORDS)

    async with served(script, max_tokens=500, retry_for=300.0) as (_, model):
        await model.sample(CHAT, range(1))
        first = asyncio.create_task(model.sample(CHAT, range(BAD, BAD + 1)))
        await is_asked.wait()
        for seed in range(10, 13):
            await model.sample(CHAT, range(seed, seed + 1))
        second = asyncio.create_task(model.sample(CHAT, range(another, another + 1)))
        answers = await asyncio.wait_for(asyncio.gather(first, second), HANGS)
    assert [answer.signals for (answer,) in answers] == [{"unanswered"}] * 2


UNPAUSED = EndpointSettings(tick=0.1, backoff=0.01, longest_pause=0.001, probe_every=0.1, probe_again=0.02)
"""A server that only fails is asked again at once."""


@pytest.mark.parametrize(("retry_for", "settings", "attempts"), [(0.0, QUICK, 5), (300.0, UNPAUSED, 6)])
async def test_under_caps_one_tiny_request_is_asked_and_counted(
    served: Served, retry_for: float, settings: EndpointSettings, attempts: int
) -> None:
    """Five attempts, and with patience one after the tiny request, not as many as the patience would allow."""
    counted: list[int] = []

    async def again() -> bool:
        counted.append(sum(asked.body["max_tokens"] != 500 for asked in server.seen))
        return True

    async with served(failing(BAD), max_tokens=500, retry_for=retry_for, settings=settings) as (server, model):
        await model.sample(CHAT, range(1), again)
        (answer,) = await asyncio.wait_for(model.sample(CHAT, range(BAD, BAD + 1), again), HANGS)
    assert answer.signals == {"unanswered"} and answer.attempts == attempts
    assert counted[0] == 0, "it is counted before it is asked"
    assert model.stats.lost == 1 == sum(asked.body["max_tokens"] != 500 for asked in server.seen)


@pytest.mark.slow
async def test_under_caps_one_tiny_request_is_asked_of_a_server_that_is_down(served: Served) -> None:
    """However many requests wait for it, until it answers again."""
    is_down = first(1 + 6 * 30, replying(WORDS, status=500))
    async with served(first(1, answer, is_down), max_tokens=500, retry_for=300.0, settings=UNPAUSED) as (server, model):
        await model.sample(CHAT, range(1), Leave())
        answers = await asyncio.wait_for(ask(model, 6, 1, Leave()), HANGS)
    assert [answer.text for answer in answers] == ["42"] * 6
    assert model.stats.lost == 1 == sum(asked.body["max_tokens"] != 500 for asked in server.seen)


async def test_under_caps_requests_that_fail_at_the_same_time_go_by_one_tiny_request(served: Served) -> None:
    async def script(asked: Exchange) -> None:
        if asked.body["max_tokens"] != 500:
            await asyncio.sleep(1.0)  # all the others wait for it by then
        await failing(*range(1, 7))(asked)

    async with served(script, max_tokens=500, settings=UNPAUSED) as (server, model):
        await model.sample(CHAT, range(1), Leave())
        answers = await ask(model, 6, 1, Leave())
    assert [answer.signals for answer in answers] == [{"unanswered"}] * 6
    assert min(answer.attempts for answer in answers) == 5, "none is at fault because others failed"
    assert model.stats.lost == 1 == sum(asked.body["max_tokens"] != 500 for asked in server.seen)


async def test_under_caps_that_are_reached_nothing_more_is_asked(served: Served) -> None:
    async with served(failing(BAD), max_tokens=500) as (server, model):
        await model.sample(CHAT, range(1), Leave(0))
        with pytest.raises(RetryNotAllowed):
            await model.sample(CHAT, range(BAD, BAD + 1), Leave(0))
    assert all(asked.body["max_tokens"] == 500 for asked in server.seen)


@pytest.mark.parametrize(
    ("answered_before", "leave"),
    [(False, None), (True, None), (True, Leave())],
    ids=["never answered", "answered before", "under caps"],
)
async def test_who_fails_all_loses_the_model(served: Served, answered_before: bool, leave: RetryGate | None) -> None:
    fails = replying(WORDS, status=500)
    async with served(first(1, answer, fails) if answered_before else fails, max_tokens=500) as (_, model):
        if answered_before:
            await model.sample(CHAT, range(1), leave)
        with pytest.raises(Unavailable, match="given up after 5 attempts"):
            await model.sample(CHAT, range(BAD, BAD + 1), leave)


@pytest.mark.parametrize("has_answered", [False, True])
@pytest.mark.parametrize("in_flight", [1, 32])
async def test_a_server_that_fails_everything_is_given_up_as_soon_with_many_requests_and_more_to_come(
    served: Served, has_answered: bool, in_flight: int
) -> None:
    loop, settings = asyncio.get_running_loop(), EndpointSettings()
    options = {"in_flight": in_flight, "retry_for": 60.0, "settings": settings, "has_answered": has_answered}
    async with served(replying({"choices": []}), **options) as (_, model):
        asked = [model.sample(CHAT, range(seed, seed + 1)) for seed in (*range(in_flight), *range(100, 200))]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Unavailable}
    assert 60.0 <= loop.time() <= 60.0 + 2 * settings.longest_pause + settings.longest_backoff


async def test_a_server_that_fails_everything_does_not_lose_the_model_while_another_generates(endpoint: Opener) -> None:
    is_well = False

    async def broken(asked: Exchange) -> None:
        await (asked.answer("42") if is_well else asked.reply(500, WORDS))

    async def slow(asked: Exchange) -> None:
        nonlocal is_well
        await asyncio.sleep(90.0)
        is_well = True
        await asked.answer("42")

    async with raw_server(slow) as one, raw_server(broken) as other:
        settings = EndpointSettings()
        model = endpoint(one.base_url, other.base_url, in_flight=4, retry_for=60.0, settings=settings, timeout=1800.0)
        assert [answer.text for answer in await ask(model, 64)] == ["42"] * 64


async def test_a_server_that_was_given_up_is_asked_again_after_each_pause(served: Served) -> None:
    is_well = False

    async def script(asked: Exchange) -> None:
        await (asked.answer("42") if is_well else asked.reply(500, WORDS))

    async with served(script, retry_for=10.0, settings=EndpointSettings()) as (_, model):
        with pytest.raises(Unavailable):
            await model.sample(CHAT, range(1))
        is_well = True
        with pytest.raises(Unavailable):
            await model.sample(CHAT, range(1))
        await asyncio.sleep(EndpointSettings().longest_pause)
        (answer,) = await model.sample(CHAT, range(1))
        assert answer.text == "42" and len(await ask(model, 20)) == 20


class Played:
    """A request that fails again and again, while others are answered."""

    def __init__(self) -> None:
        self.traffic = Traffic(has_answered=True)
        limits = Limits(retry_for=3600.0)
        self.retries = Retries(limits, 3600.0, EndpointSettings(), lambda: 0.0, self.traffic)

    def given_up(self, answered: int, failed: int, kind: FailureKind = FailureKind.SERVER_ERROR) -> int | None:
        """After how many failures it is given up, if so many others are answered and failed between two."""
        for number in range(1, 31):
            if self.retries.give_up(Failure(kind, "it says so")):
                return number
            self.traffic.answered += answered
            self.traffic.failed_before += failed
        return None


def test_chance_is_excluded_by_how_often_others_fail() -> None:
    assert Played().given_up(100, 0) == 5
    assert Played().given_up(1, 0) == 8
    assert Played().given_up(8, 8) == 21
    assert Played().given_up(0, 5) is None, "nobody is answered"
    assert Played().given_up(9, 0, FailureKind.STALLED) is None, "a long answer may be cut"


def test_another_kind_of_failure_begins_anew() -> None:
    played = Played()
    for kind in [FailureKind.SERVER_ERROR, FailureKind.RESET] * 20:
        assert not played.retries.give_up(Failure(kind, "it says so"))
        played.traffic.answered += 100
    assert played.traffic.stuck_requests == 0


def test_requests_that_stand_aside_are_counted_until_they_end() -> None:
    played, failure = Played(), Failure(FailureKind.SERVER_ERROR, "it says so")
    played.retries.give_up(failure)
    played.traffic.answered += 1
    assert played.traffic.stuck_requests == 0
    played.retries.give_up(failure)
    assert played.traffic.stuck_requests == 1
    played.retries.close()
    assert played.traffic.stuck_requests == 0


async def reset(asked: Exchange) -> None:
    asked.reset()


def broken_off(**more: object) -> Script:
    """An answer that ends in an error of its server."""
    choice = {"message": {"content": "4"}, "error": {"code": 502, "message": "oops"}}
    return replying({"choices": [choice], **more})


OOPS = {"error": {"message": "oops"}}
UNUSED = {"prompt_tokens": 0, "completion_tokens": 0, "completion_tokens_details": {"reasoning_tokens": 0}}
STREAM = b'data: {"choices": [{"delta": {"content": "4"}}]}\n\nevent: error\ndata: oops\n\n'
LOST = {
    "reset": reset,
    "ended early": replying({"choices": [{"message": {"content": "4"}, "finish_reason": None}]}),
    "broken off": broken_off(usage={"prompt_tokens": 9, "completion_tokens": 900}),
    "broken off untold": broken_off(),
    "broken stream": replying(STREAM),
}
NOT_LOST = {
    "broken at once": replying({**OOPS, "usage": UNUSED}),
    "broken within": replying(OOPS),
    "broken": replying(OOPS, status=500),
}


@pytest.mark.parametrize("what", [reset, replying({"choices": []}), hang], ids=["reset", "garbled", "hang"])
@pytest.mark.parametrize("seeds", [range(1), range(3)])
async def test_what_was_lost_is_asked_again_with_leave_only(served: Served, what: Script, seeds: range) -> None:
    async with served(first(9, what), timeout=0.2, samples_per_request=3) as (server, model):
        leave = Leave(1)
        with pytest.raises(RetryNotAllowed):
            await model.sample(CHAT, seeds, leave)
        before = len(server.seen)
        lost = sum(int(str(asked.body.get("n", 1))) for asked in server.seen)
        assert model.stats.lost == lost >= 2 * len(seeds)
        assert leave.asked >= 2
        assert len(server.seen) == before, "nothing is asked after that"


@pytest.mark.parametrize("name", [*LOST, *NOT_LOST])
async def test_what_was_lost_needs_leave_and_what_failed_none(served: Served, name: str) -> None:
    lost = 2 if name in LOST else 0
    leave = Leave(9 if lost else 0)
    async with served(first(2, (LOST | NOT_LOST)[name]), stream=name == "broken stream") as (_, model):
        (answer,) = await model.sample(CHAT, range(1), leave)
    assert (answer.text, leave.asked, model.stats.lost) == ("42", lost, lost)


async def test_answers_that_go_with_a_lost_one_are_lost_too(served: Served) -> None:
    """Three travel together, run out of time, and are asked one by one: one of them is lost for good."""

    async def script(asked: Exchange) -> None:
        if asked.body.get("n", 1) == 3:
            await hang(asked)
        elif asked.body["seed"] == 1:
            await reset(asked)
        else:
            await asked.answer("fine")

    async with served(script, timeout=0.2, samples_per_request=3) as (_, model):
        with pytest.raises(RetryNotAllowed):
            await model.sample(CHAT, range(3), Leave(1))
    assert model.stats.lost == 3 + 3
