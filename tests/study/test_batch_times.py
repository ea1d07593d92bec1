"""The expected time of batches: from the configuration, else from a pilot, else a guess."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from checked_text import check_text
from planned import MODELS, prepared_from, write_config

from adaptive_eval.config.run import ModelConfig
from adaptive_eval.notes import BatchEnded, BatchTaken, Event
from adaptive_eval.study import pilot
from adaptive_eval.study.forecast import make_forecast
from adaptive_eval.study.pilot import batch_seconds, measured_batch_seconds


def models(*options: str) -> tuple[ModelConfig, ...]:
    rows = "".join(
        f"  - {{name: {name}, base_url: http://h/v1, api_key_env: K{', ' if more else ''}{more}}}\n"
        for name, more in zip("abcd", options, strict=False)
    )
    text = f"questions: q.jsonl\ngrader: math\nsampling: {{max_tokens: 100}}\nmodels:\n{rows}"
    config = check_text(text, Path("bench.yaml"), (), {}).config
    assert config is not None
    return config.models


EVENTS: tuple[Event, ...] = (
    BatchTaken("a", "k1", "b1", 10, since=1000.0),
    BatchEnded("a", "k1", "completed", came=10, at=1600.0),
    BatchTaken("a", "k2", "b2", 10, since=2000.0),
    BatchEnded("a", "k2", "completed", came=9, missing=1, at=3200.0),
    BatchTaken("a", "k3", "b3", 10, since=4000.0),
    BatchEnded("a", "k3", "failed", missing=10, at=4001.0),
    BatchTaken("b", "k4", "b4", 10, since=4000.0),
    BatchEnded("b", "k5", "completed", came=10, at=9000.0),
)


def test_only_submitted_and_answered_batches_have_a_duration() -> None:
    assert measured_batch_seconds(EVENTS) == {"a": [600.0, 1200.0]}


def test_observed_batch_times_take_precedence_over_a_guess() -> None:
    asked = models("batch: openai", "batch: anthropic", "")
    seconds, notes = batch_seconds(asked, {"a": [600.0, 1200.0], "z": [6000.0]})
    assert seconds[:2].tolist() == pytest.approx([900.0, 1200.0]) and np.isnan(seconds[2])
    assert notes == [
        "a batch is expected to be answered in 0.25 h, as in the pilot",
        "a batch is expected to be answered in 0.33 h, as in the pilot",
    ]
    guessed, notes = batch_seconds(asked[:1], {})
    assert guessed.tolist() == [3600.0] and notes == ["a batch is guessed to be answered in 1 h, whatever its size"]
    assert batch_seconds(asked[2:], {})[1] == []


@pytest.mark.slow
def test_a_plan_waits_for_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch takes a day, everything else minutes."""
    monkeypatch.setattr(pilot, "GUESSED_BATCH_SECONDS", 24 * 3600.0)
    servers = [{"name": name, "launch": {"command": "serve --port {port}"}, "gpus": 1} for name in MODELS[:2]]
    batched = {"name": MODELS[2], "base_url": "http://127.0.0.1:9/v1", "batch": "openai"}
    path = write_config(tmp_path)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"models": [*servers, batched]}))
    forecast = make_forecast(prepared_from(path), lambda share, words: None, max_worlds=8)
    assert forecast.need.costs.seconds is not None
    assert forecast.need.costs.seconds.median >= 24 * 3600.0
