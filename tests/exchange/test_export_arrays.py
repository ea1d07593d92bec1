"""npz and the lines of base signals: what is read back is what was stored."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_run import MODELS, QUESTIONS, make_run, make_trial, ragged
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.exchange.export import ExportRequest, export
from adaptive_eval.exchange.recording import read_recording
from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.graders.types import answer_facts
from scorio.categorical import SCHEMATA, Thresholds, classify, signals_of


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
    told = CliRunner().invoke(app, replayed)
    assert "org/ada: 7b" in told.output and told.exit_code in (0, 3)


def test_a_model_without_a_trial_is_left_out(tmp_path: Path) -> None:
    exported = export(ExportRequest(make_run(tmp_path, [make_trial("bob", "q2", 0, 1)]), "npz"))
    assert (exported.models, exported.untried) == (1, 1)
    with np.load(exported.path) as file:
        assert (file["models"].tolist(), file["R"].tolist()) == (["bob"], [[[-1], [1]]])


@pytest.mark.parametrize("schema", ["format_aware", "efficiency_adjusted"])
def test_the_lines_of_signals_lead_to_the_same_categories(tmp_path: Path, schema: str) -> None:
    """The rubric of the run is applied to what the lines say, without the run."""
    settings = {"name": schema, "thresholds": {"len_p33": 0.001, "len_p66": 0.002}, "assume": {"verifier_c": 0.0}}
    if schema == "format_aware":
        del settings["thresholds"]
    rubric = open_rubric(RubricConfig.model_validate(settings))
    trials = []
    for number in range(40):
        bare = make_trial("bob", "q1", number, 0, completion_tokens=2 * number, finish_reason="stop")
        marks = {"is_correct": number % 3 == 0, "has_answer": True, "has_box": number % 2 == 0}
        category = rubric.category({**answer_facts(bare.answer), **marks})
        changes = {"signals": marks, "completion_tokens": 2 * number}
        trials.append(make_trial("bob", "q1", number, category, **changes))
    path = export(ExportRequest(make_run(tmp_path, trials, rubric=settings), "scorio")).path
    records = [json.loads(line) for line in path.read_text().splitlines()]
    signals = signals_of(records)
    given = {name: getattr(signals, name) for name in SCHEMATA[schema].signals if getattr(signals, name) is not None}
    whole = type(signals)(**given, verifier_c=np.zeros(len(records)))
    found = classify(whole, SCHEMATA[schema], Thresholds(**settings.get("thresholds", {})))  # type: ignore[arg-type]
    assert found.tolist() == [record["category"] for record in records] == [one.category for one in trials]
    assert len(set(found.tolist())) >= 4
    assert [record["seed"] for record in records] == list(range(40))


def test_bits_per_token_survive_the_way_to_log_probabilities_and_back(tmp_path: Path) -> None:
    trials = [make_trial("bob", "q1", 0, 1, completion_bpt=0.75, prompt_bpt=3.5), make_trial("bob", "q1", 1, None)]
    path = export(ExportRequest(make_run(tmp_path, trials), "scorio")).path
    records = [json.loads(line) for line in path.read_text().splitlines()]
    signals = signals_of(records)
    assert signals.completion_bpt == pytest.approx([0.75, 0.5])
    assert signals.prompt_bpt == pytest.approx([3.5, np.nan], nan_ok=True)
    assert records[0]["tokens"]["completion_ppl"] == pytest.approx(2**0.75)
    assert records[0]["tokens"]["completion_sum_logprob"] == pytest.approx(-0.75 * np.log(2) * 20)
    del records[0]["tokens"]["completion_avg_logprob"]
    assert signals_of(records[:1]).completion_bpt == pytest.approx([0.75])
