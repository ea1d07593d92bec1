"""Hostile files of a run directory: not a regular file, endless, or a link to somewhere else."""

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.base.files import is_locked, read_file, write_atomic
from adaptive_eval.labels.file import add_labels, parse_labels_file
from adaptive_eval.report.label_file import LABELS_FILE, GivenLabel, Labelled, read_labels
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results_file import RESULTS_FILE, read_results
from adaptive_eval.report.verified import verify_run
from adaptive_eval.store.database import RunDatabase, has_tables
from adaptive_eval.store.errors import DATABASE_FILE
from adaptive_eval.store.lock import LOCK_FILE, lock_run

AT = Labelled("ada", "q0", 0)
LINE = '{"model":"ada","question":"q0","trial":%s,"label":"wrong"}\n'


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """Reading a pipe would never end, and a device would fill the memory."""
    for name in (DATABASE_FILE, RESULTS_FILE, LABELS_FILE, LOCK_FILE):
        os.mkfifo(tmp_path / name)
    with pytest.raises(OSError, match="not a regular file"):
        read_file(tmp_path / RESULTS_FILE, 10)
    assert read_results(tmp_path) is None
    assert not is_locked(tmp_path / LOCK_FILE)
    with pytest.raises(ConfigError, match=r"labels\.jsonl cannot be read: .*not a regular file"):
        read_labels(tmp_path)
    for opening in (RunReader.open, has_tables):
        with pytest.raises(StoreError, match="not a regular file"):
            opening(tmp_path)


@pytest.mark.parametrize("ending", ["wal", "journal", "shm"])
def test_the_journal_of_a_database_must_be_a_regular_file(tmp_path: Path, ending: str) -> None:
    (tmp_path / DATABASE_FILE).touch()
    os.mkfifo(tmp_path / f"{DATABASE_FILE}-{ending}")
    for opening in (RunReader.open, has_tables, RunDatabase.open_to_write, verify_run):
        with pytest.raises(StoreError, match=f"run.sqlite-{ending} cannot be read: it is not a regular file"):
            opening(tmp_path)


def test_a_link_to_a_device_is_not_read_and_no_more_than_can_be_expected(tmp_path: Path) -> None:
    (tmp_path / LABELS_FILE).symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="not a regular file"):
        read_labels(tmp_path)
    (tmp_path / "long").write_bytes(b"12345")
    assert read_file(tmp_path / "long", 5) == b"12345"
    with pytest.raises(OSError, match="larger than") as caught:
        read_file(tmp_path / "long", 4)
    assert caught.value.errno == errno.EFBIG


def test_labels_are_not_written_where_a_link_leads(tmp_path: Path) -> None:
    """A file of one line without an end would be cut as a torn line."""
    secret = tmp_path / "token"
    secret.write_text("hf_mine")
    (tmp_path / LABELS_FILE).symlink_to(secret)
    with pytest.raises(StoreError, match="is a link"):
        add_labels(tmp_path, {AT: GivenLabel("wrong")})
    assert secret.read_text() == "hf_mine"


@pytest.mark.parametrize("name", [DATABASE_FILE, f"{DATABASE_FILE}-wal", "logs", "logs/ada.log", "logs/inspect/e.txt"])
def test_a_run_is_not_written_where_a_link_leads(tmp_path: Path, name: str) -> None:
    run, link = tmp_path / "run", tmp_path / "run" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=f"{name} is a link, and a run writes to its own directory only"):
        lock_run(run)
    (tmp_path / "through").symlink_to(tmp_path)
    link.unlink()
    (run / "notes").symlink_to(tmp_path)
    lock_run(tmp_path / "through" / "run").close()


def test_an_atomic_write_follows_no_link_in_place_of_its_draft(tmp_path: Path) -> None:
    """The name of the draft can be guessed."""
    secret, path = tmp_path / "profile", tmp_path / RESULTS_FILE
    secret.write_text("mine")
    (tmp_path / f".{RESULTS_FILE}.{os.getpid()}.draft").symlink_to(secret)
    write_atomic(path, b"{}", "")
    assert (secret.read_text(), path.read_bytes(), path.is_symlink()) == ("mine", b"{}", False)


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TRIGGER favour AFTER INSERT ON trials BEGIN UPDATE trials SET category = 1 WHERE seq = new.seq; END",
        "CREATE TRIGGER summed_changed AFTER INSERT ON trials BEGIN DELETE FROM looks; END",
        "CREATE VIEW extra AS SELECT * FROM trials",
        "CREATE VIRTUAL TABLE extra USING rtree(id, low, high)",
    ],
)
def test_sql_that_a_database_brings_is_not_run(tmp_path: Path, made: str) -> None:
    """A trigger could give each new answer another grade."""
    database, _ = RunDatabase.open_to_write(tmp_path)
    with closing(database), database.transaction():
        pass
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as connection:
        connection.execute(made)
    for opening in (RunDatabase.open_to_write, RunDatabase.open_to_read):
        with pytest.raises(StoreError, match="brings SQL of its own"):
            opening(tmp_path)


@pytest.mark.parametrize("trial", ['"%s"' % ("9" * 5000), '"%s"' % ("9" * 30), str(2**63), "1e400", '"\u00b2"'])
def test_an_impossible_trial_in_labels_is_reported(tmp_path: Path, trial: str) -> None:
    (tmp_path / LABELS_FILE).write_text(LINE % trial)
    with pytest.raises(ConfigError, match=r"labels\.jsonl, (entry 1: must have|line 1: is not JSON)"):
        read_labels(tmp_path)


@pytest.mark.parametrize("cell", ["x" * 200_000, '"' + "y\n" * 100_000])
def test_an_oversized_cell_of_a_table_is_reported(tmp_path: Path, cell: str) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(f"model,question,trial,label\nada,q0,0,{cell}")
    with pytest.raises(ConfigError, match=r"labels\.csv, line [0-9]+: is not CSV"):
        parse_labels_file(table)


def test_labels_are_read_as_they_were_written(tmp_path: Path) -> None:
    add_labels(tmp_path, {AT: GivenLabel("wrong")})
    with (tmp_path / LABELS_FILE).open("a") as file:
        file.write('{"model": "ad')  # torn by a kill
    add_labels(tmp_path, {AT: GivenLabel("correct"), Labelled("bob", "q1", 7): GivenLabel("wrong")})
    assert read_labels(tmp_path) == {AT: GivenLabel("correct"), Labelled("bob", "q1", 7): GivenLabel("wrong")}
