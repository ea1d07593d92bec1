"""The manager in Inspect's own hands: `inspect_ai.eval` with mock models."""

import asyncio
import gc
import runpy
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalConfig, EvalDataset, EvalSpec
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import SampleScore, Score
from mock_evals import evaluate
from patient_time import HANGS

from adaptive_eval.errors import ConfigError
from adaptive_eval.exchange.inspect import adapter as adapter
from adaptive_eval.exchange.inspect.adapter import AdaptiveStopping

ROOT = Path(__file__).parents[2]
SKILLS = {"mockllm/ada": 0.95, "mockllm/bob": 0.5, "mockllm/cyd": 0.1}
DECISIONS = {"trials": {"min": 3, "max": 10}, "stopping": {"confidence": 0.9}}


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:
    """What Inspect has left open is found while its warnings are still let through."""
    yield
    gc.collect()


@pytest.mark.slow
def test_models_are_ranked_and_what_was_not_needed_was_not_run(tmp_path: Path) -> None:
    manager = AdaptiveStopping(list(SKILLS), DECISIONS)
    assert manager.result() is None
    logs = evaluate(manager, SKILLS, tmp_path)
    results = manager.result()
    assert results is not None
    assert [row.name for row in results.models] == list(SKILLS)
    assert (results.run.status, results.run.reason) == ("finished", "settled")
    assert {pair.verdict for pair in results.pairs} == {"resolved"}
    assert results.cost.trials < results.cost.fixed_trials == 3 * 4 * 10
    for row in results.models:
        log = logs[row.name]
        assert log.status == "success" and log.results is not None and log.samples is not None
        assert len(log.samples) == row.trials
        accuracy = log.results.scores[0].metrics["accuracy"].value
        assert row.score == pytest.approx(accuracy)
        stops = log.results.early_stopping
        assert stops is not None and stops.manager == "adaptive-eval"
        assert len(stops.early_stops) + row.trials == 4 * 12
        assert {stop.reason for stop in stops.early_stops} == {stops.metadata["why_stopped"]}
        assert "the run ended (settled); comparisons of this model" in str(stops.metadata["why_stopped"])
        assert {type(stop.id) for stop in stops.early_stops} == {int}
        assert stops.metadata["samples_run"] == row.trials


@pytest.mark.slow
def test_an_error_is_no_wrong_answer_and_two_places_are_enough(tmp_path: Path) -> None:
    """Every third epoch of a question fails; what serves its trial is behind what is held."""
    skills = {"mockllm/ada": 1.0, "mockllm/cyd": 0.05}
    manager = AdaptiveStopping(list(skills), {"trials": {"min": 3, "max": 9}})
    logs = evaluate(
        manager,
        skills,
        tmp_path,
        epochs=20,
        fails=lambda model, sample, epoch: sample == 2 and epoch % 3 == 1,
        max_samples=2,
        fail_on_error=False,
    )
    results = manager.result()
    assert results is not None and results.run.reason == "settled"
    assert results.models[0].score == 1.0
    for row in results.models:
        log = logs[row.name]
        assert log.samples is not None and log.results is not None and log.results.early_stopping is not None
        failed = [one for one in log.samples if one.error is not None]
        metadata = log.results.early_stopping.metadata
        assert len(failed) == metadata["samples_lost"] >= 1
        assert len(log.samples) - len(failed) == row.trials


def test_a_model_whose_samples_all_fail_is_set_aside(tmp_path: Path) -> None:
    manager = AdaptiveStopping(list(SKILLS), DECISIONS)
    logs = evaluate(manager, SKILLS, tmp_path, fails=lambda model, *_: "cyd" in model, fail_on_error=False)
    results = manager.result()
    assert results is not None
    assert [(row.name, row.set_aside is not None) for row in results.models[:2]] == [
        ("mockllm/ada", False),
        ("mockllm/bob", False),
    ]
    assert "5 epochs in succession ended without a score for sample" in str(results.models[2].set_aside)
    assert (results.pairs[0].verdict, results.pairs[1].verdict) == ("resolved", "blocked")
    assert len(logs["mockllm/cyd"].samples or []) < 4 * 12  # those that had begun by then


@pytest.mark.slow
def test_a_model_whose_task_dies_is_set_aside_and_the_others_end(tmp_path: Path) -> None:
    manager = AdaptiveStopping(list(SKILLS), DECISIONS)
    logs = evaluate(manager, SKILLS, tmp_path, fails=lambda model, sample, epoch: "cyd" in model and epoch == 2)
    results = manager.result()
    assert logs["mockllm/cyd"].status == "error" and logs["mockllm/ada"].status == "success"
    assert results is not None
    assert "its task ended early" in str(results.models[2].set_aside)
    assert results.pairs[0].verdict == "resolved"


def test_models_that_run_one_after_the_other_end_with_the_reason(tmp_path: Path) -> None:
    logs = evaluate(AdaptiveStopping(list(SKILLS), DECISIONS), SKILLS, tmp_path, max_tasks=1)
    assert len(logs) == 3 and {log.status for log in logs.values()} == {"error"}
    told = "3 models must run at the same time, since a look needs all of them, but max_tasks is 1"
    assert all(log.error is not None and told in log.error.message for log in logs.values())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_tasks": None}, "but max_tasks is 1; run them in one call"),
        ({"retry_on_error": 2}, "retry_on_error puts a sample behind all that are held"),
        ({"score_on_error": True}, "score_on_error would count failures as answers"),
        ({"log_samples": False}, "log_samples is off"),
    ],
)
async def test_options_that_cannot_work_are_refused(options: dict[str, Any], told: str) -> None:
    task = spec("a").model_copy(update={"config": EvalConfig(**({"max_tasks": 2} | options))})
    with pytest.raises(ConfigError, match=told):
        await AdaptiveStopping(["a", "b"]).start_task(task, SAMPLES, 10)


