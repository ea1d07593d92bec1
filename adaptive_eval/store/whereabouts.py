"""Finds and opens the ledger of a run: `run.sqlite` in its directory, or the database that `ledger.json` there names.

For reading, the address of a run (`address.py`) may be given as a path in place of its directory.
"""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.base.files import closed_on_error, is_locked, make_folder, read_whole, write_whole
from adaptive_eval.base.imports import load_extra
from adaptive_eval.base.sections import LEDGER
from adaptive_eval.store import database
from adaptive_eval.store.address import VARIABLE, LedgerAddress, is_address, parse_address
from adaptive_eval.store.ledgers import RunLedger
from adaptive_eval.store.sqlite_ledger import SqliteLedger

POINTER_FILE = "ledger.json"
LEDGER_FILES = (database.DATABASE_FILE, POINTER_FILE)
"""Files of which one makes a directory that of a run."""
MOST_BYTES = 10_000
SHOWN_FILES = 3
ANSWERS_IN_DATABASE = (
    "store.answers must be ledger where store.ledger names a database, which has the texts; leave store.answers out"
)
_given: set[LedgerAddress] = set()
"""Databases that a configuration named in this process."""


def ledger_address(directory: Path) -> LedgerAddress | None:
    """The address of a run in a database; None if it is in SQLite, or there is no run."""
    if (address := parse_address(directory)) is not None:
        if address.run is None:
            raise ConfigError(f"{address} is a database of runs: name one of them, as in {address}/run")
        return address
    try:
        pointer = read_whole(directory / POINTER_FILE, MOST_BYTES)
    except OSError:
        return None
    address = _parse_pointer(pointer, directory)
    if not (address.whole_database in _given or address.is_given):
        raise StoreError(
            f"the ledger of {directory} is at {address}, and what a run directory names is not opened by itself: if "
            f"you know that database, give the address in place of the directory, or set "
            f"{VARIABLE}={address.whole_database}"
        )
    return address


def point_to(directory: Path, address: LedgerAddress, name: str | None = None) -> None:
    """Keep the ledger of this directory's run in a database that the user has named.

    The run's name there is `name`, or by default that of the directory.
    """
    if is_address(directory):
        raise ConfigError("a run is written in a directory: give --run-dir a path, and the database as store.ledger")
    if (directory / database.DATABASE_FILE).exists():
        raise ConfigError(
            f"{directory} has its ledger in {database.DATABASE_FILE}, and store.ledger names a database: a run stays "
            "where it was begun; remove store.ledger, or begin another run with --fresh"
        )
    _given.add(address.whole_database)
    found = ledger_address(directory)
    own = name or directory.absolute().name
    wanted = address.run_at(own if found is None or found.run is None else found.run)
    LedgerAddress.parse(str(wanted))
    if found == wanted:
        return
    if found is not None:
        raise ConfigError(f"the ledger of {directory} is at {found}, and store.ledger names another database")
    make_directory(directory)
    body = json.dumps({"address": str(wanted)}).encode() + b"\n"
    write_whole(directory / POINTER_FILE, body, "Mend that, or choose another --run-dir")


def require_own_ledger(directory: Path) -> None:
    """Raise `ConfigError` if this directory's run is in a database that the configuration no longer names."""
    if not is_address(directory) and (directory / POINTER_FILE).exists():
        address = _parse_pointer(read_whole(directory / POINTER_FILE, MOST_BYTES), directory)
        raise ConfigError(
            f"the ledger of {directory} is at {address}: say so as store.ledger ({address.whole_database}), or begin "
            "another run with --fresh"
        )


def holds_ledger(path: Path) -> bool:
    """Whether a path is that of a run, readable or not."""
    if (address := parse_address(path)) is not None:
        return address.run is not None
    return any((path / name).exists() for name in LEDGER_FILES)


def is_run(directory: Path) -> bool:
    """Whether a run was begun in this directory."""
    address = ledger_address(directory)
    if address is None:
        return database.is_run(directory)
    return _postgres().find_run(address) is not None


def is_held(directory: Path) -> bool:
    """Whether some process is writing the run now."""
    address = ledger_address(directory)
    if address is None:
        return is_locked(directory / database.LOCK_FILE)
    found = _postgres().find_run(address)
    return found is not None and found.held


def open_to_read(directory: Path) -> RunLedger:
    """Open the ledger of a run for reading, while another process may write it; raises `StoreError` if none exists."""
    address = ledger_address(directory)
    if address is None:
        return SqliteLedger(directory, database.open_readonly(directory))
    ledger: RunLedger = _postgres().PostgresReading.open(address)
    return ledger


def open_if_begun(directory: Path) -> RunLedger | None:
    """Open the ledger of a run for reading; None if no run was begun."""
    if ledger_address(directory) is not None:
        return open_to_read(directory) if is_run(directory) else None
    connection = database.open_if_begun(directory)
    return None if connection is None else SqliteLedger(directory, connection)


def make_directory(directory: Path) -> None:
    """Make the directory of a run; raises `StoreError` if it holds other files and no run."""
    make_folder(directory, "Choose another --run-dir")
    if not holds_ledger(directory) and (others := _other_files(directory)):
        raise StoreError(
            f"{directory} holds other files and no run ({others}); choose a --run-dir that is new or empty, "
            f"such as {directory / 'run'}"
        )


