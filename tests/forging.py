"""Changes of a stored run as whoever forges it would make them: with checksums that fit."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from adaptive_eval.store.errors import DATABASE_FILE
from adaptive_eval.store.schema import COVERED, checksum


def reseal(database: sqlite3.Connection) -> None:
    """Give every row the checksum of its values."""
    database.create_function("checksum_of", -1, checksum)
    for table, columns in COVERED.items():
        database.execute(f"UPDATE {table} SET checksum = checksum_of({', '.join(columns)})")
    database.commit()


@contextmanager
def forging(run: Path) -> Iterator[sqlite3.Connection]:
    """The database of a run, whose checksums fit again afterwards."""
    with closing(sqlite3.connect(run / DATABASE_FILE)) as database:
        yield database
        reseal(database)
