"""Metrics of lm-evaluation-harness meet the rubric: partial credit, lower is better, and scores of whole corpora."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from adaptive_eval.base.errors import ConfigError, ExitCode, PartialCredit
from adaptive_eval.cli import app
from adaptive_eval.config.load import load_config
from adaptive_eval.config.task_sampling import load_run
from adaptive_eval.graders.rubric import Rubric, RubricConfig, apply_rubric, open_rubric
from adaptive_eval.lm_eval.tasks import grade, load_task, prepare, require_direction
from adaptive_eval.questions import Question

pytestmark = pytest.mark.harness

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
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tasks: `words` with metrics of single answers, `corpus` with those of all answers together."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    load_task.cache_clear()
    folder = tmp_path / "tasks"
    folder.mkdir()
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


def test_partial_credit_is_neither_right_nor_wrong(tasks: Path) -> None:
    binary, thirds = open_rubric(RubricConfig()), rubric(UP)
    assert signals("red green blue 0")["is_correct"] is True
    assert signals("nothing")["is_correct"] is False
    half = signals("red green")
    assert half["score"] == pytest.approx(2 / 3) and "is_correct" not in half
    with pytest.raises(PartialCredit, match=r"score 0\.66\d+ is neither right nor wrong, but the rubric only has"):
        apply_rubric(half, binary, "0")
    assert thirds.names[apply_rubric(half, thirds, "0").category or 0] == "half"


def test_of_a_metric_with_lower_values_better_the_lowest_is_right(tasks: Path) -> None:
    assert signals("red green blue 0", "wrong") | {"extracted": ""} == {
        "score": 0.0,
        "is_correct": True,
        "has_answer": True,
        "extracted": "",
    }
    assert signals("red", "wrong,none")["is_correct"] is False
    assert "is_correct" not in signals("red", "errors"), "three errors are worse than one, which would be wrong"


def test_metrics_of_all_answers_together_are_refused(tasks: Path) -> None:
    prepare("words", None, "tasks", "percent")
    for metric in ("pair", "largest"):
        with pytest.raises(
            ConfigError, match=rf"{metric} of task words is computed over all answers together.*f1, per"
        ):
            prepare("words", None, "tasks", metric)
    with pytest.raises(ConfigError, match="bleu of task corpus is computed over all answers.*choose another task"):
        prepare("corpus", None, "tasks")


def test_validate_refuses_what_cannot_be_graded(tasks: Path, tmp_path: Path) -> None:
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
    tasks: Path, metric: str, right: dict[str, object], wrong: dict[str, object]
) -> None:
    options = {"task": "words", "include_path": "tasks", "metric": metric}
    require_direction(rubric(right), **options)
    require_direction(open_rubric(RubricConfig()), **options)
    worse = "lower" if metric == "f1" else "higher"
    with pytest.raises(ConfigError, match=f"of {metric} of task words .* {worse} scores get larger weights"):
        require_direction(rubric(wrong), **options)


def test_generation_kwargs_of_a_task_are_used_where_sampling_leaves_them_open(tasks: Path, tmp_path: Path) -> None:
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


def test_greedy_answers_are_not_asked_for(tasks: Path, tmp_path: Path) -> None:
    file = written(tmp_path, task="corpus", sampling={"max_tokens": 9})
    with pytest.warns(UserWarning, match="not used: do_sample: false, temperature: 0.0, since greedy answers are the"):
        config = load_run(load_config(file))[0]
    assert config.models[0].sampling.temperature is None and config.models[0].sampling.max_tokens == 9


def test_several_benchmarks_share_the_sampling_of_the_run(tasks: Path, tmp_path: Path) -> None:
    file = tmp_path / "several.yaml"
    models = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in ("a", "b")]
    benchmarks = [{"name": "w", "benchmark": {"lm_eval": "words", "include_path": "tasks"}}]
    settings = {"benchmarks": benchmarks, "models": models, "sampling": {"max_tokens": 9}, "rubric": UP}
    file.write_text(yaml.safe_dump(settings))
    with pytest.warns(UserWarning, match=r"not used: temperature: 0\.8, top_p: .*, since models have one sampling for"):
        config = load_run(load_config(file))[0]
    assert config.models[0].sampling.temperature is None and config.models[0].sampling.max_tokens == 9
