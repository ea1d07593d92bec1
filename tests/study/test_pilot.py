"""Reading a pilot, the usage of its answers, and the expected time of batches."""

import json
from pathlib import Path

import numpy as np
import played
import pytest
import yaml
from checked_text import check_text
from planned import (
    CACHED_TOKENS,
    LATENCY,
    MODELS,
    PROMPT_TOKENS,
    QUESTIONS,
    RIGHT_TOKENS,
    WRONG_TOKENS,
    outcome_of,
    prepared_from,
    store_run,
    write_config,
)
from stored_runs import store_records

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.sections import Price
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.core import Cost
from adaptive_eval.machine.clocks import HeldTime
from adaptive_eval.notes import BatchEnded, BatchTaken, Event, ServerLaunched
from adaptive_eval.simulate.worlds import BINARY
from adaptive_eval.study.forecast import make_forecast
from adaptive_eval.study.pilot import (
    MeasuredUsage,
    Pilot,
    batch_seconds,
    cost_table,
    guess,
    measure,
    measured_batch_seconds,
    merge_usage,
    read_pilot,
)

FEW = [(0, 0, 0, 1), (0, 0, 1, 0), (0, 3, 0, 1), (2, 7, 5, 1)]
"""Model, question, trial, category."""


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedRun:
    return prepared_from(write_config(tmp_path))


@pytest.fixture
def directory(tmp_path: Path, prepared: PreparedRun) -> Path:
    """A pilot of the few."""
    trials = [outcome_of(prepared, *trial) for trial in FEW]
    return store_records(tmp_path / "run", prepared.header, trials, elapsed=7.0)


@pytest.fixture
def pilot(directory: Path, prepared: PreparedRun) -> Pilot:
    return read_pilot(directory, prepared)


def test_pilot_trials_are_matched_by_model_name_and_question_id(tmp_path: Path, directory: Path) -> None:
    pilot = read_pilot(directory, prepared_from(write_config(tmp_path, "turned", MODELS[::-1])))
    assert pilot.outcomes.shape == (3, len(QUESTIONS), 6) and (pilot.outcomes >= 0).sum() == len(FEW)
    assert pilot.counts[2, 0].tolist() == [1, 1] and pilot.counts[2, 3].tolist() == [0, 1]
    assert pilot.outcomes[0, 7].tolist() == [-1, -1, -1, -1, -1, 1]
    assert pilot.elapsed == 7.0 and pilot.header.name == "small"


def test_missing_and_differing_parts_of_a_pilot_are_reported(tmp_path: Path, directory: Path) -> None:
    other = prepared_from(write_config(tmp_path, "other"), "sampling.temperature=0.9")
    absent_model, absent_questions, asked = read_pilot(directory, other).remarks
    assert absent_model == "1 of 3 models have no graded answers (bob): drawn as the others vary"
    assert "5 of 8 questions have no graded answers (q1, q2, q4 and 2 more)" in absent_questions
    assert "models.ada.sampling.temperature: 0.6 → 0.9" in asked


def test_questions_of_another_benchmark_are_refused(tmp_path: Path, directory: Path) -> None:
    (tmp_path / "questions.jsonl").write_text('{"id": "z1", "prompt": "?", "answer": "1"}\n')
    with pytest.raises(ConfigError, match=r"has no question of the configuration, but q0, q3, q7"):
        read_pilot(directory, prepared_from(tmp_path / "small.yaml"))


# -- usage ----------------------------------------------------------------------------------------------------------


def test_usage_means_are_by_category_with_other_models_as_fallback(pilot: Pilot, prepared: PreparedRun) -> None:
    models = prepared.config.models
    usage, own_tokens, own_seconds = merge_usage(pilot.measured, guess(models, prepared.prompts, BINARY))
    assert own_tokens.tolist() == own_seconds.tolist() == [True, False, True]
    assert usage.completion_tokens[0].tolist() == [WRONG_TOKENS, RIGHT_TOKENS]
    assert usage.completion_tokens[1].tolist() == [WRONG_TOKENS, RIGHT_TOKENS], "the pilot's other models"
    assert usage.completion_tokens[2].tolist() == [RIGHT_TOKENS, RIGHT_TOKENS], "never wrong: its mean"
    assert usage.seconds[0].tolist() == [2 * LATENCY, LATENCY]
    assert usage.prompt_tokens == pytest.approx(PROMPT_TOKENS)
    wrong, right = cost_table(models, usage)[0]
    gpu = 2 / 8
    assert right == Cost(500, pytest.approx((100 * 1 + 400 * 4) / 1e6), pytest.approx(LATENCY * gpu))
    assert wrong == Cost(1000, pytest.approx((100 * 1 + 900 * 4) / 1e6), pytest.approx(2 * LATENCY * gpu))


def test_tokens_from_a_cache_have_their_own_price_in_a_forecast(pilot: Pilot, prepared: PreparedRun) -> None:
    price = Price(input=1, cached_input=0.25, output=4)
    models = [model.model_copy(update={"price": price}) for model in prepared.config.models]
    guessed = guess(models, prepared.prompts, BINARY)
    assert cost_table(models, guessed) == cost_table(prepared.config.models, guessed)
    usage, *_ = merge_usage(pilot.measured, guessed)
    saved = CACHED_TOKENS * (1 - 0.25) / 1e6
    assert cost_table(models, usage)[0][1].usd == pytest.approx((100 * 1 + 400 * 4) / 1e6 - saved)
    assert cost_table(models, usage)[1][1].usd == pytest.approx((100 * 1 + 400 * 4) / 1e6 - saved), "as the others"


