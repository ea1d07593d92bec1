"""Benchmarks by name, in packages that are installed as any other is, and whose code ends the process that runs it."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from adaptive_eval.base.errors import ConfigError, ExitCode
from adaptive_eval.cli import app
from adaptive_eval.config.load import load_config
from adaptive_eval.config.named_benchmarks import find_benchmark, named_benchmarks
from adaptive_eval.lm_eval import tasks as of_lm_eval

TASKS = '''
from inspect_ai import Task, task

raise SystemExit("the code of a package was run")

def whole(scorer):
    return Task(dataset=hf_dataset("x/y"), scorer=scorer or verified_by_hand())

@task
def sums(level: int = 1, *, tools=None) -> Task:
    """Sums of two numbers.

    Of any size.
    """
    return Task(dataset=[], scorer=[match(), f1()], sandbox="docker")

@task(name="given-name")
def other():
    return whole(None)

@task
def unlisted():
    return Task(dataset=[])
'''
EVAL = """
title: 'Sums: by hand'
description: |
  Adds numbers,
  one by one.
tasks:
  - {name: sums, dataset_samples: 1200}
metadata: {sandbox: [scorer]}
external_assets: [{type: huggingface}]
"""
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\nLicense-Expression: Apache-2.0\n"
LM_TASKS = {
    "tasks/gsm/README.md": "# Grade school\n\ntext",
    "tasks/gsm/_base": "dataset_path: openai/gsm8k # the data\noutput_type: generate_until\n",
    "tasks/gsm/gsm.yaml": "include: _base\ntask: gsm_cot\nmetric_list:\n- aggregation: mean\n  metric: exact_match\n",
    "tasks/gsm/chosen.yaml": "include: _base\ntask: gsm_choice\noutput_type: multiple_choice\n",
    "tasks/gsm/code.yaml": "task: gsm_code\nunsafe_code: true\n",
    "tasks/gsm/group.yaml": "group: gsm\ntask:\n  - gsm_cot\n",
    "tasks/gsm/own.yaml": "task: 'gsm_own'\ndataset_path: json\n",
}


def install(place: Path, name: str, files: dict[str, str], entry_points: str = "") -> None:
    """A package with its metadata, as pip leaves it."""
    metadata = {"METADATA": METADATA.format(name=name), "entry_points.txt": entry_points}
    files = {f"{name}/{path}": text for path, text in files.items()}
    files |= {f"{name}-1.2.dist-info/{path}": text for path, text in metadata.items()}
    for path, text in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)


def entry_of(name: str) -> str:
    return f"[inspect_ai]\n{name} = {name}._registry\n"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, beside the packages."""
    place = tmp_path / "site-packages"
    stop = {"__init__.py": 'raise SystemExit("the package was imported")\n'}
    install(place, "told_evals", {**stop, "sums/t.py": TASKS, "sums/eval.yaml": EVAL}, entry_of("told_evals"))
    install(place, "bare_evals", {**stop, "tasks.py": TASKS, "broken.py": "@task def"}, entry_of("bare_evals"))
    install(place, "lm_eval", {**stop, **LM_TASKS})
    monkeypatch.syspath_prepend(str(place))
    of_lm_eval._keys.cache_clear()
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("COLUMNS", "80")
    return work


