"""What may have been generated for nothing is counted, and asked for once more only with leave."""

import asyncio

import pytest
from endpoint_opener import Opener, first
from raw_servers import CHAT, Exchange, Script, raw_server

from adaptive_eval.base.errors import Rejected, RetryNotAllowed


class Leave:
    """Gives leave so often."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.asked = 0

    async def __call__(self) -> bool:
        self.asked += 1
        return self.asked <= self.times


async def reset(asked: Exchange) -> None:
    asked.reset()


async def garbled(asked: Exchange) -> None:
    await asked.reply(200, {"choices": []})


async def broken(asked: Exchange) -> None:
    await asked.reply(500, {"error": {"message": "oops"}})


async def hang(asked: Exchange) -> None:
    await asyncio.sleep(5)


@pytest.mark.parametrize("what", [reset, garbled, hang])
@pytest.mark.parametrize("seeds", [range(1), range(3)])
async def test_what_was_lost_is_asked_again_with_leave_only(endpoint: Opener, what: Script, seeds: range) -> None:
    async with raw_server(first(9, what)) as server:
        model = endpoint(server.base_url, timeout=0.2, samples_per_request=3)
        leave = Leave(1)
        with pytest.raises(RetryNotAllowed):
            await model.sample(CHAT, seeds, leave)
        before = len(server.seen)
        lost = sum(int(str(asked.body.get("n", 1))) for asked in server.seen)
        assert model.stats.lost == lost >= 2 * len(seeds)
        assert leave.asked >= 2
        assert len(server.seen) == before, "nothing is asked after that"


@pytest.mark.parametrize(("what", "lost"), [(reset, 2), (broken, 0)], ids=["lost", "told of an error"])
async def test_what_was_lost_needs_leave_and_what_a_server_reports_as_failed_none(
    endpoint: Opener, what: Script, lost: int
) -> None:
    leave = Leave(9 if lost else 0)
    async with raw_server(first(2, what)) as server:
        model = endpoint(server.base_url)
        (answer,) = await model.sample(CHAT, range(1), leave)
    assert (answer.text, leave.asked, model.stats.lost) == ("42", lost, lost)


async def test_answers_that_go_with_a_lost_one_are_lost_too(endpoint: Opener) -> None:
    """Three travel together, run out of time, and are asked one by one: one of them is lost for good."""

    async def script(asked: Exchange) -> None:
        if asked.body.get("n", 1) == 3:
            await hang(asked)
        elif asked.body["seed"] == 1:
            await reset(asked)
        else:
            await asked.answer("fine")

    async with raw_server(script) as server:
        model = endpoint(server.base_url, timeout=0.2, samples_per_request=3)
        with pytest.raises(RetryNotAllowed):
            await model.sample(CHAT, range(3), Leave(1))
    assert model.stats.lost == 3 + 3


async def test_an_answer_of_which_nobody_knows_whether_it_is_finished_is_paid(endpoint: Opener) -> None:
    async def odd(asked: Exchange) -> None:
        await asked.reply(200, {"choices": [{"message": {"content": "42"}, "finish_reason": "odd"}]})

    async with raw_server(odd) as server:
        model = endpoint(server.base_url)
        with pytest.raises(Rejected, match="odd"):
            await model.sample(CHAT, range(1))
    assert model.stats.lost == len(server.seen) == 2, "it is asked for twice"
