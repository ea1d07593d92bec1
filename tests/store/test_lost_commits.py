"""A lost or truncated write-ahead log of the database is noticed, and nothing is silently bought again."""

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from two_by_two import HEADER, make_trial

from adaptive_eval.base.errors import StoreError
from adaptive_eval.base.files import read_holder
from adaptive_eval.machine.records import Dropped
from adaptive_eval.store.errors import DATABASE_FILE
from adaptive_eval.store.read import LogReader
from adaptive_eval.store.verify import Integrity
from adaptive_eval.store.write import RunStore

TRIALS = 40


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A run as a kill leaves it: its trials are still in the write-ahead log of the open database."""
    with closing(RunStore.open(tmp_path / "run", HEADER)) as store:
        for number in range(TRIALS):
            store.append(make_trial(number=number))
        return Path(shutil.copytree(tmp_path / "run", tmp_path / "killed"))


def log_of(run: Path) -> Path:
    return run / f"{DATABASE_FILE}-wal"


def opened(run: Path) -> RunStore:
    return RunStore.open(run, HEADER)


def count(reader: LogReader) -> int:
    return len([*reader.trials()])


def test_the_file_alone_says_what_run_it_is(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "run")):
        (tmp_path / "copy").mkdir()
        shutil.copy(tmp_path / "run" / DATABASE_FILE, tmp_path / "copy")
    with closing(LogReader.open(tmp_path / "copy")) as reader:
        assert reader.header().name == HEADER.name


@pytest.mark.parametrize("damage", ["missing", "cut early", "cut late", "flipped"])
def test_trials_that_cannot_be_read_any_more_are_missed(killed: Path, damage: str) -> None:
    """Of a log with a damaged byte, SQLite silently reads only what comes before it."""
    log = log_of(killed)
    data = bytearray(log.read_bytes())
    if damage == "missing":
        log.unlink()
    elif damage == "flipped":
        data[len(data) // 2] ^= 1
        log.write_bytes(data)
    else:
        os.truncate(log, len(data) // (3 if damage == "cut early" else 1) - 9)
    message = rf"ends with record \d+, but {TRIALS} were committed: its log, run.sqlite-wal, is missing"
    for use in (opened, LogReader.open, RunStore.attach):
        with pytest.raises(StoreError, match=message):
            use(killed)
    assert [text for text in Integrity.check(killed).damages if "were committed" in text]


def test_without_its_lock_file_a_run_continues_with_the_remaining_trials(killed: Path) -> None:
    log_of(killed).unlink()
    (killed / "lock").unlink()
    with closing(opened(killed)) as store:
        assert count(store.reader) < TRIALS
        store.append(make_trial(number=TRIALS))
    assert read_holder(killed / "lock")["committed"] == 1
    with closing(opened(killed)) as store:
        assert count(store.reader) == 1


def test_trials_that_are_dropped_are_not_missed(tmp_path: Path) -> None:
    """Their log numbers stay used, and later trials get higher ones."""
    with closing(opened(tmp_path)) as store:
        store.append(make_trial(), make_trial(number=1))
        store.append(Dropped(make_trial(number=1).key))
    with closing(opened(tmp_path)) as store:
        assert count(store.reader) == 1
        store.append(make_trial(number=1))
    with closing(opened(tmp_path)) as store:
        assert count(store.reader) == 2


KILLED = """
import os
from pathlib import Path
from adaptive_eval.store.database import create_database
connection = create_database(Path({0!r}))
os._exit(9)
"""


def test_a_start_that_was_killed_before_its_first_commit_begins_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    killed = subprocess.run([sys.executable, "-c", KILLED.format(str(run))], check=False, timeout=60)
    assert killed.returncode == 9 and (run / DATABASE_FILE).exists()
    (run / "lock").write_text("{}")
    with closing(opened(run)) as store:
        assert count(store.reader) == 0
