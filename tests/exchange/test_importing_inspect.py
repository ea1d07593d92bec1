"""Inspect logs: made by Inspect itself, and made to be strange."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from logs import DEFLATED, STORED, ZSTANDARD, archive, header, imported, inspect_log, outcomes, refusal, sample, taken
from stored_runs import events_in, stored_header, stored_trials

from adaptive_eval.notes import TrialsImported
from adaptive_eval.report.results_file import read_results


def wrote(content: object, stop_reason: str = "stop") -> dict[str, object]:
    """A sample's output."""
    return {"choices": [{"message": {"content": content}, "stop_reason": stop_reason}]}


BY_INSPECT = """
import sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log, write_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate, solver

@solver
def failing():
    async def solve(state, generate):
        if state.sample_id == "b" and state.epoch == 2:
            raise RuntimeError("no luck")
        return state
    return solve

said = ["4", "5", "4", "4", "3", "4"]
outputs = [ModelOutput.from_content("mockllm/model", one) for one in said]
for output in outputs:  # else the mock loads a tokenizer from the network
    output.usage = ModelUsage(input_tokens=7, output_tokens=1, total_tokens=8)
model = get_model("mockllm/model", custom_outputs=outputs)
samples = [Sample(id="a", input="2+2?", target="4"), Sample(id="b", input="1+3?", target="4")]
task = Task(dataset=samples, solver=[failing(), generate()], scorer=match())
options = {"epochs": 3, "display": "none", "fail_on_error": False, "max_samples": 1, "temperature": 0.7}
(log,) = eval(task, model=model, log_dir=sys.argv[1], **options)
write_eval_log(read_eval_log(log.location), sys.argv[1] + "/log.json")
"""


@pytest.mark.slow
def test_logs_by_inspect_itself(tmp_path: Path) -> None:
    """An .eval and a JSON log of 3 epochs with its mock model; the second question fails in epoch 2."""
    pytest.importorskip("inspect_ai")
    logs = tmp_path / "logs"
    subprocess.run([sys.executable, "-c", BY_INSPECT, str(logs)], check=True, capture_output=True)
    outcomes_of_runs = []
    for number, path in enumerate([next(logs.glob("*.eval")), logs / "log.json"]):
        run = tmp_path / str(number)
        done = taken(path, "--to", run)
        assert "5 trials of 1 model on 2 questions" in done.stdout
        assert "missing   1 of mockllm/model: 1 error: RuntimeError" in done.stdout
        outcomes_of_runs.append(outcomes(run))
    assert outcomes_of_runs[0] == outcomes_of_runs[1]
    assert sorted((question, trial) for _, question, trial in outcomes_of_runs[0]) == [
        ("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)
    ]  # fmt: skip
    config = (tmp_path / "0" / "config.yaml").read_text()
    assert "temperature: 0.7" in config
    assert "base_url: ${MOCKLLM_MODEL_URL}" in config


@pytest.mark.parametrize("method", [STORED, DEFLATED, ZSTANDARD])
def test_everything_that_is_logged_is_kept(tmp_path: Path, method: int) -> None:
    run = tmp_path / "run"
    taken(inspect_log(tmp_path / "log.eval", [sample(), sample("q2", value="I")], method=method), "--to", run)
    (first, second), header, (event,) = stored_trials(run), stored_header(run), events_in(run, TrialsImported)
    assert (first.model, first.question, first.trial, first.category) == ("openai/m", "q1", 0, 1)
    assert (first.answer.text, first.answer.prompt_tokens, first.answer.completion_tokens) == ("answer 1", 12, 5)
    assert (first.answer.latency, first.answer.seed, first.extracted) == (1.5, -1, "4")
    assert first.cost.tokens == 17 and second.category == 0
    question, model = header.questions["q1"], header.models["openai/m"]
    assert question == {"prompt": "2 + q1?", "answer": "4", "choices": [], "cluster": None, "metadata": {}}
    assert (model["model"], model["prompt"]) == ("m", {"system": "Be brief."})
    assert model["sampling"] == {"temperature": 0.5, "max_tokens": 99}
    assert (event.trials, event.files) == (2, ("log.eval",))


def test_answers_keep_signals_reasoning_texts_that_lie_elsewhere_and_scores_as_categories(tmp_path: Path) -> None:
    content = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "attachment://x"}]
    scores = {"C": 1, "I": 0, "N": 0, True: 1, 0: 0, "1.0": 1, "yes": 1}
    samples = [
        sample(output=wrote("cut", "max_tokens")),
        sample(epoch=2, limit={"type": "time", "limit": 3}),
        sample(epoch=3, output=wrote(" ", "content_filter")),
        sample(epoch=4, output=wrote(content), attachments={"x": "forty-two"}),
        *(sample("q2", epoch, value) for epoch, value in enumerate(scores, 1)),
    ]
    # one that was cut short has what it has
    taken(inspect_log(tmp_path / "l.eval", samples, finished=False), "--to", tmp_path / "run")
    answers = [record.answer for record in stored_trials(tmp_path / "run") if record.question == "q1"]
    signals = ("truncated", "length"), ("timed_out", "stop"), ("empty", "content_filter")
    for answer, (signal, reason) in zip(answers, signals, strict=False):
        assert signal in answer.signals and answer.finish_reason == reason
    assert (answers[3].text, answers[3].reasoning) == ("forty-two", "hm")
    of_q2 = [category for (_, question, _), category in outcomes(tmp_path / "run").items() if question == "q2"]
    assert of_q2 == list(scores.values())


