"""The boundary of the store: an answer with a key in it is graded as it came, and stored without the key."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from two_by_two import HEADER, SIGNALS, make_trial

from adaptive_eval.core.types import Cause
from adaptive_eval.endpoints.redaction import EMPTY_REDACTOR, Redactor
from adaptive_eval.endpoints.types import AnswerLogprobs
from adaptive_eval.machine.notes import note_of
from adaptive_eval.machine.records import Note, Row
from adaptive_eval.machine.trial import GradeDetails, Trial
from adaptive_eval.notes import BatchTaken, Change, Event, ModelSetAside, OnlyFailures, ServersNoticed, SettingsChanged
from adaptive_eval.store.bulk import BulkImport
from adaptive_eval.store.errors import DATABASE_FILE
from adaptive_eval.store.redact import redact_note, redact_trial
from adaptive_eval.store.write import RunStore

KEY = "sk-a1b2c3d4e5f6g7h8i9"
KEYS = Redactor([KEY])
NUMBERS = {"ada": 0}
NOTICED = ServersNoticed("ada", "renamed", f"now it is {KEY}")


def stored(trial: Trial, redactor: Redactor = KEYS) -> tuple[str, str | None, GradeDetails | None]:
    """Text, reasoning and grade of a stored trial."""
    assert trial.answer is not None
    answer = (clean := redact_trial(trial, trial.answer, redactor)).answer
    assert answer is not None
    return answer.text, answer.reasoning, clean.grade


def test_extracted_text_stays_if_the_stored_answer_contains_it() -> None:
    signals = {"is_correct": True, "boxed": KEY, "unit": "m"}
    trial = make_trial(text=f"{KEY} says 42 m", reasoning=f"my key is {KEY[:15]}", signals=signals, extracted="42")
    grade = GradeDetails({"is_correct": True, "boxed": "***", "unit": "m"}, "42")
    assert stored(trial) == ("*** says 42 m", "my key is ***", grade)


@pytest.mark.parametrize(
    ("trial", "grade"),
    [
        ({"text": f"it is {KEY}", "extracted": "1b2c3d4"}, GradeDetails(dict(SIGNALS) | {"kind": "***"}, "***")),
        # an Inspect scorer may quote another model
        (
            {"text": "2", "signals": {"why": f"got {KEY}"}, "extracted": f"{KEY}!"},
            GradeDetails({"why": "got ***"}, "***!"),
        ),
        ({"text": KEY, "error": f"it raised ValueError: {KEY[:18]}"}, GradeDetails(error="it raised ValueError: ***")),
        ({"text": "2", "error": "got sk-abcdefgh12345678abcd"}, GradeDetails(error="got ***")),  # which nobody knows
    ],
)
def test_a_grade_is_stored_without_a_piece_of_the_key(trial: dict[str, Any], grade: GradeDetails) -> None:
    assert stored(make_trial(**trial))[2] == grade


def test_tokens_and_the_reason_for_finishing_are_stored_without_the_key() -> None:
    trial = make_trial(text="nothing", logprobs=AnswerLogprobs((KEY[:3], KEY[3:12], KEY[12:]), (-1.0, -2.0, -3.0)))
    assert trial.answer is not None
    clean = redact_trial(trial, replace(trial.answer, finish_reason=f"stop {KEY}"), KEYS).answer
    assert clean is not None and clean.finish_reason == "stop ***"
    assert clean.token_logprobs == AnswerLogprobs(("", "", ""), (-1.0, -2.0, -3.0))


def test_a_trial_without_a_key_stays_as_it_is() -> None:
    for trial in (make_trial(reasoning=""), make_trial(error="no"), make_trial()._replace(grade=None)):
        assert trial.answer is not None and redact_trial(trial, trial.answer, KEYS) == trial
    assert stored(make_trial(text=KEY), EMPTY_REDACTOR)[0] == KEY


@pytest.mark.parametrize(
    "event",
    [
        ModelSetAside("ada", f"its server said {KEY}", Cause.GRADER),
        OnlyFailures("ada", 1, {f"error {KEY}": 2}, f"it said {KEY}"),
        NOTICED,
        SettingsChanged(1, 2, (Change("a.b", KEY, [KEY, {"c": KEY}]),)),
        BatchTaken("ada", "k", f"batch-{KEY}"),
    ],
)
def test_no_text_of_a_note_keeps_a_key(event: Event) -> None:
    note = note_of(event, NUMBERS)
    clean = redact_note(note, KEYS, NUMBERS)
    assert KEY in str(note) and KEY not in str(clean) and "***" in str(clean)
    assert (clean.kind, clean.model, clean.body.keys()) == (note.kind, note.model, note.body.keys())
    assert redact_note(clean, KEYS, NUMBERS) == clean


def test_names_stay_even_if_a_key_begins_like_them_and_what_has_the_form_of_a_key_goes() -> None:
    note = Note("noticed", 0, {"models": ["local-7b"], "text": "its key local-7b-key-12 was refused"})
    clean = redact_note(note, Redactor(["local-7b-key-12"]), {"local-7b"})
    assert clean.body == {"models": ["local-7b"], "text": "its key *** was refused"}
    note = Note("noticed", 0, {"text": "http://me:hunter2@host/v1 and sk-abcdefgh12345678abcd"})  # which nobody knows
    assert redact_note(note, EMPTY_REDACTOR, {}).body == {"text": "http://***@host/v1 and ***"}


Writing = Callable[[RunStore, Trial, Note], list[Row]]


def committed(store: RunStore, trial: Trial, note: Note) -> list[Row]:
    return store.append(trial, note)


def regraded(store: RunStore, trial: Trial, note: Note) -> list[Row]:
    store.append(make_trial())
    store.regrade(lambda seq, stored: trial, [note], HEADER, [])
    return []


def with_settings_changed(store: RunStore, trial: Trial, note: Note) -> list[Row]:
    return [*store.change_settings(HEADER, [("a.b", KEY, None)]), *store.append(trial)]


def imported(store: RunStore, trial: Trial, note: Note) -> list[Row]:
    store.close()
    (store.directory / DATABASE_FILE).unlink()
    bulk = BulkImport.begin(store.directory, KEYS)
    for name in HEADER.models:
        bulk.model(name)
    bulk.add([trial])
    bulk.finish(HEADER, {}, [note])
    bulk.close()
    return []


@pytest.mark.parametrize("write", [committed, regraded, with_settings_changed, imported])
def test_no_way_into_the_store_lets_a_key_through(tmp_path: Path, write: Writing) -> None:
    store = RunStore.open(tmp_path, HEADER, Redactor())
    store.redactor.add([KEY])  # as one is that is heard of later
    written = write(store, make_trial(text=f"I am {KEY}", extracted=KEY), note_of(NOTICED, {"ada": 0}))
    store.close()
    store = RunStore.attach(tmp_path)
    ((seq, trial),), notes = store.reader.trials(), store.reader.notes()
    store.close()
    assert trial.answer is not None and trial.answer.text == "I am ***"
    assert trial.grade is not None and trial.grade.extracted == "***"
    assert notes and all("***" in str(note.body) for _, note in notes)
    assert not [path for path in tmp_path.iterdir() if KEY.encode() in path.read_bytes()]
    assert sorted(written, key=str) == sorted([(seq, trial), *notes], key=str) or not written, "and the run goes on so"