def ae(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def listed(*words: str) -> dict[str, dict[str, object]]:
    ended = ae("benchmarks", *words, "--json")
    assert ended.exit_code == 0, ended.output
    return {row["name"]: row for row in json.loads(ended.output)}


def test_tasks_are_read_without_running_code_and_what_is_not_told_is_unknown(packages: Path) -> None:
    rows = listed()
    full, bare = rows["told_evals/sums"], rows["bare_evals/sums"]
    assert full["about"] == "Sums: by hand" and full["description"] == "Adds numbers, one by one."
    assert (full["questions"], full["sandbox"], full["needs_hub"]) == (1200, "scorer", True)
    assert full["source"] == "told_evals 1.2" and full["licence"] == "Apache-2.0"
    assert full["scorers"] == ["match", "f1"] and full["args"] == {"level": "1", "tools": "None"}
    assert "told_evals/unlisted" not in rows, "it says which of its tasks are evaluations"
    assert (bare["about"], bare["questions"], bare["sandbox"]) == ("Sums of two numbers.", None, "solver or scorer")
    given = rows["bare_evals/given-name"]
    assert (given["scorers"], given["sandbox"], given["needs_hub"]) == (["verified_by_hand"], None, True)
    assert rows["bare_evals/unlisted"]["scorers"] == []


def test_tasks_of_lm_eval_are_those_that_can_be_asked(packages: Path) -> None:
    rows = {name: row for name, row in listed("gsm").items() if name.startswith("lm_eval")}
    assert set(rows) == {"lm_eval/gsm_cot", "lm_eval/gsm_own"}
    task = rows["lm_eval/gsm_cot"]
    assert (task["about"], task["description"], task["needs_hub"]) == ("Grade school", "Data: openai/gsm8k.", True)
    assert task["scorers"] == ["exact_match"] and rows["lm_eval/gsm_own"]["needs_hub"] is False


def test_files_here_are_listed_by_the_name_that_run_takes(packages: Path) -> None:
    (packages / "mine.py").write_text(TASKS)
    (packages / "configs").mkdir()
    (packages / "configs" / "own.yaml").write_text("# Two models on sums.\nmodels: []\ngrader: {kind: math}\n")
    (packages / "other.yaml").write_text("a: 1\n")
    rows = listed("sums")
    assert rows["mine.py@sums"]["source"] == "this folder"
    row = rows["configs/own.yaml"]
    assert (row["about"], row["scorers"]) == ("Two models on sums.", ["math"])
    assert "other.yaml" not in rows
    refused = ae("init", "--benchmark", "configs/own.yaml")
    assert refused.exit_code == ExitCode.CONFIGURATION
    assert "is already a configuration; run it: adaptive-eval run configs/own.yaml" in refused.output


def test_the_list_fits_into_a_terminal(packages: Path) -> None:
    (packages / "n.py").write_text(f'@task\ndef t():\n    """{"long words " * 40}\x1b[2J"""\n')
    ended = ae("benchmarks")
    assert ended.exit_code == 0, ended.output
    assert max(map(len, ended.output.splitlines())) <= 80 and "\x1b" not in ended.output
    assert "told_evals/sums: 1,200 questions, scorer match or f1, sandbox for scorer\n    Sums: by hand" in ended.output
    assert "bare_evals/given-name: scorer verified_by_hand\n" in ended.output, "what is not known is left out"
    assert "bare_evals/unlisted\n" in ended.output and "unknown" not in ended.output
    assert "licence of the package Apache-2.0; its data may have another" in " ".join(ended.output.split())
    description = ae("benchmarks", "told_evals/sums").output
    assert ae("benchmarks", "bare_evals/sums").output.endswith("\n    Sums of two numbers.\n\n"), "once"
    assert "Sums: by hand. Adds numbers, one by one." in description
    assert "data from the Hugging Face hub" in " ".join(description.split())
    more = "More: pip install 'adaptive-eval[inspect]' inspect_evals" in ended.output
    assert more is (find_spec("inspect_evals") is None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("told_evals/sms", "did you mean told_evals/sums?"),
        ("gsm", "did you mean lm_eval/gsm_cot or lm_eval/gsm_own?"),
        (
            "inspect_evals/gpqa",
            "no package inspect_evals with tasks is installed; pip install 'adaptive-eval[inspect]'",
        ),
        ("their_evals/gpqa", "no package their_evals with tasks is installed; pip install their_evals"),
        ("quite-another", "there is no benchmark 'quite-another' here. `adaptive-eval benchmarks` lists all"),
    ],
)
def test_an_unknown_name_is_refused_with_what_to_do(packages: Path, name: str, message: str) -> None:
    benchmarks = [
        benchmark for benchmark in named_benchmarks(packages) if not benchmark.name.startswith("inspect_evals/")
    ]
    with pytest.raises(ConfigError, match=re.escape(message)):
        find_benchmark(name, benchmarks)


@pytest.mark.parametrize("name", ["told_evals/sums", "bare_evals/given-name", "lm_eval/gsm_cot"])
def test_init_writes_a_configuration_of_it(packages: Path, name: str) -> None:
    assert ae("init", "--benchmark", name).exit_code == 0
    config = load_config(packages / "adaptive-eval.yaml")
    text = (packages / "adaptive-eval.yaml").read_text()
    assert len(config.models) == 2 and "\n\n\n" not in text
    if name.startswith("lm_eval"):
        assert config.questions.options["task"] == "gsm_cot" and "# Grade school. Data: openai/gsm8k.\n" in text
    else:
        assert config.benchmark is not None and config.benchmark.inspect == name
    assert name != "bare_evals/given-name" or "  # scorer: verified_by_hand # which scorer counts" in text
    if name == "told_evals/sums":
        assert config.benchmark is not None and config.benchmark.scorer == "match"
        assert "#   level: 1, tools: None" in text and "# Sums: by hand, 1,200 questions. Adds" in text
    unknown = ae("init", "other.yaml", "--benchmark", "told_evals/sms")
    assert unknown.exit_code == ExitCode.CONFIGURATION and "did you mean told_evals/sums" in unknown.output