def _require_nothing_lost(directory: Path) -> None:
    """Raise `StoreError` if files of a run remain whose database is empty; a killed start leaves only the database."""
    if others := _other_files(directory, but=database.DATABASE_FILE):
        raise StoreError(
            f"{directory / database.DATABASE_FILE} is empty, but a run was begun here and has left {others}: what it "
            "had stored is lost. Restore a copy of it, or start over with --fresh"
        )


def _other_files(directory: Path, but: str | None = None) -> str:
    """Names of other files for a message, without file `but` and SQLite's files beside it."""
    # the lock of a run that is beginning, the pointer to its ledger, and hidden files do not count
    incidental = (database.LOCK_FILE, POINTER_FILE)
    try:
        names = [one.name for one in directory.iterdir() if one.name not in incidental and one.name[0] != "."]
    except OSError as error:
        raise StoreError(f"{directory} cannot be read: {error.strerror}; choose another --run-dir") from error
    others = sorted(name for name in names if but is None or not name.startswith(but))
    return ", ".join(others[:SHOWN_FILES]) + (" ..." if len(others) > SHOWN_FILES else "")


def take(directory: Path, answers: str, patience: float) -> tuple[RunLedger, bool]:
    """Lock a run directory, open its ledger for writing, and say whether the run existed; a missing one is created.

    `answers` is the place at which the configuration has the texts of answers.
    """
    lock = database.lock_run(directory)
    with closed_on_error(lock):
        address = ledger_address(directory)
        if address is not None:
            if answers != LEDGER:
                raise ConfigError(ANSWERS_IN_DATABASE)
            _postgres()
            from adaptive_eval.store.postgres.writing import PostgresLedger

            return PostgresLedger.take(address, lock, patience)
        resumed = database.is_run(directory)
        if not resumed:
            _require_nothing_lost(directory)
        connection = database.open_existing(directory) if resumed else database.create(directory)
        with closed_on_error(connection):
            return SqliteLedger(directory, connection, lock, answers), resumed


def run_names_in(address: LedgerAddress) -> list[str]:
    """Names of the runs in a database."""
    return [one.name for one in _postgres().list_runs(address)]


def require_reachable(path: Path) -> None:
    """Raise `StoreError` if the path is an address whose database cannot be opened or has no such run."""
    address = parse_address(path)
    if address is not None and address.run is None:
        run_names_in(address)
    elif address is not None:
        open_to_read(path).close()


def database_moment(directory: Path) -> tuple[int, int, float, bool] | None:
    """State of a run in a database: id, number of commits, time of the last change, and whether it is being written.

    None for a run in SQLite.
    """
    address = ledger_address(directory)
    if address is None:
        return None
    found = _postgres().find_run(address)
    return (
        (0, 0, 0.0, False) if found is None else (found.id, found.commits, max(found.changed, found.since), found.held)
    )


def _postgres() -> ModuleType:
    """The module that reads runs in PostgreSQL; raises `ConfigError` if its extra is not installed."""
    load_extra("psycopg", "postgres", "ledgers in PostgreSQL")
    from adaptive_eval.store.postgres import reading

    return reading


def _parse_pointer(pointer: bytes, directory: Path) -> LedgerAddress:
    try:
        found = json.loads(pointer)
        address = LedgerAddress.parse(str(found["address"]))
    except (ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
        raise StoreError(f"{directory / POINTER_FILE} names no ledger: it was not written by adaptive-eval") from error
    if address.run is None:
        raise StoreError(f"{directory / POINTER_FILE} names no run: it was not written by adaptive-eval")
    return address


def runs_in(path: Path) -> dict[str, Path]:
    """Runs by name: the directory itself if it is one, else those in it; empty if it cannot be read."""
    if holds_ledger(path):
        return {path.name: path}
    if (address := parse_address(path)) is not None:
        return {name: address.run_at(name).path for name in run_names_in(address)}
    try:
        found = sorted(path.iterdir())
    except OSError:  # it does not exist yet, or no longer
        return {}
    return {one.name: one for one in found if any(os.access(one / name, os.R_OK) for name in LEDGER_FILES)}


MARK = "~"
"""Precedes the number of a run that was begun with `--fresh`, as in `<folder>/<name>~2`; not allowed in run names."""


def newest_directory(folder: Path, name: str, elsewhere: Iterable[str] = ()) -> Path:
    """The newest run of this name, or the plain name if there is none; `elsewhere` has names of runs in a database."""
    return folder / _numbered_name(name, max([1, *_used_numbers(folder, name, elsewhere)]))


def fresh_directory(folder: Path, name: str, elsewhere: Iterable[str] = ()) -> Path:
    """The plain name, or the first numbered one, of which no run exists here or among the names `elsewhere`."""
    return folder / _numbered_name(name, max([0, *_used_numbers(folder, name, elsewhere)]) + 1)


def _numbered_name(name: str, number: int) -> str:
    return name if number == 1 else f"{name}{MARK}{number}"


def _used_numbers(folder: Path, name: str, elsewhere: Iterable[str]) -> list[int]:
    here = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    pattern = re.compile(rf"{re.escape(name)}(?:{MARK}(\d+))?")
    found = map(pattern.fullmatch, {*here, *elsewhere})
    return [int(match[1] or 1) for match in found if match]
