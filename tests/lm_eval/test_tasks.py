"""Tasks of lm-evaluation-harness, by the real package and tasks in local files: `pytest -m harness tests/lm_eval`."""

import json
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import yaml
from small_http import JsonHandler, ThreadedServer, completion, serving_in_a_thread
from typer.testing import CliRunner

from adaptive_eval.base.errors import ConfigError, ExitCode, PartialCredit
from adaptive_eval.cli import app
from adaptive_eval.config.load import load_config
from adaptive_eval.config.task_sampling import load_run
from adaptive_eval.graders.rubric import Rubric, RubricConfig, apply_rubric, open_rubric
from adaptive_eval.lm_eval.tasks import grade, load_task, prepare, require_direction, rows
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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tasks of the harness's own format are, and no others."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    load_task.cache_clear()
    folder = tmp_path / "tasks"
    folder.mkdir()
    return folder


@pytest.fixture
def tasks(folder: Path) -> Path:
    """A folder with a task, and its data."""
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


def test_a_run_of_a_task_ranks_models_and_stores_its_grades(tasks: Path, tmp_path: Path) -> None:
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
        records = list(reader.trials())
    assert set(header.models) == {"bad", "good"} and {record.question for record in records} == set(map(str, range(10)))
    for record in records:
        right = record.answer.text.endswith(f"#### {2 * int(record.question) + 2}")
        assert record.signals["is_correct"] is right
    results = json.loads((tmp_path / "runs" / "sums" / "results.json").read_text())
    assert [row["name"] for row in results["models"]] == ["good", "bad"]


FUNCTIONS = """
import numpy as np


def words(doc, results):
    said, key = set(results[0].split()), set(doc["answer"].split())
    common = len(said & key)
    f1 = 2 * common / (len(said) + len(key)) if said or key else 0.0
    wrong = np.float32(f1 < 1)
    return {"f1": f1, "percent": f1, "errors": len(key - said), "wrong": wrong, "pair": (key, said), "largest": f1}


def percent(values):
    return 100 * sum(values) / len(values)


def largest(values):
    return max(values)
"""
METRICS = """
metric_list:
  - {metric: f1, aggregation: mean, higher_is_better: true}
  - {metric: percent, aggregation: !function functions.percent, higher_is_better: true}
  - {metric: errors, aggregation: mean, higher_is_better: false}
  - {metric: wrong, aggregation: nanmean, higher_is_better: false}
  - {metric: pair, aggregation: !function functions.percent, higher_is_better: true}
  - {metric: largest, aggregation: !function functions.largest, higher_is_better: true}
process_results: !function functions.words
"""
CORPUS = "metric_list: [{metric: bleu}, {metric: ter}, {metric: chrf}]\n"
SAMPLED = {
    "until": ["\n", "."],
    "do_sample": True,
    "temperature": 0.8,
    "top_p": 0.95,
    "max_gen_toks": 40,
    "num_beams": 2,
}
GREEDY = {"until": ["\n"], "do_sample": False, "temperature": 0.0, "max_gen_toks": 30}
UP, DOWN = (
    {
        "categories": [
            {"name": "most", "weight": first, "when": {"score": {"at_least": 0.9}}},
            {"name": "half", "weight": 0.5, "when": {"score": {"at_least": 0.5}}},
            {"name": "least", "weight": 1 - first},
        ]
    }
    for first in (1, 0)
)


@pytest.fixture
def metrics(folder: Path) -> Path:
    """A folder with tasks: `words` with metrics of single answers, `corpus` with those of all answers together."""
    (folder / "functions.py").write_text(FUNCTIONS)
    documents = [{"question": f"{n}?", "answer": f"red green blue {n}"} for n in range(4)]
    (folder / "test.jsonl").write_text("\n".join(map(json.dumps, documents)))
    common = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "test.jsonl")}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
    }
    for name, metrics, kwargs in (("words", METRICS, SAMPLED), ("corpus", CORPUS, GREEDY)):
        settings = common | {"task": name, "generation_kwargs": kwargs}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(settings) + metrics)
    return folder


def signals(text: str, metric: str | None = None) -> dict[str, object]:
    """The signals of an answer to the question whose key is "red green blue 0"."""
    document = json.dumps({"question": "0?", "answer": "red green blue 0"})
    question = Question("0", "0?", "red green blue 0", metadata={"doc": document})
    return grade(text, question, task="words", include_path="tasks", metric=metric)


def written(folder: Path, *, task: str = "words", **sections: object) -> Path:
    """A configuration of two models."""
    benchmark = {"lm_eval": task, "include_path": "tasks"} | sections.pop("benchmark", {})  # type: ignore[operator]
    models = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in ("a", "b")]
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump({"benchmark": benchmark, "models": models, "sampling": SET, **sections}))
    return file


def rubric(settings: dict[str, object]) -> Rubric:
    return open_rubric(RubricConfig.model_validate_json(json.dumps(settings)))


SET = {"temperature": 0.6, "top_p": 1.0, "max_tokens": 50}


def validated(file: Path) -> tuple[int, str]:
    """Exit code and output of `validate`; of task words some settings are told to be unused."""
    warned = pytest.warns(UserWarning, match="num_beams: 2") if "words" in file.read_text() else nullcontext()
    with warned:
        ended = CliRunner().invoke(app, ["validate", str(file)])
    return ended.exit_code, " ".join(ended.output.split())


