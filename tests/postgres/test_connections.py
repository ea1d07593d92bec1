"""What befalls the connection of a writer, and what becomes of the tables over versions."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread, Timer

import psycopg
import pytest
from patient_time import HANGS
from postgres_server import PostgresServer
from two_by_two import HEADER, make_trial

from adaptive_eval.base.errors import RunLocked, StoreError
from adaptive_eval.store import CommitBatch, RunReader, Store
from adaptive_eval.store.address import LedgerAddress
from adaptive_eval.store.postgres import connection as connections
from adaptive_eval.store.postgres import tables, writing
from adaptive_eval.store.postgres.connection import PatientConnection
from adaptive_eval.store.postgres.reading import list_runs

pytestmark = pytest.mark.postgres

OpenStore = Callable[..., Store]

HOLD = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from two_by_two import HEADER, make_trial
from adaptive_eval.store import CommitBatch, Store
store = Store.open(Path(sys.argv[1]), HEADER).store
store.commit(CommitBatch([make_trial()]))
read, write = os.pipe()
if os.fork() == 0:  # a grader that outlives its run
    os.write(write, b"x")
    time.sleep(600)
os.read(read, 1)
store.commit(CommitBatch([make_trial(trial=1)]))
print("held", flush=True)
time.sleep(600)
"""

END_WRITERS = "SELECT pg_terminate_backend(pid, 60000) FROM pg_locks WHERE locktype = 'advisory'"
"""Ends the sessions that hold a run, and waits until they are gone."""


def numbers(store: Store) -> list[int]:
    return [one.trial for one in store.reader.outcomes()]


