"""Tasks of lm-evaluation-harness, by the real package and tasks in local files: `pytest -m harness tests/lm_eval`."""

import json
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from small_http import JsonHandler, ThreadedServer, completion, serving_in_a_thread
from typer.testing import CliRunner

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli import app
from adaptive_eval.lm_eval.tasks import grade, load_task, rows
from adaptive_eval.questions import Question
from adaptive_eval.report.reader import RunReader

pytestmark = pytest.mark.harness

QUESTIONS = 12
REGEX, FIRST = {"function": "regex"}, {"function": "take_first"}
TASK = {
    "task": "sums",
    "dataset_path": "json",
    "test_split": "test",
    "fewshot_split": "train",
    "output_type": "generate_until",
    "doc_to_text": "Q: {{question}}\nA:",
    "doc_to_target": "{{answer}}",
    "generation_kwargs": {"until": ["Q:"], "do_sample": False},
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    "filter_list": [
        {"name": "strict", "filter": [REGEX | {"regex_pattern": r"#### (\-?[0-9]+)"}, FIRST]},
        {"name": "last", "filter": [REGEX | {"group_select": -1, "regex_pattern": r"(-?[0-9]+)"}, FIRST]},
    ],
}


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a task of the harness's own format, and its data."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    load_task.cache_clear()
    folder = tmp_path / "tasks"
    folder.mkdir()
    files = {}
    for split, first, number in (("test", 1, QUESTIONS), ("train", 50, 5)):
        file = folder / f"{split}.jsonl"
        hashes = "#### " if split == "train" else ""
        documents = [{"question": f"{n} + {n}?", "answer": f"{hashes}{2 * n}"} for n in range(first, first + number)]
        file.write_text("\n".join(map(json.dumps, documents)))
        files[split] = str(file)
    (folder / "sums.yaml").write_text(yaml.safe_dump(TASK | {"dataset_kwargs": {"data_files": files}}))
    choice = TASK | {"task": "chosen", "output_type": "multiple_choice", "doc_to_choice": ["a", "b"]}
    choice["doc_to_target"] = 0
    del choice["filter_list"]
    choice["metric_list"] = [{"metric": "acc"}]
    (folder / "chosen.yaml").write_text(yaml.safe_dump(choice | {"dataset_kwargs": {"data_files": files}}))
    for name, kind in (("away", choice), ("away_too", TASK)):
        elsewhere = {"task": name, "dataset_path": "nobody/nothing"}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(kind | elsewhere))
    return folder


def question(tasks: Path, number: int = 0) -> Question:
    row = list(rows("sums", 2, str(tasks)))[number]
    return Question(row["id"], row["prompt"], row["answer"], metadata={"doc": row["doc"]})


def test_prompts_are_the_harness_s_with_its_examples(tasks: Path) -> None:
    first, *_ = prompts = list(rows("sums", 2, str(tasks)))
    assert len(prompts) == QUESTIONS and first["answer"] == "2"
    assert first["prompt"].endswith("\n\nQ: 1 + 1?\nA:") and first["prompt"].count("#### ") == 2
    assert prompts == list(rows("sums", 2, str(tasks))), "the same examples each time"
    assert [row["prompt"] for row in rows("sums", 0, str(tasks), limit=3)] == [f"Q: {n} + {n}?\nA:" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("text", "strict", "last"),
    [
        ("It is 2.\n#### 2", True, True),
        ("It is 2", False, True),
        ("#### 3\nQ: and now #### 2", False, False),
        ("<think>#### 3</think>#### 2", True, True),
        ("<think>#### 2", False, False),
        ("", False, False),
    ],
)
def test_the_task_grades(tasks: Path, text: str, strict: bool, last: bool) -> None:
    options = {"task": "sums", "num_fewshot": 2, "include_path": str(tasks)}
    marks = grade(text, question(tasks), **options)
    assert marks["is_correct"] is strict and marks["score"] == float(strict)
    assert grade(text, question(tasks), metric="exact_match,last", **options)["is_correct"] is last
    with pytest.raises(ConfigError, match="no metric 'bleu'; its metrics are exact_match,strict, exact_match,last"):
        grade(text, question(tasks), metric="bleu", **options)


def test_what_cannot_be_asked_is_refused_with_the_reason(tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("chosen", "away"):
        with pytest.raises(ConfigError, match=rf"task {name} compares .* repeated trials add nothing"):
            load_task(name, None, str(tasks))
    monkeypatch.setattr("adaptive_eval.lm_eval.tasks.use_cache_without_hub", lambda: "; it is away")
    with pytest.raises(ConfigError, match="away_too could not be loaded: .*; it is away"):
        load_task("away_too", None, str(tasks))
    with pytest.raises(ConfigError, match="there is no task 'nothing'"):
        load_task("nothing", None, str(tasks))


@contextmanager
def served(skills: dict[str, float]) -> Iterator[str]:
    """A model server that adds right with a probability that its model's name says, by the seed."""

    class Handler(JsonHandler):
        def do_POST(self) -> None:
            request = self.asked()
            (number,) = re.findall(r"(\d+) \+ \d+\?\nA:$", request["messages"][-1]["content"])
            chance = random.Random(f"{request['model']} {request['seed']} {number}")
            right = 2 * int(number) + (chance.random() >= skills[request["model"]])
            self.reply({**completion(f"{number} twice.\n#### {right}", usage=(20, 9)), "model": request["model"]})

        def do_GET(self) -> None:
            self.reply(b"", 404)

    with serving_in_a_thread(ThreadedServer(Handler)) as server:
        yield server.base_url


def test_a_run_of_a_task_ranks_models_and_stores_its_grades(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with served({"good": 0.95, "bad": 0.3}) as url:
        models = [{"name": name, "base_url": url} for name in ("bad", "good")]
        benchmark = {"lm_eval": "sums", "num_fewshot": 2, "include_path": "tasks"}
        config = {"benchmark": benchmark, "questions": {"limit": 10}, "models": models, "trials": {"max": 20}}
        config["sampling"] = {"max_tokens": 64, "temperature": 0.7}
        (tmp_path / "sums.yaml").write_text(yaml.safe_dump(config))
        ended = CliRunner().invoke(app, ["run", "sums.yaml", "--display", "plain"])
        assert ended.exit_code == 0, ended.output
    with RunReader.intact(tmp_path / "runs" / "sums") as reader:
        header = reader.header()
        records = [record for model in ("bad", "good") for record in reader.model_trials(model)]
    assert set(header.models) == {"bad", "good"} and {record.question for record in records} == set(map(str, range(10)))
    for record in records:
        right = record.answer.text.endswith(f"#### {2 * int(record.question) + 2}")
        assert record.signals["is_correct"] is right
    results = json.loads((tmp_path / "runs" / "sums" / "results.json").read_text())
    assert [row["name"] for row in results["models"]] == ["good", "bad"]
