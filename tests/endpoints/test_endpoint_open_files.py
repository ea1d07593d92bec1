"""A lack of open files passes: requests are repeated, and no answer is lost."""

import asyncio
import errno
from typing import Any

import pytest
from endpoint_opener import Opener
from raw_servers import CHAT, Exchange, raw_server

from adaptive_eval.endpoints import open_files
from adaptive_eval.endpoints.open_files import files_needed

OUT = [OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENFILE, "Too many open files in system")]


async def slowly(asked: Exchange) -> None:
    await asyncio.sleep(0.02)
    await asked.answer("42")


@pytest.mark.parametrize("error", OUT, ids=["process", "machine"])
async def test_a_shortage_that_passes_costs_no_answer(
    endpoint: Opener, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """No request finds a file for a while; the model has never answered."""
    loop, tries = asyncio.get_running_loop(), [0]
    connect = loop.create_connection

    async def refuse(*arguments: Any, **options: Any) -> Any:
        tries[0] += 1
        if tries[0] <= 6:
            raise error
        return await connect(*arguments, **options)

    monkeypatch.setattr(loop, "create_connection", refuse)
    async with raw_server(slowly) as server:
        model = endpoint(server.base_url, in_flight=4, attempts=1)
        answers = await asyncio.gather(*(model.sample(CHAT, range(i, i + 1)) for i in range(4)))
    assert [answer.text for (answer,) in answers] == ["42"] * 4
    stats = model.stats
    assert "this machine has no open file left" in stats.last_error and stats.lost == 0
    assert all(replica.healthy for replica in stats.replicas)


def test_too_few_files_are_told_with_how_to_mend_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "limits", lambda: (256, 256))
    message = open_files.too_few_message(files_needed(512, 1), 256)
    assert "578 open files" in message and "this process may have only 256" in message
    assert "`ulimit -n 578`" in message and "hard limit of 256" in message and "concurrency" in message
