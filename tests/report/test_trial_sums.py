"""Sums that a large run stores, so that its readers need not read all trials."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from played import Played, prepared

from adaptive_eval.config.prepare import stored_setup
from adaptive_eval.machine.records import Dropped, Note
from adaptive_eval.machine.trial import UNGRADED, Trial
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.trial_sums import TrialSums, read_sums
from adaptive_eval.store.read import PackedSums, StoredReport

EVERY = 40


@pytest.fixture
def run(tmp_path: Path) -> Played:
    """A run that stores sums after every 40 trials, with some 130 trials."""
    run = Played(tmp_path / "run", prepared(tmp_path), sums_every=EVERY)
    while run.controller.finished is None:
        run.step(10)
    assert run.store_trials > 2 * EVERY
    return run


def sums(run: Played) -> TrialSums:
    reader = RunReader(run.store.reader)
    return read_sums(reader, stored_setup(reader.header()))


def forget(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "run.sqlite", isolation_level=None)) as database:
        database.execute("DELETE FROM sums")


def drop(run: Played, trial: Trial) -> None:
    run.store.append(Dropped(trial.key))


def regrade(run: Played, trial: Trial) -> None:
    changed = trial._replace(state=UNGRADED, category=None)
    header = run.store.reader.header()
    run.store.regrade(lambda _, one: changed if one.key == trial.key else None, [Note("regraded")], header, [])


def reconfigure(run: Played, trial: Trial) -> None:
    header = run.store.reader.header()
    run.store.change_settings(replace(header, configuration={**header.configuration, "seed": 7}), [])


def test_stored_sums_and_the_trials_since_come_to_all_trials(run: Played) -> None:
    stored, kept = run.store.reader.sums_seq(), sums(run)
    assert 0 < stored < run.store.last_seq
    forget(run.directory)
    assert run.store.reader.sums_seq() == 0
    anew = sums(run)
    assert np.array_equal(kept.counts, anew.counts) and kept.counts.sum() == run.store_trials
    assert [row[:3] for row in kept.replicas] == [row[:3] for row in anew.replicas] and kept.last == anew.last
    assert [row.usd for row in kept.replicas] == pytest.approx([row.usd for row in anew.replicas])
    assert kept.spending[-1].trials == anew.spending[-1].trials == run.store_trials
    run.close()


@pytest.mark.parametrize("change", [drop, regrade, reconfigure])
def test_sums_are_not_used_once_what_they_count_has_changed(
    run: Played, change: Callable[[Played, Trial], None]
) -> None:
    counted = next(trial for _, trial in run.store.reader.trials())
    change(run, counted)
    assert run.store.reader.sums_seq() == 0
    kept = sums(run)
    assert kept.counts.sum() == run.store_trials - (change is not reconfigure)
    assert kept.spent().trials == run.store_trials - (change is drop)
    run.close()


def test_sums_stay_where_a_later_trial_changes(run: Played) -> None:
    stored = run.store.reader.sums_seq()
    seq, trial = [*run.store.reader.trials()][-1]
    assert seq > stored
    drop(run, trial)
    assert run.store.reader.sums_seq() == stored
    assert sums(run).counts.sum() == run.store_trials - 1
    run.close()


def forged(sums: TrialSums, seq: int) -> list[tuple[TrialSums | bytes, int]]:
    """Sums that no run has stored, with the place up to which they are said to count."""
    first, *others = sums.replicas
    bad_rows = [{"trials": 0}, {"trials": -3}, {"usd": float("nan")}, {"tokens": 2**70}, {"model": "nobody"}]
    negative = sums.counts.copy()
    negative[0, 0, 0] = -1
    more = [sums._replace(replicas=[first._replace(**changes), *others]) for changes in bad_rows]  # type: ignore[arg-type]
    bodies = [b"", b"[[], []]", b"[[], []]\n\0\0\0\0", b"[[1], []]\n"]
    return [
        *((one, seq) for one in [*more, sums._replace(counts=negative), sums._replace(counts=sums.counts + 2**20)]),
        *((body, seq) for body in bodies),
        (sums, seq - 1),
    ]


def test_sums_that_no_run_has_stored_are_not_used(run: Played) -> None:
    forget(run.directory)
    true = sums(run)
    for one, seq in forged(true, true.last):
        body = [one] if isinstance(one, bytes) else one.to_parts()
        report = StoredReport(run.controller.looks[-1].index, 0, b"{}", (), PackedSums(seq, body))
        run.store.commit([], report=lambda _, report=report: report)  # type: ignore[misc]
        assert run.store.reader.sums_seq() == seq
        used = sums(run)
        assert np.array_equal(used.counts, true.counts) and used.replicas == true.replicas
    run.close()
