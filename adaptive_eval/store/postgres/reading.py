"""Reads runs from a PostgreSQL database, while other processes may write them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cache, cached_property
from typing import NamedTuple, Self

from adaptive_eval.base.errors import StoreError
from adaptive_eval.base.files import closed_on_error
from adaptive_eval.store.address import LedgerAddress
from adaptive_eval.store.forms import OUT_OF_RANGE
from adaptive_eval.store.ledgers import LedgerWrites, Row
from adaptive_eval.store.postgres.connection import PatientConnection, connect, explained, in_transaction
from adaptive_eval.store.postgres.tables import LOCKS, RUN_STEPS, SHARED, SHARED_STEPS, TOKEN_LOGPROBS, run_schema
from adaptive_eval.store.queries import COLUMN_SQL, Dialect, Queries, TrialRow
from adaptive_eval.store.records import LARGEST_SIZE, AnswerTexts
from adaptive_eval.store.rows import unpack_text
from adaptive_eval.store.summing import NO_SUMS, KeptSums


def _numeric_signal(name: str) -> str:
    """SQL for a numeric signal, by regular expression: PostgreSQL's JSON allows no NUL and no lone surrogate."""
    found = f"""substring(signals from '"{name}":([-+0-9.eE]+|true|false)[,}}]')"""
    return f"(CASE {found} WHEN 'true' THEN 1.0 WHEN 'false' THEN 0.0 ELSE ({found})::double precision END)"


def _boolean_signal(name: str) -> str:
    found = f"""substring(signals from '"{name}":(true|false)[,}}]')"""
    return f"CASE {found} WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"


def _size(column: str) -> str:
    """SQL for the counted size of a text, which is the largest one for a compressed text."""
    plain = f"get_byte({column}, 0) = 0"
    return f"CASE WHEN {column} IS NULL THEN 0 WHEN {plain} THEN length({column}) - 2 ELSE {LARGEST_SIZE} END"


_POSTGRES = Dialect(
    column_sql=COLUMN_SQL
    | {
        "size": f"({_size('text')} + {_size('reasoning')})",
        "correct": _boolean_signal("is_correct"),
        "found": _boolean_signal("has_answer"),
    },
    number=_numeric_signal,
    said=lambda name: f"strpos(signals, '\"{name}\":') > 0",
    cell=("models.id", "questions.id"),
    by_number="trials",
    graded=(
        "SELECT model, question, category, count(*) FROM trials "
        "WHERE id > ? AND category IS NOT NULL GROUP BY model, question, category"
    ),
)
QUERIES, QUERIES_WITH_TOKENS = (Queries(_POSTGRES, tokens=tokens) for tokens in (False, True))
"""The queries of a run without and with the table of answers' tokens."""


AT_ONCE = 2000
"""Rows that are fetched at once."""
SHOWN = 8

_HELD = (
    "SELECT objid::bigint AS run FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = "
    f"{LOCKS} AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_RUNS = (
    "SELECT id, name, version, created, changed, commits, since, EXISTS "
    f"(SELECT FROM ({_HELD}) AS held WHERE held.run = runs.id) FROM {SHARED}.runs"
)


class RunRow(NamedTuple):
    """A run's row in the shared table of runs."""

    id: int
    name: str
    version: int
    created: float
    changed: float
    commits: int
    since: float
    held: bool
    """Whether some process is writing it now."""


@cache
def as_psycopg_statement(query: str) -> bytes:
    """The query with psycopg's placeholders."""
    return query.replace("?", "%s").encode()


def shared_version(connection: PatientConnection, address: LedgerAddress) -> int:
    """The version of the shared tables; 0 if there are none. Raises `StoreError` if it is too new for us."""
    ((there,),) = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{SHARED}.versions"])
    if not there:
        return 0
    ((version,),) = connection.execute(f"SELECT coalesce(max(version), 0) FROM {SHARED}.versions".encode())
    _require_known(address.whole_database, version, len(SHARED_STEPS))
    return int(version)


def list_runs(address: LedgerAddress) -> list[RunRow]:
    """Every run of a database, by name; empty if none was ever begun there."""
    with closing(connect(address, read_only=True)) as connection, explained(str(address.whole_database)):
        if not shared_version(connection, address):
            return []
        return [RunRow(*row) for row in connection.execute(f"{_RUNS} ORDER BY name".encode())]


def find_run(address: LedgerAddress) -> RunRow | None:
    """The run at an address; None if there is none."""
    with closing(connect(address, read_only=True)) as connection, explained(str(address)):
        return find_run_on(connection, address)


