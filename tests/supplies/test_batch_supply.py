"""A model's requests as batches: collected, submitted once, and claimed by later starts, on a simulated clock."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from batch_bench import ServiceInMemory
from service_bench import ADA, ServiceDesk, ServiceStart, keys_of, truths
from thoroughness import first_of

from adaptive_eval.endpoints.batching import MAX_REQUESTS, came_by_batch
from adaptive_eval.endpoints.failures import Refusal
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.machine.follow_up import RequestFailure
from adaptive_eval.machine.supply import Demand
from adaptive_eval.machine.trial import Key
from adaptive_eval.notes.batches import BatchPlanned, BatchTaken
from adaptive_eval.supplies.batches.calls import BatchCalls
from adaptive_eval.supplies.batches.wire import MaybeCreated

pytestmark = pytest.mark.patient(settle=0.0)  # nothing goes through sockets

KINDS = ("openai", "anthropic")
"""With metadata and without."""
HOUR = 3600.0


async def answered(start: ServiceStart, keys: Sequence[Key]) -> dict[Key, Answer]:
    """Wait until these requests are over; return all answers."""
    start.ask(keys)
    return await start.answered()


def texts(answers: Mapping[Key, Answer]) -> dict[Key, str]:
    return {key: answer.text for key, answer in answers.items()}


def are_right(kind: str, answers: Mapping[Key, Answer], keys: Sequence[Key]) -> bool:
    """Whether these are the answers to these keys; anthropic has no seeds, and draws each anew."""
    return answers.keys() == set(keys) if kind == "anthropic" else texts(answers) == truths(keys)


def end_first(desk: ServiceDesk, ending: Mapping[str, object], *, has_answer: bool = True) -> None:
    """Have the first result that is fetched end so, or be only that."""
    fetch, fetched = desk.wire.lines, list[str]()

    async def lines(path: str) -> list[Any]:
        results: list[Any] = await fetch(path)
        if not fetched:
            response = results[0]["response"]
            if has_answer:
                response["body"]["choices"][0] |= ending
            else:
                response["body"] = ending
        fetched.append(path)
        return results

    desk.wire.lines = lines  # type: ignore[method-assign]


async def handed_in(desk: ServiceDesk, keys: Sequence[Key]) -> None:
    """A start that has submitted a batch and stops."""
    first = desk.open()
    first.ask(keys)
    await asyncio.sleep(60.0)
    first.supply.leave()
    await first.die()


@pytest.mark.parametrize("kind", KINDS)
async def test_requests_that_come_together_are_one_batch(kind: str) -> None:
    desk, keys = ServiceDesk(kind, ServiceInMemory(seconds=HOUR)), keys_of(range(40))
    start = desk.open()
    answers = await answered(start, keys)
    assert are_right(kind, answers, keys)
    assert {key: answer.seed for key, answer in answers.items()} == {key: key[2] for key in keys}
    assert all(came_by_batch(answer.replica) and answer.latency >= HOUR for answer in answers.values())
    await asyncio.sleep(1.0)
    assert [event.kind for event in desk.log.events] == ["batch_planned", "batch_taken", "batch_ended"]
    stats = start.supply.stats(ADA)
    assert desk.creations == 1
    assert stats.requests == 40 and stats.in_flight == stats.lost == 0


async def test_nothing_is_sent_before_the_log_has_the_batch() -> None:
    desk = ServiceDesk("openai", ServiceInMemory(seconds=1.0))
    start = desk.open()
    start.supply.on_noted = lambda note: None  # type: ignore[method-assign]
    start.ask(keys_of(range(3)))
    await asyncio.sleep(60.0)
    assert len(desk.log.pending) == 1 and desk.service.log == []


async def test_a_batch_has_no_more_requests_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAX_REQUESTS, "openai", 10)  # type: ignore[arg-type]
    desk = ServiceDesk("openai", ServiceInMemory(seconds=1.0))
    await answered(desk.open(), keys_of(range(25)))
    assert desk.sizes == [10, 10, 5]


async def test_the_pause_between_polls_grows_up_to_the_longest() -> None:
    desk = ServiceDesk("openai", ServiceInMemory(seconds=HOUR))
    await answered(desk.open(), keys_of(range(2)))
    polls = [path for method, path in desk.service.log if method == "GET" and path.startswith("/batches/")]
    assert len(polls) == 15 + 10, "fifteen pauses of 1 s and half more each time are 874 s, and ten of 300 s the others"


@pytest.mark.parametrize("kind", KINDS)
async def test_requests_without_a_result_are_asked_again_and_no_answer_twice(kind: str) -> None:
    faults = {"errored": 0.2, "left_out": 0.1, "doubled": 0.3, "strange": 0.3, "expired": 0.3, "failed": 0.2}
    service, keys = ServiceInMemory(seconds=60.0, seed=5, **faults), keys_of(range(100))
    desk = ServiceDesk(kind, service)
    start = desk.open(attempts=20)
    assert are_right(kind, await answered(start, keys), keys)
    await asyncio.sleep(1.0)
    assert service.counts["answered"] == 100, "no answer was paid for twice"
    assert start.supply.stats(ADA).lost == desk.log.lost == service.counts["left out"] > 0
    assert sum(event.came for event in desk.ended) == 100
    assert sum(event.lost for event in desk.ended) == service.counts["left out"]
    assert desk.log.pending == []


async def test_a_request_that_fails_in_every_batch_is_given_up() -> None:
    desk = ServiceDesk("openai", ServiceInMemory(seconds=1.0, errored=1.0))
    start = desk.open(attempts=3)
    await answered(start, keys_of([7]))
    (failed,) = start.failed.values()
    assert failed.kind is RequestFailure.UNAVAILABLE
    assert "given up after 3 batches; in the last one: server_error: HTTP 500" in failed.reason
    assert desk.creations == 3


@pytest.mark.parametrize(("fault", "why"), [("expired", "expired with its batch"), ("failed", "Enqueued token limit")])
async def test_expiry_and_lack_of_room_are_no_failures(fault: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is given up after days, however few failures it may have had."""
    monkeypatch.setattr(BatchCalls, "longest_poll", 10_000.0)  # each poll settles for a real moment
    desk = ServiceDesk("openai", ServiceInMemory(seconds=86_000.0, **{fault: 1.0}))
    start = desk.open(attempts=2)
    await answered(start, keys_of([1]))
    (failed,) = start.failed.values()
    assert failed.kind is RequestFailure.UNAVAILABLE and why in failed.reason
    assert desk.creations > 4


