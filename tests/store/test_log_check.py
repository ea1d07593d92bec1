"""A log of a killed run in which a byte was changed: commits that SQLite leaves out without a word are missed."""

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from two_by_two import HEADER, make_trial

from adaptive_eval.base.errors import StoreError
from adaptive_eval.store import CommitBatch, RunReader, Store
from adaptive_eval.store.database import DATABASE_FILE, is_run
from adaptive_eval.store.integrity import Integrity
from adaptive_eval.store.log_check import lost_commits

COMMITS = 6
LOG = f"{DATABASE_FILE}-wal"
Open = Callable[..., Store]


@pytest.fixture(params=["first log", "later log"])
def killed(request: pytest.FixtureRequest, directory: Path, open_store: Open, tmp_path: Path) -> Iterator[Path]:
    """A run as a kill leaves it: with all that it has in the log, or with some of it and frames of an earlier log."""
    store = open_store()
    if request.param == "later log":
        for trial in range(20):
            store.commit(CommitBatch([make_trial("large", "q2", trial, text="long " * 2000)]))
        store._database.connection.execute("PRAGMA wal_checkpoint(RESTART)")
    for trial in range(COMMITS):
        store.commit(CommitBatch([make_trial("small", "q1", trial)]))
    yield Path(shutil.copytree(directory, tmp_path / "killed"))


def trials(directory: Path) -> int:
    reader = RunReader.open(directory)
    try:
        return reader.trial_count()
    finally:
        reader.close()


def flipped(killed: Path, place: int, bit: int = 1) -> Path:
    """A copy with one bit changed; the index beside the log is what the next reader makes of it."""
    copy = killed.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(killed, copy)
    data = bytearray((copy / LOG).read_bytes())
    data[place] ^= bit
    (copy / LOG).write_bytes(data)
    return copy


def test_a_whole_log_is_taken_whole_and_stays(killed: Path) -> None:
    before, log = trials(killed), (killed / LOG).read_bytes()
    assert lost_commits(killed / DATABASE_FILE) == 0
    assert not Integrity.check(killed).damages and trials(killed) == before and (killed / LOG).read_bytes() == log


def test_a_changed_log_is_refused_and_stays(killed: Path) -> None:
    """Wherever the change is: in its head, in a page, in the head of a frame."""
    for place in (0, 9, 17, 30, 32 + 3, 32 + 4120 + 9, 32 + 200):
        copy = flipped(killed, place)
        log = (copy / LOG).read_bytes()
        for opens in (is_run, RunReader.open, Store.attach, partial(Store.open, header=HEADER)):
            with pytest.raises(StoreError, match="wal is damaged: the last"):
                opens(copy)
        assert (copy / LOG).read_bytes() == log, "a copy of the rest may still be of use"


def test_no_change_of_any_log_goes_unnoticed(killed: Path) -> None:
    """Either no trial is lost, or `verify` says that something is."""
    rng, before, noticed = random.Random(5), trials(killed), 0
    for _ in range(25):
        copy = flipped(killed, rng.randrange((killed / LOG).stat().st_size), 1 << rng.randrange(8))
        try:
            damages = Integrity.check(copy).damages
            lost = trials(copy) < before
        except StoreError:
            damages, lost = ("refused",), True
        noticed += bool(damages)
        assert damages or not lost
    assert noticed


def test_a_last_write_that_was_cut_is_told_and_the_run_goes_on(killed: Path) -> None:
    """A kill may have cut it before anybody was told of the commit."""
    frames = (killed / LOG).read_bytes()
    page = 32 + 4096 + 24  # within the last frame that counts
    whole = trials(killed)
    for place in range(len(frames) - 2000, 32, -(page - 32)):
        copy = flipped(killed, place)
        if lost_commits(copy / DATABASE_FILE) == 1:
            break
    assert [one for one in Integrity.check(copy).damages if "its last commit cannot be read" in one]
    Store.open(copy, HEADER).store.close()
    assert trials(copy) == whole - 1 and not Integrity.check(copy).damages


WRITER = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"


def test_looking_at_the_log_gives_up_no_lock_of_this_process(directory: Path, open_store: Open) -> None:
    """Who opens and closes a file that SQLite has open gives up its locks, and others write into what it reads."""
    store = open_store()
    store.commit(CommitBatch([make_trial("small", "q1", 0)]))
    store._database.connection.execute("BEGIN IMMEDIATE")
    for look in (lambda: lost_commits(directory / DATABASE_FILE), lambda: is_run(directory)):
        look()
        other = [sys.executable, "-c", WRITER, str(directory / DATABASE_FILE)]
        told = subprocess.run(other, capture_output=True, text=True, check=False)
        assert "database is locked" in told.stderr
    store._database.connection.execute("ROLLBACK")
    store.close()


def test_what_a_kill_has_left_of_a_commit_is_no_damage(killed: Path, tmp_path: Path) -> None:
    """Pages of a long commit that never came to its end, of which a short one overwrites the first."""
    store, before = Store.open(killed, HEADER).store, trials(killed)
    store.commit(CommitBatch([make_trial("large", "q2", 30, text="".join(map(str, range(30_000))))]))
    cut = Path(shutil.copytree(killed, tmp_path / "cut"))
    store.close()
    frames = (cut / LOG).read_bytes()
    (cut / LOG).write_bytes(frames[:-4120])
    assert lost_commits(cut / DATABASE_FILE) == 0
    store = Store.open(cut, HEADER).store
    store.commit(CommitBatch([make_trial("small", "q1", 30)]))
    left = Path(shutil.copytree(cut, tmp_path / "left"))
    store.close()
    assert lost_commits(left / DATABASE_FILE) == 0 and trials(left) == before + 1
