"""Events: what is stored of each kind comes back as it was."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from two_by_two import HEADER

from adaptive_eval import notes
from adaptive_eval.base.errors import ExitCode, StoreError
from adaptive_eval.core.types import Cause, Reason
from adaptive_eval.machine.notes import event_of, note_of
from adaptive_eval.machine.records import Note
from adaptive_eval.notes import EVENT_CLASSES, Event, events_since_start, parse_event
from adaptive_eval.report.event_words import event_sentence
from adaptive_eval.report.reader import RunReader
from adaptive_eval.store.write import RunStore

STORED = [
    (notes.RunStarted(0, 7, "here", "0.1"), "started", "trials pid host version"),
    (notes.RunResumed(9, 7, "here", "0.1", {"ada": 80}), "resumed", "trials pid host version longest_prompts"),
    (notes.SettingsChanged(9, 2, (notes.Change("budget.trials", None, 5),)), "configured", "trials looks changes"),
    (notes.LooksRetaken(4), "looks_retaken", "looks"),
    (
        notes.AnswersLost("ada", 3, 300, 0.5, 1.5, True, 2),
        "answers_lost",
        "model answers tokens usd gpu_seconds killed verdicts",
    ),
    (notes.AnswerUngraded("ada", "q1", "too slow"), "ungraded", "model question error"),
    (notes.ModelSetAside("ada", "no grade", Cause.GRADER), "set_aside", "model reason cause"),
    (notes.ReplicaLost("ada", "http://a/v1"), "replica_lost", "model replica"),
    (notes.ReplicaBack("ada", "http://a/v1"), "replica_back", "model replica"),
    (notes.OnlyFailures("ada", 30, {"reset": 4}), "retrying", "model seconds errors"),
    (notes.ServersNoticed("ada", "named", "half \ud800 a pair"), "noticed", "model notice text"),
    (notes.AlarmRaised("ada", "all_wrong", "all 24 answers", "an answer"), "alarm", "model fault text example"),
    (notes.GraderChosen("numeric", 40), "grader_chosen", "grader compared"),
    (notes.PlaceAwaited("gpu0", "the run other"), "waiting", "on by"),
    (notes.ServerLaunching("ada", ("vllm", "serve"), None, "ada.log"), "launching", "model command version log"),
    (
        notes.ServerLaunching("ada", ("vllm",), "1", "ada.log", "gpu0", 1.5),
        "launching",
        "model command version log on waited",
    ),
    (
        notes.ServerLaunching("ada", ("vllm",), "1", "ada.log", "gpu0", wakes=True),
        "launching",
        "model command version log on wakes",
    ),
    (
        notes.ServerLaunched("ada", ("vllm",), "1", "ada.log", "gpu0", 12.5),
        "launched",
        "model command version log on seconds",
    ),
    (notes.ServerDied("ada", "was killed", 1, 3), "server_died", "model reason restart of"),
    (notes.ServerReleased("ada"), "released", "model"),
    (notes.ServerRests("ada"), "server_rests", "model"),
    (notes.ServerReleased("ada", "gpu0"), "released", "model on"),
    (notes.SiteAwaited("ada", "site 1", "GPU 8", "there is none"), "site_awaited", "model on asked missing"),
    (
        notes.SitePlaced("ada", "site 1", "node7", {"GPU": 8.0}, 1.5, 41),
        "site_placed",
        "model on node resources seconds pid",
    ),
    (notes.SiteLost("ada", "site 1", "node7", "was silent"), "site_lost", "model on node reason"),
    (notes.ModelSettled("ada", True), "settled", "model launched"),
    (notes.RegradingBegun(3), "regrading", "trials"),
    (notes.TrialsRegraded(2, so_far=2, of=3, failed=1), "regraded", "trials so_far of failed"),
    (notes.TrialsRegraded(2, answers=2, changed=1, failed=0), "regraded", "trials answers changed failed"),
    (
        notes.TrialsImported(2, ("log.eval",), 1, {"ada": {"error": 3}}, repeated={"ada": 5}),
        "imported",
        "trials files without_text missing graded_by repeated repeats_count seeds_match",
    ),
    (notes.PriorTaken({"run": "old"}, "old", {"ada": {"q1": [0, 1]}}), "prior", "section run outcomes"),
    (
        notes.ThresholdsFrozen(
            {"thresholds": {"from": "runs/old"}}, "old", {"high": 0.3}, {"high": 12}, {"q1": 40.0}, {"ada": 12}
        ),
        "thresholds",
        "section run values rest_on medians models",
    ),
    (notes.BaselineAsked("5f", (-0.5, -1.5, -2.0), (2,)), "baseline", "asked_as scores unseen"),
    (
        notes.BatchPlanned("ada", "k", ("a-1", "b-2"), 4.0, "openai"),
        "batch_planned",
        "model key requests planned service",
    ),
    (notes.BatchTaken("ada", "k", "batch_1", 2, 5.0), "batch_taken", "model key batch size since"),
    (notes.BatchEnded("ada", "k", "expired", 1, 1), "batch_ended", "model key status came missing lost"),
    (
        notes.OutcomesRecorded(
            "old", "runs/old", "old", "ada", {"q1": [1, None, 0]}, {"grader": {"kind": "exact"}}, "d", {"q1": [2]}, 7
        ),
        "recorded",
        "model directory run called outcomes meaning digest kinds shared_seed",
    ),
    (notes.RunStopped(), "stopped", ""),
    (notes.RunStopped("Rejected", "401", ExitCode.ENDPOINTS), "stopped", "error reason exit_code"),
    (notes.RunFinished(Reason.SETTLED), "finished", "reason"),
    (notes.RunFinished(Reason.BUDGET, short_caps={"trials": 90.0}), "finished", "reason short_caps"),
]
"""One event of each kind or more, its kind, and the names of its stored fields."""


NUMBERS = {"ada": 0, "old": 1}


@pytest.mark.parametrize(("event", "kind", "fields"), STORED, ids=lambda value: value if isinstance(value, str) else "")
def test_every_event_comes_back_from_its_stored_fields(event: Event, kind: str, fields: str) -> None:
    body = json.loads(json.dumps(event.body()))
    assert (event.kind, list(body)) == (kind, fields.split())
    assert parse_event(kind, body, 3.0) == replace(event, at=3.0)
    note = note_of(event, NUMBERS)
    assert note.kind == kind and note.model == (NUMBERS[body["model"]] if "model" in body else None)
    assert event_of(note, {number: name for name, number in NUMBERS.items()}, 3.0) == replace(event, at=3.0)


def test_no_kind_is_forgotten() -> None:
    assert {type(event) for event, _, _ in STORED} == set(EVENT_CLASSES)
    assert len({event_class.KIND for event_class in EVENT_CLASSES}) == len(EVENT_CLASSES)
    classes = [value for value in vars(notes).values() if isinstance(value, type) and issubclass(value, Event)]
    assert {event_class for event_class in classes if hasattr(event_class, "KIND")} == set(EVENT_CLASSES)


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("started", {"pid": 3}, notes.RunStarted(pid=3)),
        ("configured", {"trials": 4, "changes": []}, notes.SettingsChanged(4)),
        ("set_aside", {"model": "ada", "reason": "it is gone"}, notes.ModelSetAside("ada", "it is gone", Cause.SERVER)),
        ("launched", {"model": "ada", "seconds": 2}, notes.ServerLaunched("ada", seconds=2.0)),
        ("imported", {"trials": 4}, notes.TrialsImported(4)),
    ],
)
def test_fields_with_a_default_may_be_missing(kind: str, body: dict[str, object], expected: Event) -> None:
    assert parse_event(kind, body) == expected
    event_sentence(expected)


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("finished", {}, "finished is damaged: reason: Field required"),
        ("finished", {"reason": "tired"}, "finished is damaged: reason: "),
        ("imported", {"trials": "many"}, "imported is damaged: trials: "),
        ("imported", [], "imported is damaged: it has no fields"),
        ("dreamt", {"of": "sheep"}, "of the kind 'dreamt', which this version of adaptive-eval does not know"),
    ],
)
def test_damaged_events_are_refused_with_their_place(kind: str, body: object, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        parse_event(kind, body)


def test_a_damaged_note_is_reported_with_its_run(tmp_path: Path) -> None:
    with closing(RunStore.open(tmp_path / "run", HEADER)) as store:
        store.append(Note("finished"))
    with closing(RunReader.open(tmp_path / "run")) as reader, pytest.raises(StoreError, match=r"run: .* is damaged"):
        reader.events()


def test_a_start_begins_anew() -> None:
    events = [notes.RunStarted(), notes.RunStopped(), notes.RunResumed(4), notes.RunFinished(Reason.BUDGET)]
    assert events_since_start(events) == events[2:]
    assert events_since_start(events[1:2]) == events[1:2]
