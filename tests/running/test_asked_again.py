"""A model was alarmed, the settings changed, and the model was asked again: later starts replay what was decided."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedPlace, ScriptedServer, scripted_server
from stored_runs import events_in
from test_bad_answers import MODELS, SKILLS, Turning, answer, place_of
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.notes import LooksRetaken, SettingsChanged
from adaptive_eval.report.reader import RunReader

WITHOUT_BOB = {"models": tuple(name for name in MODELS if name != "bob")}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(MODELS, answer) as model_server:
        yield model_server


@pytest.fixture
def place(tmp_path: Path, server: ScriptedServer) -> ScriptedPlace:
    return place_of(tmp_path, server)


def looks(place: ScriptedPlace) -> list[tuple[int, Any]]:
    """The stored looks, each with the configuration under which it was taken."""
    with closing(RunReader.open(place.run_dir)) as reader:
        return [(look.configuration, json.loads(json.dumps(look.body))) for look in reader.looks()]


MARGIN: list[dict[str, Any]] = [{"stopping": {"delta": 0.02}}]
MARGIN_AND_MODELS: list[dict[str, Any]] = [*MARGIN, WITHOUT_BOB, {}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "changes"),
    [(20, MARGIN_AND_MODELS), (62, MARGIN_AND_MODELS), (62, MARGIN)],
    ids=["before the first look", "after looks", "after looks, as the margin stays changed"],
)
def test_later_starts_replay_the_looks_of_a_model_that_was_asked_again(
    place: ScriptedPlace,
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
    changes: list[dict[str, Any]],
) -> None:
    monkeypatch.setitem(SKILLS, "ada", 7)
    monkeypatch.setitem(SKILLS, "cyd", 5)
    turning = Turning(server, "empty", after=after)
    alarmed = place.run(concurrency=1)
    assert alarmed.exit_code == ExitCode.SPENT, alarmed.stdout
    assert "a server has changed; bob" in alarmed.stdout, alarmed.stdout
    told = looks(place)
    for change in changes:
        place.run(concurrency=1, **change)
        assert looks(place)[: len(told)] == told
        told = looks(place)
    settled = [look for look in told if look[0] < len(changes)]  # of earlier settings
    turning.fix()
    settings = changes[-1]
    went_on = place.run("--ask-again", concurrency=1, **settings)
    assert went_on.exit_code in (ExitCode.REACHED, ExitCode.SPENT), went_on.stderr
    decided, pairs, asked = looks(place), place.results["pairs"], len(server.requests)
    assert decided[: len(settled)] == settled and not place.results["alarms"]
    looks_by_then = [event.looks for event in events_in(place.run_dir, SettingsChanged)]
    for _ in range(2):
        again = place.run(concurrency=1, **settings)
        assert again.exit_code == went_on.exit_code, again.stderr
        assert looks(place) == decided and place.results["pairs"] == pairs
    assert len(server.requests) == asked and not events_in(place.run_dir, LooksRetaken)
    assert looks_by_then == sorted(looks_by_then) and looks_by_then[0] > 0


def test_labels_of_discarded_answers_do_not_count_for_those_in_their_place(
    place: ScriptedPlace, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in MODELS:  # so that nothing is decided before the places of the discarded answers are asked again
        monkeypatch.setitem(SKILLS, name, 6)
    turning = Turning(server, "empty", after=20)
    place.run(concurrency=1)
    with closing(RunReader.open(place.run_dir)) as reader:
        bobs = [record for record in reader.trials() if record.model == "bob"]
    labels = place.run_dir.parent / "bob.csv"
    rows = (f"bob,{record.question},{record.trial},{'correct' if record.category else 'wrong'}" for record in bobs)
    labels.write_text("\n".join(["model,question,trial,label", *rows]))
    label = ["label", str(place.run_dir)]
    assert CliRunner().invoke(app, [*label, "--from", str(labels)]).exit_code == ExitCode.REACHED
    turning.fix()
    for _ in range(2):  # the second start reads the labels anew
        place.run("--ask-again", concurrency=1)
    shown = CliRunner().invoke(app, [*label, "--show"]).stdout
    (model,) = (row for row in place.results["labelled"]["models"] if row["name"] == "bob")
    (right, wrong) = model["confusion"]
    assert right[1] == wrong[0] == 0, shown
    dropped = sum(not record.answer.text for record in bobs)
    assert dropped > 20 and model["labels"] <= len(bobs) - dropped
    assert f"Not counted: {len(bobs) - model['labels']} labels of answers that are not, or no longer," in shown
