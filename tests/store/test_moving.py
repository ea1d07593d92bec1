"""Texts leave the ledger for segments: at no moment is one in neither, and what cannot be read there is refused."""

import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import fsspec
import pytest
from live_runs import without_checksums
from two_by_two import HEADER, make_trial
from warm_start import WarmProcess

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.record.verified import verify_run
from adaptive_eval.store import (
    AnswersKept,
    CommitBatch,
    RunReader,
    RunStopped,
    Store,
    TrialKey,
    TrialRecord,
    events_of_kind,
)
from adaptive_eval.store.database import DATABASE_FILE
from adaptive_eval.store.integrity import Integrity
from adaptive_eval.store.segments import moving
from adaptive_eval.store.segments.places import ANSWERS_FOLDER, AnswerPlace, LocalAnswers

OpenStore = Callable[..., Store]


@pytest.fixture
def answers() -> str:
    return "segments"


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A URL that is no folder, given in the variable."""
    url = "memory://shared/answers"
    monkeypatch.setenv("ADAPTIVE_EVAL_ANSWERS", url)
    yield url
    fsspec.filesystem("memory").rm("/shared", recursive=True)


def trials(number: int, first: int = 0) -> list[TrialRecord]:
    return [make_trial(trial=trial, text=f"answer {trial} " * 9) for trial in range(first, first + number)]


def read(directory: Path) -> list[TrialRecord]:
    with closing(RunReader.open(directory)) as reader:
        return list(reader.trials())


def in_ledger(directory: Path) -> int:
    """Trials whose texts are in the database."""
    with closing(sqlite3.connect(directory / DATABASE_FILE)) as connection:
        ((number,),) = connection.execute("SELECT count(*) FROM trials WHERE text IS NOT NULL")
    return int(number)


def segments_in(directory: Path) -> set[str]:
    return {path.name for path in (directory / ANSWERS_FOLDER).glob("*")}


def settle(store: Store) -> None:
    """Have what is being written entered."""
    assert store._mover is not None
    store._mover.wait()
    store.commit(CommitBatch())


def test_texts_leave_the_ledger_and_are_read_as_they_were(open_store: OpenStore, directory: Path) -> None:
    store = open_store()
    for trial in trials(7):
        store.commit(CommitBatch([trial]))
        settle(store)
        assert list(store.reader.trials()) == trials(7)[: trial.trial + 1]
    assert in_ledger(directory) == 1
    assert list(store.reader.outcomes()) == [one.outcome() for one in trials(7)]
    assert list(store.reader.cell("small", "q1", after=2)) == trials(4, first=3)
    store.close()
    assert in_ledger(directory) == 0, "at its end the rest goes too"
    assert read(directory) == trials(7)
    assert Integrity.check(directory).damages == ()
    store = open_store()
    store.commit(CommitBatch(trials(2, first=7)))
    store.close()
    assert read(directory) == trials(9)


def test_the_ledger_is_small_without_them(
    open_store: OpenStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "SEGMENT_TRIALS", 50)
    noise = random.Random(0)
    given = [make_trial(trial=number, text=noise.randbytes(1500).hex()) for number in range(400)]
    store = open_store()
    for trial in given:
        store.commit(CommitBatch([trial]))
    store.close()
    assert read(directory) == given
    assert (directory / DATABASE_FILE).stat().st_size < 400 * 1000
    assert Integrity.check(directory).damages == ()


def test_what_would_not_gain_and_what_parquet_cannot_hold_stays(
    open_store: OpenStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "SHORTEST_MOVED", 64)
    texts = ["B", "", "half \ud800 a pair " * 60, "nul \0 and more " * 20]
    given = [make_trial(trial=number, text=text) for number, text in enumerate(texts)]
    store = open_store()
    store.commit(CommitBatch(given))
    store.close()
    assert in_ledger(directory) == 3
    assert read(directory) == given
    with closing(RunReader.open(directory)) as reader:
        assert [one.size for one in reader.outcomes()] == [one.outcome().size for one in given]
    store = open_store()
    store.close()
    assert len(segments_in(directory)) == 1, "a start that adds nothing writes nothing"


def test_a_run_that_kept_them_in_the_ledger_moves_them_later_and_back_it_leaves_them(
    directory: Path, small_segments: None
) -> None:
    for answers, at in (("ledger", 0), ("segments", 3), ("ledger", 6)):
        store = Store.open(directory, HEADER, answers).store
        store.commit(CommitBatch(trials(3, first=at)))
        store.close()
        assert read(directory) == trials(at + 3)
    assert in_ledger(directory) == 3


class Watched:
    """A place, and what a kill at each moment of writing would leave."""

    def __init__(self, place: AnswerPlace, directory: Path) -> None:
        self._place, self._directory = place, directory
        self.left: list[Path] = []

    def write(self, name: str, data: bytes) -> None:
        self.kill_here("before")
        folder = self._directory / ANSWERS_FOLDER
        folder.mkdir(exist_ok=True)
        for half in (name, f".{name}.{os.getpid()}.draft"):
            (folder / half).write_bytes(data[: len(data) // 2])
        self.kill_here("within")
        self._place.write(name, data)
        self.kill_here("after")

    def open(self, name: str) -> tuple[BinaryIO, int]:
        return self._place.open(name)

    def remove(self, name: str) -> None:
        self._place.remove(name)

    def kill_here(self, when: str) -> None:
        left = self._directory.with_name(f"{when}-{len(self.left)}")
        shutil.copytree(self._directory, left)
        self.left.append(left)


def test_a_kill_at_any_moment_loses_nothing_and_leaves_nothing(
    open_store: OpenStore, directory: Path, small_segments: None
) -> None:
    store = open_store()
    assert store._mover is not None
    store._mover._place = watched = Watched(LocalAnswers(directory / ANSWERS_FOLDER), directory)
    for trial in trials(4):
        store.commit(CommitBatch([trial]))
        store._mover.wait()
    watched.kill_here("unentered")
    settle(store)
    watched.kill_here("entered")
    assert len(watched.left) == 8
    for left in watched.left:
        stored = read(left)
        assert stored == trials(len(stored)) and len(stored) >= 2
        again = Store.open(left, HEADER, "segments").store
        again.commit(CommitBatch(trials(6 - len(stored), first=len(stored))))
        again.close()
        assert read(left) == trials(6)
        assert Integrity.check(left).damages == ()
        with closing(sqlite3.connect(left / DATABASE_FILE)) as connection:
            named = {name for (name,) in connection.execute("SELECT name FROM segments WHERE trials > 0")}
        assert segments_in(left) == named, "no file is left that nobody names"


def test_trials_that_are_dropped_take_their_place_along(open_store: OpenStore, directory: Path) -> None:
    store = open_store()
    store.commit(CommitBatch(trials(4)))
    store.forget_trials("small", [TrialKey("q1", 3)], RunStopped())
    store.commit(CommitBatch([make_trial(trial=3, text="another " * 9)]))
    settle(store)
    store.close()
    assert [one.answer.text for one in read(directory)][3] == "another " * 9
    assert Integrity.check(directory).damages == ()


def test_a_place_that_cannot_be_written_stops_nothing(
    open_store: OpenStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "AGAIN_SECONDS", 0.0)
    (directory).mkdir(parents=True)
    store = open_store()
    (directory / ANSWERS_FOLDER).touch()  # as good as a full disk: nothing can be written in it
    for trial in trials(5):
        store.commit(CommitBatch([trial]))
        settle(store)
    (told,) = store.take_pending_events()
    assert isinstance(told, AnswersKept) and str(directory) not in told.reason
    assert list(store.take_pending_events()) == []
    store.close()
    assert read(directory) == trials(5)
    (directory / ANSWERS_FOLDER).unlink()
    store = open_store()
    store.close()
    assert in_ledger(directory) == 0 and read(directory) == trials(5)
    with closing(RunReader.open(directory)) as reader:
        assert len(events_of_kind(reader.events(), AnswersKept)) == 1


def test_a_full_disk_under_the_segments_is_named(
    open_store: OpenStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    store = open_store()
    store.commit(CommitBatch(trials(1)))
    with monkeypatch.context() as patched:
        patched.setattr("adaptive_eval.base.files.os.fsync", full)
        store.commit(CommitBatch(trials(1, first=1)))
        store.commit(CommitBatch())
        settle(store)
    (told,) = store.take_pending_events()
    assert isinstance(told, AnswersKept) and "the disk is full" in told.reason
    assert list(store.reader.trials()) == trials(2)
    assert segments_in(directory) == set()


@pytest.mark.parametrize("answers", ["memory://shared/answers"])
def test_answers_at_a_url_are_read_where_the_user_has_given_it(
    open_store: OpenStore, directory: Path, answers: str, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    store.commit(CommitBatch(trials(4)))
    store.close()
    assert in_ledger(directory) == 0 and not (directory / ANSWERS_FOLDER).exists()
    assert read(directory) == trials(4)
    assert verify_run(directory).damages == ()
    other = directory.with_name("other")
    store = Store.open(other, HEADER, answers).store
    store.commit(CommitBatch(trials(2)))
    store.close()
    assert len(fsspec.filesystem("memory").ls("/shared/answers")) == 2, "runs of one name have folders of their own"
    for given in ("", "memory://shared/ans", "s3://shared/answers memory://shared/answers/more"):
        monkeypatch.setenv("ADAPTIVE_EVAL_ANSWERS", given)
        with pytest.raises(StoreError, match="set ADAPTIVE_EVAL_ANSWERS=memory://shared/answers"):
            read(directory)
        assert any("are not checked" in note for note in verify_run(directory).notes)
    with closing(RunReader.open(directory)) as reader:
        assert len(list(reader.outcomes())) == 4, "what needs no text needs no place"
    store = open_store()
    assert list(store.reader.trials()) == trials(4), "the configuration names it"
    fsspec.filesystem("memory").rm("/shared/answers", recursive=True)
    store.close()
    fsspec.filesystem("memory").makedirs("/shared/answers")
    monkeypatch.setenv("ADAPTIVE_EVAL_ANSWERS", shared)
    with pytest.raises(StoreError, match=r"the answers at memory://.* cannot be read \(FileNotFoundError"):
        read(directory)
    assert all("cannot be read" in damage for damage in verify_run(directory).damages)


@pytest.mark.parametrize("answers", ["s4://bucket/answers"])
def test_a_storage_that_fsspec_does_not_know_is_named(
    open_store: OpenStore, directory: Path, answers: str, small_segments: None
) -> None:
    store = open_store()
    store.commit(CommitBatch(trials(2)))
    settle(store)
    (told,) = store.take_pending_events()
    assert isinstance(told, AnswersKept) and "s4" in told.reason
    assert list(store.reader.trials()) == trials(2)


def change(directory: Path, statement: str, *values: object) -> None:
    """What a stranger may write."""
    with closing(sqlite3.connect(directory / DATABASE_FILE)) as connection, connection:
        without_checksums(connection)
        connection.execute(statement, values)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE segments SET name = '../../../secret.parquet'", "is not the name of a segment"),
        ("UPDATE segments SET name = '/etc/passwd'", "is not the name of a segment"),
        ("UPDATE segments SET name = '000000001-0123456789ab.parquet' WHERE id = 1", "No such file"),
        ("UPDATE segments SET place = 'file:///etc'", "is not opened by itself"),
        ("UPDATE segments SET bytes = 5", "was written with 5"),
        ("UPDATE segments SET bytes = 'x'", "its list of segments"),
        ("UPDATE segments SET name = x'00'", "its list of segments"),
        ("UPDATE moved SET row = 'x'", "it does not say where an answer lies"),
        ("UPDATE moved SET row = 1 - row", "is not the one that was stored"),
        ("UPDATE moved SET row = 7", "it has no row 7"),
        ("UPDATE moved SET row = -1", "it has no row -1"),
        ("UPDATE moved SET segment = 9", "in segment 9, which it does not list"),
        ("UPDATE trials SET digest = 5", "is not the one that was stored"),
        ("UPDATE trials SET digest = NULL", "is not the one that was stored"),
    ],
)
def test_a_ledger_of_a_stranger_reads_nothing_else(
    open_store: OpenStore, directory: Path, statement: str, why: str
) -> None:
    store = open_store()
    store.commit(CommitBatch(trials(2)))
    store.close()
    change(directory, statement)
    with pytest.raises(StoreError, match=why):
        read(directory)


@pytest.mark.parametrize("how", ["link", "folder", "pipe", "other", "linked folder"])
def test_a_segment_that_is_no_file_is_not_read(open_store: OpenStore, directory: Path, how: str) -> None:
    store = open_store()
    store.commit(CommitBatch(trials(2)))
    store.close()
    (name,) = segments_in(directory)
    path = directory / ANSWERS_FOLDER / name
    if how == "linked folder":
        (directory / ANSWERS_FOLDER).rename(directory / "elsewhere")
        (directory / ANSWERS_FOLDER).symlink_to(directory / "elsewhere")
    elif how == "other":
        path.write_bytes(path.read_bytes()[:-1] + b"2")
    else:
        path.rename(directory / "kept")
    if how == "link":
        path.symlink_to(directory / "kept")
    elif how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    with pytest.raises(StoreError):
        read(directory)
    assert Integrity.check(directory).damages


def test_a_segment_that_is_changed_is_found_by_verify(open_store: OpenStore, directory: Path) -> None:
    store = open_store()
    store.commit(CommitBatch(trials(2)))
    store.close()
    (path,) = (directory / ANSWERS_FOLDER).iterdir()
    data = bytearray(path.read_bytes())
    data[-20] ^= 1  # in what is said about the file, which no text depends on
    path.write_bytes(data)
    assert any("is not what was written" in damage for damage in verify_run(directory).damages)


def test_an_earlier_version_refuses_such_a_run_and_reads_others(open_store: OpenStore, tmp_path: Path) -> None:
    plain = Store.open(tmp_path / "plain", HEADER).store
    moved = open_store()
    versions = [one._database.connection.execute("PRAGMA user_version").fetchone()[0] for one in (plain, moved)]
    plain.close()
    assert versions == [1, 2]


def test_without_the_extra_no_run_begins(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> None:
        raise ImportError(module)

    monkeypatch.setattr("adaptive_eval.base.imports.import_module", missing)
    with pytest.raises(
        ConfigError, match=r"answers in segments need an extra; pip install 'adaptive-eval\[segments\]'"
    ):
        Store.open(directory, HEADER, "segments")
    Store.open(directory, HEADER).store.close()


WRITER = """
import sys
from pathlib import Path
from adaptive_eval.store import CommitBatch, Store
from adaptive_eval.store.segments import moving
from two_by_two import HEADER, make_trial
moving.SEGMENT_TRIALS, moving.SHORTEST_MOVED = 3, 1
store = Store.open(Path(sys.argv[1]), HEADER, "segments").store
print("open", flush=True)
at = store.reader.trial_count()
while True:
    store.commit(CommitBatch([make_trial(trial=at, text=f"answer {at} " * 9)]))
    print(at, flush=True)
    at += 1
"""


@pytest.mark.slow
def test_twenty_kills_lose_nothing(directory: Path, tmp_path: Path) -> None:
    chance = random.Random(5)
    (script := tmp_path / "writer.py").write_text(WRITER)
    before = 0
    for _ in range(20):
        process = WarmProcess([str(directory)], tmp_path, script)
        assert process.stdout.readline() == "open\n"
        for _ in range(chance.randrange(20)):
            assert process.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.01))  # anywhere between two commits
        process.send_signal(signal.SIGKILL)
        process.communicate()
        stored = read(directory)
        assert stored == trials(len(stored)) and len(stored) >= before
        before = len(stored)
    assert before > 60
    Store.open(directory, HEADER, "segments").store.close()
    assert Integrity.check(directory).damages == () and read(directory) == trials(before)
    with closing(sqlite3.connect(directory / DATABASE_FILE)) as connection:
        named = {name for (name,) in connection.execute("SELECT name FROM segments WHERE trials > 0")}
    assert {path.name for path in (directory / ANSWERS_FOLDER).iterdir()} == named
