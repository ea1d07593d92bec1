"""What is kept of large runs beside their trials: always what the trials come to, and gone when they change."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from thoroughness import examples
from two_by_two import HEADER, make_trial

from adaptive_eval.base.errors import StoreError
from adaptive_eval.store import CommitBatch, Regrade, Roster, RunReader, Store, TrialKey, TrialsRegraded, summing
from adaptive_eval.store import store as storing
from adaptive_eval.store.database import DATABASE_FILE
from adaptive_eval.store.integrity import Integrity
from adaptive_eval.store.records import AWAITS_VERDICT
from adaptive_eval.store.summing import NO_SUMS

CELLS = [(model, question) for model in HEADER.models for question in HEADER.questions]
ROSTER = Roster.of(["large", "small"], ["q2", "q1"])


@pytest.fixture(autouse=True)
def few() -> Iterator[None]:
    """A run is large from eight trials on."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (summing, storing):
            patch.setattr(module, "SUMMED_EVERY", 8)
        yield


def known(directory: Path) -> tuple[object, ...]:
    """All that may come of sums."""
    with closing(RunReader.open(directory)) as reader:
        counts = [reader.counts(ROSTER, 2), reader.counts(Roster.of(["small", "new"], ["q1"]), 3)]
        spent = reader.spending(5)
        assert [one.trials for one in spent] == sorted({one.trials for one in spent}) and len(spent) <= 5
        sums = [(one.model, one.trials, one.tokens, one.retries, one.timed, one.last) for one in reader.sums()]
        whole = spent[-1].trials, spent[-1].tokens, round(spent[-1].usd, 9)
        return reader.trial_count(), [one.tolist() for one in counts], sorted(sums), whole


def summed(directory: Path) -> int:
    with closing(RunReader.open(directory)) as reader:
        return reader.summed_until


def change(directory: Path, statement: str) -> None:
    with closing(sqlite3.connect(directory / DATABASE_FILE)) as connection:
        connection.execute(statement)
        connection.commit()


class Played:
    """A run that is written in some order."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.next = directory, dict.fromkeys(CELLS, 0)
        self.store = Store.open(directory, HEADER).store

    def commit(self, seed: int) -> None:
        chosen = np.random.default_rng(seed).integers(0, len(CELLS), 5).tolist()
        trials = []
        for cell in (CELLS[one] for one in chosen):
            trials.append(make_trial(*cell, self.next[cell]))
            self.next[cell] += 1
        self.store.commit(CommitBatch(trials))

    def regrade(self, number: int) -> None:
        with closing(RunReader.open(self.directory)) as reader:
            known = list(reader.outcomes())
        if known:
            one = known[number % len(known)]
            grade = Regrade(one.model, one.question, one.trial, 1, {}, None, None)
            self.store.regrade([grade], TrialsRegraded(1))

    def forget(self, number: int) -> None:
        cell = CELLS[number % len(CELLS)]
        if self.next[cell]:
            self.next[cell] -= 1
            self.store.forget_trials(cell[0], [TrialKey(cell[1], self.next[cell])], TrialsRegraded(1))

    def resume(self, _: int) -> None:
        self.store.close()
        self.store = Store.open(self.directory, HEADER).store


steps = st.lists(
    st.tuples(st.sampled_from(["commit", "commit", "commit", "regrade", "forget", "resume"]), st.integers(0, 99)),
    max_size=14,
)


@given(steps=steps)
@example(steps=[("commit", 0), ("forget", 1), ("forget", 1), ("forget", 1)])  # seven trials remain, and ids up to 9
@settings(max_examples=examples(60))
def test_sums_are_always_what_the_trials_come_to(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    run = Played(tmp_path_factory.mktemp("run"))
    run.commit(0)
    for name, number in steps:
        getattr(run, name)(number)
        with_sums = known(run.directory)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("adaptive_eval.store.run_database.read_sums", lambda connection: NO_SUMS)
            assert known(run.directory) == with_sums
    run.store.close()
    trials = sum(run.next.values())
    assert bool(summed(run.directory)) == (trials >= 8), "a run that is closed has all of its sums, where it is large"
    assert Integrity.check(run.directory).damages == ()


def test_an_earlier_version_that_changes_a_grade_leaves_no_wrong_sums(tmp_path: Path) -> None:
    run = Played(tmp_path)
    for seed in range(4):
        run.commit(seed)
    run.store.close()
    assert summed(tmp_path) == 20
    # it knows neither the table nor its checksum, and has triggers of its own for those of trials
    change(tmp_path, "UPDATE trials SET text = 'moved' WHERE id = 3")
    assert summed(tmp_path) == 20
    change(tmp_path, "UPDATE trials SET category = 1 - category WHERE id = 3")
    assert summed(tmp_path) == 0
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as connection:
        assert connection.execute("SELECT count(*) FROM row_checks WHERE place = 'summed'").fetchone() == (0,)


def test_nothing_is_summed_while_a_grade_is_on_its_way(tmp_path: Path) -> None:
    run = Played(tmp_path)
    run.store.commit(CommitBatch([make_trial(trial=number) for number in range(8)]))
    assert summed(tmp_path) == 8
    waiting = make_trial("large", category=None, grader_error=AWAITS_VERDICT)
    run.store.commit(CommitBatch([waiting, *(make_trial("large", trial=number) for number in range(1, 9))]))
    assert summed(tmp_path) == 8
    run.store.commit(CommitBatch(verdicts=[Regrade("large", "q1", 0, 1, {}, None, None)]))
    run.store.close()
    assert summed(tmp_path) == 17


def test_who_looks_at_a_large_run_reads_what_comes_after_its_sums(tmp_path: Path) -> None:
    run = Played(tmp_path)
    run.store.commit(CommitBatch([make_trial(trial=number) for number in range(8)]))
    run.store.commit(CommitBatch([make_trial("large", trial=number) for number in range(3)]))
    for trial, found in ((10, "trials 10: is not what was written"), (2, None)):
        change(tmp_path, f"UPDATE trials SET extracted = '3' WHERE id = {trial}")
        with closing(RunReader.open(tmp_path)) as reader:
            if found:
                with pytest.raises(StoreError, match=found):
                    reader.require_intact(summed=False)
                change(tmp_path, "UPDATE trials SET extracted = '2' WHERE id = 10")
            reader.require_intact(summed=False)
    with closing(RunReader.open(tmp_path)) as reader:
        with pytest.raises(StoreError, match="trials 2: is not what was written"):
            reader.require_intact()
        with pytest.raises(StoreError, match="trial 1 of small on q1 is not what was written"):
            list(reader.cell("small", "q1"))
    run.store.close()


@pytest.mark.parametrize(
    "column",
    ["counts = x'00'", "replicas = '[[1]]'", "spending = '{}'", "questions = 3", "spending = 'x'", "last = 4"],
)
def test_changed_sums_are_damage_and_never_a_wrong_number(tmp_path: Path, column: str) -> None:
    run = Played(tmp_path)
    run.store.commit(CommitBatch([make_trial(trial=number) for number in range(8)]))
    run.store.close()
    change(tmp_path, f"UPDATE summed SET {column}")
    assert [one for one in Integrity.check(tmp_path).damages if one.startswith("summed 1")]
    with closing(RunReader.open(tmp_path)) as reader:
        with pytest.raises(StoreError, match="summed 1: is not what was written"):
            reader.require_intact(summed=False)
        if column != "last = 4":
            with pytest.raises(StoreError, match="not as sums are written"):
                reader.counts(ROSTER, 2), reader.sums(), reader.spending(3)
