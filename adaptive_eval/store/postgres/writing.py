"""Writes a run to a PostgreSQL database: one process at a time, each commit exactly once even if the connection breaks.

The writer holds an advisory lock of its session, which ends with the session. In addition, each transaction first
increments the run's commit count, provided that count and writer are what this writer expects. When a connection breaks
during a commit, the count shows whether the commit was done, so none is done twice or lost; and a writer that was
replaced by another cannot write any more.
"""

import os
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain, groupby
from typing import Any, Self
from uuid import uuid4

import psycopg

from adaptive_eval import __version__
from adaptive_eval.base.errors import RunLocked
from adaptive_eval.base.files import FileLock, closed_on_error
from adaptive_eval.store.address import LedgerAddress
from adaptive_eval.store.postgres.connection import (
    KEPT,
    DatabaseAway,
    PatientConnection,
    connect,
    explained,
    in_transaction,
)
from adaptive_eval.store.postgres.reading import (
    PostgresReading,
    RunRow,
    as_psycopg_statement,
    find_run_on,
    require_version,
    shared_version,
)
from adaptive_eval.store.postgres.tables import LOCKS, RUN_STEPS, SHARED, SHARED_STEPS, run_schema
from adaptive_eval.store.rows import INSERT_TRIAL, PLAIN, TRIAL_COLUMNS

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two attempts to reach a database that does not answer."""
NUL = "\u2400"
"""Replaces NUL, which PostgreSQL does not allow, in short texts; answers are stored as bytes."""

_TEXTS = tuple(TRIAL_COLUMNS.index(name) for name in ("text", "reasoning"))
_COPY_TRIALS = f"COPY trials (id, {', '.join(TRIAL_COLUMNS)}) FROM STDIN".encode()
_INCREMENT_COMMITS = (
    f"UPDATE {SHARED}.runs SET commits = commits + 1, changed = %s WHERE id = %s AND writer = %s AND commits = %s"
).encode()
_LAST_TRIAL = b"SELECT coalesce(max(id), 0) FROM trials"


Statement = tuple[str, list[tuple[Any, ...]]]
"""A statement of a transaction, with the values for each execution."""


class RecordedWrites:
    """A `LedgerWrites` that records statements to be executed together, since a commit may have to be repeated."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> None:
        self.statements.append((statement, [tuple(map(storable, values))]))

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        values = [_trial_values(row) if statement == INSERT_TRIAL else tuple(map(storable, row)) for row in rows]
        if values:
            self.statements.append((statement, values))


def storable(value: Any) -> Any:
    """A value in a form that PostgreSQL accepts."""
    return value.replace("\0", NUL) if isinstance(value, str) and "\0" in value else value


