"""Whatever is written has the checksum of its values, however it came to be; every changed value is noticed."""

import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from adaptive_eval.store.checksums import COVERED
from adaptive_eval.store.draft import Draft
from two_by_two import HEADER, make_trial

from adaptive_eval.base.errors import StoreError
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import AnswerLogprobs
from adaptive_eval.notes import RunStarted
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import CellExtent
from adaptive_eval.machine.clocks import HeldTime
from adaptive_eval.store.errors import DATABASE_FILE
from adaptive_eval.store.read import StoredLook
from adaptive_eval.store.verify import Integrity

OpenStore = Callable[..., Store]
COLUMNS = [(table, column) for table, columns in COVERED.items() for column in columns]


@pytest.fixture
def written(open_store: OpenStore, directory: Path) -> Path:
    """A run in which every table was written, and every value that may be replaced was replaced."""
    store, named = open_store(), make_trial(trial=1)
    named = replace(named, answer=replace(named.answer, token_logprobs=AnswerLogprobs(("B",), (-0.25,))))
    sent = [SentRequest("small", 4)]
    store.commit(CommitBatch(sent=sent, elapsed=1.0, held={"small": HeldTime(1.0)}))
    for body in ({"order": ["small"]}, {"order": ["large"]}):
        batch = CommitBatch([], [StoredLook(0, body)], [RunStarted(pid=3)], elapsed=2.5, sent=sent)
        store.commit(batch)
    waiting = make_trial(trial=2, category=None, signals={}, extracted=None, grader_error="its grader has failed")
    store.commit(CommitBatch([replace(make_trial(), round=1), named, waiting], held={"small": HeldTime(2.0)}))
    grade = Regrade("small", waiting.question, 2, 1, {"score": 0.5}, "B", None, Cost(7, 0.125, 0))
    store.commit(CommitBatch(verdicts=[grade]))
    changed = {"key": "A"}
    header = replace(HEADER, meaning={**HEADER.meaning, "grader": changed}, configuration={"grader": changed})
    store.regrade([grade], RunStarted(pid=4), header, [CellExtent("small", waiting.question, 2)])
    store.close()
    return directory


def test_what_was_written_and_replaced_is_intact(written: Path) -> None:
    assert Integrity.check(written).damages == ()
    with closing(RunReader.open(written)) as reader:
        reader.require_intact()
        assert [(one.round, one.category) for one in reader.trials()][0][0] == 0
        assert list(reader.trials())[2].cost.tokens == make_trial().cost.tokens + 14


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_every_changed_value_is_noticed(written: Path, table: str, column: str) -> None:
    with closing(sqlite3.connect(written / DATABASE_FILE)) as database, database:
        key = "rowid" if table not in ("run", "looks", "asked_for") else COVERED[table][0]
        last = f"(SELECT max({key}) FROM {table})"
        changed = f"CASE typeof({column}) WHEN 'integer' THEN 7 WHEN 'real' THEN {column} + 1.0 ELSE 'else' END"
        assert database.execute(f"UPDATE {table} SET {column} = {changed} WHERE {key} = {last}").rowcount
    assert any(damage.startswith(f"{table}: ") for damage in Integrity.check(written).damages)
    with closing(RunReader.open(written)) as reader, pytest.raises(StoreError, match="is damaged"):
        reader.require_intact()


def test_a_text_that_is_no_longer_unicode_is_noticed_by_its_place(written: Path) -> None:
    with closing(sqlite3.connect(written / DATABASE_FILE)) as database, database:
        database.execute("UPDATE trials SET replica = CAST(X'ff41' AS TEXT) WHERE id = 1")
    assert "trials: trial 0 of small on q1 is not what was written" in Integrity.check(written).damages


def test_numbers_that_sqlite_stores_in_another_form_are_intact(open_store: OpenStore, directory: Path) -> None:
    trial = make_trial(cost=Cost(3, -0.0, 2))
    odd = replace(trial, answer=replace(trial.answer, latency=1, ttft=0, completion_bpt=math.nan, prompt_bpt=-0.0))
    store = open_store()
    store.commit(CommitBatch([odd]))
    store.close()
    assert Integrity.check(directory).damages == ()


def test_a_draft_whose_trials_were_renumbered_is_intact(tmp_path: Path) -> None:
    with closing(Draft.begin(tmp_path)) as draft:
        draft.add([make_trial(trial=4), make_trial(trial=9), make_trial(model="large")])
        draft.renumber("small", make_trial().question)
        draft.finish(HEADER, {}, [RunStarted(pid=3)])
    assert Integrity.check(tmp_path).damages == ()
    with closing(RunReader.open(tmp_path)) as reader:
        assert [one.trial for one in reader.model_trials("small")] == [0, 1]
