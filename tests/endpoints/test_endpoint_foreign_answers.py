"""Responses that answer no request of ours: of another request, from a proxy that doubles them, or from no server."""

from codecs import BOM_UTF8

import orjson
import pytest
from endpoint_opener import CLIENTS, EACH_CLIENT, Opener
from raw_servers import CHAT, Exchange, raw_server
from test_endpoint_contract import WAYS, as_events, choice
from thoroughness import in_turns

from adaptive_eval.base.errors import Rejected
from adaptive_eval.endpoints.failures import Failure
from adaptive_eval.endpoints.response_ids import MAX_IDS, REPEATED, ResponseIds
from adaptive_eval.endpoints.traffic import AttemptedRequest
from adaptive_eval.endpoints.types import Message, Notice, Prompt


def question(number: int) -> Prompt:
    return Prompt(messages=(Message("user", f"question {number}"),))


def response(name: str | None, text: str) -> dict[str, object]:
    named = {} if name is None else {"id": name}
    return named | {"choices": [choice(text, "stop")], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}


async def send(asked: Exchange, payload: dict[str, object]) -> None:
    stream = bool(asked.body.get("stream"))
    await asked.reply(200, as_events(payload) if stream else payload)


def asked_number(asked: Exchange) -> int:
    messages = asked.body["messages"]
    assert isinstance(messages, list)
    return int(str(messages[-1]["content"]).split()[-1])


class TestIds:
    """Which responses count, by their ids."""

    requests: dict[int, AttemptedRequest]

    @pytest.fixture(autouse=True)
    def no_requests(self) -> None:
        self.requests = {}

    @pytest.fixture
    def notices(self) -> list[Notice]:
        return []

    @pytest.fixture
    def ids(self, notices: list[Notice]) -> ResponseIds:
        return ResponseIds(notices.append)

    def came(self, ids: ResponseIds, name: str | None, text: str, number: int, *, replica: str = "a") -> bool:
        """Whether a response counts."""
        request = self.requests.setdefault(number, AttemptedRequest(question(number), range(1), {}, None))
        try:
            ids.require_new(replica, response(name, text), request)
        except Failure:
            return False
        return True

    def test_response_to_another_request_is_refused_once(self, ids: ResponseIds, notices: list[Notice]) -> None:
        assert self.came(ids, "x1", "A", 1) and self.came(ids, "x2", "A", 2)
        assert not self.came(ids, "x2", "A", 3) and notices == [REPEATED]
        assert self.came(ids, "x3", "A", 3), "its own"
        assert not self.came(ids, "x1", "A", 4)
        assert self.came(ids, "x1", "A", 4), "there is no other: as from a cache"

    @pytest.mark.parametrize("name", [None, ""])
    def test_without_ids_all_count(self, ids: ResponseIds, name: str | None) -> None:
        assert all(self.came(ids, name, "A", number) for number in range(20))

    def test_responses_to_two_other_requests_are_both_refused(self, ids: ResponseIds) -> None:
        assert self.came(ids, "x1", "A", 1) and self.came(ids, "x2", "A", 2)
        assert not self.came(ids, "x1", "A", 3) and not self.came(ids, "x2", "A", 3)

    def test_one_id_for_all_means_nothing(self, ids: ResponseIds) -> None:
        assert self.came(ids, "chatcmpl-1", "A", 0)
        assert not self.came(ids, "chatcmpl-1", "A", 1) and self.came(ids, "chatcmpl-1", "A", 1), "asked again once"
        assert all(self.came(ids, "chatcmpl-1", text, number) for number, text in enumerate("BAAA", 2))

    def test_an_id_with_two_contents_means_nothing(self, ids: ResponseIds) -> None:
        names = ("1", "2", "1", "2")
        assert all(self.came(ids, name, f"{number}", number) for number, name in enumerate(names))
        assert all(self.came(ids, "2", "A", number) for number in range(5))

    def test_replicas_number_their_responses_apart(self, ids: ResponseIds) -> None:
        for number, name in enumerate(("1", "2", "3")):
            assert self.came(ids, name, "A", number) and self.came(ids, name, "A", 10 + number, replica="b")

    def test_few_ids_are_kept(self, ids: ResponseIds) -> None:
        assert all(self.came(ids, f"x{number}", "A", number) for number in range(MAX_IDS + 1))
        assert self.came(ids, "x0", "A", -1), "forgotten"
        assert not self.came(ids, f"x{MAX_IDS}", "A", -2)


@CLIENTS
@WAYS
async def test_proxy_that_doubles_responses_adds_no_answer(endpoint: Opener, client: str, stream: bool) -> None:
    """Each third response comes again in place of the next one."""
    previous: list[dict[str, object]] = []

    async def script(asked: Exchange) -> None:
        number = asked_number(asked)
        correct = response(f"id-{number}", f"answer {number}")
        repeated = asked.index % 3 == 2
        await send(asked, previous[-1] if repeated else correct)
        previous.append(correct)

    async with raw_server(script) as server:
        asking = endpoint(server.base_url, client=client, stream=stream)
        answers = [(await asking.sample(question(number), range(number, number + 1)))[0] for number in range(9)]
        assert [answer.text for answer in answers] == [f"answer {number}" for number in range(9)]
        assert len(server.seen) > 9
        assert REPEATED in asking.stats.notices and asking.stats.lost == len(server.seen) - 9


@CLIENTS
@WAYS
async def test_json_with_a_mark_of_its_byte_order_is_read(endpoint: Opener, client: str, stream: bool) -> None:
    async def script(asked: Exchange) -> None:
        payload = response("x", "42")
        await asked.reply(200, BOM_UTF8 + (as_events(payload) if asked.body.get("stream") else orjson.dumps(payload)))

    async with raw_server(script) as server:
        (answer,) = await endpoint(server.base_url, client=client, stream=stream).sample(CHAT, range(1))
        assert answer.text == "42" and len(server.seen) == 1


PAGE = b"<!DOCTYPE html>\n<html><head><title>Welcome to\n nginx!</title></head><body>It works</body></html>"


@pytest.mark.parametrize(("before", "client", "stream"), in_turns([b"", BOM_UTF8 + b" \n"], EACH_CLIENT, [True, False]))
async def test_web_page_ends_at_once(endpoint: Opener, client: str, stream: bool, before: bytes) -> None:
    async def script(asked: Exchange) -> None:
        await asked.reply(200, before + PAGE, "Content-Type: text/html")

    async with raw_server(script, pages={"/v1/models": script}) as server:
        asking = endpoint(server.base_url, client=client, stream=stream)
        with pytest.raises(Rejected, match=r"HTTP 200 with a web page \('Welcome to nginx!'\).*check base_url"):
            await asking.sample(CHAT, range(1))
        health = await asking.check()
        assert not health.ok and health.replicas[0].refuses and "web page" in health.replicas[0].detail
