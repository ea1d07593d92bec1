"""A model's requests as batches: gathered, handed in once, found again, collected; on a clock of the test's own."""

import asyncio
import random
from collections.abc import Mapping

import pytest
from adaptive_eval.batches.calls import BatchCalls, trial_id
from adaptive_eval.batches.endpoint import BatchedEndpoint
from batch_bench import Desk, ServiceInMemory, question, truth
from patient_time import HANGS
from thoroughness import first_of

from adaptive_eval.base.errors import Rejected, RetryNotAllowed, Unavailable
from adaptive_eval.endpoints.batching import came_by_batch
from adaptive_eval.endpoints.failures import Refusal
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.notes import BatchCancelled, BatchEnded, BatchPlanned, BatchTaken
from adaptive_eval.supplies.batches.wire import MaybeCreated

KINDS = ("openai", "openrouter")
"""Services that know seeds, so that answers are the same whenever they are asked for."""
HOUR = 3600.0


async def ask(endpoint: BatchedEndpoint, number: int, seed: int) -> Answer:
    (answer,) = await endpoint.sample(question(number), range(seed, seed + 1))
    endpoint.book.mark_stored(question(number), range(seed, seed + 1))
    return answer


async def ask_all(endpoint: BatchedEndpoint, seeds: range, number: int = 1) -> list[Answer]:
    return list(await asyncio.gather(*(ask(endpoint, number, seed) for seed in seeds)))


async def hand_in_and_leave(desk: Desk) -> None:
    """A start that has handed in a batch of twenty, and leaves at once."""
    first = desk.open()
    asking = [asyncio.create_task(ask(first, 1, seed)) for seed in range(20)]
    await asyncio.sleep(60.0)
    first.leave()
    await asyncio.gather(*asking, return_exceptions=True)
    await first.depart(True, False)


def creations(service: ServiceInMemory) -> int:
    return sum(method == "POST" and path.endswith("/batches") for method, path in service.log)


@pytest.mark.parametrize("kind", ["openai", "openrouter", "anthropic"])
async def test_what_is_asked_together_is_one_batch(kind: str) -> None:
    desk = Desk(kind, ServiceInMemory(seconds=HOUR))
    endpoint = desk.open()
    answers = await ask_all(endpoint, range(40))
    if kind != "anthropic":  # it has no seeds: each answer is drawn anew
        assert [answer.text for answer in answers] == [truth(1, seed) for seed in range(40)]
    assert [answer.seed for answer in answers] == list(range(40))
    assert all(came_by_batch(answer.replica) and answer.latency >= HOUR for answer in answers)
    assert creations(desk.service) == 1 and desk.direct.asked == []
    kinds = [type(event) for event in desk.journal.events]
    assert kinds == [BatchPlanned, BatchTaken, BatchEnded]
    assert endpoint.stats.requests == 40 and endpoint.stats.in_flight == endpoint.stats.lost == 0
    await endpoint.close()


async def test_what_is_asked_again_before_its_answer_is_stored_is_in_a_batch_of_its_own() -> None:
    """Two questions may have the same prompt and seed."""
    desk = Desk("openai", ServiceInMemory(seconds=1.0))
    endpoint = desk.open()
    answers = [(await endpoint.sample(question(1), range(7, 8)))[0] for _ in range(2)]
    assert [answer.text for answer in answers] == [truth(1, 7)] * 2 and creations(desk.service) == 2
    for left in (1, 0):
        endpoint.book.mark_stored(question(1), range(7, 8))
        assert len(desk.journal.pending) == left
    await endpoint.close()


async def test_the_intent_is_written_down_before_anything_is_sent() -> None:
    desk = Desk("openai", ServiceInMemory(seconds=1.0))
    endpoint = desk.open()
    seen: list[int] = []

    async def safe() -> None:
        seen.append(len(desk.service.log))
        assert isinstance(desk.journal.events[-1], BatchPlanned)

    desk.journal.safe = safe  # type: ignore[method-assign]
    await ask_all(endpoint, range(3))
    assert seen == [0]