class PostgresLedger(PostgresReading):
    """A writable `RunLedger` in PostgreSQL."""

    def __init__(self, address: LedgerAddress, connection: PatientConnection, lock: FileLock, patience: float) -> None:
        PostgresReading.__init__(self, address, connection)
        self._file_lock = lock
        self._patience = patience
        """Seconds that a commit waits for a database that does not answer."""
        self._writer = uuid4().hex
        self._run = 0
        self._commits = 0
        self._backend = 0
        self._is_new = False
        """Whether nothing of the run was committed yet, so that it is lost with its connection."""

    @classmethod
    def take(cls, address: LedgerAddress, lock: FileLock, patience: float) -> tuple[Self, bool]:
        """Open a ledger for writing, and say whether the run existed; a missing one is created.

        Raises `RunLocked` if another process writes it.
        """
        connection = connect(address, read_only=False)
        ledger = cls(address, connection, lock, patience)
        with closed_on_error(connection), explained(str(address)):
            _bring_up_to_date(connection, address)
            found = find_run_on(connection, address)
            if found is None:
                ledger._begin_run()
            else:
                require_version(found, address)
                ledger._become_writer(found)
        return ledger, found is not None

    @contextmanager
    def transaction(self) -> Iterator[RecordedWrites]:
        recorded = RecordedWrites()
        yield recorded
        self._commit(recorded.statements)

    def close(self) -> None:
        """Close the connection and release the run."""
        PostgresReading.close(self)
        self._file_lock.close()

    # -- taking the run ----------------------------------------------------------------------------------------------

    def _begin_run(self) -> None:
        """Begin a transaction that creates the run; the first commit ends it."""
        connection, now, self._is_new = self.connection, time.time(), True
        connection.execute("BEGIN")
        try:
            ((self._run,),) = connection.execute(
                f"INSERT INTO {SHARED}.runs (name, version, created, changed, commits, writer, who, since) "
                "VALUES (%s, %s, %s, %s, 0, %s, %s, %s) RETURNING id".encode(),
                [self.address.run, len(RUN_STEPS), now, now, self._writer, _describe_writer(), now],
            )
        except psycopg.errors.UniqueViolation as error:
            raise RunLocked(
                f"{self.address} was begun by another process just now; run the same command again"
            ) from error
        made = (f"CREATE SCHEMA {run_schema(self._run)}", f"SET search_path TO {run_schema(self._run)}")
        for statement in (*made, *chain(*RUN_STEPS)):
            connection.execute(statement.encode())
        self._lock(self._run)

    def _become_writer(self, found: RunRow) -> None:
        """Become the writer of an existing run."""
        connection = self.connection
        self._run = found.id
        self._lock(found.id)
        for version in range(found.version + 1, len(RUN_STEPS) + 1):
            done = f"UPDATE {SHARED}.runs SET version = {version} WHERE id = {found.id}"
            place = f"SET LOCAL search_path TO {run_schema(found.id)}"
            _run_atomically(connection, [place, *RUN_STEPS[version - 1], done])
        ((self._commits,),) = connection.execute(
            f"UPDATE {SHARED}.runs SET writer = %s, who = %s, since = %s WHERE id = %s RETURNING commits".encode(),
            [self._writer, _describe_writer(), time.time(), found.id],
        )
        connection.execute(f"SET search_path TO {run_schema(found.id)}".encode())

    def _lock(self, run: int) -> None:
        """Take the lock of a run for the life of this connection; raises `RunLocked` naming its holder."""
        connection = self.connection
        ((taken,),) = connection.execute("SELECT pg_try_advisory_lock(%s, %s)", [LOCKS, run])
        if not taken:
            ((who,),) = connection.execute(f"SELECT who FROM {SHARED}.runs WHERE id = %s".encode(), [run])
            raise RunLocked(
                f"{self.address} is held by {who}. Two processes cannot write one run: wait for it, stop it, or start "
                "another run with --fresh"
            )
        self._backend = connection.info.backend_pid

    # -- commits -----------------------------------------------------------------------------------------------------

    def _commit(self, statements: list[Statement]) -> None:
        """Execute the statements exactly once, retrying for `patience` seconds while the database does not answer."""
        until, pause = time.monotonic() + self._patience, FIRST_PAUSE
        while True:
            try:
                if self.connection.closed and not self._is_new and self._is_done_after_return():
                    return
                with explained(self.where):
                    self._execute(statements)
                return
            except DatabaseAway:
                with suppress(psycopg.Error):
                    PostgresReading.close(self)
                if self._is_new or time.monotonic() + pause > until:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _execute(self, statements: list[Statement]) -> None:
        connection = self.connection
        try:
            with connection.pipeline():
                if not in_transaction(connection):
                    connection.execute("BEGIN")
                raised = connection.execute(_INCREMENT_COMMITS, [time.time(), self._run, self._writer, self._commits])
                last = connection.execute(_LAST_TRIAL)
            if raised.rowcount != 1:
                raise self._taken_over()
            ((number,),) = last.fetchall()
            for trials, group in groupby(statements, lambda one: one[0] == INSERT_TRIAL):
                if trials:
                    number = self._copy([row for _, rows in group for row in rows], number)
                    continue
                with connection.pipeline():
                    for text, rows in group:
                        connection.cursor().executemany(as_psycopg_statement(text), rows)
            connection.execute("COMMIT")
        except BaseException:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
            raise
        self._commits += 1
        self._is_new = False

    def _copy(self, rows: list[tuple[Any, ...]], last: int) -> int:
        """Copy trials with consecutive ids after `last`; returns the last id."""
        with self.connection.cursor() as cursor, cursor.copy(_COPY_TRIALS) as copy:
            for number, row in enumerate(rows, last + 1):
                copy.write_row((number, *row))
        return last + len(rows)

    # -- when the connection is lost ---------------------------------------------------------------------------------

    def _is_done_after_return(self) -> bool:
        """Reconnect, and find out whether the commit during which the connection broke was done."""
        connection = connect(self.address, read_only=False)
        with closed_on_error(connection), explained(self.where):
            self._require_ours(connection)
            self._end_own_backend(connection)
            ((taken,),) = connection.execute("SELECT pg_try_advisory_lock(%s, %s)", [LOCKS, self._run])
            if not taken:
                raise DatabaseAway(f"{self.where} still holds the connection that broke; {KEPT}")
            commits = self._require_ours(connection)
            connection.execute(f"SET search_path TO {run_schema(self._run)}".encode())
        self.connection, self._backend = connection, connection.info.backend_pid
        done, self._commits = commits == self._commits + 1, commits
        return done

    def _require_ours(self, connection: PatientConnection) -> int:
        """The commit count of the run; raises `RunLocked` if another process has become the writer."""
        query = f"SELECT commits FROM {SHARED}.runs WHERE id = %s AND writer = %s".encode()
        rows = connection.execute(query, [self._run, self._writer]).fetchall()
        if not rows:
            raise self._taken_over()
        return int(rows[0][0])

    def _end_own_backend(self, connection: PatientConnection) -> None:
        """End our own previous session, which may hang and still hold the lock."""
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s "
            "AND objid = %s AND objsubid = 2 AND granted AND pid = %s "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            [LOCKS, self._run, self._backend],
        )

    def _taken_over(self) -> RunLocked:
        return RunLocked(
            f"{self.address} was taken up by another process while the database was away. What this one has committed "
            "is intact, and it ends here: two processes cannot write one run"
        )


def _bring_up_to_date(connection: PatientConnection, address: LedgerAddress) -> None:
    """Migrate the shared tables to our version, one process at a time."""
    if shared_version(connection, address) == len(SHARED_STEPS):
        return
    connection.execute("SELECT pg_advisory_lock(%s, 0)", [LOCKS])
    try:
        for version in range(shared_version(connection, address) + 1, len(SHARED_STEPS) + 1):
            done = f"INSERT INTO {SHARED}.versions (version, by) VALUES ({version}, '{__version__}')"
            _run_atomically(connection, [*SHARED_STEPS[version - 1], done])
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s, 0)", [LOCKS])


def _run_atomically(connection: PatientConnection, statements: Sequence[str]) -> None:
    """Execute the statements in one transaction."""
    with connection.transaction():
        for statement in statements:
            connection.execute(statement.encode())


def _trial_values(row: Sequence[Any]) -> tuple[Any, ...]:
    """Convert the values of a trial, with the texts of its answer as bytes."""
    return tuple(_as_bytes(value) if at in _TEXTS else storable(value) for at, value in enumerate(row))


def _as_bytes(text: object) -> object:
    return PLAIN + text.encode() if isinstance(text, str) else text


def _describe_writer() -> str:
    since = datetime.now(UTC).isoformat("T", "seconds")
    return f"process {os.getpid()} on {socket.gethostname()} since {since}"
