"""Inspect logs, read by Inspect itself."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from inspect_logs import read_log, read_sample, read_summaries
from live_runs import MODELS as LIVE_MODELS
from live_runs import Site
from logs import header, imported, inspect_log, lines, outcomes, sample, taken
from small_run import HOSTILE, make_run, make_trial, ragged
from stored_runs import stored_trials

from adaptive_eval.endpoints.types import AnswerLogprobs
from adaptive_eval.exchange.export import export
from adaptive_eval.exchange.samples import NO_ANSWER
from adaptive_eval.report.results_file import RESULTS_FILE

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog


def logs_of(directory: Path) -> "dict[str, EvalLog]":
    """Every exported log of a run, by its file."""
    folder = export(directory, "inspect").path
    return {file.name: read_log(file) for file in sorted(folder.iterdir())}


@pytest.mark.slow
def test_a_log_a_model_with_every_trial_as_an_epoch_and_a_conversation(tmp_path: Path) -> None:
    run = make_run(tmp_path, ragged())
    logs, folder = logs_of(run), run / "inspect"
    assert list(logs) == ["bob.eval", "org-ada-7b.eval"]
    bob = logs["bob.eval"]
    assert (bob.eval.model, bob.eval.task, bob.eval.dataset.sample_ids) == ("bob", "made", ["q1", "q2"])
    assert (bob.eval.config.epochs, bob.eval.model_generate_config.temperature) == (5, 0.6)
    assert bob.samples is not None and bob.results is not None
    assert " ".join(f"{row.id}#{row.epoch}" for row in bob.samples) == "q1#1 q2#1 q1#2 q2#2 q1#3 q1#4"
    assert bob.stats.model_usage["bob"].output_tokens == 4 * 20 + 6 + 2 * 20 + 1
    assert (bob.results.total_samples, bob.results.completed_samples) == (10, 5)
    assert (bob.results.scores[0].scored_samples, bob.results.scores[0].unscored_samples) == (5, 1)

    sample = read_sample(folder / "org-ada-7b.eval", "q1", 3)
    assert [(message.role, message.text) for message in sample.messages] == [
        ("system", "Be brief."),
        ("user", "one? Think."),
        ("assistant", "org/ada: 7b says 2"),
    ]
    assert sample.messages[-1].content[0].reasoning == "because"  # type: ignore[union-attr]
    assert (sample.target, sample.output.completion, sample.output.stop_reason) == ("1", "org/ada: 7b says 2", "stop")
    assert sample.scores is not None
    score = sample.scores["math"]
    assert (score.value, score.answer, score.metadata and score.metadata["label"]) == ("I", "2", "wrong")
    assert (sample.metadata["seed"], sample.metadata["usd"], sample.total_time) == (102, 0.25, 1.5)
    assert sample.output.usage is not None and sample.output.usage.total_tokens == 32

    ungraded, failure = read_sample(folder / "bob.eval", "q1", 2), "the grader failed: killed after 10 s"
    assert ungraded.error is not None and ungraded.error.message == failure and not ungraded.scores
    assert [summary.error for summary in read_summaries(folder / "bob.eval") if summary.error] == [failure]


def rubric(*weights: float) -> dict[str, object]:
    """Categories that are worth so much."""
    when: list[dict[str, object]] = [{}, {"when": {"is_correct": True, "has_box": True}}, {"when": {"has_box": True}}]
    named = zip(("low", "mid", "high"), weights, when, strict=True)
    return {"categories": [{"name": name, "weight": weight, **condition} for name, weight, condition in named]}


@pytest.mark.parametrize(
    ("weights", "values"), [((0.0, 0.5, 1.0), ["I", "P", "C", "N"]), ((0.0, 1.0, 3.0), [0.0, 1.0, 3.0, 0.0])]
)
def test_scores_are_letters_where_these_say_it_all_and_else_numbers(
    tmp_path: Path, weights: tuple[float, ...], values: list[object]
) -> None:
    trials = [make_trial("bob", "q1", number, number) for number in range(3)]
    trials.append(make_trial("bob", "q1", 3, 0, signals={"is_correct": False, "has_answer": False}))
    (log,) = logs_of(make_run(tmp_path, trials, rubric=rubric(*weights))).values()
    assert log.samples is not None
    assert [row.scores["math"].value for row in log.samples if row.scores] == values
    assert log.eval.scorers is not None
    assert log.eval.scorers[0].metadata == {"categories": dict(zip(("low", "mid", "high"), weights, strict=True))}


ENDS = {"stop": "stop", "length": "max_tokens", "content_filter": "content_filter", "odd one": "unknown"}


def test_what_a_model_wrote_stays_text_and_why_it_ended_is_said_in_the_words_of_inspect(tmp_path: Path) -> None:
    logprobs = AnswerLogprobs(("bob", " says", " 1"), (-0.25, -1.5, -0.125))
    trials = [make_trial("bob", "q1", number, 1, text=text) for number, text in enumerate(HOSTILE)]
    for number, reason in enumerate(ENDS):
        trials.append(make_trial("bob", "q2", number, 1, finish_reason=reason, token_logprobs=logprobs))
    (log,) = logs_of(make_run(tmp_path, trials)).values()
    assert log.samples is not None
    samples = sorted(log.samples, key=lambda row: (row.id, row.epoch))
    completions = [row.output.completion for row in samples if row.id == "q1"]
    assert completions == [text.encode("utf-8", "replace").decode() for text in HOSTILE]
    ended = [row.output for row in samples if row.id == "q2"]
    assert [output.stop_reason for output in ended] == list(ENDS.values())
    for output in ended:
        logged = output.choices[0].logprobs
        assert logged is not None, "every token has its log probability"
        assert AnswerLogprobs(*zip(*((one.token, one.logprob) for one in logged.content), strict=True)) == logprobs


def test_models_whose_names_are_alike_have_a_file_each(tmp_path: Path) -> None:
    names = ("a/b", "a:b", "A-B", "...")
    models = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in names]
    logs = logs_of(make_run(tmp_path, [make_trial(name, "q1", 0, 1) for name in names], models=models))
    assert {file: log.eval.model for file, log in logs.items()} == {
        "a-b.eval": "a/b",
        "a-b-2.eval": "a:b",
        "A-B-3.eval": "A-B",
        "model.eval": "...",
    }
    assert len({log.eval.eval_id for log in logs.values()}) == 4


@pytest.mark.slow
def test_the_metrics_are_those_of_the_results(site: Site) -> None:
    site.run(site.write())
    logs = logs_of(site.directory())
    results = json.loads((site.directory() / RESULTS_FILE).read_text())
    assert list(logs) == sorted(f"{name}.eval" for name in LIVE_MODELS)
    for row in results["models"]:
        log = logs[f"{row['name']}.eval"]
        assert log.status == "success" and log.results is not None
        metrics = {name: metric.value for name, metric in log.results.scores[0].metrics.items()}
        assert metrics["avg"] == row["score"] and metrics["avg_sigma"] == row["sigma"]
        assert metrics["bayes"] == row["bayes"] and metrics["bayes_sigma"] == row["bayes_sigma"]


def test_logs_that_were_imported_are_as_whole_as_they_were(tmp_path: Path) -> None:
    """Nobody has cancelled them, though their trials leave comparisons open."""
    samples = [sample(key, epoch, "CI"[epoch % 2]) for key in ("q1", "q2") for epoch in (1, 2, 3)]
    files = [
        inspect_log(tmp_path / f"{name}.eval", given, header(name))
        for name, given in (("ada", samples), ("bob", samples[:-1]))
    ]
    run = tmp_path / "run"
    taken(*files, "--to", run, "--scorer", "match")
    logs = logs_of(run)
    assert {name: log.status for name, log in logs.items()} == {"ada.eval": "success", "bob.eval": "success"}


def test_a_trial_of_which_only_the_grade_is_known_goes_through_inspect_as_one(tmp_path: Path) -> None:
    rows = [{"model": "a", "question": f"q{n}", "trial": trial, "category": n} for n in range(2) for trial in range(2)]
    assert imported(lines(tmp_path / "t.jsonl", rows), "--to", tmp_path / "run").exit_code == 0
    path = export(tmp_path / "run", "inspect", tmp_path / "logs").path
    (log,) = path.iterdir()
    sample = read_sample(log, "q1", 2)
    assert (sample.output.choices, sample.output.completion, len(sample.messages)) == ([], "", 1)
    taken(path, "--to", tmp_path / "again")
    assert outcomes(tmp_path / "again") == outcomes(tmp_path / "run")
    assert {record.answer for record in stored_trials(tmp_path / "again")} == {NO_ANSWER}
