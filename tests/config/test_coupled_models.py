"""What `validate` says of models that share their seeds and will hardly draw alike."""

from pathlib import Path

import pytest
import yaml

from adaptive_eval.config.checks import why_uncoupled
from adaptive_eval.config.load import load_config
from adaptive_eval.config.run import RunConfig

SETTINGS = {
    "questions": "questions.jsonl",
    "grader": "exact",
    "trials": {"seeds": "coupled"},
    "objective": {"kind": "baseline", "baseline": "prod"},
    "sampling": {"max_tokens": 100},
}


def config(folder: Path, *models: dict[str, object], **changes: object) -> RunConfig:
    address = {"base_url": "http://localhost:8000/v1"}
    named = [model if "recorded" in model else address | model for model in models]
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(SETTINGS | {"models": named} | changes))
    return load_config(path)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"sampling": {"temperature": 0.2}}, "but differ in sampling.temperature"),
        ({"prompt": {"template": "Say: {prompt}"}}, "but differ in prompt"),
        ({"batch": "anthropic"}, "but the batch service of new has none"),
    ],
)
def test_why_models_are_not_coupled_is_reported(tmp_path: Path, other: dict[str, object], expected: str) -> None:
    (reason,) = why_uncoupled(config(tmp_path, {"name": "prod"}, {"name": "new", **other}, {"name": "copy"}))
    assert reason.startswith("new and prod share their seeds") and expected in reason
    pairs = {"kind": "pairs", "pairs": [["new", "prod"]]}
    assert [reason] == list(
        why_uncoupled(config(tmp_path, {"name": "prod"}, {"name": "new", **other}, objective=pairs))
    )


def test_nothing_is_said_where_nothing_is_known(tmp_path: Path) -> None:
    models = {"name": "prod"}, {"name": "new", "sampling": {"max_tokens": 200}}
    assert list(why_uncoupled(config(tmp_path, *models))) == []
    cold = {"name": "new", "sampling": {"temperature": 0.0}}
    assert list(why_uncoupled(config(tmp_path, {"name": "prod"}, cold, trials={"seeds": "hashed"}))) == []


def test_the_settings_of_a_recorded_model_are_those_of_its_run(tmp_path: Path) -> None:
    recorded: dict[str, object] = {"name": "prod", "recorded": "runs/night"}
    gate = config(tmp_path, recorded, {"name": "new"})
    assert list(why_uncoupled(gate)) == [], "nothing is known of them"
    night = config(
        tmp_path,
        {"name": "prod", "sampling": {"temperature": 0.2}},
        objective={"kind": "threshold", "value": 0.5},
        trials={},
    )
    (reason,) = why_uncoupled(gate, {"prod": night.models[0]})
    assert "differ in sampling.temperature" in reason
