"""What is committed is there again, whatever happened in between."""

import os
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from adaptive_eval.store import CommitBatch, Regrade, SentRequest, Store, TrialKey, answer_digest
from two_by_two import HEADER, make_trial

from adaptive_eval.base.errors import RunChanged, RunLocked, StoreError, StoreFull
from adaptive_eval.base.roster import Roster
from adaptive_eval.endpoints.types import AnswerLogprobs
from adaptive_eval.notes import AnswersLost, Change, RunStarted, RunStopped, SettingsChanged, TrialsRegraded
from adaptive_eval.report.reader import RunReader
from adaptive_eval.store.errors import DATABASE_FILE
from adaptive_eval.store.read import StoredLook
from adaptive_eval.store.verify import Integrity

OpenStore = Callable[..., Store]


def test_everything_comes_back_as_it_was(open_store: OpenStore, directory: Path) -> None:
    trials = [
        make_trial(),
        make_trial(model="large", question="q2", trial=3),
        make_trial(trial=1, text="long " * 5000),
        make_trial(trial=2, category=None, signals={}, extracted=None, grader_error="the worker was killed after 10 s"),
    ]
    look = StoredLook(4, {"order": ["small", "large"], "z": [1.25], "boundary": float("inf")})
    store = open_store()
    store.commit(CommitBatch(trials, [look], [RunStarted(pid=3)], elapsed=12.5))
    store.close()

    reader = RunReader.open(directory)
    assert list(reader.trials()) == trials
    assert list(reader.trials("ungraded")) == trials[3:]
    assert reader.looks() == [look]
    assert [replace(event, at=0.0) for event in reader.events()] == [RunStarted(pid=3)]
    assert reader.elapsed == 12.5
    assert reader.header() == HEADER
    reader.close()


def test_tokens_come_back_with_their_answers(open_store: OpenStore, directory: Path) -> None:
    plain, named = make_trial(), make_trial(trial=1)
    told = AnswerLogprobs(("B", " \0 é"), (-0.25, None))
    named = replace(named, answer=replace(named.answer, token_logprobs=told))
    store = open_store()
    store.commit(CommitBatch([plain]))
    assert list(store.reader.trials()) == [plain]
    store.commit(CommitBatch([named, make_trial(model="large")]))
    assert list(store.reader.trials()) == [plain, named, make_trial(model="large")]
    store.close()
    reader = RunReader.open(directory)
    assert list(reader.trials()) == [plain, named, make_trial(model="large")]
    reader.close()
    store = open_store()
    store.forget_trials("small", [TrialKey(named.question, 1)], RunStopped())
    # its number comes again, and is another answer's
    store.commit(CommitBatch([make_trial(trial=5)]))
    assert [one.answer.token_logprobs for one in store.reader.trials()] == [None] * 3


def test_a_resume_reads_outcomes_without_texts(open_store: OpenStore) -> None:
    short, long, equal = (make_trial(trial=i, text=text) for i, text in enumerate(["B", "why " * 60, "why " * 60]))
    store = open_store()
    store.commit(CommitBatch([short, long, equal]))
    assert list(store.reader.outcomes()) == [one.outcome() for one in (short, long, equal)]
    first, second, third = store.reader.outcomes()
    assert (first.question, first.cost, first.flags) == ("q1", short.cost, "timed_out truncated")
    assert first.digest == answer_digest(short.answer) != second.digest == third.digest
    assert first.size < second.size == third.size


def test_what_the_grader_says_and_how_long_texts_are_is_read_as_it_was_counted(open_store: OpenStore) -> None:
    texts = ["", "é" * 200, "x" * 512, "x" * 513, "x" * 5000]
    trials = [
        make_trial(trial=number, text=text, signals={"is_correct": number % 2 == 0, "has_answer": True, "score": 0.5})
        for number, text in enumerate(texts)
    ]
    store = open_store()
    store.commit(CommitBatch([*trials, make_trial(trial=9, signals={"is_correct": "yes"})]))
    found = list(store.reader.outcomes())
    assert found[:-1] == [one.outcome() for one in trials]
    assert [one.correct for one in found] == [True, False, True, False, True, None]