def test_failed_and_void_samples_are_missing_never_wrong(tmp_path: Path) -> None:
    samples = [
        sample(epoch=1),
        sample(epoch=2, error={"message": "server gone"}, scores={}),
        sample(epoch=3, invalidation={"reason": "leak"}),
        sample(epoch=4, output={"choices": [], "error": "429"}),
        sample(epoch=5, value="I"),
        sample(epoch=6, value="I", output=wrote("half an ans", "network_error")),
    ]
    done = imported(inspect_log(tmp_path / "l.eval", samples), "--to", tmp_path / "run")
    assert outcomes(tmp_path / "run") == {("openai/m", "q1", 0): 1, ("openai/m", "q1", 1): 0}
    assert "missing   4 of openai/m" in done.stdout
    (warning,) = [warning for warning in read_results(tmp_path / "run").warnings if warning.kind == "missing"]
    assert warning.text.startswith("4 records in its logs are not trials (")
    again = inspect_log(tmp_path / "retry.eval", [sample(), sample(epoch=2, value="I", uuid="y")])
    done = imported(tmp_path / "l.eval", again, "--to", tmp_path / "retried")
    assert "copies    1 records" in done.stdout, "a retry has copies of what was done before"
    assert list(outcomes(tmp_path / "retried").values()) == [1, 0, 0]


def test_an_answer_that_was_not_scored_is_kept_for_a_grader_and_bounded(tmp_path: Path) -> None:
    logs = [
        inspect_log(tmp_path / "a.eval", [sample(), sample(epoch=2, value=float("nan"))], header("openai/a")),
        inspect_log(tmp_path / "b.eval", [sample(), sample(epoch=2)], header("openai/b")),
    ]
    taken(*logs, "--to", tmp_path / "run")
    assert outcomes(tmp_path / "run")["openai/a", "q1", 1] is None
    rows = {row.name: row for row in read_results(tmp_path / "run").models}
    assert len(rows) == 2 and all(row.set_aside is None for row in rows.values())
    assert (rows["openai/a"].lowest, rows["openai/a"].highest) == (0.5, 1.0)


def test_the_journal_alone_gives_the_scores(tmp_path: Path) -> None:
    summaries = [
        {"id": "q1", "epoch": epoch, "input": "2?", "target": "4", "scores": {"match": {"value": value}}}
        for epoch, value in ((1, "C"), (2, "I"))
    ]
    journal = {f"_journal/summaries/{number}.json": [summary] for number, summary in enumerate(summaries, start=1)}
    members = [("_journal/start.json", header()), *journal.items()]
    log = archive(tmp_path / "l.eval", [(name, json.dumps(value).encode()) for name, value in members])
    taken(log, "--to", tmp_path / "run")
    assert list(outcomes(tmp_path / "run").values()) == [1, 0]
    refused = refusal(log, "--to", tmp_path / "other", "--grader", "math")
    assert "_journal/summaries/1.json, sample 1: has no text to grade" in refused