async def test_more_trials_than_epochs_are_refused() -> None:
    with pytest.raises(ConfigError, match="trials.max is 10, but there are 6 epochs"):
        await AdaptiveStopping(["a", "b"], DECISIONS).start_task(spec("a"), SAMPLES, 6)


def spec(model: str, **changes: Any) -> EvalSpec:
    """What Inspect says of a task."""
    return EvalSpec(
        created="2026-01-01T00:00:00+00:00",
        task="task",
        dataset=EvalDataset(),
        model=model,
        config=EvalConfig(max_tasks=2),
        **changes,
    )


SAMPLES = [Sample(id="q1", input="?"), Sample(id="q2", input="?")]


@pytest.mark.parametrize(
    ("second", "samples", "epochs", "told"),
    [
        (spec("mockllm/eve"), SAMPLES, 10, "mockllm/eve is none of the manager's models, a, b"),
        (spec("a"), SAMPLES, 10, "a has begun before; make a new manager for every eval"),
        (spec("b"), SAMPLES[:1], 10, "b has 1 samples in 10 epochs, but the first model 2 in 10, or others"),
        (spec("b"), SAMPLES, 9, "b has 2 samples in 9 epochs"),
        (
            spec("b", model_generate_config=GenerateConfig(seed=7)),
            SAMPLES,
            10,
            "b has seed=7, which Inspect sends in every epoch",
        ),
    ],
)
async def test_models_that_cannot_be_compared_are_refused_and_nothing_is_held_any_more(
    second: EvalSpec, samples: list[Sample], epochs: int, told: str
) -> None:
    manager = AdaptiveStopping(["a", "b"], {"trials": {"min": 1}, "allocation": {"lookahead": 0}})
    assert await manager.start_task(spec("a"), SAMPLES, 10) == "adaptive-eval"
    assert await manager.schedule_sample("q1", 1) is None
    held = asyncio.create_task(manager.schedule_sample("q1", 2))  # no look without b
    await asyncio.sleep(0)
    assert not held.done()
    with pytest.raises(ConfigError, match=told):
        await asyncio.create_task(manager.start_task(second, samples, epochs))
    with pytest.raises(ConfigError, match=told):
        await held
    with pytest.raises(ConfigError, match=told):
        await manager.schedule_sample("q2", 1)


async def test_scores_that_came_before_count_and_those_that_are_no_number_are_told() -> None:
    """An attempt that Inspect repeats brings the samples that it has already, without asking."""
    manager = AdaptiveStopping(["a"], {"objective": {"kind": "precision", "half_width": 0.4}, "trials": {"min": 2}})
    await manager.start_task(spec("a"), SAMPLES, 10)
    for epoch in range(1, 11):
        for sample in ("q1", "q2"):
            await manager.complete_sample(sample, epoch, {"match": SampleScore(score=Score(value="C"))})
    results = manager.result()
    assert results is not None and results.models[0].score == 1.0 and results.models[0].trials >= 4
    with pytest.raises(ConfigError, match=r"scorer match gave 'maybe', but a trial needs one number"):
        await manager.complete_sample("q1", 1, {"match": SampleScore(score=Score(value="maybe"))})


async def test_of_several_scorers_one_has_to_be_named() -> None:
    scores = {name: SampleScore(score=Score(value=value)) for name, value in (("match", "I"), ("judge", "C"))}
    settings = {"objective": {"kind": "precision", "half_width": 0.4}, "trials": {"min": 1}}
    for scorer, told in (
        (None, "must have one score, but has match, judge"),
        ("eve", "scorer is eve, but a sample has"),
    ):
        manager = AdaptiveStopping(["a"], settings, scorer=scorer)
        await manager.start_task(spec("a"), SAMPLES, 10)
        with pytest.raises(ConfigError, match=told):
            await manager.complete_sample("q1", 1, scores)
    manager = AdaptiveStopping(["a"], settings, scorer="judge")
    await manager.start_task(spec("a"), SAMPLES, 10)
    for sample in ("q1", "q2"):
        await manager.complete_sample(sample, 1, scores)
    results = manager.result()
    assert results is not None and results.models[0].score == 1.0


async def test_a_model_that_does_not_begin_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "START_SECONDS", 0.01)
    manager = AdaptiveStopping(["a", "b"], {"trials": {"min": 1}, "allocation": {"lookahead": 0}})
    await manager.start_task(spec("a"), SAMPLES, 10)
    for sample in ("q1", "q2"):
        assert await manager.schedule_sample(sample, 1) is None
        await manager.complete_sample(sample, 1, {"match": SampleScore(score=Score(value="C"))})
    stop = await asyncio.wait_for(manager.schedule_sample("q1", 2), HANGS)
    assert stop is not None and (stop.id, stop.epoch) == ("q1", 2)
    assert stop.reason == "the run ended (blocked); comparisons of this model: 1 blocked"


def test_without_inspect_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.util", None)
    monkeypatch.delitem(sys.modules, "adaptive_eval.exchange.inspect.adapter")
    with pytest.raises(ConfigError, match=r"pip install 'adaptive-eval\[inspect\]'"):
        import_module("adaptive_eval.exchange.inspect.adapter")


@pytest.mark.slow
def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path))
    runpy.run_path(str(ROOT / "examples" / "inspect_adaptive.py"), run_name="__main__")
    told = capsys.readouterr().out
    assert "tier 1  mockllm/ada" in told and " of 800 samples were run" in told
    assert len(list(tmp_path.glob("*.eval"))) == 4
