"""Where open files run out, this machine is told, and nothing is held against a server."""

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from endpoint_opener import Opener
from raw_servers import CHAT, Exchange, raw_server

from adaptive_eval.endpoints import open_files
from adaptive_eval.endpoints.endpoint import ModelEndpoint
from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.open_files import files_needed, is_out_of_files, is_reserved
from adaptive_eval.endpoints.replica import ProbeTrouble
from adaptive_eval.endpoints.replicas import ReplicaSet
from adaptive_eval.endpoints.settings import EndpointSettings
from adaptive_eval.endpoints.sharing import SharedTime
from adaptive_eval.endpoints.types import Limits

OUT = [OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENFILE, "Too many open files in system")]


@contextmanager
def allowed(soft: int) -> Iterator[None]:
    """So many open files for this process."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


def next_number() -> int:
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    return number


async def slowly(asked: Exchange) -> None:
    await asyncio.sleep(0.02)
    await asked.answer("42")


def is_unharmed(model: ModelEndpoint) -> bool:
    stats = model.stats
    return (stats.errors, stats.lost) == ({}, 0) and all(replica.healthy for replica in stats.replicas)


@pytest.mark.parametrize("error", OUT, ids=["process", "machine"])
async def test_no_shortage_lasts_long_enough_to_give_a_model_up(
    endpoint: Opener, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """Neither requests nor health checks find a file for a while; the model has never answered."""
    loop, tries = asyncio.get_running_loop(), [0]
    connect = loop.create_connection

    async def refuse(*arguments: Any, **options: Any) -> Any:
        tries[0] += 1
        if tries[0] <= 40:
            raise error
        return await connect(*arguments, **options)

    monkeypatch.setattr(loop, "create_connection", refuse)
    async with raw_server(slowly) as server:
        model = endpoint(server.base_url, in_flight=4, attempts=1)
        answers = await asyncio.gather(*(model.sample(CHAT, range(i, i + 1)) for i in range(4)))
        assert len(answers) == 4 and is_unharmed(model)
        more = await asyncio.gather(*(model.sample(CHAT, range(i, i + 1)) for i in range(40)))
    assert len(more) == 40 and [notice.kind for notice in model.stats.notices] == ["out_of_files"]
    assert model.stats.replicas[0].limit == 4


async def test_a_server_that_comes_back_while_files_run_out_is_found(endpoint: Opener) -> None:
    """No probe can be sent at first, and no request is left that would suspect the server again."""
    tries = 0

    async def no_metrics(url: str) -> bytes:
        return b""

    async def probe(url: str) -> ProbeTrouble | None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise Failure(FailureKind.OUT_OF_FILES, "no open file is left")
        return None

    clock = asyncio.get_running_loop().time
    replicas = ReplicaSet(
        ("http://one",), Limits(in_flight=1), probe, no_metrics, SharedTime(), EndpointSettings(), clock
    )
    (replica,) = replicas.replicas
    replica.on_failure(FailureKind.UNREACHABLE, clock(), clock())
    waiting = asyncio.create_task(replicas.acquire())
    while not waiting.done():
        await asyncio.sleep(0.5)
        replicas.tick(clock())
    assert waiting.result() is replica and tries == 2
    await replicas.close()


async def test_a_check_says_whose_trouble_it_is(endpoint: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptive_eval.endpoints.connection.is_reserved", lambda number: True)
    health = await endpoint("http://127.0.0.1:9/v1").check()
    assert "this machine has no open file left" in health.replicas[0].detail


def test_what_says_that_files_ran_out(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = RuntimeError("all attempts failed")
    wrapped.__cause__ = ExceptionGroup("attempts", [OSError(errno.ECONNREFUSED, "no"), OUT[1]])
    assert all(map(is_out_of_files, [*OUT, wrapped]))
    lookup = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    assert not any(map(is_out_of_files, [lookup, OSError(errno.ECONNREFUSED, "no"), ValueError()]))
    with allowed(next_number()):
        assert is_out_of_files(lookup)


def test_the_last_files_are_not_for_connections() -> None:
    with allowed(200):
        assert [is_reserved(number) for number in (100, 167, 168, 199)] == [False, False, True, True]
    with allowed(80):
        assert [is_reserved(number) for number in (59, 60)] == [False, True]


def test_too_few_files_are_told_with_how_to_mend_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "limits", lambda: (256, 256))
    message = open_files.too_few_message(files_needed(512, 1), 256)
    assert "578 open files" in message and "this process may have only 256" in message
    assert "`ulimit -n 578`" in message and "hard limit of 256" in message and "concurrency" in message