async def test_a_batch_has_no_more_requests_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptive_eval.endpoints.batching.MOST_REQUESTS", {"openai": 10})
    desk = Desk("openai", ServiceInMemory(seconds=1.0))
    await ask_all(desk.open(), range(25))
    assert [len(event.requests) for event in desk.journal.events if isinstance(event, BatchPlanned)] == [10, 10, 5]


async def test_the_pause_between_polls_grows_up_to_the_longest() -> None:
    desk = Desk("openai", ServiceInMemory(seconds=HOUR))
    await ask_all(desk.open(), range(2))
    polls = [path for method, path in desk.service.log if method == "GET" and path.startswith("/batches/")]
    assert len(polls) == 15 + 10, "fifteen pauses of 1 s and half more each time are 874 s, and ten of 300 s the rest"


@pytest.mark.parametrize("kind", ["openai", "openrouter"])
async def test_what_fails_or_is_left_out_is_asked_again_and_nothing_is_asked_twice(kind: str) -> None:
    service = ServiceInMemory(
        seconds=60.0, errored=0.2, left_out=0.1, doubled=0.3, strange=0.3, expired=0.3, failed=0.2, seed=5
    )
    desk = Desk(kind, service)
    endpoint = desk.open(attempts=20)
    answers = await ask_all(endpoint, range(100))
    assert [answer.text for answer in answers] == [truth(1, seed) for seed in range(100)]
    assert service.counts["answered"] == 100, "no answer was paid for twice"
    assert endpoint.stats.lost == service.counts["left out"] > 0
    ended = [event for event in desk.journal.events if isinstance(event, BatchEnded)]
    assert sum(event.came for event in ended) == 100
    assert sum(event.lost for event in ended) == service.counts["left out"]
    notices = {notice.kind for notice in endpoint.stats.notices}
    assert notices == {"double_result", "strange_result"}
    assert desk.journal.pending == []


async def test_a_failure_that_comes_twice_was_asked_for() -> None:
    desk = Desk("openai", ServiceInMemory(seconds=60.0, errored=0.5, doubled=1.0, seed=5))
    endpoint = desk.open(attempts=20)
    await ask_all(endpoint, range(30))
    assert {notice.kind for notice in endpoint.stats.notices} == {"double_result"}


async def test_a_request_that_fails_in_every_batch_is_given_up() -> None:
    desk = Desk("openai", ServiceInMemory(seconds=1.0, errored=1.0))
    with pytest.raises(Unavailable, match="given up after 3 batches; in the last one: server_error: HTTP 500"):
        await ask(desk.open(attempts=3), 1, 7)
    assert creations(desk.service) == 3


