"""Protocols that every kind of ledger implements."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from adaptive_eval.store.queries import Queries, TrialRow
from adaptive_eval.store.records import AnswerTexts

if TYPE_CHECKING:
    from adaptive_eval.store.summing import KeptSums

Row = tuple[Any, ...]


class LedgerWrites(Protocol):
    """Executes the statements of a transaction, with `?` for each value."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> object:
        """Execute a statement."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Execute a statement for each row."""


class RunLedger(Protocol):
    """The database of one run. Every error is raised as a `StoreError` that says what to do."""

    @property
    def queries(self) -> Queries:
        """The queries that read this ledger."""

    @property
    def where(self) -> str:
        """The name of the ledger in error messages."""

    @property
    def tables_beside(self) -> Sequence[str]:
        """Tables that not every run has, with rows by the id of a trial: `moved`, `token_logprobs`."""

    def keep_tokens(self) -> None:
        """Create the table for the tokens of answers, if it is not there."""

    def texts(self, row: TrialRow) -> AnswerTexts:
        """The texts of a trial, wherever they lie."""

    def rows(self, query: str, *values: object) -> Iterator[Row]:
        """The rows of a query, with `?` for each value."""

    def stream(self, query: str, *values: object) -> Iterator[Row]:
        """The rows of a query with more rows than should be held in memory."""

    def consistent_read(self) -> AbstractContextManager[None]:
        """A context in which all reads see the same state."""

    def require_intact(self, after: int = 0) -> None:
        """Raise `StoreError` for the first damaged row; trials with ids up to `after` are skipped."""

    def kept_sums(self) -> "KeptSums":
        """The stored sums over the first trials, if there are any."""

    def keep_sums(self) -> None:
        """Store the sums over the trials of a large run, unless the database server computes them fast enough."""

    def transaction(self) -> AbstractContextManager[LedgerWrites]:
        """A context whose writes are committed atomically."""

    def close(self) -> None:
        """Close the ledger and release the run."""