async def test_a_service_that_ends_every_batch_at_once_is_sent_fewer_and_fewer() -> None:
    desk = ServiceDesk("openai", ServiceInMemory(seconds=1.0, expired=1.0))
    start = desk.open()
    start.ask(keys_of([1]))
    await asyncio.sleep(HOUR)
    assert 5 < desk.creations < 20
    await start.die()


async def test_a_refusal_of_all_is_believed_at_once_and_of_some_the_second_time() -> None:
    unknown = (ADA, 99, 1)
    desk = ServiceDesk("openai", ServiceInMemory(seconds=1.0))
    start = desk.open()
    await answered(start, [unknown])
    assert start.failed[unknown].kind is RequestFailure.REFUSED and desk.creations == 1
    desk = ServiceDesk("openai", ServiceInMemory(seconds=1.0))
    start = desk.open()
    await answered(start, [(ADA, 1, 1), unknown])
    assert start.failed[unknown].kind is RequestFailure.REFUSED and desk.log.answers.keys() == {(ADA, 1, 1)}
    assert desk.creations == 2


# -- a creation whose reply is lost --------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "lost"), [("openai", 0), ("anthropic", 10)])
async def test_batches_that_are_surely_not_listed_are_created_anew_and_others_lost(kind: str, lost: int) -> None:
    desk = ServiceDesk(kind, ServiceInMemory(seconds=60.0))
    start = desk.open(attempts=3)
    create, paths = desk.wire.post_once, list[str]()

    async def without_reply(path: str, body: object) -> object:
        paths.append(path)
        if len(paths) == 1:
            raise MaybeCreated
        return await create(path, body)  # type: ignore[arg-type]

    desk.wire.post_once = without_reply  # type: ignore[method-assign]
    assert len(await answered(start, keys_of(range(10)))) == 10
    await asyncio.sleep(1.0)
    assert (len(paths), desk.log.lost) == (2, lost)
    assert [event.lost for event in desk.ended] == ([10, 0] if lost else [0])


# -- losses, and the caps ------------------------------------------------------------------------------------------


async def test_a_lost_answer_is_not_asked_for_again_if_the_caps_do_not_allow_it() -> None:
    desk = ServiceDesk("openai", ServiceInMemory(seconds=1.0, left_out=1.0))
    start = desk.open(allows=False)
    await answered(start, keys_of([0]))
    (failed,) = start.failed.values()
    assert failed.kind is RequestFailure.NOT_ALLOWED and desk.log.lost == 1 and desk.creations == 1


@pytest.mark.parametrize("ending", [{"finish_reason": None}, {"finish_reason": "error"}, {"error": "upstream"}])
async def test_an_answer_that_came_unfinished_is_lost(ending: dict[str, object]) -> None:
    desk = ServiceDesk("openai", ServiceInMemory(seconds=1.0))
    start = desk.open()
    end_first(desk, ending)
    assert texts(await answered(start, keys_of([0]))) == truths(keys_of([0]))
    assert desk.log.lost == start.supply.stats(ADA).lost == 1 and desk.creations == 2


async def test_an_error_instead_of_an_answer_is_no_lost_answer() -> None:
    """As where a gateway puts its errors into a 200."""
    desk = ServiceDesk("openai", ServiceInMemory(seconds=1.0))
    start = desk.open()
    end_first(desk, {"error": "upstream"}, has_answer=False)
    assert texts(await answered(start, keys_of([0]))) == truths(keys_of([0]))
    assert desk.log.lost == 0 and desk.creations == 2


@pytest.mark.parametrize("number", [1, 5])
async def test_an_unknown_finish_reason_is_final_only_where_all_answers_have_it(number: int) -> None:
    desk, keys = ServiceDesk("openai", ServiceInMemory(seconds=1.0)), keys_of(range(number))
    start = desk.open()
    end_first(desk, {"finish_reason": "weird"})
    answers = await answered(start, keys)
    assert desk.log.lost == 1
    if number > 1:
        assert texts(answers) == truths(keys) and desk.creations == 2
    else:
        (failed,) = start.failed.values()
        assert failed.kind is RequestFailure.REFUSED and "finish_reasons: [weird]" in failed.reason


# -- starts ------------------------------------------------------------------------------------------------------------


async def test_a_batch_without_requests_to_claim_is_ended() -> None:
    desk, keys = ServiceDesk("openai", ServiceInMemory(seconds=HOUR)), keys_of(range(3))
    first = desk.open(delay=None)
    await answered(first, keys)
    first.is_dead = True  # killed after the commit, before the end of the batch is noted
    first.store(keys)
    await first.die()
    second, calls = desk.open(), len(desk.service.log)
    second.ask([])
    await asyncio.sleep(0.0)  # a run with nothing left to ask may end before any reply comes
    assert desk.log.pending == [] and len(desk.service.log) == calls


@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_that_is_in_two_batches_waits_for_the_newer_one(kind: str) -> None:
    """It failed in the older one, which is not over because a kill came before its other answers were on disk."""
    service = ServiceInMemory(seconds=HOUR, errored=0.5, seed=5)
    desk, keys = ServiceDesk(kind, service), keys_of(range(20))
    first = desk.open(attempts=20, delay=None)
    first.ask(keys)
    await asyncio.sleep(1.5 * HOUR)
    await first.die()
    assert 0 < len(desk.log.answers) < 20 and len(desk.log.of_kind(BatchTaken)) == 2
    desk.log.answers.clear()

    second = desk.open(attempts=20)
    assert are_right(kind, await answered(second, keys), keys)
    await asyncio.sleep(1.0)
    assert service.counts["answered"] == 20, "no answer was paid for twice"
    assert second.supply.stats(ADA).notices == () and desk.log.pending == []


async def test_requests_of_a_batch_that_cannot_be_read_fail_also_those_that_come_later() -> None:
    desk, keys = ServiceDesk("openai", ServiceInMemory(seconds=HOUR)), keys_of(range(20))
    await handed_in(desk, keys)
    second = desk.open()

    async def refuse(path: str) -> object:
        raise Refusal(401, "the key was refused")

    desk.wire.get = refuse  # type: ignore[assignment]
    second.ask(keys[:1])
    await asyncio.sleep(60.0)
    second.ask(keys[1:2])
    await second.answered()
    assert {failed.kind for failed in second.failed.values()} == {RequestFailure.REFUSED}
    assert all("the key was refused" in failed.reason for failed in second.failed.values())
    assert len(desk.log.pending) == 1, "the next start reads it"
    await second.die()
    assert texts(await answered(desk.open(), keys)) == truths(keys) and desk.creations == 1


@pytest.mark.parametrize("is_asked_again", [True, False])
async def test_a_batch_that_could_not_be_read_is_kept_until_other_trials_are_asked_for(is_asked_again: bool) -> None:
    """Its requests have failed, so that no row claims them: they are asked for anew, after servers were told of it."""
    desk, keys = ServiceDesk("openai", ServiceInMemory(seconds=HOUR)), keys_of(range(20))
    await handed_in(desk, keys)
    desk.log.reserved.clear()
    second = desk.open()
    second.supply.serve({ADA: Demand(is_owed=True)})
    await asyncio.sleep(0.0)
    assert len(desk.log.pending) == 1
    if is_asked_again:
        assert texts(await answered(second, keys)) == truths(keys)
        await asyncio.sleep(1.0)
        assert desk.creations == 1 and desk.log.pending == [], "it is not paid twice"
    else:
        second.ask(keys_of(range(20, 22)))
        await asyncio.sleep(0.0)
        assert desk.log.pending == []


async def test_results_that_are_deleted_before_a_later_start_are_lost_and_asked_for_again() -> None:
    desk, keys = ServiceDesk("openai", ServiceInMemory(seconds=HOUR)), keys_of(range(20))
    await handed_in(desk, keys)
    second = desk.open()
    lines, refused = desk.wire.lines, list[str]()

    async def gone(path: str) -> list[object]:
        if not refused:
            refused.append(path)
            raise Refusal(404, "no such file")
        return await lines(path)

    desk.wire.lines = gone
    assert texts(await answered(second, keys)) == truths(keys)
    await asyncio.sleep(1.0)
    assert desk.creations == 2 and desk.log.lost == 20 and desk.log.pending == []
    refused.clear()
    second.ask(new := keys_of(range(20, 22)))
    await second.answered()
    assert {second.failed[key].kind for key in new} == {RequestFailure.REFUSED}, "a wrong address, for all it knows"


async def test_a_stop_gives_back_what_is_in_no_batch() -> None:
    desk, keys = ServiceDesk("openai", ServiceInMemory(seconds=HOUR)), keys_of(range(20))
    start = desk.open()
    start.ask(keys[:10])
    await asyncio.sleep(60.0)
    start.ask(keys[10:])
    start.supply.leave()
    await asyncio.sleep(0)
    assert start.failed.keys() == {*keys[10:]}
    assert {failed.kind for failed in start.failed.values()} == {RequestFailure.NOT_SENT}
    await start.die()
    assert desk.sizes == [10] and desk.open().supply.claims(keys) == set(keys[:10])


async def test_a_finished_run_abandons_its_batches_whose_answers_count_as_paid() -> None:
    desk, keys = ServiceDesk("openai", ServiceInMemory(seconds=HOUR)), keys_of(range(20))
    await handed_in(desk, keys)
    second = desk.open()
    second.ask(keys)
    await asyncio.sleep(1.0)
    second.cancel()
    await second.answered()
    await asyncio.sleep(1.0)
    assert {failed.kind for failed in second.failed.values()} == {RequestFailure.CUT_OFF}
    assert desk.log.pending == [] and desk.ended[-1].lost == 20
    assert ("POST", "/batches/batch_0/cancel") in desk.service.log


async def test_an_id_that_no_service_gave_or_that_another_batch_has_is_not_asked_for() -> None:
    """The notes of a run may come from a stranger."""
    desk = ServiceDesk("openai", ServiceInMemory(seconds=HOUR))
    first = desk.open()
    first.ask(keys_of(range(5)))
    await asyncio.sleep(60.0)
    forged = ServiceDesk("openai", desk.service)
    keys, ids = keys_of(range(3), 7), {"a": "batch_0", "b": "../files/f?x=", "c": "batch_0/cancel?"}
    for trial, (key, batch) in zip(keys, ids.items(), strict=True):
        request = "-".join(map(str, trial))
        forged.log.events += [BatchPlanned("ada", key, (request,), 1e9), BatchTaken("ada", key, batch, 1, 1e9)]
    forged.log.reserved.update(keys)
    second, before = forged.open(), len(desk.service.log)
    assert texts(await answered(second, keys)) == truths(keys)
    await asyncio.sleep(1.0)
    await second.die()
    paths = [path for _, path in desk.service.log[before:]]
    assert "/batches/batch_0" in paths and not any("cancel" in path or "f?x" in path for path in paths)
    assert forged.log.pending == []
    assert len(await first.answered()) == 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("history", first_of(range(4), 2))
async def test_every_answer_comes_once_whatever_happens(kind: str, history: int) -> None:
    """Random services, and starts that are killed at random moments: what is stored is never asked again."""
    rng = random.Random(history)
    share = {name: rng.choice([0.0, 0.2]) for name in ("errored", "doubled", "strange", "expired", "lost", "refused")}
    service = ServiceInMemory(seconds=rng.choice([1.0, 600.0, 7200.0]), seed=history, **share)
    desk = ServiceDesk(kind, service)
    expected = [key for number in range(4) for key in keys_of(range(15), number)]
    for number in range(6):
        start = desk.open(attempts=50, delay=rng.random)
        start.ask([key for key in expected if key not in desk.log.answers])
        if number < 5:
            await asyncio.sleep(rng.choice([0.3, 30.0, 3000.0]))
        else:
            await start.answered()
            await asyncio.sleep(10.0)
        assert start.failed == {}
        await start.die()
        for key in desk.log.reserved & desk.log.answers.keys():  # not on disk yet
            del desk.log.answers[key]
    assert are_right(kind, desk.log.answers, expected)
    assert service.counts["answered"] == len(expected), "no answer was paid for twice"
    assert desk.log.pending == []