def test_a_trial_is_unique_and_a_batch_is_whole_or_absent(open_store: OpenStore) -> None:
    store = open_store()
    store.commit(CommitBatch([make_trial(trial=0)]))
    with pytest.raises(StoreError, match="(?i)unique"):
        store.commit(CommitBatch([make_trial(trial=1), make_trial(trial=0)], events=[RunStopped()]))
    assert [record.trial for record in store.reader.trials()] == [0]
    assert store.reader.events() == []
    store.commit(CommitBatch([make_trial(trial=1)]))
    assert store.reader.trial_count() == 2


def test_looks_stand_under_later_configurations_which_go_on_from_them(open_store: OpenStore, directory: Path) -> None:
    store = open_store()
    store.commit(CommitBatch([make_trial()], [StoredLook(0, {"z": 1.0})]))
    store.commit(CommitBatch(looks=[StoredLook(0, {"z": 1.5})]))
    assert store.reader.looks() == [StoredLook(0, {"z": 1.5})]
    store.close()
    store = open_store(replace(HEADER, configuration={"budget": {"trials": 500}, "seed": 7}))
    assert store.reader.looks() == [StoredLook(0, {"z": 1.5})]
    (event,) = store.reader.events()
    assert isinstance(event, SettingsChanged)
    assert (event.trials, event.looks, event.changes) == (1, 1, (Change("budget.trials", 100, 500),))
    assert len(store.reader.configurations()) == 2
    assert store.reader.most_looks() == 1
    store.commit(CommitBatch(looks=[StoredLook(1, {"z": 2.0})]))
    assert [look.number for look in store.reader.looks()] == [0, 1] == sorted(store.reader.look_times())
    assert [len(one.look_times) for one in store.reader.settings()] == [1, 1]
    assert store.reader.latest_look() == StoredLook(1, {"z": 2.0})
    store.commit(CommitBatch(looks=[StoredLook(0, {"z": 3.0})]))
    assert [look.body["z"] for look in store.reader.looks()] == [3.0, 2.0], "taken anew from the first one on"


def test_looks_are_forgotten_from_a_number_on(open_store: OpenStore) -> None:
    store = open_store()
    first, second, third = (StoredLook(number, {"z": float(number)}) for number in range(3))
    store.commit(CommitBatch(looks=[first, second, third]))
    store.forget_looks(1)
    assert store.reader.looks() == [first]
    store.forget_looks(0)
    assert store.reader.looks() == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"meaning": {**HEADER.meaning, "seed": 8}}, r"seed: 7 → 8"),
        (
            {"meaning": {**HEADER.meaning, "prompt": {"template": "Q: {prompt}"}}},
            r"template: '{prompt}' → 'Q: ",
        ),
        (
            {"models": {**HEADER.models, "large": {"model": "l-2", "sampling": {}}}},
            r"models\.large\.model: 'l-1' → 'l-2'",
        ),
        ({"models": {**HEADER.models, "small": {"model": "s-1", "sampling": {}}}}, r"temperature: 0\.6 → not set"),
        ({"questions": {"q1": HEADER.questions["q1"]}}, r"questions\.q2: .* → not set"),
    ],
)
def test_a_resume_that_changes_what_trials_mean_is_refused(
    open_store: OpenStore, change: dict[str, object], told: str
) -> None:
    open_store().close()
    with pytest.raises(RunChanged, match=told):
        open_store(replace(HEADER, **change))  # type: ignore[arg-type]
    open_store()  # and the lock was let go


def test_models_may_join_and_leave(open_store: OpenStore) -> None:
    store = open_store()
    store.commit(CommitBatch([make_trial(model="large")]))
    store.close()
    models = {"small": HEADER.models["small"], "third": {"model": "t-1"}}
    store = open_store(replace(HEADER, models=models))
    store.commit(CommitBatch([make_trial(model="third")]))
    assert [outcome.model for outcome in store.reader.outcomes()] == ["large", "third"]
    store.close()
    with pytest.raises(RunChanged, match=r"models\.large\.model"):  # a model that left keeps its meaning
        open_store(replace(HEADER, models={**models, "large": {"model": "other", "sampling": {}}}))


def test_regrading_replaces_grades_at_once(open_store: OpenStore) -> None:
    store = open_store()
    failed = make_trial(trial=1, category=None, signals={}, extracted=None, grader_error="timed out")
    store.commit(CommitBatch([make_trial(trial=0), failed]))
    regrade = Regrade("small", "q1", 1, 1, {"correct": True}, "4", None)
    store.regrade([regrade], TrialsRegraded(trials=1))
    assert list(store.reader.trials("ungraded")) == []
    (_, after) = store.reader.trials()
    assert (after.category, after.extracted, after.grader_error) == (1, "4", None)
    assert after.answer == failed.answer


