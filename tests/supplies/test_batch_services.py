"""Batch services over HTTP: the formats with the simulated service, and malicious services."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest
from live_runs import small_world
from raw_servers import Exchange, raw_server, replying

from adaptive_eval.base.errors import Rejected, Unavailable
from adaptive_eval.endpoints.batching import BatchKind, came_by_batch
from adaptive_eval.endpoints.failures import Failure
from adaptive_eval.endpoints.types import Answer, EndpointConfig, Limits, Message, Prompt, Sampling
from adaptive_eval.simulate.faults import BatchHabits
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.supplies.batches.anthropic import chat_payload, message_params
from adaptive_eval.supplies.batches.openai import parse_result, parse_state
from adaptive_eval.supplies.batches.service import BatchService, open_batches
from adaptive_eval.supplies.batches.types import BatchResult, BatchStage, BatchState
from adaptive_eval.supplies.batches.wire import MaybeCreated

pytestmark = pytest.mark.patient

KEY = "sk-secret-0123456789abcdef"
KINDS = ("openai", "anthropic")
ASKED = Prompt(messages=(Message("system", "Be brief."), Message("user", "[q1] which?")))


@asynccontextmanager
async def opened(url: str, kind: BatchKind = "openai", **changes: str) -> AsyncIterator[BatchService]:
    service = open_batches(
        EndpointConfig.model_validate({"base_url": url, "model": "ada", "api_key_env": "KEY", **changes}),
        Sampling(max_tokens=2000, stop="###"),
        Limits(retry_for=0.0),
        kind,
        keys={"KEY": KEY},
    )
    try:
        yield service
    finally:
        await service.wire.close()


async def created(service: BatchService, number: int = 10) -> BatchState:
    return await service.format.create("k", [service.encode(f"k_{seed}", ASKED, seed) for seed in range(number)])


async def ended(service: BatchService, state: BatchState) -> BatchState:
    while state.stage is BatchStage.RUNNING:
        await asyncio.sleep(0.1)
        state = await service.format.state(state.id)
    return state


@pytest.mark.parametrize("kind", KINDS)
async def test_every_format_has_a_batch_taken_listed_and_answered(kind: str) -> None:
    habits = BatchHabits(seconds=1.0)
    async with SimulatedServer(small_world(), batches=habits) as server, opened(server.base_url, kind) as service:
        state = await created(service)
        assert state.stage is BatchStage.RUNNING and state.total == 10
        (listed,) = await service.format.listed(0.0)
        assert (listed.id, listed.key) == (state.id, "k" if kind == "openai" else None)
        state = await ended(service, state)
        results = {result.custom_id: result for result in await service.format.results(state)}
        assert set(results) == {f"k_{seed}" for seed in range(10)}
        for seed in range(10):
            answer = service.answer(results[f"k_{seed}"], ASKED, seed, 5.0, 1)
            assert answer.text and answer.completion_tokens > 1 and answer.seed == seed and answer.latency == 5.0
            assert came_by_batch(answer.replica) and answer.finish_reason in ("stop", "end_turn")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_batch_that_is_cancelled_has_what_was_answered(kind: str) -> None:
    habits = BatchHabits(seconds=100.0)
    async with SimulatedServer(small_world(), batches=habits) as server, opened(server.base_url, kind) as service:
        state = await created(service)
        await asyncio.sleep(50.0)
        await service.format.cancel(state.id)
        state = await ended(service, state)
        ends = [result.unanswered for result in await service.format.results(state)]
        assert ends.count(None) == ends.count("cancelled") == 5
        with pytest.raises(Rejected, match="the batch has ended"):
            await service.format.cancel(state.id)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_batch_creation_is_retried_only_if_it_was_not_received(kind: str) -> None:
    habits = BatchHabits(refused=0.7, seed=2)
    async with SimulatedServer(small_world(), batches=habits) as server, opened(server.base_url, kind) as service:
        assert (await created(service)).total == 10
        assert server.batch_counts["refused"] > 0 and server.batch_counts["created"] == 1
    habits = BatchHabits(lost=1.0)
    async with SimulatedServer(small_world(), batches=habits) as server, opened(server.base_url, kind) as service:
        assert await service.format.listed(0.0) == []  # there is an idle connection now
        with pytest.raises(MaybeCreated):
            await created(service)
        assert server.batch_counts["created"] == 1


# -- what a service may say ------------------------------------------------------------------------------------------


async def _state_said(reply: bytes, status: int = 200, *headers: str) -> BatchState:
    script = replying(reply, *headers, status=status)
    async with raw_server(script) as server, opened(server.base_url) as service:
        return await service.format.state("batch_1")


@pytest.mark.parametrize(
    "reply",
    [b"[]", b"null", b'{"status": "completed"}', b'{"id": "../files", "status": "x"}', b'{"id": 5}', b'{"id": ".."}'],
)
async def test_a_response_that_is_not_a_batch_is_refused(reply: bytes) -> None:
    with pytest.raises(Failure, match="is not a batch"):
        await _state_said(reply)


async def test_what_is_not_json_is_retried_and_no_redirect_is_followed() -> None:
    with pytest.raises(Unavailable, match="not JSON"):
        await _state_said(b"<html>")
    with pytest.raises(Rejected, match="redirects to elsewhere.example"):
        await _state_said(b"", 307, "Location: https://elsewhere.example/v1/batches/batch_1")


async def test_a_key_that_comes_back_is_shown_in_no_message() -> None:
    reply = orjson.dumps({"error": {"message": f"the key {KEY} may not do this", "type": "permission_error"}})
    with pytest.raises(Rejected) as caught:
        await _state_said(reply, 403)
    assert KEY not in str(caught.value) and "***" in str(caught.value)


async def test_each_service_gets_its_key_as_it_wants_it() -> None:
    state: dict[str, object] = {"id": "b", "status": "validating", "processing_status": "in_progress"}
    async with raw_server(replying(state)) as server:
        for kind in KINDS:
            async with opened(server.base_url, kind) as service:
                await service.format.state("b")
    openai, anthropic = server.seen
    assert openai.headers["authorization"] == f"Bearer {KEY}"
    assert anthropic.headers["x-api-key"] == KEY and anthropic.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in anthropic.headers
    assert [request.path for request in server.seen] == ["/v1/batches/b", "/v1/messages/batches/b"]


async def test_invalid_result_lines_are_skipped() -> None:
    good = orjson.dumps({"custom_id": "k_1", "response": {"status_code": 200, "body": {}}})
    lines = [b"", b"{", b"[]", b'{"custom_id": 3}', b"\xff\xfe", good, b'{"custom_id": "k_2", "error": null}']
    async with raw_server(replying(b"\n".join(lines))) as server, opened(server.base_url) as service:
        state = BatchState("b", BatchStage.ENDED, "completed", files=("f",))
        results = [*await service.format.results(state)]
    assert [(result.custom_id, result.code) for result in results] == [("k_1", 200), ("k_2", 500)]
    assert [notice.kind for notice in service.wire.notices] == ["bad_result"]


async def test_a_retry_after_header_is_respected() -> None:
    async def script(exchange: Exchange) -> None:
        if exchange.index < 2:
            await exchange.reply(429, {"error": {"message": "slow down"}}, "Retry-After: 30")
        else:
            await exchange.reply(200, {"id": "b", "status": "in_progress"})

    async with raw_server(script) as server, opened(server.base_url) as service:
        begun = asyncio.get_running_loop().time()
        await service.format.state("b")
        assert 60.0 <= asyncio.get_running_loop().time() - begun < 65.0


# -- one result ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def service() -> AsyncIterator[BatchService]:
    async with opened("http://127.0.0.1:9/v1") as service:
        yield service


async def test_batch_errors_mean_the_same_as_direct_ones(service: BatchService) -> None:
    def answer(code: int, message: str, kind: str = "") -> Answer:
        return service.answer(
            BatchResult("k", code=code, error={"error": {"message": message, "code": kind}}), ASKED, 3, 1.0, 2
        )

    long = answer(400, "", "context_length_exceeded")
    assert long.signals == {"context_length"} and long.attempts == 2 and long.text == ""
    for code in (429, 500, 529):
        with pytest.raises(Failure):
            answer(code, "later")
    with pytest.raises(Rejected, match="HTTP 401"):
        answer(401, "no")
    with pytest.raises(Failure, match="no choices"):
        service.answer(BatchResult("k", payload={"choices": []}), ASKED, 3, 1.0, 1)
    with pytest.raises(Failure, match="HTTP 502"):
        service.answer(BatchResult("k", payload={"error": {"code": 502, "message": "upstream"}}), ASKED, 3, 1.0, 1)


@pytest.mark.parametrize(
    ("requested", "named", "expected"),
    [("ada", "ada-2026-01-01", []), ("ada-latest", "ada-20260101", []), ("ada", "tiny", ["named"])],
)
async def test_another_model_that_answers_is_told(requested: str, named: str, expected: list[str]) -> None:
    choice = {"message": {"content": "42"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 1}
    payload = {"choices": [choice], "model": named, "usage": usage}
    async with opened("http://127.0.0.1:9/v1", model=requested) as service:
        service.answer(BatchResult("k", payload=payload), ASKED, 3, 1.0, 1)
        assert [notice.kind for notice in service.wire.notices] == expected


def test_a_request_of_a_chat_as_messages() -> None:
    same = {"model": "m", "max_tokens": 7, "temperature": 0.5, "thinking": {"type": "enabled"}}
    chat = [{"role": "system", "content": "A"}, {"role": "user", "content": "B"}]
    sent = same | {"messages": chat[1:], "system": "A", "stop_sequences": ["x"]}
    assert message_params(same | {"messages": chat, "seed": 4, "stop": "x"}) == sent


async def test_a_message_as_a_chat_gives_it(service: BatchService) -> None:
    said = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "4"}, {"type": "text", "text": "2"}]
    usage = {"input_tokens": 3, "cache_read_input_tokens": 5, "output_tokens": 9}
    payload = chat_payload({"model": "m", "content": said, "stop_reason": "end_turn", "usage": usage})
    message = {"role": "assistant", "content": said, "reasoning_content": "hm"}
    assert payload["choices"] == [{"index": 0, "message": message, "finish_reason": "end_turn"}]
    assert payload["usage"] == {"prompt_tokens": 8, "completion_tokens": 9, "cache_read_input_tokens": 5}
    answer = service.answer(BatchResult("k", payload=payload), ASKED, 3, 1.0, 1)
    assert (answer.text, answer.reasoning, answer.completion_tokens) == ("42", "hm", 9)
    no_text = [{"type": "text", "text": None}, {"type": "thinking", "thinking": None}]
    payload = chat_payload({"content": no_text, "stop_reason": "end_turn", "usage": usage})
    assert service.answer(BatchResult("k", payload=payload), ASKED, 3, 1.0, 1).text == ""


def test_states_and_results_of_openai_in_its_own_words() -> None:
    """Shortened examples from its reference."""
    batch = {
        "id": "batch_abc123",
        "status": "completed",
        "output_file_id": "file-cvaTdG",
        "error_file_id": "file-HOWS94",
        "created_at": 1711471533,
        "request_counts": {"total": 100, "completed": 95, "failed": 5},
        "metadata": {"adaptive_eval": "k"},
    }
    state = parse_state(batch)
    assert (state.stage, state.key, state.total) == (BatchStage.ENDED, "k", 100)
    assert state.files == ("file-cvaTdG", "file-HOWS94") and state.created == 1711471533.0
    failed = parse_state(
        {"id": "b", "status": "failed", "errors": {"data": [{"code": "token_limit_exceeded", "message": "full"}]}}
    )
    assert (failed.stage, failed.reason, failed.busy) == (BatchStage.FAILED, "full", True)
    expired = {"custom_id": "k_3", "response": None, "error": {"code": "batch_expired", "message": "not in time"}}
    assert parse_result(expired) == BatchResult("k_3", "expired")
