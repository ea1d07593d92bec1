"""Extras are known by nobody else: without their files everything that does not need them works as before."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from test_layers import ROOT

from adaptive_eval.base.errors import ExitCode

QUICKSTART = ("run", "configs/quickstart.yaml", "--set", "trials.max=4")
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "inspect": ("run", "some_package/task", "--model", "a/b", "--model", "c/d"),
    "lm_eval": ("validate", "lm_eval.yaml"),
    "supplies/batches": ("run", "batches.yaml"),
    "sites": (*QUICKSTART, "--set", "name=remote", "--ray", "auto"),
    "cli/label.py": ("label", "runs/quickstart"),
}
"""What can be deleted, and a command that needs it."""
WITH = {"cli/label.py": ("labels",)}
"""What is deleted with it."""
NEEDED_BY = {"supplies/batches": "batches"}
"""The golden run that needs it."""
COMMANDS = "cli/test_cli_app.py::test_a_command_says_of_itself_what_the_list_says_of_it"
EXAMPLES = "cli/test_cli_app.py::test_the_examples_of_a_command_have_options_that_it_takes"
OWN_TESTS: Mapping[str, tuple[str, ...]] = {
    "inspect": ("inspect",),
    "lm_eval": ("lm_eval",),
    "supplies/batches": (
        "supplies/test_batch_services.py",
        "running/test_batched_runs.py",
        "supplies/test_batch_supply.py",
        "running/test_lives.py::test_some_lives_of_a_run",
        "running/test_rehearsal.py::test_a_dry_run_asks_models_directly_that_a_run_asks_in_batches",
    ),
    "sites": (
        "sites",
        "ray",
        "running/test_launched_run.py::test_a_dry_run_says_what_would_be_started_on_a_cluster_and_joins_none",
    ),
    "cli/label.py": ("labels", "running/test_labels_of_judged_runs.py", f"{COMMANDS}[label", f"{EXAMPLES}[label"),
}
"""Tests that need it, below tests/."""
OF_THE_WHOLE = ("dependencies", "documents", "extras", "layers", "readme")
"""Tests of the whole tree, documents and all."""
IMPORT_ALL_AND_RUN = """
import importlib, pathlib
for file in sorted(pathlib.Path("adaptive_eval").rglob("*.py")):
    if file.name != "__main__.py":
        importlib.import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
importlib.import_module("adaptive_eval.cli").main()
"""


def copy_without(folder: Path, *extras: str) -> Path:
    """What is developed here, in a folder of its own, without some extras."""
    for name in ("adaptive_eval", "scorio", "tests", "benchmarks", "configs", "examples", "docs"):
        # with what is compiled of it, which a copy's times still fit
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("runs"))
    for name in ("pyproject.toml", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"):
        shutil.copy(ROOT / name, folder)
    for path in [path for extra in extras for path in (extra, *WITH.get(extra, ()))]:
        place = folder / "adaptive_eval" / path
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    return folder


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What Python says there."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree without any extra."""
    folder = copy_without(tmp_path_factory.mktemp("bare"), *EXTRAS)
    models = "[{name: m, base_url: 'http://127.0.0.1:9/v1'}, {name: n, base_url: 'http://127.0.0.1:9/v1'}]"
    (folder / "lm_eval.yaml").write_text(f"{{name: a, benchmark: {{lm_eval: gsm8k}}, models: {models}}}")
    batched = models.replace("}", ", batch: openai}")
    settings = f"questions: {{world: coins}}, models: {batched}, sampling: {{max_tokens: 9}}, grader: math"
    (folder / "batches.yaml").write_text(f"{{name: b, {settings}}}")
    return folder


@pytest.mark.slow
def test_without_any_extra_every_other_module_can_be_imported_and_models_are_ranked(bare: Path) -> None:
    done = python(bare, "-c", IMPORT_ALL_AND_RUN, *QUICKSTART)
    assert done.returncode == ExitCode.SPENT, done.stdout + done.stderr
    assert "          adaptive-eval report" in done.stdout
    label = '{"model": "nobody", "question": "q", "trial": 0, "label": "correct"}'
    (bare / "runs/quickstart/labels.jsonl").write_text(label)  # labels count, whether or not they can be given here
    report = python(bare, "-m", "adaptive_eval", "report", "runs/quickstart", "--format", "md", "-o", "-")
    assert "the labels have changed since these results were written" in report.stdout


@pytest.mark.slow
@pytest.mark.parametrize("extra", EXTRAS)
def test_who_needs_an_extra_that_is_not_there_is_told_which(bare: Path, extra: str) -> None:
    done = python(bare, "-m", "adaptive_eval", *EXTRAS[extra])
    assert done.returncode == ExitCode.CONFIGURATION, done.stdout + done.stderr
    module = extra.removesuffix(".py").replace("/", ".")
    assert f"adaptive_eval.{module}" in done.stderr and "Traceback" not in done.stderr


FEW = "(pool or judge or gate or imported) and not (judge_ or of_one)"
"""Runs that meet every place where an extra is asked for."""
WITHOUT = [
    pytest.param(tuple(EXTRAS), FEW, id="all, few runs", marks=pytest.mark.slow),
    pytest.param(tuple(EXTRAS), "", id="all", marks=pytest.mark.release),
    *(pytest.param((extra,), "", id=extra, marks=pytest.mark.release) for extra in EXTRAS),
]


@pytest.mark.parametrize(("extras", "runs"), WITHOUT)
def test_without_extras_runs_are_as_they_were(tmp_path: Path, extras: tuple[str, ...], runs: str) -> None:
    chosen = " and ".join(filter(None, [runs, *(f"not {NEEDED_BY[extra]}" for extra in extras if extra in NEEDED_BY)]))
    words = ["-m", "pytest", "-q", "-n0", "-m", "not release", "-k", chosen, "tests/golden"]
    done = python(copy_without(tmp_path / "tree", *extras), *words)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout


@pytest.mark.release
@pytest.mark.parametrize("extras", [pytest.param(tuple(EXTRAS), id="all"), *((extra,) for extra in EXTRAS)])
def test_without_extras_all_tests_but_theirs_pass(tmp_path: Path, extras: tuple[str, ...]) -> None:
    tree = copy_without(tmp_path / "tree", *extras)
    left_out = [f"tests/test_{name}.py" for name in OF_THE_WHOLE]
    left_out += [f"tests/{name}" for extra in extras for name in OWN_TESTS[extra]]
    assert all((tree / name.partition("::")[0]).exists() for name in left_out)
    words = [f"--{'deselect' if '::' in name else 'ignore'}={name}" for name in left_out]
    done = python(tree, "-m", "pytest", "-q", "-n", "auto", *words)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout
