"""Connections to a database of runs that never hang, with PostgreSQL's errors translated for the user."""

import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import unquote
from weakref import WeakSet

import psycopg
from psycopg import pq

from adaptive_eval.base.errors import StoreError, StoreFull
from adaptive_eval.base.files import closed_on_error
from adaptive_eval.store.address import LedgerAddress

CONNECT_SECONDS = 10
STATEMENT_SECONDS = 60
"""The database cancels longer statements; none of a run takes a tenth of it."""
SILENT_SECONDS = 90.0
"""After this much silence the database is taken for lost: it has not even cancelled the statement."""
LOCK_SECONDS = 20
IDLE_SECONDS, BETWEEN_SECONDS, TIMES = 20, 5, 4
"""TCP keepalives: both sides notice within 40 seconds that the other's machine is gone."""

_SETTINGS = (
    f"SET statement_timeout = '{STATEMENT_SECONDS}s'",
    f"SET lock_timeout = '{LOCK_SECONDS}s'",
    "SET standard_conforming_strings = on",
    "SET bytea_output = 'hex'",
    "SET extra_float_digits = 1",
    f"SET tcp_keepalives_idle = {IDLE_SECONDS}",
    f"SET tcp_keepalives_interval = {BETWEEN_SECONDS}",
    f"SET tcp_keepalives_count = {TIMES}",
)
_FULL = ("53100",)
_PASSING = ("08", "57", "40", "55P03", "53300")
"""SQLSTATEs of transient errors: connection, restart or time-out, deadlock, lock, too many connections."""
KEPT = "What was committed is intact"
_open: "WeakSet[PatientConnection]" = WeakSet()

Returned = TypeVar("Returned")


class DatabaseAway(StoreError):
    """The database did not answer, or the connection broke: a retry with a new connection may help."""


class PatientConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection on which no statement waits longer than `SILENT_SECONDS`."""

    silent_seconds = SILENT_SECONDS

    def wait(self, gen: Generator[Any, Any, Returned], *args: Any, **kwargs: Any) -> Returned:
        """Run a statement until it is done or the database has been silent for too long."""
        return super().wait(_with_deadline(gen, self.silent_seconds), *args, **kwargs)


def _with_deadline(gen: Generator[Any, Any, Returned], seconds: float) -> Generator[Any, Any, Returned]:
    """Run a generator with a time limit for each of its steps."""
    deadline = time.monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                deadline = time.monotonic() + seconds
            elif time.monotonic() > deadline:
                raise psycopg.OperationalError(f"it has not answered for {seconds:g} seconds")
            wanted = gen.send(ready)
    except StopIteration as end:
        returned: Returned = end.value
        return returned


def connect(address: LedgerAddress, *, read_only: bool) -> PatientConnection:
    """Open a connection in autocommit mode; raises `DatabaseAway` or `StoreError`."""
    host = address.host.strip("[]")
    with explained(str(address.whole_database)):
        connection = PatientConnection.connect(
            host=unquote(host),
            port=address.port,
            dbname=unquote(address.database),
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            application_name="adaptive-eval",
            client_encoding="utf8",
            tcp_user_timeout=int(SILENT_SECONDS * 1000),
            keepalives_idle=IDLE_SECONDS,
            keepalives_interval=BETWEEN_SECONDS,
            keepalives_count=TIMES,
        )
        with closed_on_error(connection):
            connection.prepare_threshold = None  # a connection pooler may not keep prepared statements
            settings = [*_SETTINGS, f"SET default_transaction_read_only = {'on' if read_only else 'off'}"]
            connection.execute("; ".join(settings).encode())
            encoding = connection.info.parameter_status("server_encoding")
            if encoding != "UTF8":
                raise StoreError(
                    f"{address.whole_database} keeps texts as {encoding}: make a database for the runs with "
                    "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
                )
    _open.add(connection)
    return connection


def _release_in_child() -> None:
    """Release the parent's sockets in a forked child, so that the database notices when the parent is killed.

    Their descriptors stay open, on /dev/null, since libpq may still use their numbers.
    """
    for connection in list(_open):
        with suppress(psycopg.Error, OSError):
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, connection.fileno())
            os.close(nothing)


os.register_at_fork(after_in_child=_release_in_child)


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn PostgreSQL's errors into `StoreError`, `StoreFull` and `DatabaseAway`, each saying what to do."""
    try:
        yield
    except psycopg.Error as error:
        raise _explanation(error, where) from error


def _explanation(error: psycopg.Error, where: str) -> StoreError:
    state, said = error.sqlstate or "", _redact_password(_single_line(str(error)))
    if state in _FULL:
        return StoreFull(
            f"{where}: the disk of the database is full ({said}). {KEPT}: have room made there and run the same command"
        )
    if state.startswith(_PASSING) or (not state and isinstance(error, psycopg.OperationalError) and _is_passing(said)):
        return DatabaseAway(f"{where} does not answer: {said}. {KEPT}: when it is back, run the same command")
    if state.startswith("28") or not state and "password" in said:
        return StoreError(
            f"{where} lets nobody in: {said}. Give the user in PGUSER and the password in PGPASSWORD or ~/.pgpass"
        )
    if state == "42501":
        return StoreError(
            f"{where}: {said}. Who writes runs needs CREATE on the database, and who reads them USAGE and SELECT"
        )
    if state == "25006":
        return StoreError(f"{where} cannot be written ({said}): it is a replica or set to be read only")
    return StoreError(f"{where}: {said}. {KEPT}: mend the cause and run the same command")


def _is_passing(said: str) -> bool:
    """Whether an error of the client library may be transient."""
    return not any(word in said for word in ("password", "no pg_hba.conf", "does not exist", "certificate", "SSL"))


def _single_line(text: str) -> str:
    """The message as one line, without the question that libpq appends to a failed connection."""
    lines = [" ".join(line.split()) for line in text.removeprefix("connection failed: ").splitlines()]
    return " ".join(line for line in lines if line and not line.endswith("?"))


def _redact_password(said: str) -> str:
    secret = os.environ.get("PGPASSWORD", "")
    return said.replace(secret, "***") if len(secret) > 3 else said


def in_transaction(connection: PatientConnection) -> bool:
    """Whether the connection has an open transaction."""
    return connection.info.transaction_status != pq.TransactionStatus.IDLE
