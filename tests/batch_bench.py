"""A batch service without a network: the simulated one as a function, on the clock of the loop that asks it."""

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
from live_runs import small_world

from adaptive_eval.endpoints.failures import Refusal, error_signal
from adaptive_eval.endpoints.redaction import EMPTY_REDACTOR
from adaptive_eval.endpoints.traffic import Traffic
from adaptive_eval.endpoints.types import EndpointConfig, Message, Notice, Prompt, Sampling
from adaptive_eval.simulate.answering import Respondent
from adaptive_eval.simulate.api import Api
from adaptive_eval.simulate.faults import BatchHabits, Faults
from adaptive_eval.simulate.replies import ApiReply
from adaptive_eval.supplies.batches.wire import MaybeCreated

RESPONDENT = Respondent(small_world())
CONFIG = EndpointConfig(base_url="http://service/v1", model="ada")
SAMPLING = Sampling(max_tokens=2000)


def question(number: int) -> Prompt:
    """What is asked about one question of the world."""
    return Prompt(messages=(Message("user", f"[q{number}] which?"),))


def truth(number: int, seed: int) -> str:
    """What the model says to it, always."""
    return RESPONDENT.answer("ada", f"q{number}", seed).text


class ServiceInMemory:
    """The service, which outlives those who ask it; `now` is a clock that only it looks at."""

    def __init__(self, **habits: Any) -> None:
        self.now = 0.0
        self.api = Api(RESPONDENT, Faults(), lambda: self.now, habits=BatchHabits(**habits))
        self.log: list[tuple[str, str]] = []
        """Methods and paths, in the order of the calls."""

    @property
    def counts(self) -> Mapping[str, int]:
        return self.api.batches.counts


class DirectWire:
    """The calls of a `BatchWire`, each answered at once."""

    def __init__(self, service: ServiceInMemory) -> None:
        self._service = service
        self.redactor = EMPTY_REDACTOR
        self.notices: dict[Notice, None] = {}
        self.traffic = Traffic()
        self.closed = False

    def note(self, notice: Notice) -> None:
        self.notices.setdefault(notice)

    async def get(self, path: str) -> object:
        return orjson.loads(self._body_of(await self._call("GET", path)))

    async def post(self, path: str, body: Mapping[str, object]) -> object:
        return orjson.loads(self._body_of(await self._call("POST", path, orjson.dumps(body))))

    async def post_once(self, path: str, body: Mapping[str, object] | bytes) -> object:
        for _ in range(9):
            reply = await self._call("POST", path, body if isinstance(body, bytes) else orjson.dumps(body))
            if reply.reset_after is not None:
                raise MaybeCreated
            if reply.status != 429:
                return orjson.loads(self._body_of(reply))
        raise AssertionError("refused nine times")

    async def upload(self, path: str, name: str, content: bytes, fields: Mapping[str, str]) -> object:
        body = b'--b\r\nContent-Disposition: form-data; filename="f"\r\n\r\n%b\r\n--b--\r\n' % content
        return orjson.loads(self._body_of(await self._call("POST", path, body)))

    async def lines(self, path: str) -> list[object]:
        return [orjson.loads(line) for line in self._body_of(await self._call("GET", path)).splitlines()]

    async def close(self) -> None:
        self.closed = True

    async def _call(self, method: str, path: str, body: bytes = b"") -> ApiReply:
        await asyncio.sleep(0)
        self._service.now = asyncio.get_running_loop().time()
        self._service.log.append((method, path))
        return self._service.api.handle(method, "/v1" + path.partition("?")[0], body)

    @staticmethod
    def _body_of(reply: ApiReply) -> bytes:
        ((_, body),) = reply.parts
        if reply.status >= 300:
            error_signal(reply.status, body, {})
            raise Refusal(reply.status, "refused")
        return body
