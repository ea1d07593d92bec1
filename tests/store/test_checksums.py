"""Every row has a checksum, whoever wrote it, and a row that was changed is not read."""

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from two_by_two import HEADER, make_trial

from adaptive_eval.base.errors import StoreError
from adaptive_eval.endpoints.types import AnswerLogprobs
from adaptive_eval.store import (
    AnswersLost,
    CommitBatch,
    Draft,
    Regrade,
    RunReader,
    RunResumed,
    SentRequest,
    Store,
    StoredLook,
    TrialKey,
    TrialRecord,
)
from adaptive_eval.store.checksums import checksum
from adaptive_eval.store.database import DATABASE_FILE
from adaptive_eval.store.integrity import Integrity
from adaptive_eval.store.tables import COLUMNS, SUMS, TABLES

Open = Callable[..., Store]


def change(directory: Path, *statements: str) -> None:
    """Change the database behind the back of the checksums."""
    with closing(sqlite3.connect(directory / DATABASE_FILE)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def with_tokens(trial: TrialRecord) -> TrialRecord:
    return replace(trial, answer=replace(trial.answer, token_logprobs=AnswerLogprobs(("a", "b"), (-0.5, None))))


def some_trials() -> CommitBatch:
    trials = [make_trial(model, "q1", trial) for trial in range(3) for model in ("small", "large")]
    trials.append(with_tokens(make_trial("small", "q2", 0, text="a long answer " * 100)))
    return CommitBatch(trials, [StoredLook(0, {"look": 0})], [RunResumed(0)], 1.5, [SentRequest("large", 1)])


def test_a_checksum_is_the_same_in_every_version_of_python() -> None:
    assert checksum(1, None, "ä", b"\x00\xff", 1.5, -(2**62)) == 2635348643


def test_every_column_has_a_part_in_the_checksum(directory: Path, open_store: Open) -> None:
    store = open_store()
    store.commit(CommitBatch([with_tokens(make_trial())]))
    store._database.add_tables(SUMS)
    store.close()
    with closing(sqlite3.connect(directory / DATABASE_FILE)) as connection:
        for table, columns in COLUMNS.items():
            assert [row[1] for row in connection.execute(f"PRAGMA table_info({table})")] == columns
    assert (TABLES + SUMS).count("CREATE TABLE") == len(COLUMNS)


def test_whatever_is_written_is_intact(directory: Path, open_store: Open) -> None:
    store = open_store()
    store.commit(some_trials())
    store.commit(CommitBatch([], [StoredLook(0, {"look": "again"}), StoredLook(1, {})], [], 2.5))
    store.commit(CommitBatch(sent=[SentRequest("small", 1), SentRequest("large", 1)]))
    store.commit(CommitBatch([make_trial("large", "q2", 0)], unsent=[SentRequest("small", 1)]))
    store.commit(CommitBatch(sent=[SentRequest("small", 1), SentRequest("large", 1)]))
    store.lose(AnswersLost("large", 1))
    store.forget_looks(1)
    store.regrade([Regrade("small", "q1", 0, 1, {}, "3", None)], RunResumed(1), HEADER)
    store.forget_trials("large", [TrialKey("q1", 1)], RunResumed(2))
    store.close()
    open_store().close()  # a resume
    found = Integrity.check(directory)
    assert (found.damages, found.unchecked) == ((), {})
    assert (found.rows["trials"], found.rows["asked_for"]) == (7, 1)


def test_an_import_is_intact(tmp_path: Path) -> None:
    draft = Draft.begin(tmp_path)
    draft.add(make_trial(trial=trial) for trial in (4, 2, 7))
    draft.renumber("small", "q1")
    draft.finish(HEADER, {}, [])
    draft.close()
    found = Integrity.check(tmp_path)
    assert (found.damages, found.unchecked, found.rows["trials"]) == ((), {}, 3)


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ("UPDATE trials SET category = 1 - category WHERE id = 3", "trials 3"),
        ("UPDATE trials SET text = CAST(text AS BLOB) WHERE id = 3", "trials 3"),
        ("UPDATE trials SET extracted = CAST(x'fffe' AS TEXT) WHERE id = 3", "trials 3"),
        ("DELETE FROM trials WHERE id = 3", "trials 3"),
        ("UPDATE looks SET number = 5", "looks 1/"),
        ("UPDATE run SET value = 7.0 WHERE key = 'elapsed'", "run elapsed"),
        ("UPDATE questions SET body = '{}' WHERE id = 2", "questions 2"),
        ("UPDATE models SET name = 'smaller' WHERE id = 1", "models 1"),
        ("UPDATE configurations SET body = '{' WHERE id = 1", "configurations 1"),
        ("UPDATE events SET kind = 'other' WHERE id = 1", "events 1"),
        ("UPDATE asked_for SET trials = 5", "asked_for 2"),
        ("DELETE FROM asked_for", "asked_for 2"),
    ],
)
def test_a_changed_row_is_named_and_not_gone_on_with(
    directory: Path, open_store: Open, statement: str, table: str
) -> None:
    store = open_store()
    store.commit(some_trials())
    store.close()
    change(directory, statement)
    assert any(damage.startswith(table) for damage in Integrity.check(directory).damages)
    with pytest.raises(StoreError, match="adaptive-eval verify"):
        open_store()
    with pytest.raises(StoreError, match="adaptive-eval verify"):
        Store.attach(directory)