def test_partial_credit_is_neither_right_nor_wrong(metrics: Path) -> None:
    binary, thirds = open_rubric(RubricConfig()), rubric(UP)
    assert signals("red green blue 0")["is_correct"] is True
    assert signals("nothing")["is_correct"] is False
    half = signals("red green")
    assert half["score"] == pytest.approx(2 / 3) and "is_correct" not in half
    with pytest.raises(PartialCredit, match=r"score 0\.66\d+ is neither right nor wrong, but the rubric only has"):
        apply_rubric(half, binary, "0")
    assert thirds.names[apply_rubric(half, thirds, "0")] == "half"


def test_of_a_metric_with_lower_values_better_the_lowest_is_right(metrics: Path) -> None:
    right = {"score": 0.0, "is_correct": True, "has_answer": True, "extracted": ""}
    assert signals("red green blue 0", "wrong") | {"extracted": ""} == right
    assert signals("red", "wrong,none")["is_correct"] is False
    assert "is_correct" not in signals("red", "errors"), "three errors are worse than one, which would be wrong"


def test_metrics_of_all_answers_together_are_refused(metrics: Path) -> None:
    prepare("words", None, "tasks", "percent")
    for metric in ("pair", "largest"):
        with pytest.raises(
            ConfigError, match=rf"{metric} of task words is computed over all answers together.*f1, per"
        ):
            prepare("words", None, "tasks", metric)
    with pytest.raises(ConfigError, match="bleu of task corpus is computed over all answers.*choose another task"):
        prepare("corpus", None, "tasks")


def test_validate_refuses_what_cannot_be_graded(metrics: Path, tmp_path: Path) -> None:
    code, output = validated(written(tmp_path))
    assert code == ExitCode.CONFIGURATION
    assert "is neither right nor wrong, but the rubric only has right and wrong; declare a category for it" in output
    assert validated(written(tmp_path, rubric=UP))[0] == ExitCode.REACHED
    assert validated(written(tmp_path, benchmark={"metric": "wrong"}))[0] == ExitCode.REACHED
    code, output = validated(written(tmp_path, task="corpus", sampling=SET))
    assert code == ExitCode.CONFIGURATION and "bleu of task corpus is computed over all answers together" in output
    code, output = validated(written(tmp_path, benchmark={"metric": "f2"}))
    assert code == ExitCode.CONFIGURATION and "has no metric 'f2'; its metrics are f1,none" in output


@pytest.mark.parametrize(
    ("metric", "right", "wrong"), [("f1", UP, DOWN), ("errors", DOWN, UP), ("wrong,none", DOWN, UP)]
)
def test_rubric_must_prefer_the_better_values(
    metrics: Path, metric: str, right: dict[str, object], wrong: dict[str, object]
) -> None:
    options = {"task": "words", "include_path": "tasks", "metric": metric}
    require_direction(rubric(right), **options)
    require_direction(open_rubric(RubricConfig()), **options)
    worse = "lower" if metric == "f1" else "higher"
    with pytest.raises(ConfigError, match=f"of {metric} of task words .* {worse} scores get larger weights"):
        require_direction(rubric(wrong), **options)


def test_generation_kwargs_of_a_task_are_used_where_sampling_leaves_them_open(metrics: Path, tmp_path: Path) -> None:
    file = written(tmp_path, sampling={"top_p": 0.5})
    text = yaml.safe_load(file.read_text())
    text["models"][0] |= {"api": "completions", "sampling": {"temperature": 0.3}}
    file.write_text(yaml.safe_dump(text))
    with pytest.warns(UserWarning, match="generation_kwargs") as warned:
        first, second = (model.sampling for model in load_run(load_config(file))[0].models)
    assert (first.temperature, first.top_p, first.max_tokens, first.stop) == (0.3, 0.5, 40, ("\n", "."))
    assert (second.temperature, second.top_p, second.max_tokens, second.stop) == (0.8, 0.5, 40, None)
    assert str(warned[0].message) == (
        "lm_eval: of the generation_kwargs of task words, sent unless `sampling` overrides them: "
        'max_tokens: 40, stop: ["\\n", "."], temperature: 0.8; '
        "not used: num_beams: 2, for which sampling has no setting"
    )


def test_greedy_answers_are_not_asked_for(metrics: Path, tmp_path: Path) -> None:
    file = written(tmp_path, task="corpus", sampling={"max_tokens": 9})
    with pytest.warns(UserWarning, match="not used: do_sample: false, temperature: 0.0, since greedy answers are the"):
        config = load_run(load_config(file))[0]
    assert config.models[0].sampling.temperature is None and config.models[0].sampling.max_tokens == 9


def test_several_benchmarks_share_the_sampling_of_the_run(metrics: Path, tmp_path: Path) -> None:
    file = tmp_path / "several.yaml"
    models = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in ("a", "b")]
    benchmarks = [{"name": "w", "benchmark": {"lm_eval": "words", "include_path": "tasks"}}]
    settings = {"benchmarks": benchmarks, "models": models, "sampling": {"max_tokens": 9}, "rubric": UP}
    file.write_text(yaml.safe_dump(settings))
    with pytest.warns(UserWarning, match=r"not used: temperature: 0\.8, top_p: .*, since models have one sampling for"):
        config = load_run(load_config(file))[0]
    assert config.models[0].sampling.temperature is None and config.models[0].sampling.max_tokens == 9
