"""Servers for a module's tests, a folder for its runs, and the ends of the servers' logs where a test fails."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from engine_runs import Workplace
from engine_servers import Server, running

ALIVE: list[Server] = []


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., None]]:
    """Starts servers, which are stopped after the module's last test."""
    with ExitStack() as stack:

        def start(*servers: Server) -> None:
            stack.enter_context(_known(servers))

        yield start


@contextmanager
def _known(servers: tuple[Server, ...]) -> Iterator[None]:
    ALIVE.extend(servers)
    try:
        with running(*servers):
            yield
    finally:
        for server in servers:
            ALIVE.remove(server)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace.make(tmp_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A test that fails says what its servers said last."""
    report = yield
    if report.failed:
        for server in ALIVE:
            report.sections.append((f"end of {server.log}", server.last_lines()))
    return report