@pytest.mark.parametrize(("fault", "why"), [("expired", "expired with its batch"), ("failed", "Enqueued token limit")])
async def test_batches_that_expire_or_find_no_room_say_nothing_of_a_request(
    fault: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up after days, however few failures it may have."""
    monkeypatch.setattr(BatchCalls, "longest_poll", 10_000.0)  # each poll settles for a real moment
    service = ServiceInMemory(seconds=86_000.0, **{fault: 1.0})
    desk = Desk("openai", service)
    with pytest.raises(Unavailable, match=why):
        await ask(desk.open(attempts=2), 1, 1)
    assert creations(service) > 4


async def test_a_refusal_of_all_is_believed_at_once_and_of_some_after_it_came_twice() -> None:
    desk = Desk("openai", ServiceInMemory(seconds=1.0))
    with pytest.raises(Rejected, match="is not a question of the world"):
        await ask(desk.open(), 99, 1)
    assert creations(desk.service) == 1
    desk = Desk("openai", ServiceInMemory(seconds=1.0))
    endpoint = desk.open()
    good, bad = await asyncio.gather(ask(endpoint, 1, 1), ask(endpoint, 99, 1), return_exceptions=True)
    assert isinstance(good, Answer) and isinstance(bad, Rejected)
    assert creations(desk.service) == 2


# -- a creation whose answer is lost -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["openai", "openrouter"])
async def test_a_batch_whose_creation_was_not_answered_is_found_again(kind: str) -> None:
    """By its metadata, or where there is none by the ids among its results."""
    service = ServiceInMemory(seconds=60.0, lost=1.0)
    desk = Desk(kind, service)
    endpoint = desk.open()
    answers = await ask_all(endpoint, range(10))
    assert [answer.text for answer in answers] == [truth(1, seed) for seed in range(10)]
    assert (creations(service), service.counts["answered"], endpoint.stats.lost) == (1, 10, 0)


async def test_one_that_is_nowhere_is_created_anew_where_that_is_certain_and_else_lost() -> None:
    for kind, lost in (("openai", 0), ("anthropic", 10)):
        service = ServiceInMemory(seconds=60.0)
        desk = Desk(kind, service)
        endpoint = desk.open(attempts=3)
        create, heard = desk.wire.post_once, []

        async def unheard(path: str, body: object, create: object = create, heard: list[str] = heard) -> object:
            heard.append(path)
            if len(heard) == 1:
                raise MaybeCreated
            return await create(path, body)  # type: ignore[operator]

        desk.wire.post_once = unheard  # type: ignore[method-assign]
        assert len(await ask_all(endpoint, range(10))) == 10
        assert (len(heard), endpoint.stats.lost) == (2, lost)
        assert [event.lost for event in desk.journal.events if isinstance(event, BatchEnded)] == (
            [10, 0] if lost else [0]
        )


async def test_what_is_lost_is_asked_again_only_where_the_caps_bear_it() -> None:
    desk = Desk("openai", ServiceInMemory(seconds=1.0, left_out=1.0))
    endpoint = desk.open()

    async def never() -> bool:
        return False

    with pytest.raises(RetryNotAllowed, match="the budget does not allow asking for it again"):
        await endpoint.sample(question(1), range(1), never)
    assert endpoint.stats.lost == 1


# -- patience --------------------------------------------------------------------------------------------------------


async def test_what_failed_and_what_was_lost_is_asked_again_in_one_batch() -> None:
    service = ServiceInMemory(seconds=60.0, errored=0.3, left_out=0.3, seed=5)
    desk = Desk("openai", service)
    endpoint = desk.open(attempts=20)

    async def again() -> bool:
        await asyncio.sleep(5.0)  # until the loss is on disk
        return True

    async def kept(seed: int) -> None:
        await endpoint.sample(question(1), range(seed, seed + 1), again)
        endpoint.book.mark_stored(question(1), range(seed, seed + 1))

    await asyncio.gather(*map(kept, range(40)))
    sizes = [len(event.requests) for event in desk.journal.events if isinstance(event, BatchPlanned)]
    first, *others = [event for event in desk.journal.events if isinstance(event, BatchEnded)]
    assert first.missing > first.lost > 0, "some failed and others were lost"
    assert sizes == [40, *(one.missing for one in (first, *others) if one.missing)]
    await endpoint.close()


async def test_where_patience_ends_the_batch_is_cancelled_and_the_rest_asked_directly() -> None:
    desk = Desk("openai", ServiceInMemory(seconds=10 * HOUR), cancel_after=5 * HOUR)
    endpoint = desk.open()
    answers = await ask_all(endpoint, range(40))
    assert [answer.text for answer in answers] == [truth(1, seed) for seed in range(40)]
    batched = [answer.seed for answer in answers if came_by_batch(answer.replica)]
    assert len(batched) == desk.service.counts["answered"] == 20, "half of its time was over"
    assert sorted([*batched, *desk.direct.asked]) == list(range(40)), "nothing is asked both ways"
    assert BatchCancelled("ada", desk.journal.events[0].key) in desk.journal.events  # type: ignore[attr-defined]
    assert endpoint.stats.lost == 0 and desk.journal.pending == []


@pytest.mark.slow
async def test_a_batch_that_cannot_be_cancelled_now_is_polled_with_pauses() -> None:
    desk = Desk("openai", ServiceInMemory(seconds=10 * HOUR), cancel_after=5 * HOUR)
    endpoint, clock, refused = desk.open(), asyncio.get_running_loop().time, [0]
    begun, post = clock(), desk.wire.post

    async def post_later(path: str, body: Mapping[str, object]) -> object:
        if path.endswith("/cancel") and clock() < begun + 6 * HOUR:
            refused[0] += 1
            assert refused[0] < 1000
            raise Refusal(409, "it is finalizing")
        return await post(path, body)

    desk.wire.post = post_later  # type: ignore[method-assign]
    answers = await ask_all(endpoint, range(40))
    assert [answer.text for answer in answers] == [truth(1, seed) for seed in range(40)]
    assert 0 < refused[0] <= HOUR / BatchCalls.retry_pause + 1


async def test_what_is_asked_directly_and_cut_off_is_lost() -> None:
    desk = Desk("openai", ServiceInMemory(seconds=10 * HOUR), cancel_after=5 * HOUR)
    endpoint, never = desk.open(), asyncio.Event()

    async def hang(*_: object) -> list[Answer]:
        await never.wait()
        return []

    desk.direct.sample = hang  # type: ignore[method-assign]
    asking = asyncio.create_task(ask_all(endpoint, range(40)))
    await asyncio.sleep(9 * HOUR)
    assert endpoint.stats.lost == 0
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await endpoint.depart(True, True)
    assert endpoint.stats.lost == 20, "the batch has answered the others"


# -- starts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["openai", "openrouter"])
async def test_a_later_start_collects_what_an_earlier_one_has_handed_in(kind: str) -> None:
    desk = Desk(kind, ServiceInMemory(seconds=HOUR))
    first = desk.open()
    asking = [asyncio.create_task(ask(first, 1, seed)) for seed in range(20)]
    await asyncio.sleep(60.0)
    assert [len(one.requests) for one in desk.journal.pending] == [20]
    first.leave()
    told = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(one, RetryNotAllowed) for one in told)
    await first.depart(False, False)
    await first.close()

    second = desk.open({trial_id(question(1), seed) for seed in range(5)})
    assert desk.left == 15
    second.start()
    await asyncio.sleep(2 * HOUR)  # it is collected before anybody asks
    assert [len(one.requests) for one in desk.journal.pending] == [20], "it is over when all of it is stored"
    answers = await ask_all(second, range(5, 25))
    assert [answer.text for answer in answers] == [truth(1, seed) for seed in range(5, 25)]
    assert desk.service.counts["answered"] == 25 and creations(desk.service) == 2
    assert second.stats.notices == (), "what is stored was asked for"
    assert desk.journal.pending == []


async def test_what_is_asked_of_a_batch_that_could_not_be_read_is_told_so() -> None:
    """Although nobody had asked for it when that turned out: a slot may come later."""
    desk = Desk("openai", ServiceInMemory(seconds=HOUR))
    await hand_in_and_leave(desk)
    second = desk.open()

    async def refuse(path: str) -> object:
        raise Refusal(401, "the key was refused")

    desk.wire.get = refuse  # type: ignore[assignment]
    second.start()
    await asyncio.sleep(60.0)
    with pytest.raises(Rejected, match="the key was refused"):
        await asyncio.wait_for(ask(second, 1, 7), HANGS)
    assert len(desk.journal.pending) == 1, "the next start reads it"
    await second.close()


async def test_who_leaves_at_once_waits_for_no_batch_that_is_being_handed_in() -> None:
    desk = Desk("openai")
    endpoint, handing = desk.open(), asyncio.Event()

    async def hang(*_: object) -> object:
        handing.set()
        return await asyncio.Event().wait()

    desk.wire.upload = hang  # type: ignore[method-assign]
    asking = asyncio.create_task(ask(endpoint, 1, 1))
    await handing.wait()
    await endpoint.depart(True, False)  # a coroutine that nobody awaits is a warning, and an error here
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_a_run_that_is_over_gives_up_what_nobody_wants() -> None:
    desk = Desk("openai", ServiceInMemory(seconds=HOUR))
    await hand_in_and_leave(desk)
    second = desk.open()
    second.start()
    await asyncio.sleep(1.0)
    await second.depart(False, True)
    assert second.stats.lost == 20 and desk.journal.pending == []
    assert not any(isinstance(event, BatchCancelled) for event in desk.journal.events), "nothing is asked directly"
    assert ("POST", "/batches/batch_0/cancel") in desk.service.log


async def test_a_stored_id_that_no_service_gave_or_that_another_batch_has_is_neither_asked_for_nor_cancelled() -> None:
    """The events of a run may be a stranger's."""
    own = Desk("openai", ServiceInMemory(seconds=HOUR))
    first = own.open()
    asking = [asyncio.create_task(ask(first, 1, seed)) for seed in range(5)]
    await asyncio.sleep(60.0)
    forged = Desk("openai", own.service)
    for key, batch in (("a", "batch_0"), ("b", "../files/f?x="), ("c", "batch_0/cancel?")):
        forged.journal.note(BatchPlanned("ada", key, (f"{key}-1",), 1e9))
        forged.journal.note(BatchTaken("ada", key, batch, 1, 1e9))
    second, before = forged.open(), len(own.service.log)
    second.start()
    await asyncio.sleep(60.0)
    await second.depart(False, True)
    assert {("GET", "/batches?limit=100"), ("GET", "/batches/batch_0")} == set(own.service.log[before:])
    assert forged.journal.pending == []
    await asyncio.gather(*asking)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("history", first_of(range(4), 2))
async def test_whatever_happens_every_answer_comes_once(kind: str, history: int) -> None:
    """Random services, and starts that end at random moments without a word: what is stored is never asked again."""
    rng = random.Random(history)
    share = {name: rng.choice([0.0, 0.2]) for name in ("errored", "doubled", "strange", "expired", "lost", "refused")}
    service = ServiceInMemory(seconds=rng.choice([1.0, 600.0, 7200.0]), seed=history, **share)
    desk, kept, wanted = Desk(kind, service), {}, [(number, seed) for number in range(4) for seed in range(15)]
    for start in range(6):
        endpoint = desk.open({trial_id(question(number), seed) for number, seed in kept}, attempts=50)
        endpoint.start()

        async def one(number: int, seed: int, endpoint: BatchedEndpoint = endpoint) -> None:
            (answer,) = await endpoint.sample(question(number), range(seed, seed + 1))
            await asyncio.sleep(rng.random())  # graded, and stored
            assert (number, seed) not in kept
            kept[number, seed] = answer.text
            endpoint.book.mark_stored(question(number), range(seed, seed + 1))

        missing = [pair for pair in wanted if pair not in kept]
        asking = [asyncio.create_task(one(*pair)) for pair in missing]
        if start < 5 and asking:
            await asyncio.wait(asking, timeout=rng.choice([0.3, 30.0, 3000.0]))
        else:
            await asyncio.gather(*asking)
        for task in asking:
            task.cancel()
        results = await asyncio.gather(*asking, return_exceptions=True)
        assert not [one for one in results if isinstance(one, AssertionError)]
        await endpoint.close()  # killed: nothing is said or written any more
    assert kept == {(number, seed): truth(number, seed) for number, seed in wanted}
    assert service.counts["answered"] == len(wanted), "no answer was paid for twice"
    assert desk.journal.pending == []
