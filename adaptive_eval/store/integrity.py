"""Whether a stored run is what was written: the database's own order, every row's checksum, and every segment."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from adaptive_eval.errors import StoreError
from adaptive_eval.store import checksums, database, whereabouts
from adaptive_eval.store.log_check import lost_commits
from adaptive_eval.store.queries import TrialRow
from adaptive_eval.store.rows import unpack_text
from adaptive_eval.store.segments import TextPair
from adaptive_eval.store.stored_texts import StoredTexts, digest_of_texts


@dataclass(frozen=True, slots=True)
class Integrity:
    """The outcome of checking `run.sqlite`."""

    rows: dict[str, int]
    """By table, without those that cannot be read."""
    unchecked: dict[str, int]
    """Rows without a checksum, by table: from before there were any."""
    damages: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()
    """Places with answers that could not be checked, since nobody has given them."""
    notes: tuple[str, ...] = ()
    """Notes that are no damage."""
    order_alone: bool = False
    """Every row is what was written; the order in which the database finds them is not."""

    @classmethod
    def check(cls, directory: Path) -> "Integrity":
        """Check the run in `directory` as it is at one moment; raises `StoreError` if it cannot be opened."""
        if whereabouts.ledger_address(directory) is not None:
            return cls._in_database(directory)
        found, damages = {}, list(_log_cut(directory))
        with closing(database.open_readonly(directory, "")) as connection, database.explained(directory, ""):
            connection.execute("BEGIN")
            disorder = [f"the database: {fault}" for fault in database.disorder(connection)]
            damages += disorder
            for table in checksums.COLUMNS:
                try:
                    found[table] = checksums.check_table(connection, table)
                except sqlite3.Error as error:
                    damages.append(f"{table}: cannot be read ({error})")
            damages += [str(damage) for checked in found.values() for damage in checked.damages]
            elsewhere = [] if damages else _check_texts(directory, connection, damages)
        return cls(
            {table: checked.rows for table, checked in found.items()},
            {table: checked.unchecked for table, checked in found.items() if checked.unchecked},
            tuple(damages),
            tuple(elsewhere),
            (),
            0 < len(disorder) == len(damages),
        )

    @classmethod
    def _in_database(cls, directory: Path) -> "Integrity":
        """Check a run in PostgreSQL: compare answers with their digests; the database itself checks its pages."""
        damages: list[str] = []
        with closing(whereabouts.open_to_read(directory)) as ledger, ledger.consistent_read():
            trials = 0
            for row in map(TrialRow._make, ledger.stream(ledger.queries.trials + "ORDER BY trials.id")):
                trials += 1
                name = f"trial {row.trial} of {row.model} on {row.question}"
                try:
                    texts = TextPair(unpack_text(row.text), unpack_text(row.reasoning))
                    if digest_of_texts(texts) != row.digest:
                        damages.append(f"trials: the answer of {name} is not what was written")
                except (StoreError, UnicodeDecodeError) as error:
                    damages.append(f"trials: the answer of {name} cannot be read ({error})")
            ((looks,),) = ledger.rows("SELECT count(*) FROM looks")
            ((guarded,),) = ledger.rows("SELECT current_setting('data_checksums')")
        notes = [] if guarded == "on" else [f"{ledger.where} keeps no checksums of its pages (data_checksums is off)"]
        return cls({"trials": trials, "looks": int(looks)}, {}, tuple(damages), notes=tuple(notes))


def _check_texts(directory: Path, connection: sqlite3.Connection, damages: list[str]) -> list[str]:
    """Check the segments that can be opened, and give where the others lie."""
    if not database.has_segments(connection):
        return []
    with closing(StoredTexts(directory, connection, None)) as texts:
        damages += texts.damages()
        return texts.elsewhere()


def _log_cut(directory: Path) -> Iterator[str]:
    if lost_commits(directory / database.DATABASE_FILE):
        yield (
            "the log of the database: its last commit cannot be read; if a kill or a power failure has cut that write, "
            "nothing is lost, for nobody was told of it, and the next start of the run mends it"
        )
