"""Who goes on with an imported run grades as its logs did, or is told with examples before anything is asked."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import typed
from fakes import uniform
from logs import header, inspect_log, lines, outcomes, refusal, sample, taken
from scripted_server import ScriptedServer, scripted_server
from stored_runs import events_in, stored_header
from typer.testing import Result

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.prepare import stored_config
from adaptive_eval.notes import GraderChosen, TrialsImported, events_of_kind
from adaptive_eval.report.stored import open_run
from adaptive_eval.running.read_prior_outcomes import is_graded_by_logs

SKILLS = {"ada": 0.9, "bob": 0.3}
UNREACHED = {"base_url": "http://127.0.0.1:9/v1"}
QUESTIONS = 6


def is_right(model: str, question: int, epoch: int) -> bool:
    return uniform(model, question, epoch) < SKILLS[model]


def prose(model: str, question: int, epoch: int) -> str:
    """In the words of a chat model: equal to no key, though its last number is."""
    return f"In {epoch} ways one finds that it is {question + 20 if is_right(model, question, epoch) else 3}."


def says(model: str, question: str, seed: int) -> str:
    number = question.split()[1]
    return prose(model, int(number), seed) if number.isdecimal() else "OK."  # asked whether it is there


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(tuple(SKILLS), says) as saying_server:
        yield saying_server


def log(folder: Path, options: dict[str, object]) -> list[Path]:
    """Logs whose scorer takes the last number of an answer."""
    logs = []
    for model in SKILLS:
        samples = []
        for question in range(QUESTIONS):
            for epoch in range(1, 5):
                message = {"role": "assistant", "content": prose(model, question, epoch), "source": "generate"}
                output = {"choices": [{"message": message, "stop_reason": "stop"}], "usage": {}, "time": 1.0}
                samples.append(
                    sample(
                        f"q{question}",
                        epoch,
                        target=str(question + 20),
                        messages=[{"role": "user", "content": f"number {question}"}],
                        output=output,
                        scores={"match": {"value": "C" if is_right(model, question, epoch) else "I"}},
                    )
                )
        head = header(f"openai/{model}", scorers=[{"name": "match", "options": options}])
        logs.append(inspect_log(folder / f"{model}.eval", samples, head))
    return logs


def begun(folder: Path, options: dict[str, object]) -> tuple[Path, Result]:
    return folder / "run", taken(*log(folder, options), "--to", folder / "run")


def run_on(run: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, **changes: object) -> Result:
    """With the configuration beside it, and some sections changed."""
    for name in SKILLS:
        monkeypatch.setenv(f"OPENAI_{name.upper()}_URL", server.base_url)
    config = run / "config.yaml"
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | changes))
    return typed("run", config, "--run-dir", run, "--display", "plain")


def configured(folder: Path, grader: str, server: Mapping[str, Any] = UNREACHED, of: str = "", **more: object) -> Path:
    """A configuration with the questions of the logs, whose models have such a server; `of` begins their names."""
    rows = [{"id": f"q{n}", "prompt": f"number {n}", "answer": str(n + 20)} for n in range(QUESTIONS)]
    models = [{"name": f"{of}{name}", **server} for name in SKILLS]
    tree = {"questions": str(lines(folder / "questions.jsonl", rows)), "models": models, "grader": grader}
    config = folder / f"{grader}.yaml"
    config.write_text(yaml.safe_dump(tree | {"sampling": {"temperature": 0.5, "max_tokens": 99}} | more))
    return config


def graded_rows(**texts: Callable[[str, int, int], str]) -> list[dict[str, object]]:
    """A row for each trial, with its grade and texts."""
    return [
        {"model": model, "question": f"q{n}", "trial": epoch, "category": int(is_right(model, n, epoch))}
        | {name: text(model, n, epoch) for name, text in texts.items()}
        for model in SKILLS
        for n in range(QUESTIONS)
        for epoch in range(4)
    ]


def kind_of(run: Path) -> str:
    return stored_config(stored_header(run)).grader.kind


def test_a_scorer_of_numbers_is_known(tmp_path: Path) -> None:
    run, done = begun(tmp_path, {"numeric": True})
    assert kind_of(run) == "numeric" and "grades " not in done.stdout


def test_a_grader_that_gives_other_grades_is_left_out_and_not_gone_on_with(
    tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, done = begun(tmp_path, {})
    right = sum(outcomes(run).values())
    assert f"grades    exact grades {right} of 48 stored answers differently, for example" in done.stdout
    assert "key '20': stored correct, now " in done.stdout
    assert f"name a grader in {run / 'config.yaml'} that gives these grades" in done.stdout
    text = (run / "config.yaml").read_text()
    assert "grader" not in yaml.safe_load(text) and "or `exact`, does not reproduce their grades" in text
    assert kind_of(run) == "logged"

    without = run_on(run, server, monkeypatch)
    assert without.exit_code == ExitCode.CONFIGURATION and "grader" in without.stderr
    mixed = run_on(run, server, monkeypatch, grader="exact")
    assert mixed.exit_code == ExitCode.CONFIGURATION
    assert f"exact grades {right} of 48 stored answers differently" in mixed.stderr
    assert "adaptive-eval regrade" in mixed.stderr
    assert server.requests == [] and kind_of(run) == "logged"


@pytest.mark.slow
def test_a_grader_that_agrees_is_taken(tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = begun(tmp_path, {})
    before = outcomes(run)
    for _ in range(2):  # and the resume needs no sample any more
        ended = run_on(run, server, monkeypatch, grader="numeric", trials={"min": 4, "max": 6})
        assert ended.exit_code in (ExitCode.REACHED, ExitCode.SPENT), ended.stderr
    after = outcomes(run)
    assert {trial: after[trial] for trial in before} == before
    assert [(event.grader, event.compared) for event in events_in(run, GraderChosen)] == [("numeric", 48)]
    assert kind_of(run) == "numeric"
    refused = run_on(run, server, monkeypatch, grader="exact")
    assert refused.exit_code == ExitCode.CONFIGURATION and "other settings" in refused.stderr


def test_a_configuration_that_is_given_is_tried_too(tmp_path: Path, server: ScriptedServer) -> None:
    run, url, trials = tmp_path / "run", {"base_url": server.base_url}, {"min": 4, "max": 6, "optimize": "cost"}
    config, other = (configured(tmp_path, grader, url, trials=trials) for grader in ("exact", "numeric"))
    done = taken(lines(tmp_path / "log.jsonl", graded_rows(text=prose)), "--to", run, "--config", config)
    assert "stored answers differently" in done.stdout
    result = typed("run", config, "--run-dir", run, "--dry-run", code=ExitCode.CONFIGURATION)
    assert "stored answers differently" in result.stderr
    typed("run", other, "--run-dir", run, "--dry-run", code=ExitCode.REACHED)
    assert kind_of(run) == "logged"  # a dry run changes nothing
    refused = typed("validate", other, "--set", "grader=logged", code=ExitCode.CONFIGURATION)
    assert "is a placeholder for imported logs" in refused.stderr


WHOLE = {
    "categories": [
        {"name": "whole", "weight": 1, "when": {"is_correct": True, "truncated": False}},
        {"name": "right", "weight": 0.5, "when": {"is_correct": True}},
        {"name": "wrong", "weight": 0},
    ]
}


@pytest.mark.parametrize("rubric", ["binary", WHOLE])
def test_what_scorers_said_stands_until_a_grader_is_found_that_says_the_same(tmp_path: Path, rubric: object) -> None:
    """Logs with scores in place of categories, and a configuration whose grader reads otherwise."""
    logs = log(tmp_path, {"numeric": True})
    for grader, kind in (("exact", "logged"), ("numeric", "numeric")):
        run = tmp_path / grader
        done = taken(*logs, "--to", run, "--config", configured(tmp_path, grader, of="openai/", rubric=rubric))
        assert ("stored answers differently" in done.stdout) == (grader == "exact")
        assert kind_of(run) == kind
        right = 1 if rubric == "binary" else 0
        assert {key: category == right for key, category in outcomes(run).items()} == {
            (f"openai/{model}", f"q{number}", epoch - 1): is_right(model, number, epoch)
            for model in SKILLS
            for number in range(QUESTIONS)
            for epoch in range(1, 5)
        }


def test_grades_are_those_of_the_logs_until_a_grader_has_given_or_compared_them(tmp_path: Path) -> None:
    config = configured(tmp_path, "numeric")
    both = [*graded_rows()[:1], *graded_rows(text=prose)[1:]]
    for number, (rows, unchecked) in enumerate([(graded_rows(), True), (both, True), (graded_rows(text=prose), False)]):
        run = tmp_path / f"run {number}"
        done = taken(lines(tmp_path / "log.jsonl", rows), "--to", run, "--config", config)
        assert f" --run-dir '{run}'" in done.stdout, "a command to paste"
        assert ("nobody knows whether the grader gives the same" in " ".join(done.stdout.split())) is unchecked
        with open_run(run) as stored:
            assert is_graded_by_logs(stored) is unchecked
            (event,) = events_of_kind(stored.events, TrialsImported)
            assert event.graded_by == "numeric", "recorded, they are refused under another grader"
    run = tmp_path / "regraded"
    asked = [json.loads(line) for line in (tmp_path / "questions.jsonl").read_text().splitlines()]
    texts = [row | asked[int(str(row["question"])[1:])] for row in graded_rows(text=prose)]
    taken(lines(tmp_path / "log.jsonl", texts), "--to", run)
    seed = stored_config(stored_header(run)).seed
    config = configured(tmp_path, "numeric", sampling={}, seed=seed)
    for expected in (True, False):
        with open_run(run) as stored:
            assert is_graded_by_logs(stored) is expected
        typed("regrade", run, "--config", config, code=0)


def test_a_rubric_by_score_grades_a_table_of_scores(tmp_path: Path) -> None:
    """As the refusal of such a table advises."""
    good = {"name": "good", "weight": 1, "when": {"score": {"at_least": 0.7}}}
    fair = {"name": "fair", "weight": 0.4, "when": {"score": {"at_least": 0.5}}}
    rubric = {"categories": [good, fair, {"name": "poor", "weight": 0}]}
    config = configured(tmp_path, "reported", {"command": ["true"]}, sampling={}, rubric=rubric)
    scores = (0.8, 0.6, 0.2, 1, 0, 0.4)
    rows = [{"model": "ada", "question": f"q{number}", "score": score} for number, score in enumerate(scores)]
    taken(lines(tmp_path / "log.jsonl", rows), "--to", tmp_path / "run", "--config", config)
    assert list(outcomes(tmp_path / "run").values()) == [0, 1, 2, 0, 2, 2]


def test_a_length_that_a_log_does_not_say_is_not_0(tmp_path: Path) -> None:
    """Labels that agree with the grades leave the scores alone, and no other rubric is judged by lengths."""
    brief = {"name": "brief", "weight": 1, "when": {"is_correct": True, "completion_tokens": {"below": 6}}}
    rest = [{"name": "right", "weight": 0.5, "when": {"is_correct": True}}, {"name": "wrong", "weight": 0}]
    config = configured(tmp_path, "exact", rubric={"categories": [brief, *rest]})
    run, rows = tmp_path / "run", [{**row, "category": 2 - int(str(row["category"]))} for row in graded_rows()]
    taken(lines(tmp_path / "log.jsonl", rows), "--to", run, "--config", config)
    labels = [{**row, "label": "correct" if row["category"] == 1 else "wrong"} for row in rows]
    done = typed("label", run, "--from", lines(tmp_path / "labels.jsonl", labels))
    assert "The labels cannot be used: labels of ada have no category: the rubric needs the signal" in done.stdout
    lacking = "efficiency_adjusted: needs is_correct, repeated_pattern, token_ratio, which no trial has"
    assert lacking in typed("rescore", run).stdout
    right = lines(tmp_path / "right.jsonl", [{"model": "ada", "question": "q0", "correct": 1}])
    refused = refusal(right, "--to", tmp_path / "other", "--config", config)
    assert "has no completion_tokens of this trial, which the rubric needs" in refused


def test_scores_that_commands_have_reported_are_compared_as_they_were_reported(tmp_path: Path) -> None:
    def reported(*trial: Any) -> str:
        return json.dumps({"score": float(is_right(*trial)), "answer": "done"})

    trials = graded_rows(text=lambda *_: "done", reasoning=reported)
    config = configured(tmp_path, "reported", {"command": ["true"]}, sampling={})
    done = taken(lines(tmp_path / "log.jsonl", trials), "--to", tmp_path / "run", "--config", config)
    assert "stored answers differently" not in done.stdout and kind_of(tmp_path / "run") == "reported"
    trials[0]["category"] = 1 - int(str(trials[0]["category"]))
    done = taken(lines(tmp_path / "log.jsonl", trials), "--to", tmp_path / "other", "--config", config)
    assert "reported grades 1 of 48 stored answers differently" in done.stdout
