"""Committed data is read back, whatever happened in between."""

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pytest
from two_by_two import HEADER, LARGE, Q1, Q2, SMALL, make_trial

from adaptive_eval.base.errors import DamagedValue, RunLocked, StoreError, StoreFull
from adaptive_eval.base.files import read_holder, require_plain
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import AnswerLogprobs, EarlierTimes, Signal
from adaptive_eval.machine.charges import NO_MODEL, Charge, ChargeKind
from adaptive_eval.machine.facts import facts_of
from adaptive_eval.machine.records import SETTINGS, Dropped, LooksForgotten, LookTaken, Note, Record, SettingsEnd
from adaptive_eval.machine.trial import JUDGING, RESERVED, GradeDetails, Trial
from adaptive_eval.report.reader import RunReader
from adaptive_eval.store import database
from adaptive_eval.store.errors import DATABASE_FILE
from adaptive_eval.store.read import LogReader
from adaptive_eval.store.schema import SCHEMA_VERSION
from adaptive_eval.store.verify import Integrity
from adaptive_eval.store.write import RunStore

OpenStore = Callable[[], RunStore]
LOST = Charge(ChargeKind.LOST, "answer", SMALL, 2, Cost(10, 0.25, 1.5))
NOTE = Note("noticed", LARGE, {"notice": "named", "text": "half \ud800 a pair"})


def stored_trials(reader: LogReader) -> list[Trial]:
    return [trial for _, trial in reader.trials()]


def stored_log(reader: LogReader) -> list[tuple[int, Record]]:
    return [row for block in reader.log(in_whole_commits=False) for row in block]


def without_texts(trial: Trial) -> Trial:
    return trial._replace(answer=None, grade=None, facts=facts_of(trial))


def test_what_never_came_does_not_wait_for_a_grade(store: RunStore, directory: Path) -> None:
    came, lost = make_trial(error="too long"), make_trial(LARGE, error="every attempt at it failed")
    assert lost.answer is not None
    missing = lost._replace(answer=replace(lost.answer, text="", signals=frozenset({"unanswered"})))
    store.append(came, missing)
    store.close()
    with closing(LogReader.open(directory)) as reader:
        assert [trial.key for _, trial in reader.ungraded()] == [came.key]
        assert (reader.ungraded_count([SMALL]), reader.ungraded_count([LARGE])) == (1, 0)


def test_everything_comes_back_as_it_was(store: RunStore, directory: Path) -> None:
    trials = [
        make_trial(logprobs=AnswerLogprobs(("B", " \0 é"), (-0.25, None))),
        make_trial(LARGE, Q2, 3),
        make_trial(number=1, text="long " * 5000),
        make_trial(number=2, error="the worker was killed after 10 s"),
        make_trial(number=3, state=JUDGING)._replace(category=None, grade=None),
        Trial(LARGE, Q1, 0, 0, RESERVED, Cost(100, 0.5, 3.0)),
    ]
    look = LookTaken(4, {"order": ["small", "large"], "z": [1.25], "boundary": float("inf")})
    store.append(*trials, look, NOTE, LOST)
    store.commit([], elapsed=12.5, held={"small": {"seconds": 1.0}})
    store.close()

    with closing(LogReader.open(directory)) as reader:
        assert stored_trials(reader) == trials
        assert [trial for _, trial in reader.ungraded()] == trials[3:5]
        assert stored_log(reader) == [*enumerate([*map(without_texts, trials), look, NOTE, LOST], 1)]
        assert reader.reserved() == {(LARGE, Q1, 0)}
        assert (reader.elapsed, reader.held()) == (12.5, {"small": {"seconds": 1.0}})
        assert reader.header() == HEADER
        assert reader.spent() == pytest.approx(reduce(Cost.plus, (trial.total for trial in trials), LOST.cost))