@pytest.mark.parametrize("done", [True, False], ids=["after", "before"])
def test_a_connection_that_breaks_about_a_commit_loses_and_doubles_nothing(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """The database has done it, and its word is lost; or it has not."""
    store = open_store()
    real, broken = PatientConnection.execute, []

    def break_at_commit(self: PatientConnection, query: object, *values: object, **more: object) -> object:
        if query == "COMMIT" and not broken:
            broken.append(query)
            if done:
                real(self, "COMMIT")
            self.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return real(self, query, *values, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(PatientConnection, "execute", break_at_commit)
    for number in range(3):
        store.commit(CommitBatch([make_trial(trial=number), make_trial("large", trial=number)]))
    assert broken and numbers(store) == [0, 0, 1, 1, 2, 2]


def test_a_session_that_the_database_ends_is_taken_up_by_another(
    open_store: OpenStore, server: PostgresServer, database: LedgerAddress
) -> None:
    store = open_store()
    for number in range(3):
        server.execute(END_WRITERS, database.database)
        store.commit(CommitBatch([make_trial(trial=number)]))
    assert numbers(store) == [0, 1, 2] and list_runs(database)[0].held


def test_a_writer_whose_place_is_taken_writes_no_more(
    open_store: OpenStore, server: PostgresServer, database: LedgerAddress, tmp_path: Path
) -> None:
    from adaptive_eval.store import whereabouts

    store = open_store()
    store.commit(CommitBatch([make_trial()]))
    server.execute(END_WRITERS, database.database)
    elsewhere = tmp_path / "another-machine" / "two-by-two"
    whereabouts.point_to(elsewhere, database)
    other = open_store(at=elsewhere)
    with pytest.raises(RunLocked, match="was taken up by another process"):
        store.commit(CommitBatch([make_trial(trial=1)]))
    other.commit(CommitBatch([make_trial(trial=2)]))
    assert numbers(other) == [0, 2]


def test_a_lock_that_somebody_holds_is_waited_for(
    open_store: OpenStore, server: PostgresServer, database: LedgerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements that take too long are given up by the database, and tried again."""
    store = open_store()
    store._ledger.connection.execute("SET lock_timeout = '100ms'")  # type: ignore[attr-defined]
    monkeypatch.setattr(connections, "_SETTINGS", ("SET lock_timeout = '100ms'", "SET statement_timeout = '5s'"))
    schema = tables.run_schema(list_runs(database)[0].id)
    blocker = psycopg.connect(host=str(server.folder), dbname=database.database, user="tester")
    blocker.execute(f"LOCK TABLE {schema}.trials IN ACCESS EXCLUSIVE MODE".encode())
    free = Timer(1.0, blocker.close)
    free.start()
    store.commit(CommitBatch([make_trial()]))
    free.join()
    assert numbers(store) == [0]


def test_a_database_that_hangs_is_given_up_in_the_end(
    open_store: OpenStore, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(patience=2.0)
    store.commit(CommitBatch([make_trial()]))
    monkeypatch.setattr(PatientConnection, "silent_seconds", 0.5)
    backend = store._ledger.connection.info.backend_pid  # type: ignore[attr-defined]
    os.kill(backend, signal.SIGSTOP)
    try:
        with pytest.raises(StoreError, match=r"still holds the connection|has not answered for 0\.5 seconds"):
            store.commit(CommitBatch([make_trial(trial=1)]))
    finally:
        os.kill(backend, signal.SIGCONT)
    store._ledger._patience = HANGS  # type: ignore[attr-defined]
    monkeypatch.setattr(PatientConnection, "silent_seconds", HANGS)
    store.commit(CommitBatch([make_trial(trial=1)]))  # it works again, and the session that hung is gone
    assert numbers(store) == [0, 1]


def test_the_lock_of_a_killed_writer_is_free_though_its_grader_lives(
    open_store: OpenStore, directory: Path, database: LedgerAddress
) -> None:
    command = [sys.executable, "-c", HOLD, str(directory), str(Path(__file__).parents[1])]
    environment = os.environ | {"ADAPTIVE_EVAL_LEDGERS": str(database)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment)
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(RunLocked, match=f"held by process {process.pid}"):
            open_store()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        while list_runs(database)[0].held:  # the server hears of it in its own time
            pass
        assert numbers(open_store()) == [0, 1]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()


def test_a_newer_format_is_refused(
    open_store: OpenStore, directory: Path, server: PostgresServer, database: LedgerAddress
) -> None:
    open_store().close()
    server.execute("UPDATE adaptive_eval.runs SET version = 99", database.database)
    for opens in (open_store, lambda: RunReader.open(directory)):
        with pytest.raises(StoreError, match="has format 99"):
            opens()
    server.execute("UPDATE adaptive_eval.runs SET version = 1", database.database)
    server.execute("INSERT INTO adaptive_eval.versions (version, by) VALUES (99, 'a later one')", database.database)
    for opens in (open_store, lambda: RunReader.open(directory)):
        with pytest.raises(StoreError, match="has format 99"):
            opens()


def test_an_older_run_is_brought_up_to_date_by_who_writes_it_alone(
    open_store: OpenStore, directory: Path, database: LedgerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store().close()
    monkeypatch.setattr(tables, "RUN_STEPS", [*tables.RUN_STEPS, ("ALTER TABLE trials ADD COLUMN mood text",)])
    for module in ("reading", "writing"):
        monkeypatch.setattr(f"adaptive_eval.store.postgres.{module}.RUN_STEPS", tables.RUN_STEPS)
    with pytest.raises(StoreError, match="format 1, an earlier one than 2: who reads changes nothing"):
        RunReader.open(directory)
    store = open_store()
    store.commit(CommitBatch([make_trial()]))
    assert list_runs(database)[0].version == 2 and numbers(store) == [0]
    store.close()
    open_store().close()  # and not again


def test_many_who_begin_at_once_make_the_tables_once(server: PostgresServer, database: LedgerAddress) -> None:
    failed: list[BaseException] = []

    def begin() -> None:
        try:
            with connections.connect(database, read_only=False) as connection:
                writing._bring_up_to_date(connection, database)
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and list_runs(database) == []
    assert server.execute("SELECT version FROM adaptive_eval.versions", database.database) == [(1,)]


def test_a_database_of_another_encoding_is_refused(server: PostgresServer, directory: Path, tmp_path: Path) -> None:
    from adaptive_eval.store import whereabouts

    server.execute("CREATE DATABASE western ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    elsewhere = tmp_path / "western"
    whereabouts.point_to(elsewhere, LedgerAddress.parse(server.url("western")))
    with pytest.raises(StoreError, match="keeps texts as LATIN1: make a database"):
        Store.open(elsewhere, HEADER)


@pytest.mark.parametrize(
    ("database_name", "user", "told"),
    [("nowhere", "tester", "does not exist"), ("postgres", "nobody-known", "does not exist")],
)
def test_what_cannot_be_opened_is_told(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, database_name: str, user: str, told: str
) -> None:
    monkeypatch.setenv("PGUSER", user)
    with pytest.raises(StoreError, match=told):
        list_runs(LedgerAddress.parse(server.url(database_name)))
