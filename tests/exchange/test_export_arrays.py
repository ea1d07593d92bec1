"""npz: what is read back is what was stored."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import typed
from logs import imported, outcomes
from numpy.typing import NDArray
from small_run import MODELS, QUESTIONS, make_run, make_trial, ragged

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.exchange.export import export
from adaptive_eval.exchange.recording import read_recording, recording_of_run
from adaptive_eval.report.records import TrialRecord


def test_the_array_has_each_category_at_the_number_of_its_trial_and_replay_takes_it(tmp_path: Path) -> None:
    path = export(make_run(tmp_path, ragged()), "npz").path
    assert path.name == "tensor.npz"
    with np.load(path, allow_pickle=False) as file:
        assert file["R"].tolist() == [[[1, 1, 0, -1], [0, 1, -1, -1]], [[0, -1, 0, 1], [0, 0, -1, -1]]]
        assert (tuple(file["models"]), tuple(file["questions"])) == (MODELS, QUESTIONS)
        assert (file["weights"].tolist(), file["categories"].tolist()) == ([0.0, 1.0], ["wrong", "correct"])
    recording = read_recording(path)
    assert (recording.models, recording.questions) == (MODELS, QUESTIONS)
    assert recording.counts.tolist() == [[[1, 2], [1, 1]], [[2, 1], [2, 0]]]
    results = decided(path, tmp_path / "replayed", "--set", "trials={min: 2, max: 3}")
    assert {row["name"] for row in results["models"]} == {*MODELS}


def decided(path: Path, to: Path, *options: str) -> dict[str, Any]:
    """The results of a replay."""
    done = typed("replay", path, "--output", to, *options)
    assert (to / "results.json").exists(), done.output
    content: dict[str, Any] = json.loads((to / "results.json").read_text())
    return content


def test_a_run_is_replayed_by_its_own_settings(tmp_path: Path) -> None:
    yes = {"name": "yes", "weight": 2, "when": {"is_correct": True}}
    settings = {
        "objective": {"kind": "baseline", "baseline": MODELS[0]},
        "stopping": {"confidence": 0.9, "delta": 0.03},
        "budget": {"trials": 19, "tokens": 1e9},
        "trials": {"min": 2, "max": 3},
        "rubric": {"categories": [{"name": "no", "weight": 0}, yes]},
    }
    run = make_run(tmp_path, ragged(), **settings)
    results = decided(run, tmp_path / "own")
    own = results["decisions"]
    assert own["objective"]["baseline"] == MODELS[0] and own["stopping"]["delta"] == 0.03
    assert own["trials"]["max"] == 3 and own["budget"] == {**own["budget"], "trials": 19, "tokens": None}
    assert results["weights"] == [0.0, 2.0]
    other = decided(run, tmp_path / "other", "--set", "objective=best", "--set", "trials.max=2")["decisions"]
    assert (other["objective"]["kind"], other["trials"]["max"], other["stopping"]["confidence"]) == ("best", 2, 0.9)


def test_benchmarks_of_a_configuration_weigh_the_questions_of_an_array(tmp_path: Path) -> None:
    right = np.array([[[1] * 4, [0] * 4], [[0] * 4, [1] * 4]])
    np.savez(tmp_path / "two.npz", R=right, models=["ada", "bea"], questions=["x/1", "y/1"])
    (tmp_path / "c.yaml").write_text(
        "trials: {min: 4, max: 4}\nbenchmarks: [{name: x, weight: 3, questions: x.csv}, {name: y, questions: y.csv}]\n"
    )
    results = decided(tmp_path / "two.npz", tmp_path / "o", "--config", str(tmp_path / "c.yaml"))
    assert {row["name"]: row["score"] for row in results["models"]} == pytest.approx({"ada": 0.75, "bea": 0.25})


def one_sided(doubt: str) -> Iterator[TrialRecord]:
    """All answers of the first model are right, all of bob wrong; his are cut off, or most have no grade."""
    for model, question, trial in itertools.product(MODELS, QUESTIONS, range(8)):
        of_bob, graded = model == "bob", doubt != "ungraded" or model != "bob" or trial == 0
        record = make_trial(model, question, trial, (0 if of_bob else 1) if graded else None)
        signals = frozenset({"truncated"} if doubt == "cut" and of_bob else ())
        yield replace(record, answer=replace(record.answer, signals=signals))


NO_ALARM = {"trials": {"min": 8, "max": 8}, "stopping": {"on_alarm": "never"}}


@pytest.mark.parametrize(
    ("doubt", "verdict", "code"), [("none", "resolved", 0), ("cut", "blocked", 3), ("ungraded", "blocked", 3)]
)
def test_a_replay_of_a_run_knows_doubtful_grades(tmp_path: Path, doubt: str, verdict: str, code: int) -> None:
    run = make_run(tmp_path, one_sided(doubt), **NO_ALARM)
    assert [pair["verdict"] for pair in decided(run, tmp_path / "drawn", "--seed", "1")["pairs"]] == [verdict]
    done = typed("replay", run, "--output", tmp_path / "replayed", code=code)
    assert ("needs complete answers instead of incomplete ones of bob" in done.output) == (doubt == "cut")
    assert ("set aside: bob (14 of its 16 trials" in done.output) == (doubt == "ungraded")


def test_an_array_marks_cut_answers(tmp_path: Path) -> None:
    path = export(make_run(tmp_path, one_sided("cut")), "npz").path
    with np.load(path, allow_pickle=False) as file:
        assert file["kinds"].tolist() == [[[0] * 8] * 2, [[16] * 8] * 2]
    settings = [word for key in ("trials={min: 8, max: 8}", "stopping.on_alarm=never") for word in ("--set", key)]
    assert decided(path, tmp_path / "replayed", *settings)["pairs"][0]["verdict"] == "blocked"
    done = imported(path, "--to", tmp_path / "imported", "--finished")
    assert "bob: 16 of its 16 answers" in done.output and "better than" not in done.output, done.output


@pytest.mark.parametrize("kinds", [np.zeros((1, 1, 2)), np.zeros((1, 1, 3), int), np.full((1, 1, 2), 256)])
def test_other_kinds_are_refused(tmp_path: Path, kinds: NDArray[Any]) -> None:
    np.savez(tmp_path / "wrong.npz", R=np.array([[[0, 1]]]), kinds=kinds)
    with pytest.raises(ConfigError, match=r"array kinds must .* 16 for one that was cut off"):
        read_recording(tmp_path / "wrong.npz")


def hanging() -> Iterator[TrialRecord]:
    """All requests to bob timed out, so that his round does not count, and one of five to ada, so that hers does."""
    for record in ragged():
        late = record.model == "bob" or (record.question, record.trial) == ("q1", 2)
        answer = replace(record.answer, signals=frozenset({"timed_out"} if late else ()))
        yield replace(record, answer=answer, category=0 if late else record.category, grader_error=None)


def test_time_outs_that_are_no_answers_are_missing(tmp_path: Path) -> None:
    directory, path = make_run(tmp_path, hanging()), tmp_path / "outcomes.npz"
    exported = typed("export", directory, "--format", "npz", "--output", path)
    assert "warning: 6 of them timed out" in exported.output, exported.output
    assert "it has no trial of 2 pairs of a model and a question" in exported.output
    with np.load(path, allow_pickle=False) as file:
        assert file["R"].tolist() == [[[1, 1, 0, -1], [0, 1, -1, -1]], [[-1] * 4] * 2]
    done = imported(path, "--to", tmp_path / "imported", "--finished")
    assert "missing   2 of bob: 2 the array has no trial of it" in done.output, done.output
    assert {model for model, _, _ in outcomes(tmp_path / "imported")} == {MODELS[0]}
    with pytest.raises(ConfigError, match="bob has no graded trial of question q1"):
        recording_of_run(directory)


def test_an_array_may_have_as_many_categories_as_a_rubric(tmp_path: Path) -> None:
    path = tmp_path / "many.npz"
    np.savez(path, R=np.array([[[253, 0, -1]]]))
    recording = read_recording(path)
    assert recording.outcomes is not None and recording.outcomes.tolist() == [[[253, 0, -1]]]
    assert np.flatnonzero(recording.counts).tolist() == [0, 253]