def test_of_several_scores_one_is_chosen(tmp_path: Path) -> None:
    scores = {"match": {"value": "I"}, "judge": {"value": {"style": 0, "truth": 1}}}
    words = (inspect_log(tmp_path / "l.eval", [sample(scores=scores)]), "--to", tmp_path / "run")
    several = "has several scores (match, judge.style, judge.truth); choose one with --scorer NAME"
    assert several in refusal(*words) and "has no score 'x', but match" in refusal(*words, "--scorer", "x")
    taken(*words, "--scorer", "judge.truth")
    assert list(outcomes(tmp_path / "run").values()) == [1]


def test_scores_of_two_scorers_are_not_compared(tmp_path: Path) -> None:
    one = inspect_log(tmp_path / "one.eval", [sample()])
    other = sample(scores={"includes": {"value": "I"}})
    two = inspect_log(tmp_path / "two.eval", [other], header("openai/n"))
    message = refusal(one, two, "--to", tmp_path / "run")
    assert "the grade is that of 'includes' here, and of 'match' in" in message and "one.eval" in message
    taken(one, two, "--to", tmp_path / "anew", "--grader", "exact")
    elsewhere = inspect_log(tmp_path / "three.eval", [other], header("openai/n", task="words"))
    taken(one, elsewhere, "--to", tmp_path / "tasks")  # each task has its scorer


def test_a_score_that_the_rubric_does_not_know_is_refused_and_can_be_declared(tmp_path: Path) -> None:
    samples = [sample(), sample(epoch=2, value="P"), sample(epoch=3, value="I")]
    words = (inspect_log(tmp_path / "l.eval", samples), "--to", tmp_path / "run")
    assert "l.eval: samples/q1_epoch_2.json: a score must be the weight of one category" in refusal(*words)
    taken(*words, "--weights", "0,0.5,1")
    assert list(outcomes(tmp_path / "run").values()) == [2, 1, 0]
    rest, *named = stored_header(tmp_path / "run").meaning["rubric"]["categories"]
    assert rest == {"name": "score 0", "weight": 0.0}
    assert named == [{"name": f"score {score:g}", "weight": score, "when": {"score": score}} for score in (0.5, 1.0)]


def test_one_name_under_two_samplings_is_two_models(tmp_path: Path) -> None:
    cold = inspect_log(tmp_path / "cold.eval", [sample()], header(model_generate_config={"temperature": 0.0}))
    warm = inspect_log(tmp_path / "warm.eval", [sample()])
    message = refusal(cold, warm, "--to", tmp_path / "run")
    assert "'temperature': 0.5" in message and "cold.eval" in message and "warm.eval" in message
    taken(f"cold={cold}", f"warm={warm}", "--to", tmp_path / "run")
    assert {model for model, _, _ in outcomes(tmp_path / "run")} == {"cold", "warm"}
    other = inspect_log(tmp_path / "other.eval", [sample(target="5")], header("openai/b"))
    assert "the answer of question 'q1' is '5' here, and '4' in" in refusal(warm, other, "--to", tmp_path / "mixed")


@pytest.mark.parametrize(
    ("target", "grader", "problem"),
    [
        (["4", "four"], "exact", "samples/q1_epoch_1.json: has several right answers"),
        ("", "exact", "samples/q1_epoch_1.json: question 'q1' has no answer to compare with"),
        ("", "exakt", "--grader must be one of exact"),
        ("", "regex", "has required options"),
    ],
)
def test_a_key_that_the_grader_cannot_use_is_named(tmp_path: Path, target: object, grader: str, problem: str) -> None:
    log = inspect_log(tmp_path / "l.eval", [sample(target=target)])
    assert problem in refusal(log, "--to", tmp_path / "run", "--grader", grader)
    taken(log, "--to", tmp_path / "run")  # the log has graded it
