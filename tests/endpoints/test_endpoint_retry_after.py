"""What servers say of when to ask again: believed as far as it makes sense."""

import asyncio

import pytest
from endpoint_opener import Opener, first
from raw_servers import CHAT, Script, raw_server
from thoroughness import in_turns

from adaptive_eval.base.errors import Unavailable
from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.retry import believed_wait
from adaptive_eval.endpoints.settings import DEFAULT

UNREADABLE = ("1e9", "-1", "NaN", "soon", "")
ABSURD = ("86400", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT")
OVER = "Sat, 01 Jan 2000 00:00:00 GMT"


def telling(times: int, status: int, retry_after: str) -> Script:
    """A script that says so, so many times, before it answers."""
    return first(times, lambda asked: asked.reply(status, b"{}", f"Retry-After: {retry_after}"))


@pytest.mark.parametrize(("retry_after", "client"), in_turns([*UNREADABLE, *ABSURD, OVER], ["http", "openai"]))
async def test_an_absurd_wait_is_not_believed(endpoint: Opener, client: str, retry_after: str) -> None:
    async with raw_server(telling(3, 503 if client == "http" else 429, retry_after)) as server:
        model = endpoint(server.base_url, client=client)
        async with asyncio.timeout(4.0):
            (answer,) = await model.sample(CHAT, range(1))
    assert answer.attempts == 4


@pytest.mark.parametrize(
    ("seconds", "waited"),
    [(0.0, 0.0), (30.0, 30.0), (DEFAULT.longest_wait + 1, DEFAULT.longest_wait), (601.0, 0.0)],
)
def test_a_wait_is_believed_up_to_a_minute_at_a_time(seconds: float, waited: float) -> None:
    failure = Failure(FailureKind.RATE_LIMITED, "HTTP 429", seconds)
    assert believed_wait(failure, 600.0, DEFAULT) == waited


async def test_nobody_waits_for_tomorrow_and_asks_ever_less(endpoint: Opener) -> None:
    async with raw_server(telling(999, 429, "86400")) as server:
        model = endpoint(server.base_url, timeout=1.0)
        with pytest.raises(Unavailable, match="rate_limited"):
            await asyncio.gather(*(model.sample(CHAT, range(i, i + 1)) for i in range(8)))
        assert 8 < len(server.seen) < 40
