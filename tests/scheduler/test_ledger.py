"""What is spent is written down before it is spent, and time as it passes."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from fakes import HEADER

from adaptive_eval.core.types import Reason
from adaptive_eval.scheduler.committer import Committer
from adaptive_eval.scheduler.ledger import UNSAID_SECONDS, at_least_elapsed
from adaptive_eval.scheduler.types import BEAT_SECONDS
from adaptive_eval.store import CommitBatch, Event, RunFinished, RunResumed, RunStarted, RunStopped, SentRequest, Store


@pytest.mark.parametrize(
    ("last", "more"),
    [
        (RunStarted(), UNSAID_SECONDS),
        (RunResumed(), UNSAID_SECONDS),
        (RunStopped(), 0.0),
        (RunFinished(Reason.SETTLED), 0.0),
    ],
)
def test_a_kill_counts_as_the_time_that_it_may_have_left_unsaid(tmp_path: Path, last: Event, more: float) -> None:
    store = Store.open(tmp_path, HEADER).store
    store.commit(CommitBatch(events=[RunStarted(), last], elapsed=7.0))
    assert at_least_elapsed(store.reader) == 7.0 + more
    store.close()


async def test_time_is_committed_though_nothing_else_is(tmp_path: Path) -> None:
    store, now = Store.open(tmp_path, HEADER).store, [1.0]
    committer = Committer(store, committed=lambda batch: None, elapsed=lambda: now[0], more_expected=lambda: False)
    committer.beat()
    await committer.flush()
    assert store.reader.elapsed == 0.0
    now[0] = 1.0 + BEAT_SECONDS
    committer.beat()
    await committer.flush()
    assert store.reader.elapsed == now[0]
    committer.close()
    store.close()


MODEL = next(iter(HEADER.models))


def test_a_run_from_before_the_ledger_gets_one(tmp_path: Path) -> None:
    Store.open(tmp_path, HEADER).store.close()
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as connection:
        connection.execute("DROP TABLE asked_for")
    store = Store.open(tmp_path, HEADER).store
    store.commit(CommitBatch(sent=[SentRequest(MODEL, 2), SentRequest(MODEL, 1)]))
    assert store.reader.in_flight() == {MODEL: 3}
    store.commit(CommitBatch(unsent=[SentRequest(MODEL, 2)]))
    assert store.reader.in_flight() == {MODEL: 1}
    store.close()


def test_the_rows_of_an_earlier_ledger_are_counted(tmp_path: Path) -> None:
    Store.open(tmp_path, HEADER).store.close()
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as connection:
        connection.execute("DROP TABLE asked_for")
        connection.execute("CREATE TABLE in_flight (model, question, trial, PRIMARY KEY (model, question, trial))")
        connection.execute("INSERT INTO in_flight SELECT 1, 1, value FROM json_each('[0, 1, 2]')")
        connection.commit()
    for _ in range(2):
        store = Store.open(tmp_path, HEADER).store
        assert store.reader.in_flight() == {MODEL: 3}
        store.close()
