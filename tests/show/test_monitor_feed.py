"""Following a run: reading step by step gives what a fresh reader finds, and does not disturb the run."""

import os
import time
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from played import REPLICA, Played, prepared

from adaptive_eval.base.errors import StoreError
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.asked import usage_signals
from adaptive_eval.labels.file import add_labels
from adaptive_eval.machine.notes import note_of
from adaptive_eval.machine.records import ASKED_AGAIN, DISCARDED, Dropped, Note
from adaptive_eval.machine.trial import DONE, UNGRADED, GradeDetails, Trial
from adaptive_eval.notes import TrialsRegraded
from adaptive_eval.report.label_file import GivenLabel, Labelled
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import Spending
from adaptive_eval.report.results import GradingCost
from adaptive_eval.report.view import RunView, read_view
from adaptive_eval.show.page.sent import page_view
from adaptive_eval.show.serve import feed as feed_module
from adaptive_eval.show.serve.attach import stored_status
from adaptive_eval.show.serve.feed import Feed

Play = Callable[..., Played]


def followed(run: Played, trials: int = 20) -> Feed:
    """What is read of a run after so many further trials."""
    if trials:
        run.step(trials)
    feed = Feed(run.directory)
    feed.poll()
    return feed


def same(view: RunView, other: RunView) -> None:
    """Both views show the same, except for rounding."""
    plain = {"traffic": (), "elapsed": 0.0}
    one, two = (replace(page_view(seen), **plain, used=replace(seen.used, spent=Spending())) for seen in (view, other))
    assert one == two
    assert astuple(view.used.spent) == pytest.approx(astuple(other.used.spent))
    for server, other_server in zip(view.traffic, other.traffic, strict=True):
        assert replace(server, latency=0.0) == replace(other_server, latency=0.0)
        assert server.latency == pytest.approx(other_server.latency)


def test_reading_step_by_step_gives_what_reading_at_once_gives(play: Play) -> None:
    run = play()
    feed = Feed(run.directory)
    editions = []
    for trials in (1, 7, 60, 1, 33, 90, 20):
        run.step(trials)
        assert feed.poll()
        same(feed.view(), followed(run, 0).view())
        editions.append(feed.edition)
    assert feed.results is not None and feed.results.run.status == "running" and feed.running
    assert editions == sorted(editions) and 1 < len(set(editions)) < len(editions), "only looks make an edition"
    run.finish()
    feed.poll()
    same(feed.view(), read_view(run.directory))
    assert feed.results.run.status == "finished"


def test_what_a_judge_has_used_is_known_before_the_first_look(tmp_path: Path) -> None:
    judge = {"kind": "judge", "server": {"base_url": REPLICA, "model": "judge"}}
    run = Played(tmp_path / "run", prepared(tmp_path, grader=judge))
    answer = Answer("yes", "stop", 1000, REPLICA, 1.5, prompt_tokens=10, completion_tokens=20)
    signals = {"is_correct": True, **usage_signals(Cost(15, 0.5, 2.0), 9)}
    graded = Trial(0, 0, 0, 0, DONE, Cost(30), Cost(15, 0.5, 2.0), 1, answer=answer, grade=GradeDetails(signals))
    run.commit([graded._replace(question=at) for at in (0, 1)])
    feed = followed(run, 0)
    assert feed.results is None and stored_status(feed).used.grading == GradingCost(2, 30, 1.0, 4.0)
    run.close()


