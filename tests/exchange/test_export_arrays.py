"""npz: what is read back is what was stored."""

from pathlib import Path

import numpy as np
from small_run import MODELS, QUESTIONS, make_run, ragged
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.exchange.export import ExportRequest, export
from adaptive_eval.exchange.recording import read_recording


def test_the_array_has_each_category_at_the_number_of_its_trial(tmp_path: Path) -> None:
    path = export(ExportRequest(make_run(tmp_path, ragged()), "npz")).path
    assert path.name == "tensor.npz"
    with np.load(path, allow_pickle=False) as file:
        assert file["R"].tolist() == [
            [[1, 1, 0, -1], [0, 1, -1, -1]],
            [[0, -1, 0, 1], [0, 0, -1, -1]],
        ]
        assert (tuple(file["models"]), tuple(file["questions"])) == (MODELS, QUESTIONS)
        assert (file["weights"].tolist(), file["categories"].tolist()) == ([0.0, 1.0], ["wrong", "correct"])


def test_replay_takes_it(tmp_path: Path) -> None:
    path = export(ExportRequest(make_run(tmp_path, ragged()), "npz")).path
    recording = read_recording(path)
    assert (recording.models, recording.questions) == (MODELS, QUESTIONS)
    assert recording.counts.tolist() == [[[1, 2], [1, 1]], [[2, 1], [2, 0]]]
    replayed = ["replay", str(path), "--output", str(tmp_path / "replayed"), "--set", "trials={min: 2, max: 3}"]
    result = CliRunner().invoke(app, replayed)
    assert "org/ada: 7b" in result.output and result.exit_code in (0, 3)


def test_an_array_may_have_as_many_categories_as_a_rubric(tmp_path: Path) -> None:
    path = tmp_path / "many.npz"
    np.savez(path, R=np.array([[[253, 0, -1]]]))
    recording = read_recording(path)
    assert recording.outcomes is not None and recording.outcomes.tolist() == [[[253, 0, -1]]]
    assert np.flatnonzero(recording.counts).tolist() == [0, 253]