def find_run_on(connection: PatientConnection, address: LedgerAddress) -> RunRow | None:
    """The run at an address, read over an open connection; None if there is none."""
    if not shared_version(connection, address):
        return None
    rows = connection.execute(f"{_RUNS} WHERE name = %s".encode(), [address.run]).fetchall()
    return RunRow(*rows[0]) if rows else None


def require_version(run: RunRow, address: LedgerAddress) -> None:
    """Raise `StoreError` if the tables of a run are of a later version than ours."""
    _require_known(address, run.version, len(RUN_STEPS))


def _require_known(address: LedgerAddress, version: int, newest: int) -> None:
    if version > newest:
        raise StoreError(
            f"{address} has format {version}, and this version of adaptive-eval knows formats up to {newest}; use the "
            "version that wrote it, or a later one"
        )


class PostgresReading:
    """A read-only `RunLedger` in PostgreSQL, and the base of the writer's."""

    def __init__(self, address: LedgerAddress, connection: PatientConnection) -> None:
        self.address = address
        self.connection = connection
        self._streams = 0

    @classmethod
    def open(cls, address: LedgerAddress) -> Self:
        """Open a run for reading, while another process may write it; raises `StoreError` if there is none."""
        connection = connect(address, read_only=True)
        with closed_on_error(connection), explained(str(address)):
            found = find_run_on(connection, address)
            if found is None:
                raise _missing(address)
            require_version(found, address)
            if found.version < len(RUN_STEPS):
                raise StoreError(
                    f"{address} has format {found.version}, an earlier one than {len(RUN_STEPS)}: who reads "
                    "changes nothing; the command that runs it brings it up to date"
                )
            connection.execute(f"SET search_path TO {run_schema(found.id)}".encode())
        return cls(address, connection)

    @property
    def where(self) -> str:
        """The address, for error messages."""
        return str(self.address)

    @cached_property
    def tables_beside(self) -> list[str]:
        ((there,),) = self.rows("SELECT to_regclass('token_logprobs') IS NOT NULL")
        return ["token_logprobs"] if there else []

    @property
    def queries(self) -> Queries:
        return QUERIES_WITH_TOKENS if self.tables_beside else QUERIES

    def keep_tokens(self) -> None:
        if not self.tables_beside:
            with self.transaction() as writes:
                writes.execute(TOKEN_LOGPROBS)
            self.tables_beside.append("token_logprobs")

    def texts(self, row: TrialRow) -> AnswerTexts:
        return AnswerTexts(unpack_text(row.text), unpack_text(row.reasoning), row.token_logprobs)

    def rows(self, query: str, *values: object) -> Iterator[Row]:
        """The rows of a query."""
        with explained(self.where):
            found = self.connection.execute(as_psycopg_statement(query), values or None).fetchall()
        yield from found

    def stream(self, query: str, *values: object) -> Iterator[Row]:
        """The rows of a query, fetched some thousand at a time."""
        connection = self.connection
        self._streams += 1
        with explained(self.where):
            # outside a transaction the cursor must hold its rows (WITH HOLD) until they are fetched
            cursor = connection.cursor(f"stream_{self._streams}", withhold=not in_transaction(connection))
            cursor.itersize = AT_ONCE
            with cursor:
                cursor.execute(as_psycopg_statement(query), values or None)
                yield from cursor

    @contextmanager
    def consistent_read(self) -> Iterator[None]:
        """A context in which all reads see the same state, whatever the run commits meanwhile."""
        connection = self.connection
        with explained(self.where):
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            if not connection.closed and not connection.broken:
                with explained(self.where):
                    connection.execute("ROLLBACK")

    def kept_sums(self) -> KeptSums:
        return NO_SUMS

    def keep_sums(self) -> None:
        """Do nothing: the server computes them fast enough."""

    def require_intact(self, after: int = 0) -> None:
        """Raise `StoreError` if a trial has numbers out of range; the database itself guards against changed rows."""
        for (number,) in self.rows(OUT_OF_RANGE):
            raise StoreError(f"{self.where} is damaged: trials {number} is not as trials are written")

    def transaction(self) -> AbstractContextManager[LedgerWrites]:
        """Raise `StoreError`: this side is read-only."""
        raise StoreError(f"{self.where} was opened to be read")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def _missing(address: LedgerAddress) -> StoreError:
    names = [one.name for one in list_runs(address)]
    shown = ", ".join([*names[:SHOWN], *(["..."] if len(names) > SHOWN else [])]) or "none yet"
    return StoreError(f"{address} is not a run: the runs of {address.whole_database} are {shown}")