def test_a_command_is_forecast_to_cost_what_it_has_reported(pilot: Pilot, prepared: PreparedRun) -> None:
    changes = {"price": None, "gpus": None, "command": ("./agent",)}
    models = [model.model_copy(update=changes) for model in prepared.config.models]
    usage, *_ = merge_usage(pilot.measured, guess(models, prepared.prompts, BINARY))
    wrong, right = cost_table(models, usage)[0]
    assert right == Cost(500, pytest.approx(0.0017), 0.0)
    assert wrong == Cost(1000, pytest.approx(0.0037), 0.0)
    assert cost_table(models, usage)[1] == (wrong, right), "as the others"
    assert cost_table(models, guess(models, prepared.prompts, BINARY))[0][0].usd == 0.0


def test_nothing_is_known_without_a_pilot_and_without_a_limit(tmp_path: Path) -> None:
    prepared = prepared_from(write_config(tmp_path, sampling={"temperature": 0.6}))
    usage = guess(prepared.config.models, prepared.prompts, BINARY)
    assert not usage.knows_tokens and not usage.knows_seconds
    prompt = len("What is q0?") / 4
    assert cost_table(prepared.config.models, usage)[0][0] == Cost(round(prompt), pytest.approx(prompt / 1e6), 0.0)


def test_the_spread_of_seconds_is_measured_within_categories() -> None:
    """Two log-normals with medians far apart, and sigma 0.3 each."""
    rng = np.random.default_rng(0)
    category = rng.integers(0, 2, 20_000)
    seconds = np.where(category == 1, 10.0, 90.0) * np.exp(0.3 * rng.standard_normal(20_000))
    measured: MeasuredUsage = measure(category, np.stack([seconds] * 5, axis=1), (2, 2))
    assert measured.log_spread[0] == pytest.approx(0.3, rel=0.02) and np.isnan(measured.log_spread[1])
    assert measured.sums[2, 0] / measured.trials[0] == pytest.approx(np.array([90.0, 10.0]) * np.exp(0.045), rel=0.02)


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


def test_observed_times_of_submitted_and_answered_batches_take_precedence_over_a_guess() -> None:
    assert measured_batch_seconds(EVENTS) == {"a": [600.0, 1200.0]}
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
    monkeypatch.setattr("adaptive_eval.study.pilot.GUESSED_BATCH_SECONDS", 24 * 3600.0)
    servers = [{"name": name, "launch": {"command": "serve --port {port}"}, "gpus": 1} for name in MODELS[:2]]
    batched = {"name": MODELS[2], "base_url": "http://127.0.0.1:9/v1", "batch": "openai"}
    path = write_config(tmp_path)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"models": [*servers, batched]}))
    forecast = make_forecast(prepared_from(path), lambda share, words: None, max_worlds=8)
    assert forecast.need.costs.seconds is not None
    assert forecast.need.costs.seconds.median >= 24 * 3600.0


@pytest.mark.parametrize("begun", [False, True])
def test_the_forecast_of_a_run_keeps_its_verdicts_under_a_larger_horizon(tmp_path: Path, begun: bool) -> None:
    """Also once looks are taken under it. Under it alone, so few trials decide nothing."""
    skills = {"ada": 0.9, "bob": 0.3}
    settings = {"store": str(tmp_path), "name": "run"}
    small, large = (
        played.prepared(tmp_path, [*skills], trials={"min": 4, "max": horizon}, **settings) for horizon in (12, 300)
    )
    played.Played(tmp_path / "run", small, skills).finish()
    if begun:
        played.Played(tmp_path / "run", large, skills).close()
    forecast = make_forecast(large, lambda share, words: None, max_worlds=5)
    assert forecast.spent is not None and forecast.need.costs.trials.high == forecast.spent.trials
    assert forecast.need.reached == 1.0


@pytest.mark.parametrize(("rounds", "cap"), [(1, 1.0), (None, None)])
def test_what_a_run_on_a_shared_place_has_needs_none(tmp_path: Path, rounds: int | None, cap: float | None) -> None:
    """Neither where a cap has ended it after its first look, nor where it is over."""
    launched = [{"name": name, "gpus": 1, "launch": {"command": "serve --port {port}"}} for name in MODELS]
    trials = {"min": 4, "max": 12, "optimize": "cost"}
    path = write_config(tmp_path, store=str(tmp_path), pool=[0], trials=trials, budget={"gpu_hours": cap})
    plan = prepared_from(path, f"models={json.dumps(launched)}")
    answers, held = store_run(plan, tmp_path / "small", rounds=rounds), {MODELS[0]: HeldTime(3600.0, 3600.0)._asdict()}
    events = [ServerLaunched(name, seconds=20.0) for name in MODELS]
    store_records(tmp_path / "small", plan.header, events=events, held=held)
    forecast = make_forecast(plan, lambda share, words: None, max_worlds=5)
    outlook = forecast.capped or forecast.need
    assert outlook.comparisons == 2 and outlook.costs.gpu_hours is not None
    assert (outlook.costs.gpu_hours.high, outlook.costs.trials.high) == (1.0, answers)