def test_an_index_that_misses_rows_is_named_and_not_gone_on_with(directory: Path, open_store: Open) -> None:
    """Each row is what was written, and a trial that an index does not find would be asked for or graded amiss."""
    store = open_store()
    store.commit(CommitBatch([make_trial("small", "q1", trial) for trial in range(40)]))
    store.close()
    path, rng = directory / DATABASE_FILE, random.Random(2)
    whole = path.read_bytes()
    pages = [at for at in range(4096, len(whole), 4096) if whole[at] == 10]
    for _ in range(200):
        data = bytearray(whole)
        data[rng.choice(pages) + rng.randrange(4096)] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        if (found := Integrity.check(directory)).only_structure:
            break
    assert found.damages and all(damage.startswith("the database: ") for damage in found.damages)
    with pytest.raises(StoreError, match=r"adaptive-eval verify|REINDEX; VACUUM"):
        open_store()
    with pytest.raises(StoreError, match="REINDEX; VACUUM"), RunReader.intact(directory):
        pass
    change(directory, "REINDEX")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("VACUUM")
    assert Integrity.check(directory).damages == ()
    open_store().close()


def test_a_changed_text_is_not_read(directory: Path, open_store: Open) -> None:
    store = open_store()
    store.commit(some_trials())
    store.close()
    change(directory, "UPDATE trials SET text = 'another' WHERE id = 1")
    with closing(RunReader.open(directory)) as reader:
        assert len(list(reader.model_trials("large"))) == 3
        for read in (reader.trials(), reader.model_trials("small"), reader.cell("small", "q1")):
            with pytest.raises(StoreError, match="trial 0 of small on q1 is not what was written.*verify"):
                list(read)


def test_a_run_without_checksums_opens_and_has_them_from_then_on(directory: Path, open_store: Open) -> None:
    store = open_store()
    store.commit(some_trials())
    store.close()
    change(directory, "DROP TABLE trial_checks", "DROP TABLE row_checks")
    with closing(RunReader.open(directory)) as reader:
        assert len(list(reader.trials())) == 7
        reader.require_intact()
    store = open_store()
    store.commit(CommitBatch([make_trial("large", "q2", 0)], [], [], 3.0))
    store.close()
    found = Integrity.check(directory)
    assert found.damages == ()
    assert found.unchecked["trials"] == 7
    assert found.rows["trials"] == 8


def test_a_ledger_without_checksums_is_gone_on_with(directory: Path, open_store: Open) -> None:
    store = open_store()
    store.commit(some_trials())
    store.close()
    change(directory, "DELETE FROM row_checks WHERE place = 'asked_for'")
    assert Integrity.check(directory).unchecked == {"asked_for": 2}
    store = open_store()
    store.commit(CommitBatch([make_trial("large", "q2", 0)], sent=[SentRequest("small", 1)]))
    store.close()
    found = Integrity.check(directory)
    assert (found.damages, found.unchecked, found.rows["asked_for"]) == ((), {}, 2)


@pytest.mark.parametrize("how", ["removed", "replaced", "folder"])
def test_a_commit_into_a_file_that_is_gone_fails(directory: Path, open_store: Open, how: str) -> None:
    store = open_store()
    store.commit(some_trials())
    if how == "folder":
        shutil.rmtree(directory)
    else:
        (directory / DATABASE_FILE).unlink()
    if how == "replaced":
        (directory / DATABASE_FILE).write_bytes(b"")
    with pytest.raises(StoreError, match="was removed or replaced while the run went on.*--fresh") as refused:
        store.commit(CommitBatch([make_trial("large", "q2", 0)], [], [], 3.0))
    assert "intact" not in str(refused.value)