def test_hostile_texts_are_stored_as_they_are(open_store: OpenStore) -> None:
    texts = [
        "nul \0 inside",
        "lone surrogate \ud800",
        "\x1b[2J",
        "",
        "long \ud800 " * 2000,
        "'; DROP TABLE trials; --",
        "100% ? %s",
    ]
    store = open_store()
    store.commit(CommitBatch([make_trial(trial=i, text=text, extracted=text) for i, text in enumerate(texts)]))
    assert [record.answer.text for record in store.reader.trials()] == texts
    assert [record.extracted for record in store.reader.trials()][1] == "lone surrogate ?"


def test_a_reader_sees_commits_while_the_run_goes_on(open_store: OpenStore, directory: Path) -> None:
    store = open_store()
    reader = RunReader.open(directory)
    assert reader.trial_count() == 0
    store.commit(CommitBatch([make_trial()]))
    assert reader.trial_count() == 1
    reader.close()


def test_the_trials_of_one_model_and_question_are_read_alone(open_store: OpenStore) -> None:
    store = open_store()
    cells = [(model, key) for key in ("q1", "q2") for model in ("small", "large")]
    trials = [make_trial(model, key, trial) for trial in (2, 0, 1) for model, key in cells]
    store.commit(CommitBatch(trials))
    found = list(store.reader.cell("large", "q2"))
    assert [(one.model, one.question, one.trial) for one in found] == [("large", "q2", trial) for trial in range(3)]
    assert found[0] == make_trial("large", "q2", 0)
    assert [one.trial for one in store.reader.cell("large", "q2", after=1)] == [2]
    assert list(store.reader.cell("large", "nothing")) == []


def test_sums_from_any_trial_on_come_to_the_whole(open_store: OpenStore) -> None:
    store = open_store()
    cells = [(model, key) for key in ("q1", "q2") for model in ("small", "large")]
    trials = [make_trial(model, key, trial) for trial in range(4) for model, key in cells]
    trials[3] = replace(trials[3], category=None, grader_error="too slow")
    store.commit(CommitBatch(trials[:5]))
    store.commit(CommitBatch(trials[5:]))
    reader = store.reader
    whole, later = reader.sums(), reader.sums(5)
    assert [(one.model, one.trials) for one in whole] == [("small", 8), ("large", 8)]
    assert sum(one.trials for one in later) == 11 and max(one.last for one in later) == 16
    assert (whole[0].tokens, whole[0].latency, whole[0].retries) == (8 * 33, 8 * 1.25, 8)
    assert (whole[0].timed, whole[0].ttft) == (8, 4.0)
    assert whole[0].traffic().ttft == 0.5
    roster = Roster.of(["large", "small", "new"], ["q2", "q1"])
    counts, since = reader.counts(roster, 2), reader.counts(roster, 2, after=5)
    assert counts.shape == (3, 2, 2) and (counts.sum(), since.sum(), counts[0, 0].sum()) == (15, 11, 3)
    assert counts[2].sum() == 0 and reader.counts(Roster.of(["small"], ["q1", "q3"]), 1).shape == (1, 2, 1)


def test_a_second_writer_is_refused_and_told_who_has_the_run(open_store: OpenStore) -> None:
    store = open_store()
    with pytest.raises(RunLocked, match=rf"is held by process {os.getpid()} on \S+ since 20\d\d-"):
        open_store()
    store.close()
    open_store()


def test_what_a_judge_has_used_is_summed(open_store: OpenStore) -> None:
    said = [{"judge_prompt_tokens": 10, "judge_completion_tokens": 2 * n, "judge_usd": 0.5} for n in range(3)]
    beside = [{}, {"agreement_1": 0.25}, {"agreement_1": 0.75}]
    trials = [
        make_trial(trial=n, signals={**one, **more, "note": 'a "judge_usd":7, of \0 its own'})
        for n, (one, more) in enumerate(zip(said, beside, strict=True))
    ]
    store = open_store()
    assert store.reader.judge_use() is None
    store.commit(CommitBatch([*trials, make_trial(trial=3)]))
    use, by_model = store.reader.judge_use(), store.reader.grading_uses()
    assert use is not None and (use.answers, use.prompt_tokens, use.completion_tokens, use.usd) == (3, 30, 6, 1.5)
    assert use.agreements[:2] == (0.5, None)
    assert (by_model["small"].answers, by_model["small"].cost.tokens) == (3, 36)


