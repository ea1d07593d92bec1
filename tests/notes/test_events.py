"""Events: what is stored of each kind comes back as it was."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from two_by_two import HEADER

from adaptive_eval import notes
from adaptive_eval.base.errors import ExitCode, StoreError
from adaptive_eval.core.types import Cause, Reason
from adaptive_eval.machine.notes import event_of, note_of
from adaptive_eval.machine.records import Note
from adaptive_eval.notes import (
    EVENT_CLASSES,
    AlarmRaised,
    AnswersLost,
    AnswerUngraded,
    BaselineAsked,
    BatchCancelled,
    BatchEnded,
    BatchPlanned,
    BatchTaken,
    Change,
    Event,
    GraderChosen,
    LooksRetaken,
    ModelSetAside,
    ModelSettled,
    OnlyFailures,
    OutcomesRecorded,
    PlaceAwaited,
    PriorTaken,
    RegradingBegun,
    ReplicaBack,
    ReplicaLost,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
    ServerDied,
    ServerLaunched,
    ServerLaunching,
    ServerReleased,
    ServerRests,
    ServersAwaited,
    ServersNoticed,
    SettingsChanged,
    SiteAwaited,
    SiteLost,
    SitePlaced,
    ThresholdsFrozen,
    TrialsImported,
    TrialsRegraded,
    events_since_start,
    parse_event,
)
from adaptive_eval.report.event_words import event_sentence
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.view import event_view
from adaptive_eval.store.write import RunStore

STORED = [
    (RunStarted(0, 7, "here", "0.1"), "started", {"trials": 0, "pid": 7, "host": "here", "version": "0.1"}),
    (
        RunResumed(9, 7, "here", "0.1", {"ada": 80}),
        "resumed",
        {"trials": 9, "pid": 7, "host": "here", "version": "0.1", "longest_prompts": {"ada": 80}},
    ),
    (
        SettingsChanged(9, 2, (Change("budget.trials", None, 5),)),
        "configured",
        {"trials": 9, "looks": 2, "changes": [{"path": "budget.trials", "was": None, "now": 5}]},
    ),
    (LooksRetaken(4), "looks_retaken", {"looks": 4}),
    (
        AnswersLost("ada", 3, 300, 0.5, 1.5, True, 2),
        "answers_lost",
        {"model": "ada", "answers": 3, "tokens": 300, "usd": 0.5, "gpu_seconds": 1.5, "killed": True, "verdicts": 2},
    ),
    (
        AnswerUngraded("ada", "q1", "too slow"),
        "ungraded",
        {"model": "ada", "question": "q1", "error": "too slow"},
    ),
    (
        ModelSetAside("ada", "no grade", Cause.GRADER),
        "set_aside",
        {"model": "ada", "reason": "no grade", "cause": "grader"},
    ),
    (ReplicaLost("ada", "http://a/v1"), "replica_lost", {"model": "ada", "replica": "http://a/v1"}),
    (ReplicaBack("ada", "http://a/v1"), "replica_back", {"model": "ada", "replica": "http://a/v1"}),
    (OnlyFailures("ada", 30, {"reset": 4}), "retrying", {"model": "ada", "seconds": 30, "errors": {"reset": 4}}),
    (
        ServersNoticed("ada", "named", "half \ud800 a pair"),
        "noticed",
        {"model": "ada", "notice": "named", "text": "half \ud800 a pair"},
    ),
    (
        AlarmRaised("ada", "all_wrong", "all 24 answers", "an answer"),
        "alarm",
        {"model": "ada", "fault": "all_wrong", "text": "all 24 answers", "example": "an answer"},
    ),
    (GraderChosen("numeric", 40), "grader_chosen", {"grader": "numeric", "compared": 40}),
    (ServersAwaited("ada", 10), "servers_awaited", {"model": "ada", "seconds": 10}),
    (PlaceAwaited("gpu0", "the run other"), "waiting", {"on": "gpu0", "by": "the run other"}),
    (
        ServerLaunching("ada", ("vllm", "serve"), None, "ada.log"),
        "launching",
        {"model": "ada", "command": ["vllm", "serve"], "version": None, "log": "ada.log"},
    ),
    (
        ServerLaunching("ada", ("vllm",), "1", "ada.log", "gpu0", 1.5),
        "launching",
        {"model": "ada", "command": ["vllm"], "version": "1", "log": "ada.log", "on": "gpu0", "waited": 1.5},
    ),
    (
        ServerLaunching("ada", ("vllm",), "1", "ada.log", "gpu0", wakes=True),
        "launching",
        {"model": "ada", "command": ["vllm"], "version": "1", "log": "ada.log", "on": "gpu0", "wakes": True},
    ),
    (
        ServerLaunched("ada", ("vllm",), "1", "ada.log", "gpu0", 12.5),
        "launched",
        {"model": "ada", "command": ["vllm"], "version": "1", "log": "ada.log", "on": "gpu0", "seconds": 12.5},
    ),
    (
        ServerDied("ada", "was killed", 1, 3),
        "server_died",
        {"model": "ada", "reason": "was killed", "restart": 1, "of": 3},
    ),
    (ServerReleased("ada"), "released", {"model": "ada"}),
    (ServerRests("ada"), "server_rests", {"model": "ada"}),
    (ServerReleased("ada", "gpu0"), "released", {"model": "ada", "on": "gpu0"}),
    (
        SiteAwaited("ada", "site 1", "GPU 8", "there is none"),
        "site_awaited",
        {"model": "ada", "on": "site 1", "asked": "GPU 8", "missing": "there is none"},
    ),
    (
        SitePlaced("ada", "site 1", "node7", {"GPU": 8.0}, 1.5, True, 41),
        "site_placed",
        {
            "model": "ada",
            "on": "site 1",
            "node": "node7",
            "resources": {"GPU": 8.0},
            "seconds": 1.5,
            "is_reused": True,
            "pid": 41,
        },
    ),
    (
        SiteLost("ada", "site 1", "node7", "was silent"),
        "site_lost",
        {"model": "ada", "on": "site 1", "node": "node7", "reason": "was silent"},
    ),
    (ModelSettled("ada", True), "settled", {"model": "ada", "launched": True}),
    (RegradingBegun(3), "regrading", {"trials": 3}),
    (TrialsRegraded(2, so_far=2, of=3), "regraded", {"trials": 2, "so_far": 2, "of": 3}),
    (
        TrialsRegraded(2, answers=2, changed=1, failed=0),
        "regraded",
        {"trials": 2, "answers": 2, "changed": 1, "failed": 0},
    ),
    (
        TrialsImported(2, ("log.eval",), 1, {"ada": {"error": 3}}, repeated={"ada": 5}),
        "imported",
        {
            "trials": 2,
            "files": ["log.eval"],
            "without_text": 1,
            "missing": {"ada": {"error": 3}},
            "graded_by": None,
            "repeated": {"ada": 5},
            "repeats_count": False,
            "seeds_match": False,
        },
    ),
    (
        PriorTaken({"run": "old"}, "old", {"ada": {"q1": [0, 1]}}),
        "prior",
        {"section": {"run": "old"}, "run": "old", "outcomes": {"ada": {"q1": [0, 1]}}},
    ),
    (
        ThresholdsFrozen(
            {"thresholds": {"from": "runs/old"}}, "old", {"high": 0.3}, {"high": 12}, {"q1": 40.0}, {"ada": 12}
        ),
        "thresholds",
        {
            "section": {"thresholds": {"from": "runs/old"}},
            "run": "old",
            "values": {"high": 0.3},
            "rest_on": {"high": 12},
            "medians": {"q1": 40.0},
            "models": {"ada": 12},
        },
    ),
    (
        BaselineAsked("5f", (-0.5, -1.5, -2.0), (2,)),
        "baseline",
        {"asked_as": "5f", "scores": [-0.5, -1.5, -2.0], "unseen": [2]},
    ),
    (
        BatchPlanned("ada", "k", ("a-1", "b-2"), 4.0),
        "batch_planned",
        {"model": "ada", "key": "k", "requests": ["a-1", "b-2"], "planned": 4.0},
    ),
    (
        BatchTaken("ada", "k", "batch_1", 2, 5.0),
        "batch_taken",
        {"model": "ada", "key": "k", "batch": "batch_1", "size": 2, "since": 5.0},
    ),
    (BatchCancelled("ada", "k"), "batch_cancelled", {"model": "ada", "key": "k"}),
    (
        BatchEnded("ada", "k", "expired", 1, 1),
        "batch_ended",
        {"model": "ada", "key": "k", "status": "expired", "came": 1, "missing": 1, "lost": 0},
    ),
    (
        OutcomesRecorded(
            "old", "runs/old", "old", "ada", {"q1": [1, None, 0]}, {"grader": {"kind": "exact"}}, "d", {"q1": [2]}, 7
        ),
        "recorded",
        {
            "model": "old",
            "directory": "runs/old",
            "run": "old",
            "called": "ada",
            "outcomes": {"q1": [1, None, 0]},
            "meaning": {"grader": {"kind": "exact"}},
            "digest": "d",
            "unsure": {"q1": [2]},
            "shared_seed": 7,
        },
    ),
    (RunStopped(), "stopped", {}),
    (
        RunStopped("Rejected", "401", ExitCode.ENDPOINTS),
        "stopped",
        {"error": "Rejected", "reason": "401", "exit_code": 5},
    ),
    (RunFinished(Reason.SETTLED), "finished", {"reason": "settled"}),
    (
        RunFinished(Reason.BUDGET, short_caps={"trials": 90.0}),
        "finished",
        {"reason": "budget", "short_caps": {"trials": 90.0}},
    ),
]


NUMBERS = {"ada": 0, "old": 1}


@pytest.mark.parametrize(("event", "kind", "body"), STORED, ids=lambda value: value if isinstance(value, str) else "")
def test_every_event_kind_keeps_its_stored_form(event: Event, kind: str, body: dict[str, Any]) -> None:
    assert (event.kind, json.loads(json.dumps(event.body()))) == (kind, body)
    assert parse_event(kind, body, 3.0) == replace(event, at=3.0)
    note = note_of(event, NUMBERS)
    assert note.kind == kind and note.model == (NUMBERS[body["model"]] if "model" in body else None)
    assert event_of(note, {number: name for name, number in NUMBERS.items()}, 3.0) == replace(event, at=3.0)
    assert not any(isinstance(value, list | tuple | dict) for value in event_view(event).body.values())


def test_no_kind_is_forgotten() -> None:
    assert {type(event) for event, _, _ in STORED} == set(EVENT_CLASSES)
    assert len({event_class.KIND for event_class in EVENT_CLASSES}) == len(EVENT_CLASSES)
    classes = [value for value in vars(notes).values() if isinstance(value, type) and issubclass(value, Event)]
    assert {event_class for event_class in classes if hasattr(event_class, "KIND")} == set(EVENT_CLASSES)


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("started", {"pid": 3}, RunStarted(pid=3)),
        ("configured", {"trials": 4, "changes": []}, SettingsChanged(4)),
        ("set_aside", {"model": "ada", "reason": "it is gone"}, ModelSetAside("ada", "it is gone", Cause.SERVER)),
        ("launched", {"model": "ada", "seconds": 2}, ServerLaunched("ada", seconds=2.0)),
        ("imported", {"trials": 4}, TrialsImported(4)),
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
        (
            "dreamt",
            {"of": "sheep"},
            "of the kind 'dreamt', which this version of adaptive-eval does not know",
        ),
    ],
)
def test_damaged_events_are_refused_with_their_place(kind: str, body: object, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        parse_event(kind, body)


def test_a_damaged_note_is_reported_with_its_run(tmp_path: Path) -> None:
    with closing(RunStore.open(tmp_path / "run", HEADER).store) as store:
        store.append(Note("finished"))
    with closing(RunReader.open(tmp_path / "run")) as reader, pytest.raises(StoreError, match=r"run: .* is damaged"):
        reader.events()


def test_a_start_begins_anew() -> None:
    events = [RunStarted(), RunStopped(), RunResumed(4), RunFinished(Reason.BUDGET)]
    assert events_since_start(events) == events[2:]
    assert events_since_start(events[1:2]) == events[1:2]
