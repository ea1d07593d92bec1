"""Where the ledger of a run is: in `run.sqlite` of its directory, or in a database that `ledger.json` there names.

A path that stands for the address of a run (`address.py`) is as good as a directory to whoever only reads.
"""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from adaptive_eval.errors import ConfigError, StoreError
from adaptive_eval.files import FileLock, is_locked, read_whole, write_whole
from adaptive_eval.imports import load_extra
from adaptive_eval.store import database
from adaptive_eval.store.address import VARIABLE, LedgerAddress, is_address, parse_address
from adaptive_eval.store.ledgers import RunLedger
from adaptive_eval.store.sqlite_ledger import SqliteLedger

POINTER_FILE = "ledger.json"
LEDGER_FILES = (database.DATABASE_FILE, POINTER_FILE)
"""One of them makes a directory a run."""
MOST_BYTES = 10_000
_given: set[LedgerAddress] = set()
"""Databases that a configuration has named in this process."""


def ledger_address(directory: Path) -> LedgerAddress | None:
    """The address of a run's database; None if the run is in SQLite, or there is none."""
    if (address := parse_address(directory)) is not None:
        if address.run is None:
            raise ConfigError(f"{address} is a database of runs: name one of them, as in {address}/run")
        return address
    try:
        pointer = read_whole(directory / POINTER_FILE, MOST_BYTES)
    except OSError:
        return None
    address = _address_in(pointer, directory)
    if not (address.whole_database in _given or address.is_given):
        raise StoreError(
            f"the ledger of {directory} is at {address}, and what a run directory names is not opened by itself: if "
            f"you know that database, give the address in place of the directory, or set "
            f"{VARIABLE}={address.whole_database}"
        )
    return address


def point_to(directory: Path, address: LedgerAddress, name: str | None = None) -> None:
    """Have the run of this directory keep its ledger in a database, which the user has named; the run's name there is
    that of its directory, or the given one."""
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
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the run directory {directory}: {error.strerror}") from error
    body = json.dumps({"address": str(wanted)}).encode() + b"\n"
    write_whole(directory / POINTER_FILE, body, "Mend that, or choose another --run-dir")


def require_own_ledger(directory: Path) -> None:
    """Raise `ConfigError` where the run of this directory keeps its ledger in a database that nobody names any more."""
    if not is_address(directory) and (directory / POINTER_FILE).exists():
        address = _address_in(read_whole(directory / POINTER_FILE, MOST_BYTES), directory)
        raise ConfigError(
            f"the ledger of {directory} is at {address}: say so as store.ledger ({address.whole_database}), or begin "
            "another run with --fresh"
        )


def holds_ledger(path: Path) -> bool:
    """Whether a run is to be found here, whether or not it can be read."""
    if (address := parse_address(path)) is not None:
        return address.run is not None
    return any((path / name).exists() for name in LEDGER_FILES)


def is_run(directory: Path) -> bool:
    """Whether a run was begun here."""
    address = ledger_address(directory)
    if address is None:
        return database.is_run(directory)
    return _postgres().find_run(address) is not None


def is_held(directory: Path) -> bool:
    """Whether a process is writing the run now."""
    address = ledger_address(directory)
    if address is None:
        return is_locked(directory / database.LOCK_FILE)
    found = _postgres().find_run(address)
    return found is not None and found.held


def open_to_read(directory: Path) -> RunLedger:
    """The ledger of a run that another process may be writing; raises `StoreError` where there is none."""
    address = ledger_address(directory)
    if address is None:
        return SqliteLedger.to_read(directory)
    ledger: RunLedger = _postgres().PostgresReading.open(address)
    return ledger


def open_if_begun(directory: Path) -> RunLedger | None:
    """The ledger of a run; None where no run was begun."""
    if ledger_address(directory) is not None:
        return open_to_read(directory) if is_run(directory) else None
    connection = database.open_if_begun(directory)
    return None if connection is None else SqliteLedger(directory, connection)


def take(address: LedgerAddress, lock: FileLock, patience: float, *, begin: bool = True) -> tuple[RunLedger, bool]:
    """The ledger in a database to be written, and whether a run was there; with `begin` a new one where none was."""
    _postgres()
    from adaptive_eval.store.postgres.writing import PostgresLedger

    return PostgresLedger.take(address, lock, patience, begin=begin)


def run_names_in(address: LedgerAddress) -> list[str]:
    """The runs of a database."""
    return [one.name for one in _postgres().list_runs(address)]


def require_reachable(path: Path) -> None:
    """Raise `StoreError` where a database cannot be opened, or has no such run."""
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


def _address_in(pointer: bytes, directory: Path) -> LedgerAddress:
    try:
        found = json.loads(pointer)
        address = LedgerAddress.parse(str(found["address"]))
    except (ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
        raise StoreError(f"{directory / POINTER_FILE} names no ledger: it was not written by adaptive-eval") from error
    if address.run is None:
        raise StoreError(f"{directory / POINTER_FILE} names no run: it was not written by adaptive-eval")
    return address


def runs_in(path: Path) -> dict[str, Path]:
    """The runs by name: the directory itself, or what lies in it; nothing where it cannot be looked into."""
    if holds_ledger(path):
        return {path.name: path}
    if (address := parse_address(path)) is not None:
        return {name: address.run_at(name).path for name in run_names_in(address)}
    try:
        found = sorted(path.iterdir())
    except OSError:  # it is not there yet, or no more
        return {}
    return {one.name: one for one in found if any(os.access(one / name, os.R_OK) for name in LEDGER_FILES)}


MARK = "~"
"""Before the number of a run that was begun with `--fresh`, as in `<folder>/<name>~2`; no run's name has it."""


def newest_directory(folder: Path, name: str, elsewhere: Iterable[str] = ()) -> Path:
    """The run of this name that was begun last; the plain name where there is none. A database may have some, too."""
    return folder / _directory(name, max([1, *_numbers(folder, name, elsewhere)]))


def fresh_directory(folder: Path, name: str, elsewhere: Iterable[str] = ()) -> Path:
    """A directory that does not exist yet, nor a run of its name elsewhere; the plain name where it is free."""
    return folder / _directory(name, max([0, *_numbers(folder, name, elsewhere)]) + 1)


def _directory(name: str, number: int) -> str:
    return name if number == 1 else f"{name}{MARK}{number}"


def _numbers(folder: Path, name: str, elsewhere: Iterable[str]) -> list[int]:
    here = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    pattern = re.compile(rf"{re.escape(name)}(?:{MARK}(\d+))?")
    found = map(pattern.fullmatch, {*here, *elsewhere})
    return [int(match[1] or 1) for match in found if match]
