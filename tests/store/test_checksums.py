"""Everything written has a checksum of its values, and every changed value is noticed."""

import math
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from two_by_two import HEADER, LARGE, SMALL, make_trial

from adaptive_eval.base.errors import StoreError
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import AnswerLogprobs
from adaptive_eval.machine.charges import Charge, ChargeKind
from adaptive_eval.machine.records import LookTaken, Note
from adaptive_eval.machine.trial import RESERVED, Trial
from adaptive_eval.store.bulk import BulkImport
from adaptive_eval.store.errors import DATABASE_FILE
from adaptive_eval.store.read import LogReader, PackedSums, StoredReport
from adaptive_eval.store.schema import COVERED
from adaptive_eval.store.verify import Integrity
from adaptive_eval.store.write import RunStore

COLUMNS = [(table, column) for table, columns in COVERED.items() for column in columns]
KEYS = {"run": "key", "models": "id", "questions": "id", "configurations": "id", "looks": "number"}
KEYS |= {"reports": "look", "cells": "look", "sums": "seq"}


NAMED = make_trial(number=1, logprobs=AnswerLogprobs(("B",), (-0.25,)))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which every table was written and every replaceable value was replaced."""
    directory = tmp_path_factory.mktemp("written") / "run"
    with closing(RunStore.open(directory, HEADER)) as store:
        for elapsed in (1.0, 2.5):
            records = [NAMED._replace(state=RESERVED), LookTaken(0, {"order": [elapsed]})]
            rows = [*enumerate(records, store.last_seq + 1)]
            sums = PackedSums(store.last_seq, [b"sums"])
            report = StoredReport(0, store.last_seq, b"{}", [b"cells"], sums)
            held = {"small": {"seconds": elapsed}}
            store.commit(rows, elapsed=elapsed, held=held, report=lambda reader, report=report: report)
        charge = Charge(ChargeKind.LOST, "answer", SMALL, 2, Cost(10, 0.25, 1.5))
        failed, note = make_trial(number=2, error="its grader has failed"), Note("noticed", LARGE, {"a": 1})
        store.append(NAMED, failed, note, charge)
        graded = make_trial(number=2)
        header = replace(HEADER, meaning={**HEADER.meaning, "grader": "choice"}, configuration={"grader": "choice"})
        changes = [("grader", "exact", "choice")]
        store.regrade(lambda _, trial: graded if trial.key == graded.key else None, [Note("regraded")], header, changes)
        store.change_settings(replace(HEADER, models={**HEADER.models, "third": {}}), [])
        store.append(LookTaken(1, {"order": []}), Trial(LARGE, 0, 0, 0, RESERVED, Cost(100)))
    return directory


@pytest.fixture
def run(written: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(written, tmp_path / "run"))


def test_what_was_written_and_replaced_is_intact(written: Path) -> None:
    assert Integrity.check(written) == Integrity(2, 2, ()), "a trial counts once it is answered"
    with closing(LogReader.open(written)) as reader:
        reader.database.require_intact()
        assert [trial.category for _, trial in reader.trials("state = 'done'")] == [1, 0]


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_every_changed_value_is_noticed(run: Path, table: str, column: str) -> None:
    with closing(sqlite3.connect(run / DATABASE_FILE)) as database, database:
        key = KEYS.get(table, "seq")
        last = f"(SELECT max({key}) FROM {table})"
        changed = f"CASE typeof({column}) WHEN 'integer' THEN 70 WHEN 'real' THEN {column} + 1.0 ELSE 'else' END"
        assert database.execute(f"UPDATE {table} SET {column} = {changed} WHERE {key} = {last}").rowcount
    damages = Integrity.check(run).damages
    assert any(damage.startswith(f"{table}: the row ") for damage in damages)
    for use in (lambda: RunStore.attach(run), lambda: RunStore.open(run, HEADER)):
        with pytest.raises(StoreError, match=r"is damaged.* restore a copy"):
            use()


def test_each_damaged_row_is_named_and_all_others_are_read(run: Path) -> None:
    """Text that is no longer valid Unicode counts as damage of its row."""
    with closing(sqlite3.connect(run / DATABASE_FILE)) as database, database:
        ((seq,),) = database.execute("SELECT seq FROM trials WHERE number = 2")
        database.execute("UPDATE trials SET replica = CAST(X'ff41' AS TEXT) WHERE number = 2")
        database.execute("UPDATE charges SET number = 3")
    checked = Integrity.check(run)
    named = {f"trials: the row {seq} is not what was written", "charges: the row 8 is not what was written"}
    assert (checked.trials, {*checked.damages}, checked.only_structure) == (2, named, False)
    with closing(LogReader.open(run)) as reader:
        assert [trial for _, trial in reader.trials("number = 1")] == [NAMED]


def test_a_damaged_index_is_distinguished_from_damaged_rows(run: Path) -> None:
    with closing(sqlite3.connect(run / DATABASE_FILE)) as database:
        ((page,),) = database.execute("SELECT rootpage FROM sqlite_master WHERE name LIKE 'sqlite_autoindex_trials%'")
        ((size,),) = database.execute("PRAGMA page_size")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray((run / DATABASE_FILE).read_bytes())
    at = (page - 1) * size
    data[at + 3 : at + 5] = b"\0\0"  # the index has no entry any more
    (run / DATABASE_FILE).write_bytes(data)
    checked = Integrity.check(run)
    assert checked.only_structure and checked.damages[0].startswith("the database: ")
    with pytest.raises(StoreError, match=r"no row is damaged.*REINDEX"):
        RunStore.attach(run)


def test_numbers_that_sqlite_stores_in_another_form_are_intact(tmp_path: Path) -> None:
    trial = make_trial()._replace(cost=Cost(3, -0.0, 2))
    assert trial.answer is not None
    odd = replace(trial.answer, latency=1, ttft=0, completion_bpt=math.nan, prompt_bpt=-0.0)
    with closing(RunStore.open(tmp_path, HEADER)) as store:
        store.append(trial._replace(answer=odd))
    assert Integrity.check(tmp_path).damages == ()


def test_an_import_whose_trials_were_renumbered_is_intact(tmp_path: Path) -> None:
    with closing(BulkImport.begin(tmp_path)) as bulk:
        assert (bulk.model("small"), bulk.model("large"), bulk.question("q1")) == (0, 1, 0)
        bulk.add([make_trial(number=4), make_trial(number=9), make_trial(LARGE)])
        bulk.renumber("small", "q1")
        bulk.finish(HEADER, {}, [Note("imported", None, {"trials": 3})])
    assert Integrity.check(tmp_path).damages == ()
    with closing(LogReader.open(tmp_path)) as reader:
        assert [trial.key for _, trial in reader.trials()] == [(SMALL, 0, 0), (SMALL, 0, 1), (LARGE, 0, 0)]
        assert reader.header() == HEADER
