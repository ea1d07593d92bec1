"""Protocol for the writes within a transaction of a ledger."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class LedgerWrites(Protocol):
    """Executes the statements of a transaction, with `?` for each value."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> object:
        """Execute a statement."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Execute a statement for each row."""