def test_comparisons_are_counted_by_how_they_came_out(open_store: OpenStore) -> None:
    store = open_store()
    assert store.reader.comparisons() == []
    for number, (verdict, depends, towards) in enumerate(
        [("tie", 1.0, -0.5), ("better", 0.0, 0.0), ("tie", 1.0, -0.5), ("tie", 0.0, 0.0)]
    ):
        said = {"verdict": verdict, "order_dependent": depends, "prefers_first": towards}
        store.commit(CommitBatch([make_trial(trial=number, signals=said)]))
    store.commit(CommitBatch([make_trial(trial=4, signals={"verdict": "tie", "judge_seconds": 1.0})]))
    assert store.reader.comparisons() == [(0.0, 0.0, 2), (1.0, -0.5, 2)]


def test_what_is_summed_while_a_run_goes_on_is_in_the_order_of_commitment(open_store: OpenStore) -> None:
    store = open_store()
    for number in range(6):
        store.commit(CommitBatch([make_trial(trial=number), make_trial("large", trial=number)], elapsed=2.5))
    reader = store.reader
    assert [one.trials for one in reader.spending(4)] == [3, 6, 9, 12]
    assert [tuple(one) for one in reader.cells(5)] == [("small", "q1", 3), ("large", "q1", 2)]
    assert [one.trial for one in reader.model_trials("large")] == list(range(6))
    assert reader.elapsed == 2.5 and reader.held_times() == {}
    store.forget_trials("large", [TrialKey("q1", 5), TrialKey("q1", 4)], TrialsRegraded(trials=2))
    assert reader.trial_count() == 10
    store.commit(CommitBatch([make_trial("large", trial=4)]))
    assert [(one.model, one.trial) for one in reader.outcomes()][-2:] == [("small", 5), ("large", 4)]


def test_what_was_sent_is_entered_and_crossed_out(open_store: OpenStore) -> None:
    store = open_store()
    store.commit(CommitBatch(sent=[SentRequest("small", 3), SentRequest("large", 2)]))
    store.commit(CommitBatch([make_trial()], unsent=[SentRequest("large", 2)]))
    assert store.reader.in_flight() == {"small": 2}
    store.lose(AnswersLost("small", answers=2))
    assert store.reader.in_flight() == {}
    assert store.reader.events()[-1].kind == "answers_lost"