def test_a_store_that_is_read_in_batches_waits_for_a_lock_when_it_writes(store: RunStore, directory: Path) -> None:
    """A reader takes it for a moment, where it meets a commit that is half written."""
    store.append(make_trial(), make_trial(LARGE))
    with closing(sqlite3.connect(directory / DATABASE_FILE, isolation_level=None, check_same_thread=False)) as other:
        for batch in store.reader.batches():
            other.execute("BEGIN IMMEDIATE")
            release = threading.Timer(0.1, other.rollback)
            release.start()
            store.append(*(LOST._replace(model=trial.model) for _, trial in batch))
            release.join()
    assert [record for _, record in stored_log(store.reader)[2:]] == [LOST._replace(model=at) for at in (SMALL, LARGE)]


def test_a_run_opens_as_its_log_is_removed(store: RunStore, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append(make_trial())
    log = directory / f"{DATABASE_FILE}-wal"

    def close_before(path: Path) -> None:
        if path == log:
            assert log.exists()
            store.close()
            assert not log.exists()
        require_plain(path)

    monkeypatch.setattr(database, "require_plain", close_before)
    with closing(LogReader.open(directory)) as reader:
        assert stored_trials(reader) == [make_trial()]


@pytest.mark.parametrize("forged", [{9: 1}, {-1: 1}, {SMALL: True}, {SMALL: -1}, {SMALL: 10**12}])
def test_a_number_in_flight_that_cannot_be_is_damage(store: RunStore, directory: Path, forged: dict[int, int]) -> None:
    store.commit([], in_flight={SMALL: 2, LARGE: 0})
    assert store.reader.in_flight() == {SMALL: 2, LARGE: 0}
    store.commit([], in_flight=forged)
    with pytest.raises(DamagedValue, match="in flight"):
        store.reader.in_flight()


@pytest.mark.parametrize(
    "forged", [make_trial(9), make_trial(question=9), LOST._replace(model=9), NOTE._replace(model=9)]
)
def test_a_row_of_no_model_or_question_of_the_run_is_damage(store: RunStore, directory: Path, forged: Record) -> None:
    store.append(make_trial(), LOST._replace(model=NO_MODEL), NOTE._replace(model=None))
    assert not Integrity.check(directory).damages
    store.append(forged)
    assert len(Integrity.check(directory).damages) == 1
    with pytest.raises(StoreError, match="is not what was written"), RunReader.intact(directory):
        pass


def test_reading_without_texts_keeps_what_is_known_of_them(store: RunStore) -> None:
    texts = ["", "B", "é" * 200, "x" * 512, "x" * 513, "x" * 5000, "x" * 5000]
    trials = [
        make_trial(number=number, text=text, signals={"is_correct": number % 2 == 0, "has_answer": True, "score": 0.5})
        for number, text in enumerate(texts)
    ]
    trials += [make_trial(number=8, signals={"is_correct": "yes"}), make_trial(number=9, text="", reasoning=None)]
    store.append(*trials)
    facts = [trial.facts for _, trial in stored_log(store.reader) if isinstance(trial, Trial)]
    assert facts == [facts_of(trial) for trial in trials] and None not in facts
    digests = [fact.digest for fact in facts if fact is not None]
    assert digests[5] == digests[6] and len({*digests}) == len(digests) - 1 and digests[-1] is None


def test_a_trial_has_only_its_newest_row(store: RunStore) -> None:
    answered = make_trial(logprobs=AnswerLogprobs(("B",), (-0.25,)))
    store.append(answered._replace(state=RESERVED, answer=None, grade=None, category=None))
    store.append(answered)
    assert [*store.reader.trials()] == [(2, answered)]
    store.append(Dropped(answered.key), LOST)
    assert stored_log(store.reader) == [(4, LOST)], "a dropped trial leaves no row, and its number is not used again"
    store.append(Dropped(answered.key), make_trial())
    assert [*store.reader.trials()] == [(6, make_trial())], "its number comes again, and is another answer's"


def test_the_times_of_answers_are_those_of_each_model_without_time_outs(store: RunStore) -> None:
    def answered(number: int, seconds: float, ttft: float | None, *signals: Signal) -> Trial:
        trial = make_trial(number=number)
        assert trial.answer is not None
        answer = replace(trial.answer, latency=seconds, ttft=ttft, signals=frozenset(signals))
        return trial._replace(answer=answer, seconds=seconds)

    assert store.reader.answer_times() == {}
    store.append(answered(0, 3.0, 0.5), answered(1, 1.0, None), answered(2, 600.0, 90.0, "timed_out"))
    store.append(make_trial(LARGE)._replace(state=RESERVED, answer=None, grade=None, category=None))
    assert store.reader.answer_times() == {"small": EarlierTimes(2, 3.0, 1, 0.5)}


def test_a_commit_is_all_or_nothing(store: RunStore) -> None:
    store.append(make_trial())
    with pytest.raises(StoreError, match="record 1 already exists"):
        store.commit([(2, make_trial(number=1)), (3, LOST), (1, make_trial(number=2))])
    assert [*store.reader.trials()] == [(1, make_trial())] and store.last_seq == 1
    with pytest.raises(ZeroDivisionError):  # rows are written even if their report cannot be made
        store.commit([(2, make_trial(number=1))], report=lambda log: 1 // 0)  # type: ignore[arg-type,return-value]
    assert [seq for seq, _ in store.reader.trials()] == [1, 2] and store.last_seq == 2


def test_looks_say_under_which_configuration_they_were_taken(open_store: OpenStore) -> None:
    store = open_store()
    store.append(make_trial(), LookTaken(0, {"z": 1.5}))
    models = {"small": HEADER.models["small"], "third": {"model": "t-1"}}
    now = replace(HEADER, configuration={"budget": {"trials": 500}, "seed": 7}, models=models)
    store.change_settings(now, [("budget.trials", 100, 500)])
    store.append(make_trial(2), LookTaken(1, {"z": 2.0}))
    store.close()
    reader = open_store().reader
    assert [(look.number, look.configuration) for look in reader.looks()] == [(0, 0), (1, 1)]
    assert reader.configurations() == [HEADER.configuration, now.configuration]
    assert reader.settings_ends() == {0: SettingsEnd(3, looks=1, has_looked=True)}
    assert reader.models() == {"small": SMALL, "large": LARGE, "third": 2}, "one that left keeps its number"
    ((_, note),) = reader.notes()
    changes = [["budget.trials", 100, 500]]
    assert note.body == {"configuration": 1, "changes": changes, "trials": 1, "looks": 1, "has_looked": True}


IMPOSSIBLE: list[dict[str, object]] = [
    *({}, {"looks": 1}, {"has_looked": True}, {"looks": 1, "has_looked": 1}),
    *({"looks": number, "has_looked": True} for number in (1.0, -1, 3)),
]


@pytest.mark.parametrize(
    ("seq", "body"), [*((3, body) for body in IMPOSSIBLE), (2**40, {"looks": 10**9, "has_looked": True})]
)
def test_settings_changed_at_impossible_looks_are_damage(store: RunStore, seq: int, body: dict[str, object]) -> None:
    store.append(make_trial(), LookTaken(0, {"z": 1.5}))
    store.commit([(seq, Note(SETTINGS, None, {"configuration": 1, "changes": [], **body}))])
    with pytest.raises(DamagedValue, match="a stored number is of type|does not say which looks"):
        store.reader.settings_ends()


def test_a_regrade_replaces_grades_in_their_places_all_or_none(store: RunStore) -> None:
    failed = make_trial(number=1, error="timed out")
    store.append(make_trial(), failed)
    store.append(LookTaken(0, {}), make_trial(number=2))
    better = make_trial(number=1)._replace(answer=failed.answer)

    def change(seq: int, trial: Trial) -> Trial | None:
        assert trial.key != (SMALL, Q1, 2) or not is_refused, "the grader is gone"
        return better if trial.key == better.key else None

    is_refused = True
    with pytest.raises(AssertionError, match="the grader is gone"):
        store.regrade(change, [LooksForgotten(0)], HEADER, [])
    assert stored_trials(store.reader)[1] == failed and len(store.reader.looks()) == 1
    is_refused = False
    meaning = {**HEADER.meaning, "grader": "choice"}
    store.regrade(change, [LooksForgotten(0), Note("regraded")], replace(HEADER, meaning=meaning), [("g", 1, 2)])
    assert [*store.reader.trials()] == [(1, make_trial()), (2, better), (4, make_trial(number=2))]
    assert store.reader.looks() == [] and store.reader.header().meaning == meaning
    assert [(seq, note.kind) for seq, note in store.reader.notes()] == [(5, "configured"), (7, "regraded")]
    commits = [[seq for seq, _ in block] for block in store.reader.log(in_whole_commits=True)]
    assert commits == [[1, 2], [4], [5, 7]], "an answer with another grade counts as committed when it was"


def test_hostile_texts_are_stored_as_they_are(store: RunStore) -> None:
    texts = ["nul \0 inside", "lone surrogate \ud800", "\x1b[2J", "", "long \ud800 " * 2000, "'; DROP TABLE trials; --"]
    store.append(*(make_trial(number=at, text=text, extracted=text) for at, text in enumerate(texts)))
    trials = stored_trials(store.reader)
    assert [trial.answer and trial.answer.text for trial in trials] == texts
    assert trials[1].grade == GradeDetails(make_trial().grade.signals, "lone surrogate ?")  # type: ignore[union-attr]


def test_a_reader_sees_commits_or_on_request_everything_as_of_one_moment(store: RunStore, directory: Path) -> None:
    with closing(RunReader.open(directory)) as reader:
        assert reader.trial_count() == 0
        store.append(make_trial())
        assert reader.trial_count() == 1
    with RunReader.intact(directory) as reader:
        assert reader.trial_count() == 1
        store.append(make_trial(number=1))
        assert reader.trial_count() == len(list(reader.trials())) == 1
        assert len(stored_trials(store.reader)) == 2


def test_a_second_writer_is_refused_and_told_who_has_the_run(open_store: OpenStore, directory: Path) -> None:
    store = open_store()
    for use in (open_store, lambda: RunStore.attach(directory)):
        with pytest.raises(RunLocked, match=rf"is held by process {os.getpid()} on \S+ since 20\d\d-"):
            use()
    store.close()
    open_store()


def test_any_clock_keeps_commit_order(open_store: OpenStore, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits are distinguished by their times, and another machine may continue a run; one begins in 1931."""
    for at, clock in enumerate((-1.2e9, 1e9, 1e9 - 86_400.0, 1e9 - 3_600.0)):
        monkeypatch.setattr(time, "time", lambda clock=clock: clock)
        store = open_store()
        store.append(make_trial(number=2 * at), NOTE)
        store.append(make_trial(number=2 * at + 1), NOTE)
        times = [noted for noted, _ in store.reader.timed_notes()]
        assert times == sorted({*times}) and len([*store.reader.log(in_whole_commits=True)]) == 2 * at + 2
        assert store.reader.created == -1.2e9
        store.close()
    assert 0.0 < times[-1] - 1e9 < 0.01 and Integrity.check(directory).damages == ()


def test_a_full_disk_keeps_what_was_committed(open_store: OpenStore) -> None:
    store = open_store()
    store.append(make_trial())
    pages = store._database.connection.execute("PRAGMA page_count").fetchone()[0]
    store._database.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    second = make_trial(number=1, text=random.Random(0).randbytes(100_000).hex())
    with pytest.raises(StoreFull, match="free space and run the same command"):
        store.append(LookTaken(0, {}), second)
    assert stored_trials(store.reader) == [make_trial()] and store.reader.looks() == [] and store.last_seq == 1
    store.close()
    store = open_store()
    store.append(second)
    assert stored_trials(store.reader) == [make_trial(), second]


@pytest.mark.parametrize("content", [b"no database, but as long as one" * 200, b"SQLite format 3\0" * 300])
def test_a_damaged_database_is_named(open_store: OpenStore, directory: Path, content: bytes) -> None:
    directory.mkdir(parents=True)
    (directory / DATABASE_FILE).write_bytes(content)
    with pytest.raises(StoreError, match=f"{DATABASE_FILE} is damaged or is not an SQLite database"):
        open_store()
    assert (directory / DATABASE_FILE).read_bytes() == content
    with pytest.raises(StoreError, match="`adaptive-eval verify .*` says where; restore a copy"):
        LogReader.open(directory)
    with pytest.raises(StoreError, match=r"is not an SQLite database \(.*\); restore a copy"):
        Integrity.check(directory)  # who verifies is not told to verify


def test_a_foreign_database_is_left_alone(open_store: OpenStore, directory: Path) -> None:
    directory.mkdir(parents=True)
    with closing(sqlite3.connect(directory / DATABASE_FILE)) as connection:
        connection.execute("CREATE TABLE notes (body TEXT)")
    with pytest.raises(StoreError, match="was not written by adaptive-eval"):
        open_store()


def test_another_format_is_refused(open_store: OpenStore, directory: Path) -> None:
    store = open_store()
    store._database.connection.execute("PRAGMA user_version = 99")
    store.close()
    lock = (directory / "lock").read_bytes()
    for use in (open_store, lambda: LogReader.open(directory), lambda: Integrity.check(directory)):
        with pytest.raises(StoreError, match=f"has format 99, and this version reads format {SCHEMA_VERSION}; use"):
            use()
    assert (directory / "lock").read_bytes() == lock


def test_an_emptied_database_is_not_begun_over(directory: Path, open_store: OpenStore) -> None:
    """As after a power failure: starting over would silently ask and pay for everything again."""
    open_store().close()
    assert read_holder(directory / "lock")["committed"] == 0
    (directory / DATABASE_FILE).write_bytes(b"")
    (directory / "results.json").write_text("{}", encoding="utf-8")
    with pytest.raises(StoreError, match=r"a run was started in .* and left results.json, but run.sqlite is empty"):
        open_store()
    assert (directory / DATABASE_FILE).read_bytes() == b""
    (directory / "results.json").unlink()
    with pytest.raises(StoreError, match=r"a run was started in .*, but run.sqlite is empty"):
        open_store()
    (directory / "lock").unlink()
    assert open_store().reader.header() == HEADER


def test_a_directory_without_a_run_says_so(tmp_path: Path) -> None:
    for use in (LogReader.open, RunStore.attach):
        with pytest.raises(StoreError, match=r"has no run: there is no run\.sqlite in it"):
            use(tmp_path)
        with pytest.raises(StoreError, match="nowhere does not exist; .* has no runs"):
            use(tmp_path / "nowhere")
    (tmp_path / DATABASE_FILE).touch()  # of a start that died before its first commit
    with pytest.raises(StoreError, match="has no run: it was started, but nothing is stored; run the same command a"):
        RunStore.attach(tmp_path)
    with closing(RunStore.open(tmp_path, HEADER)) as store:
        assert store.reader.header() == HEADER


def test_the_database_is_whole_in_one_file_despite_a_reader(store: RunStore, directory: Path, tmp_path: Path) -> None:
    store.append(*(make_trial(number=number) for number in range(5)))
    watching = LogReader.open(directory)
    assert len(stored_trials(watching)) == 5
    store.close()
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / DATABASE_FILE).write_bytes((directory / DATABASE_FILE).read_bytes())
    with closing(LogReader.open(copy)) as reader:
        assert len(stored_trials(reader)) == 5
    watching.close()


def test_a_run_is_read_on_a_read_only_disk(store: RunStore, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append(make_trial())
    store.close()
    before = {path.name for path in directory.iterdir()}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with closing(LogReader.open(directory)) as reader:
        assert stored_trials(reader) == [make_trial()]
        assert {path.name for path in directory.iterdir()} == before


def test_a_run_does_not_begin_among_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("a project")
    (tmp_path / ".hidden").touch()
    with pytest.raises(StoreError, match=r"has other files and no run \(README.md\); choose a --run-dir"):
        RunStore.open(tmp_path, HEADER)
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", ".hidden"}
    (tmp_path / "README.md").unlink()
    RunStore.open(tmp_path, HEADER).close()
    (tmp_path / "notes.md").touch()
    RunStore.open(tmp_path, HEADER).close()  # beside a run there may be anything


def test_models_and_questions_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Not in that of their names, in which the database keeps them."""
    names = ["zoe", "ada", "mia"]
    header = replace(HEADER, models=dict.fromkeys(names, {}), questions=dict.fromkeys(names, {}))
    with closing(RunStore.open(tmp_path / "run", header)) as store:
        assert [*store.reader.models()] == names == [*store.reader.questions()]
        assert [*store.reader.models().values()] == sorted(store.reader.models().values())
