"""What is spent is written down before it is spent, and time as it passes."""

from pathlib import Path

import pytest
from fakes import HEADER

from adaptive_eval.core.types import Reason
from adaptive_eval.scheduler.committer import Committer
from adaptive_eval.scheduler.meter import BEAT_SECONDS, UNSAID_SECONDS, at_least_elapsed
from adaptive_eval.store import CommitBatch, Event, RunFinished, RunResumed, RunStarted, RunStopped, Store


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
    committer = Committer(store, lambda happening: None, elapsed=lambda: now[0])
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
