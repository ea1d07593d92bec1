"""The boundary of the store: an answer with a key in it is graded as it came, and stored without the key."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from adaptive_eval.store import CommitBatch, Draft, Regrade, Store
from adaptive_eval.store.redaction import redact_event, redact_grade, redact_trial

from adaptive_eval.core.types import Cause
from adaptive_eval.endpoints.redaction import NOTHING_SECRET, Redactor
from adaptive_eval.endpoints.types import Answer, AnswerLogprobs
from adaptive_eval.graders.types import SignalValue
from adaptive_eval.notes import BatchTaken, Change, Event, ModelSetAside, OnlyFailures, ServersNoticed, SettingsChanged
from adaptive_eval.report.records import TrialRecord

KEY = "sk-a1b2c3d4e5f6g7h8i9"
KEYS = Redactor([KEY])


def answered(text: str, reasoning: str | None = None) -> Answer:
    return Answer(text, "stop", 1, "http://a/v1", 0.1, reasoning=reasoning)


def trial(
    answer: Answer, signals: Mapping[str, SignalValue] = {}, found: str | None = None, error: str | None = None
) -> TrialRecord:
    return TrialRecord("ada", "q1", 0, 0, answer, None if error else 1, signals, found, error)


def test_extracted_text_stays_if_the_stored_answer_contains_it() -> None:
    answer = answered(f"{KEY} says 42 m", f"my key is {KEY[:15]}")
    kept = redact_trial(trial(answer, {"is_correct": True, "boxed": KEY, "unit": "m"}, "42"), KEYS)
    assert (kept.answer.text, kept.answer.reasoning) == ("*** says 42 m", "my key is ***")
    assert (kept.signals, kept.extracted) == ({"is_correct": True, "boxed": "***", "unit": "m"}, "42")


def test_an_extracted_piece_of_a_key_is_removed() -> None:
    assert redact_trial(trial(answered(f"the answer is {KEY}"), found="1b2c3d4"), KEYS).extracted == "***"


def test_a_score_with_a_key_that_is_not_in_the_answer_is_stored_without_it() -> None:
    """The scorer of an Inspect task may quote another model."""
    kept = redact_trial(trial(answered("42"), {"why": f"it was sent {KEY}"}, f"{KEY}!"), KEYS)
    assert (kept.signals, kept.extracted) == ({"why": "it was sent ***"}, "***!")


def test_an_error_of_a_grader_is_stored_without_the_key() -> None:
    error = f"the grader raised ValueError: could not convert {KEY[:18]}"
    kept = redact_trial(trial(answered(f"it is {KEY}"), error=error), KEYS)
    assert kept.grader_error == "the grader raised ValueError: could not convert ***"
    regraded = redact_grade(Regrade("ada", "q1", 0, None, {"said": KEY}, KEY, error), KEYS)
    assert regraded[4:7] == ({"said": "***"}, "***", kept.grader_error)


def test_a_key_split_over_tokens_is_removed_with_all_of_them() -> None:
    secret = AnswerLogprobs((KEY[:3], KEY[3:12], KEY[12:]), (-1.0, -2.0, -3.0))
    kept = redact_trial(trial(replace(answered("nothing"), token_logprobs=secret)), KEYS)
    assert kept.answer.token_logprobs == AnswerLogprobs(("", "", ""), secret.values)


def test_a_trial_without_a_key_is_the_same_object() -> None:
    for one in (trial(answered("the answer is 42", "")), trial(answered("the answer is 42"), error="no")):
        assert redact_trial(one, KEYS) is one
    assert redact_trial(trial(answered(KEY)), NOTHING_SECRET) == trial(answered(KEY))


@pytest.mark.parametrize(
    "event",
    [
        ModelSetAside("ada", f"its server said {KEY}", Cause.GRADER),
        OnlyFailures("ada", 1, {f"error {KEY}": 2}, f"it said {KEY}"),
        ServersNoticed("ada", "renamed", f"now it is {KEY}"),
        SettingsChanged(1, 2, (Change("a.b", KEY, [KEY, {"c": KEY}]),)),
        BatchTaken("ada", "k", f"batch-{KEY}"),
    ],
)
def test_no_text_of_an_event_keeps_a_key(event: Event) -> None:
    kept = redact_event(event, KEYS, {"ada"})
    assert KEY in str(event) and KEY not in str(kept) and "***" in str(kept)
    assert type(kept) is type(event) and kept.body().keys() == event.body().keys()
    assert redact_event(kept, KEYS, {"ada"}) is kept


def test_names_stay_even_if_a_key_begins_like_them() -> None:
    event = ModelSetAside("local-7b", "its key local-7b-key-12 was refused")
    kept = redact_event(event, Redactor(["local-7b-key-12"]), {"local-7b"})
    assert kept == ModelSetAside("local-7b", "its key *** was refused")


def test_what_has_the_form_of_a_key_is_removed_from_events_though_nobody_knows_it() -> None:
    event = ServersNoticed("ada", "renamed", "http://me:hunter2@host/v1 and sk-abcdefgh12345678abcd")
    assert redact_event(event, NOTHING_SECRET, {}).text == "http://***@host/v1 and ***"


def test_a_commit_returns_what_it_has_written(open_store: Callable[..., Store]) -> None:
    store = open_store()
    store.redactor.add([KEY])
    said = ServersNoticed("ada", "renamed", f"now it is {KEY}")
    batch = CommitBatch(trials=[replace(trial(answered(f"I am {KEY}")), model="small")], events=[said])
    written = store.commit(batch)
    assert (written.trials, written.events[0].body()) == (list(store.reader.trials()), store.reader.events()[-1].body())
    assert written.trials[0].answer.text == "I am ***"
    store.regrade([Regrade("small", "q1", 0, 1, {"said": KEY}, KEY, None)], said)
    (regraded,) = store.reader.trials()
    assert (regraded.signals, regraded.extracted) == ({"said": "***"}, "***")
    store.forget_trials("small", [], said)
    assert KEY not in repr(store.reader.events())


def test_no_file_of_a_draft_has_a_key(tmp_path: Path) -> None:
    draft = Draft.begin(tmp_path, KEYS)
    draft.add([trial(answered(f"I am {KEY}"))])
    draft.close()
    assert not [path for path in tmp_path.iterdir() if KEY.encode() in path.read_bytes()]
