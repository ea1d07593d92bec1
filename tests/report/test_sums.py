"""What a reader sums and counts among stored answers, what a large run stores of that, and what removed models cost."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from played import Played, prepared
from two_by_two import HEADER, LARGE, Q1, Q2, SMALL, make_trial

from adaptive_eval.base.roster import Roster
from adaptive_eval.config.prepare import stored_setup
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.machine.charges import NO_MODEL
from adaptive_eval.machine.clocks import HeldTime
from adaptive_eval.machine.records import Dropped, Note
from adaptive_eval.machine.trial import DONE, JUDGING, RESERVED, UNGRADED, Trial
from adaptive_eval.report import trial_sums
from adaptive_eval.report.other_costs import removed_model_costs
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import Spending
from adaptive_eval.report.trial_sums import TrialSums, read_sums
from adaptive_eval.store.read import AccountLine, PackedSums, StoredReport
from adaptive_eval.store.write import RunStore

CELLS = [(model, question) for question in (Q1, Q2) for model in (SMALL, LARGE)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with closing(RunStore.open(tmp_path / "run", HEADER)) as store:
        yield store


@pytest.fixture
def reader(store: RunStore) -> Iterator[RunReader]:
    with closing(RunReader.open(store.directory)) as reader:
        yield reader


def free(*arguments: int, **named: object) -> Trial:
    """A trial whose grade has cost nothing."""
    return make_trial(*arguments, verdict=NO_COST, **named)  # type: ignore[arg-type]


def test_the_trials_of_one_model_and_question_are_read_alone(store: RunStore, reader: RunReader) -> None:
    store.append(*(make_trial(*cell, number) for number in (2, 0, 1) for cell in CELLS))
    trials = list(reader.cell("large", "q2"))
    assert [(one.model, one.question, one.trial) for one in trials] == [("large", "q2", number) for number in range(3)]
    assert trials[0].answer == make_trial(LARGE, Q2, 0).answer
    assert [trial.trial for trial in reader.cell("large", "q2", after=1)] == [2]
    assert list(reader.cell("large", "nothing")) == []


def test_sums_from_any_trial_on_come_to_the_whole(store: RunStore, reader: RunReader) -> None:
    trials = [free(*cell, number) for number in range(4) for cell in CELLS]
    trials[3] = free(LARGE, Q2, 0, error="too slow")
    store.append(*trials[:5])
    store.append(*trials[5:], make_trial(SMALL, Q1, 4, state=JUDGING)._replace(category=None, grade=None))
    all_sums, later = reader.sums(), reader.sums(5)
    assert [(row.model, row.trials) for row in all_sums] == [("small", 8), ("large", 8)]
    assert sum(row.trials for row in later) == 11 and max(row.last for row in later) == 16
    assert (all_sums[0].tokens, all_sums[0].latency, all_sums[0].retries) == (8 * 33, 8 * 1.25, 8)
    assert (all_sums[0].timed, all_sums[0].ttft) == (8, 4.0)
    assert all_sums[0].traffic().ttft == 0.5
    roster = Roster.of(["large", "small", "new"], ["q2", "q1"])
    counts, since = reader.counts(roster, 2), reader.counts(roster, 2, after=5)
    assert counts.shape == (3, 2, 2) and (counts.sum(), since.sum(), counts[0, 0].sum()) == (15, 11, 3)
    assert counts[2].sum() == 0 and reader.counts(Roster.of(["small"], ["q1", "q3"]), 1).shape == (1, 2, 1)


def test_what_a_judge_has_used_is_summed(store: RunStore, reader: RunReader) -> None:
    assert reader.judge_use() is None
    for n in range(3):
        charges = {"judge_prompt_tokens": 10, "judge_completion_tokens": 2 * n, "judge_usd": 0.5}
        signals = {**charges, "note": 'a "judge_usd":7, of \0 its own'}
        store.append(make_trial(number=n, signals=signals)._replace(verdict=Cost(10 + 2 * n, 0.5, 0.0)))
    store.append(free(number=3))
    use, by_model = reader.judge_use(), reader.grading_uses()
    assert use is not None and (use.answers, use.prompt_tokens, use.completion_tokens, use.usd) == (3, 30, 6, 1.5)
    assert (by_model["small"].answers, by_model["small"].cost.tokens) == (3, 36)


def test_comparisons_are_counted_by_how_they_came_out(store: RunStore, reader: RunReader) -> None:
    assert reader.comparisons() == []
    for number, (verdict, depends, towards) in enumerate(
        [("tie", 1.0, -0.5), ("better", 0.0, 0.0), ("tie", 1.0, -0.5), ("tie", 0.0, 0.0)]
    ):
        signals = {"verdict": verdict, "order_dependent": depends, "prefers_first": towards}
        store.append(make_trial(number=number, signals=signals))
    store.append(make_trial(number=4, signals={"verdict": "tie", "judge_seconds": 1.0}))
    assert reader.comparisons() == [(0.0, 0.0, 2), (1.0, -0.5, 2)]


def test_what_is_summed_while_a_run_goes_on_is_in_the_order_of_the_log(store: RunStore, reader: RunReader) -> None:
    for number in range(6):
        store.append(free(number=number), free(LARGE, number=number))
    assert [tuple(cell) for cell in reader.cells(5)] == [("small", "q1", 3), ("large", "q1", 2)]
    assert [trial.trial for trial in reader.trials() if trial.model == "large"] == list(range(6))
    store.append(Dropped((LARGE, Q1, 5)), Dropped((LARGE, Q1, 4)))
    assert reader.trial_count() == 10
    store.append(free(LARGE, number=4))
    assert [(trial.model, trial.trial.number) for trial in reader.graded_trials()][-2:] == [("small", 5), ("large", 4)]


EVERY = 40


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    """A run that stores sums after every 40 trials, with some 130 trials."""
    monkeypatch.setattr(trial_sums, "STORED_EVERY", EVERY)
    run = Played(tmp_path / "run", prepared(tmp_path))
    while run.controller.finished is None:
        run.step(10)
    assert run.store_trials > 2 * EVERY
    return run


def sums_of(run: Played) -> TrialSums:
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
    stored, kept = run.store.reader.sums_seq(), sums_of(run)
    assert 0 < stored < run.store.last_seq
    forget(run.directory)
    assert run.store.reader.sums_seq() == 0
    anew = sums_of(run)
    assert np.array_equal(kept.counts, anew.counts) and kept.counts.sum() == run.store_trials
    assert [row[:3] for row in kept.replicas] == [row[:3] for row in anew.replicas] and kept.last == anew.last
    assert [row.usd for row in kept.replicas] == pytest.approx([row.usd for row in anew.replicas])
    assert Spending.total(kept.replicas).trials == run.store_trials
    run.close()


@pytest.mark.parametrize("change", [drop, regrade, reconfigure])
def test_sums_are_unused_once_what_they_count_has_changed(run: Played, change: Callable[[Played, Trial], None]) -> None:
    stored, trials = run.store.reader.sums_seq(), [*run.store.reader.trials()]
    (_, counted), *_, (seq, latest) = trials
    if change is drop:
        drop(run, latest)
        assert run.store.reader.sums_seq() == stored < seq, "they stay where a later trial changes"
        assert sums_of(run).counts.sum() == run.store_trials - 1
    change(run, counted)
    assert run.store.reader.sums_seq() == 0
    kept = sums_of(run)
    assert kept.counts.sum() == run.store_trials - {drop: 2, regrade: 1, reconfigure: 0}[change]
    assert Spending.total(kept.replicas).trials == run.store_trials - 2 * (change is drop)
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
    true = sums_of(run)
    for one, seq in forged(true, true.last):
        body = [one] if isinstance(one, bytes) else one.to_parts()
        report = StoredReport(run.controller.looks[-1].index, 0, b"{}", (), PackedSums(seq, body))
        run.store.commit([], report=lambda _, report=report: report)  # type: ignore[misc]
        assert run.store.reader.sums_seq() == seq
        used = sums_of(run)
        assert np.array_equal(used.counts, true.counts) and used.replicas == true.replicas
    run.close()


ACCOUNT = [
    AccountLine(2, DONE, "", 18, Cost(540, 0.18, 9.0), Cost(60, 0.02, 1.0)),
    AccountLine(2, RESERVED, "", 3, Cost(300, 0.3, 0.0), NO_COST),
    AccountLine(2, None, "killed", 1, Cost(100, 0.1, 0.0), NO_COST),
]


def test_charges_of_a_removed_model_count_as_lost_and_what_its_batches_have_is_reserved() -> None:
    """Time of launched servers counts instead of that of requests."""
    (row,) = removed_model_costs(ACCOUNT, {2: "cyd"}, {}, ())
    assert (row.what, row.model, row.trials, row.answers) == ("left", "cyd", 18, 1)
    assert (row.tokens, row.usd, row.gpu_seconds) == (1000, pytest.approx(0.6), 10.0)
    assert row.counted_gpu_seconds == 10.0
    (row,) = removed_model_costs(ACCOUNT, {2: "cyd"}, {"cyd": HeldTime(30.0, 60.0)}, {"cyd"})
    assert (row.gpu_seconds, row.counted_gpu_seconds) == (10.0, 60.0)
    assert (row.server_seconds, row.server_gpu_seconds) == (30.0, 60.0)


def test_charges_of_no_model_are_separate_and_left_out_once_withdrawn() -> None:
    charges = [
        AccountLine(NO_MODEL, None, "baseline", 2, NO_COST, Cost(125)),
        AccountLine(NO_MODEL, None, "regrade", 3, NO_COST, Cost(0)),
    ]
    (row,) = removed_model_costs(charges, {NO_MODEL: ""}, {}, ())
    assert (row.what, row.model, row.tokens) == ("baseline", None, 125)