def test_nothing_is_read_where_nothing_has_changed(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    run = play()
    feed = followed(run)
    time.sleep(feed_module.TICK_NS / 1e9 + 0.05)
    feed.poll()  # what was just written is read twice, since a clock has ticks
    monkeypatch.setattr(RunReader, "open", lambda directory: pytest.fail("there is nothing to read"))
    assert not feed.poll()


def test_a_change_within_one_tick_of_the_clock_is_seen(play: Play) -> None:
    run = play()
    feed = followed(run)
    log = run.directory / "run.sqlite-wal"
    before = log.stat()
    run.step(1)
    os.utime(log, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert feed.poll()
    assert feed.sums.spent().trials == RunReader(run.store.reader).trial_count()
    busy, pages, emptied = run.store._database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert (busy, pages, emptied) == (0, 0, 0), "a reader leaves no open transaction"
    run.close()
    Played(run.directory, run.plan).close()  # and no lock


@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
def test_labels_make_a_new_edition_of_an_open_page(play: Play, *, runs: bool) -> None:
    run = play()
    feed = followed(run, 200)
    if not runs:
        run.close()
        feed.poll()
    assert feed.results is not None and "new_labels" not in [caution.kind for caution in feed.results.warnings]
    before = feed.edition
    add_labels(run.directory, {Labelled("ada", "q0", 0): GivenLabel("correct")})
    assert feed.poll() and feed.edition > before
    assert feed.results.warnings[0].kind == "new_labels"


def test_a_resume_with_other_models_shows_none_of_the_old_ranking(play: Play) -> None:
    run = play()
    feed = followed(run, 200)
    assert feed.results is not None
    run.stop()
    again = play(models=("bob", "cyd"))
    feed.poll()
    assert feed.models == ("bob", "cyd") and feed.running
    assert feed.results is not None and len(feed.results.models) == 2, "the start has stored a report of its own"
    while not again.step(20):
        pass
    feed.poll()
    assert feed.results is not None and len(feed.results.models) == 2
    same(feed.view(), followed(run, 0).view())


def test_a_killed_run_is_shown_by_what_it_stored_and_no_new_one(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    run = play()
    with monkeypatch.context() as starts:
        held = iter([False])
        starts.setattr(feed_module, "is_held", lambda directory: next(held, True))
        feed = followed(run, 200)
        assert feed.running
    run.close()
    (run.directory / "results.json").unlink()
    feed = followed(run, 0)
    assert not feed.running
    assert feed.results is not None and feed.results.run.status == "killed"
    assert feed.results.cost.trials == feed.sums.spent().trials


def test_time_is_what_the_run_has_committed_and_never_falls(play: Play) -> None:
    """The clock does not count: nothing is asked at the end of a run, while its results are computed."""
    run = play()
    run.step()
    for path in run.directory.iterdir():
        os.utime(path, (1.0, 1.0))
    feed = followed(run, 0)
    assert feed.running and stored_status(feed).elapsed == run.seconds > 0.0
    run.stop()
    feed.poll()
    assert stored_status(feed).elapsed == run.seconds


def test_a_directory_that_is_replaced_is_read_anew(play: Play, tmp_path: Path) -> None:
    run = play("one")
    feed = followed(run, 50)
    run.close()
    other = play("other")
    other.step(7)
    run.directory.rename(tmp_path / "away")
    other.directory.rename(run.directory)
    feed.poll()
    assert feed.sums.spent().trials == 7
    (run.directory / "run.sqlite").unlink()
    with pytest.raises(StoreError, match="has no run"):
        feed.poll()


@pytest.mark.parametrize(
    "note", [Note(DISCARDED, 0, {"answers": 1, "discarded": True}), Note("noticed", 0, {"notice": ASKED_AGAIN})]
)
def test_answers_that_a_start_drops_leave_an_open_page_and_changed_grades_count_anew(play: Play, note: Note) -> None:
    run = play()
    feed = followed(run, 50)
    _, dropped = next(run.store.reader.trials())
    run.store.append(Dropped(dropped.key), note)
    feed.poll()
    assert feed.sums.spent().trials == feed.sums.counts.sum() == 49
    (seq, graded), *_ = run.store.reader.trials()
    failed = graded._replace(state=UNGRADED, category=None, grade=GradeDetails(error="the grader failed"))
    run.store.commit([(seq, failed), (run.store.last_seq + 1, note_of(TrialsRegraded(trials=1), {}))])
    feed.poll()
    assert (feed.sums.counts.sum(), feed.sums.spent().trials) == (48, 49)


def test_a_run_is_shown_without_reading_its_trials(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    run = play(trials={"min": 3, "max": 30, "optimize": "time"})
    run.step(110)
    run.close()
    for name in ("graded_trials", "trials", "trial_facts"):
        monkeypatch.setattr(RunReader, name, lambda reader: pytest.fail("a trial was read"))
    feed = Feed(run.directory)
    feed.poll()
    view, report = feed.view(), read_view(run.directory)
    assert feed.results is not None and feed.results.run.status == "killed"
    assert sum(map(sum, view.trials)) == feed.sums.spent().trials > 100
    assert report.results is not None
    assert [row.name for row in report.results.models] == [row.name for row in feed.results.models]
    assert report.trials == view.trials and report.posteriors == view.posteriors
