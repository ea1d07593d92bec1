"""One server for all tests of this room, a database for each, and one more server for those that kill it."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from patient_time import HANGS
from postgres_server import PostgresServer
from two_by_two import HEADER

from adaptive_eval.store import RunHeader, Store, whereabouts
from adaptive_eval.store.address import LedgerAddress

_numbers = count()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def mortal() -> Iterator[PostgresServer]:
    """A server that tests may kill."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def as_tester(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks has a user, and no more than the test gives it."""
    for name in ("PGPASSWORD", "PGHOST", "PGSERVICE", "PGPASSFILE", "PGOPTIONS", "ADAPTIVE_EVAL_LEDGERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PGUSER", "tester")
    monkeypatch.setattr(whereabouts, "_given", set())


def new_database(server: PostgresServer) -> LedgerAddress:
    name = f"runs{next(_numbers)}"
    server.execute(f"CREATE DATABASE {name}")
    return LedgerAddress.parse(server.url(name))


@pytest.fixture
def database(server: PostgresServer) -> LedgerAddress:
    """An empty database."""
    return new_database(server)


@pytest.fixture
def mortal_database(mortal: PostgresServer) -> LedgerAddress:
    """One that may go away."""
    return new_database(mortal)


@pytest.fixture
def directory(tmp_path: Path, database: LedgerAddress) -> Path:
    """Of a run that has its ledger there."""
    directory = tmp_path / "runs" / "two-by-two"
    whereabouts.point_to(directory, database)
    return directory


@pytest.fixture
def open_store(directory: Path) -> Iterator[Callable[..., Store]]:
    opened: list[Store] = []

    def open_it(header: RunHeader = HEADER, patience: float = HANGS, at: Path = directory) -> Store:
        store = Store.open(at, header, patience=patience).store
        opened.append(store)
        return store

    yield open_it
    for store in opened:
        store.close()
