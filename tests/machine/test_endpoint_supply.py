"""The supply of endpoints as the driver uses it, with a client that is told when to answer."""

import asyncio
from collections.abc import Sequence

from adaptive_eval.core.types import NO_COST
from adaptive_eval.endpoints.types import Answer, EndpointStats, RetryGate
from adaptive_eval.machine.events import Answered, Event, Failed
from adaptive_eval.machine.follow_up import RequestFailure
from adaptive_eval.machine.supply import AskedModel, EndpointSupply
from adaptive_eval.machine.trial import Request


class Told:
    """Answers a request once its question is in `ready`."""

    def __init__(self) -> None:
        self.ready = {question: asyncio.Event() for question in range(2)}
        self.in_flight = 0

    async def ask(self, request: Request, retry_gate: RetryGate | None) -> Sequence[Answer]:
        self.in_flight += 1
        try:
            await self.ready[request.question].wait()
            return [Answer("right", "stop", 0, "http://a/v1", 0.1)]
        finally:
            self.in_flight -= 1

    @property
    def stats(self) -> EndpointStats:
        return EndpointStats(in_flight=self.in_flight)


async def test_a_request_that_has_just_ended_leaves_the_cut_off_to_one_at_a_server() -> None:
    events, client = list[Event](), Told()
    supply = EndpointSupply(
        {0: AskedModel(client, 2, lambda answer: NO_COST)}, events.append, lambda error: None, is_capped=False
    )
    for number in range(2):
        supply.submit(Request(number, 0, number, 0, 1, 0), claimed=False)
    await asyncio.sleep(0)
    client.ready[0].set()
    await asyncio.sleep(0)
    assert client.in_flight == 1, "one has its answer, and is not forgotten yet"
    supply.cancel([0, 1])
    await supply.close()
    assert [event.request for event in events if isinstance(event, Answered)] == [0]
    failed = [event for event in events if isinstance(event, Failed)]
    assert [(event.request, event.kind) for event in failed] == [(1, RequestFailure.CUT_OFF)], "its cost is charged"