def test_what_comes_later_is_stored_later_whatever_clocks_say(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers place events among trials by their times, and another machine goes on with a run."""
    for at, clock in enumerate((1e9, 1e9 - 86_400.0, 1e9 - 3_600.0)):
        monkeypatch.setattr(time, "time", lambda clock=clock: clock)
        store = open_store()
        store.commit(CommitBatch([make_trial(trial=2 * at)], events=[RunStarted()]))
        store.commit(CommitBatch([make_trial(trial=2 * at + 1)], events=[RunStopped()]))
        events = store.reader.events()
        assert [store.reader.count_until(event.at) for event in events] == list(range(1, 2 * at + 3))
        store.close()
    assert 0.0 < events[-1].at - 1e9 < 0.01


def test_everything_is_read_as_it_is_at_one_moment(open_store: OpenStore, directory: Path) -> None:
    store = open_store()
    store.commit(CommitBatch([make_trial()]))
    with RunReader.intact(directory) as reader:
        assert reader.trial_count() == 1
        store.commit(CommitBatch([make_trial(trial=1)]))
        assert reader.trial_count() == len(list(reader.trials())) == 1
        assert store.reader.trial_count() == 2


def test_a_clock_that_is_wrong_damages_nothing(
    open_store: OpenStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: -1.2e9)  # 1931
    store = open_store()
    store.commit(CommitBatch([make_trial(trial=0)]))
    store.close()
    with RunReader.intact(directory) as reader:
        assert reader.created == -1.2e9 and reader.trial_count() == 1


def test_a_full_disk_keeps_what_was_committed(open_store: OpenStore) -> None:
    store = open_store()
    store.commit(CommitBatch([make_trial(trial=0)]))
    pages = store._database.connection.execute("PRAGMA page_count").fetchone()[0]
    store._database.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    noise = random.Random(0).randbytes(100_000).hex()
    with pytest.raises(StoreFull, match="free space and run the same command"):
        store.commit(CommitBatch([make_trial(trial=1, text=noise)]))
    assert [record.trial for record in store.reader.trials()] == [0]
    store.close()
    store = open_store()
    store.commit(CommitBatch([make_trial(trial=1, text=noise)]))
    assert store.reader.trial_count() == 2


@pytest.mark.parametrize("content", [b"no database, but as long as one" * 200, b"SQLite format 3\0" * 300])
def test_a_damaged_database_is_named(open_store: OpenStore, directory: Path, content: bytes) -> None:
    directory.mkdir(parents=True)
    (directory / DATABASE_FILE).write_bytes(content)
    with pytest.raises(StoreError, match=f"{DATABASE_FILE} is damaged or is not an SQLite database"):
        open_store()
    assert (directory / DATABASE_FILE).read_bytes() == content


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
    with pytest.raises(StoreError, match="has format 99"):
        open_store()


def test_a_start_that_died_before_its_first_commit_begins_anew(directory: Path, open_store: OpenStore) -> None:
    directory.mkdir(parents=True)
    (directory / DATABASE_FILE).touch()
    store = open_store()
    assert store.reader.header() == HEADER


def test_an_emptied_database_is_not_begun_over(directory: Path, open_store: OpenStore) -> None:
    """As a power failure may leave it: to start over would ask, and pay, for everything once more without a word."""
    open_store().close()
    (directory / DATABASE_FILE).write_bytes(b"")
    (directory / "results.json").write_text("{}", encoding="utf-8")
    with pytest.raises(
        StoreError, match=r"a run was begun in .*, and has left results.json, but run.sqlite has nothing"
    ):
        open_store()
    assert (directory / DATABASE_FILE).read_bytes() == b""
    (directory / "results.json").unlink()
    with pytest.raises(StoreError, match=r"a run was begun in .*, but run.sqlite has nothing of it"):
        open_store()
    (directory / "lock").unlink()
    assert open_store().reader.header() == HEADER


def test_who_verifies_is_not_told_to_verify(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / DATABASE_FILE).write_bytes(b"no database, but as long as one" * 200)
    with pytest.raises(StoreError, match="`adaptive-eval verify .*` says where; restore a copy"):
        RunReader.open(directory)
    with pytest.raises(StoreError, match=r"is not an SQLite database \(.*\); restore a copy"):
        Integrity.check(directory)


def test_a_directory_without_a_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"holds no run: there is no run\.sqlite in it"):
        RunReader.open(tmp_path)
    with pytest.raises(StoreError, match="holds no run: it is not there"):
        RunReader.open(tmp_path / "nowhere")


def test_the_database_is_whole_in_one_file_though_somebody_reads_it(
    open_store: OpenStore, directory: Path, tmp_path: Path
) -> None:
    store = open_store()
    store.commit(CommitBatch([make_trial(trial=trial) for trial in range(5)]))
    watching = RunReader.open(directory)
    assert watching.trial_count() == 5
    store.close()
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / DATABASE_FILE).write_bytes((directory / DATABASE_FILE).read_bytes())
    with closing(RunReader.open(copy)) as reader:
        assert reader.trial_count() == 5
    watching.close()


def test_a_run_is_read_where_nothing_can_be_written(
    open_store: OpenStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    store.commit(CommitBatch([make_trial()]))
    store.close()
    before = {path.name for path in directory.iterdir()}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with closing(RunReader.open(directory)) as reader:
        assert reader.trial_count() == 1
        assert {path.name for path in directory.iterdir()} == before


def test_a_run_does_not_begin_among_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("a project")
    (tmp_path / ".hidden").touch()
    with pytest.raises(StoreError, match=r"holds other files and no run \(README.md\); choose a --run-dir"):
        Store.open(tmp_path, HEADER)
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", ".hidden"}
    (tmp_path / "README.md").unlink()
    Store.open(tmp_path, HEADER).store.close()
    (tmp_path / "notes.md").touch()
    Store.open(tmp_path, HEADER).store.close()  # beside a run there may be anything
