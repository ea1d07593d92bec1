"""What is committed is there again, whatever happened in between."""

import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from ledger_contract import LedgerContract
from two_by_two import HEADER, make_trial

from adaptive_eval.base.errors import StoreError, StoreFull
from adaptive_eval.store import (
    CommitBatch,
    RunReader,
    Store,
)
from adaptive_eval.store.database import DATABASE_FILE
from adaptive_eval.store.integrity import Integrity

OpenStore = Callable[..., Store]


@pytest.fixture(params=["ledger", "segments"])
def answers(request: pytest.FixtureRequest) -> str:
    """All is the same whether texts stay in the ledger or leave it, two trials at a time."""
    return str(request.param)


class TestTheContractOnSqlite(LedgerContract):
    """In `run.sqlite`."""


def test_a_clock_that_is_wrong_damages_nothing(
    open_store: OpenStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: -1.2e9)  # 1931
    store = open_store()
    store.commit(CommitBatch([make_trial(trial=0)]))
    store.close()
    with RunReader.intact(directory) as reader:
        assert reader.created == -1.2e9 and reader.trial_count() == 1


def test_a_full_disk_keeps_what_was_committed(open_store: OpenStore) -> None:
    store = open_store()
    store.commit(CommitBatch([make_trial(trial=0)]))
    pages = store._ledger.connection.execute("PRAGMA page_count").fetchone()[0]
    store._ledger.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    noise = random.Random(0).randbytes(100_000).hex()
    with pytest.raises(StoreFull, match="free space and run the same command"):
        store.commit(CommitBatch([make_trial(trial=1, text=noise)]))
    assert [record.trial for record in store.reader.trials()] == [0]
    store.close()
    store = open_store()
    store.commit(CommitBatch([make_trial(trial=1, text=noise)]))
    assert store.reader.trial_count() == 2


@pytest.mark.parametrize("content", [b"no database, but as long as one" * 200, b"SQLite format 3\0" * 300])
def test_a_damaged_database_is_named(open_store: OpenStore, directory: Path, content: bytes) -> None:
    directory.mkdir(parents=True)
    (directory / DATABASE_FILE).write_bytes(content)
    with pytest.raises(StoreError, match=f"{DATABASE_FILE} is damaged or is not an SQLite database"):
        open_store()
    assert (directory / DATABASE_FILE).read_bytes() == content


def test_a_foreign_database_is_left_alone(open_store: OpenStore, directory: Path) -> None:
    directory.mkdir(parents=True)
    with closing(sqlite3.connect(directory / DATABASE_FILE)) as connection:
        connection.execute("CREATE TABLE notes (body TEXT)")
    with pytest.raises(StoreError, match="was not written by adaptive-eval"):
        open_store()


def test_another_format_is_refused(open_store: OpenStore, directory: Path) -> None:
    store = open_store()
    store._ledger.connection.execute("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(StoreError, match="has format 99"):
        open_store()


def test_a_start_that_died_before_its_first_commit_begins_anew(directory: Path, open_store: OpenStore) -> None:
    directory.mkdir(parents=True)
    (directory / DATABASE_FILE).touch()
    store = open_store()
    assert store.reader.header() == HEADER


def test_an_emptied_database_is_not_begun_over(directory: Path, open_store: OpenStore) -> None:
    """As a power failure may leave it: to start over would ask, and pay, for everything once more without a word."""
    open_store().close()
    (directory / DATABASE_FILE).write_bytes(b"")
    (directory / "results.json").write_text("{}", encoding="utf-8")
    with pytest.raises(StoreError, match=r"run.sqlite is empty, but a run was begun here and has left results.json: "):
        open_store()
    assert (directory / DATABASE_FILE).read_bytes() == b""
    (directory / "results.json").unlink()
    assert open_store().reader.header() == HEADER


def test_who_verifies_is_not_told_to_verify(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / DATABASE_FILE).write_bytes(b"no database, but as long as one" * 200)
    with pytest.raises(StoreError, match="`adaptive-eval verify .*` says where; restore a copy"):
        RunReader.open(directory)
    with pytest.raises(StoreError, match=r"is not an SQLite database \(.*\); restore a copy"):
        Integrity.check(directory)


def test_a_directory_without_a_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"holds no run: there is no run\.sqlite in it"):
        RunReader.open(tmp_path)
    with pytest.raises(StoreError, match="holds no run: it is not there"):
        RunReader.open(tmp_path / "nowhere")


def test_the_database_is_whole_in_one_file_though_somebody_reads_it(
    open_store: OpenStore, directory: Path, tmp_path: Path
) -> None:
    store = open_store()
    store.commit(CommitBatch([make_trial(trial=trial) for trial in range(5)]))
    watching = RunReader.open(directory)
    assert watching.trial_count() == 5
    store.close()
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / DATABASE_FILE).write_bytes((directory / DATABASE_FILE).read_bytes())
    with closing(RunReader.open(copy)) as reader:
        assert reader.trial_count() == 5
    watching.close()


def test_a_run_is_read_where_nothing_can_be_written(
    open_store: OpenStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    store.commit(CommitBatch([make_trial()]))
    store.close()
    before = {path.name for path in directory.iterdir()}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with closing(RunReader.open(directory)) as reader:
        assert reader.trial_count() == 1
        assert {path.name for path in directory.iterdir()} == before


def test_a_run_does_not_begin_among_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("a project")
    (tmp_path / ".hidden").touch()
    with pytest.raises(StoreError, match=r"holds other files and no run \(README.md\); choose a --run-dir"):
        Store.open(tmp_path, HEADER)
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", ".hidden"}
    (tmp_path / "README.md").unlink()
    Store.open(tmp_path, HEADER).store.close()
    (tmp_path / "notes.md").touch()
    Store.open(tmp_path, HEADER).store.close()  # beside a run there may be anything
