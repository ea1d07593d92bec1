"""Protocol of the database that is the ledger of a run, whichever it is."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from adaptive_eval.store.kept_sums import KeptSums
from adaptive_eval.store.ledger_writes import LedgerWrites
from adaptive_eval.store.queries import Queries
from adaptive_eval.store.stored_texts import StoredTexts

Row = tuple[Any, ...]


class RunLedger(Protocol):
    """The database of one run. Every error of it comes as a `StoreError` that says what to do."""

    @property
    def queries(self) -> Queries:
        """The queries that read this ledger."""

    @property
    def where(self) -> str:
        """Name of the ledger in errors."""

    @property
    def texts(self) -> StoredTexts | None:
        """Texts that lie elsewhere; None where none may."""

    @property
    def keeps_tokens(self) -> bool:
        """Whether the tokens of answers can be stored."""

    def keep_tokens(self) -> None:
        """Make a place for the tokens of answers."""

    def rows(self, query: str, *values: object) -> Iterator[Row]:
        """Rows of a query, with `?` for each value."""

    def stream(self, query: str, *values: object) -> Iterator[Row]:
        """The rows of a query that gives more than should be held at once."""

    def consistent_read(self) -> AbstractContextManager[None]:
        """Read everything as it is at one moment."""

    def require_intact(self, after: int = 0) -> None:
        """Raise `StoreError` with the first that is not what was written, of the trials those after this number."""

    def kept_sums(self) -> KeptSums | None:
        """Sums over the trials up to one; None if they are not kept."""

    @property
    def sums_by_itself(self) -> bool:
        """Whether the ledger sums trials where it is, so that only the sums are read, and none need be kept."""

    def make_room_for_sums(self) -> None:
        """Make a place for kept sums."""

    def transaction(self) -> AbstractContextManager[LedgerWrites]:
        """Write whole or not at all what is done within."""

    def close(self) -> None:
        """Close it, and release the run."""
