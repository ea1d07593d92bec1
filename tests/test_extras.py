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
    "batches": ("run", "batches.yaml"),
    "sites": (*QUICKSTART, "--set", "name=remote", "--ray", "auto"),
    "store/segments": (*QUICKSTART, "--set", "name=moved", "--set", "store.answers=segments"),
    "store/postgres": ("report", "postgresql://127.0.0.1/nowhere/run"),
    "cli/track.py": ("track", "runs/quickstart", "--wandb"),
    "cli/label.py": ("label", "runs/quickstart"),
    "show/serve/metrics.py": (*QUICKSTART, "--set", "name=another", "--metrics-port", "9"),
}
"""What can be deleted, and a command that needs it."""
WITH = {"cli/track.py": ("show/track",), "cli/label.py": ("labels",)}
"""What is deleted with it."""
NEEDED_BY = {"batches": "batches"}
"""The golden run that needs it."""
IMPORT_ALL_AND_RUN = """
import importlib, pathlib
for file in sorted(pathlib.Path("adaptive_eval").rglob("*.py")):
    if file.name != "__main__.py":
        importlib.import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
importlib.import_module("adaptive_eval.cli").main()
"""


def copy_without(folder: Path, *extras: str) -> Path:
    """What is developed here, in a folder of its own, without some extras."""
    for name in ("adaptive_eval", "scorio", "tests", "configs", "examples"):
        # with what is compiled of it, which a copy's times still fit
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("runs"))
    for name in ("pyproject.toml", "README.md"):
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
    told = python(bare, "-c", IMPORT_ALL_AND_RUN, *QUICKSTART)
    assert told.returncode == ExitCode.SPENT, told.stdout + told.stderr
    assert "Next: adaptive-eval report" in told.stdout
    (bare / "runs/quickstart/labels.jsonl").touch()
    report = python(bare, "-m", "adaptive_eval", "report", "runs/quickstart", "--format", "md", "-o", "-")
    assert "There are labels, which cannot be used here: No module named" in report.stdout


@pytest.mark.slow
@pytest.mark.parametrize("extra", EXTRAS)
def test_who_needs_an_extra_that_is_not_there_is_told_which(bare: Path, extra: str) -> None:
    told = python(bare, "-m", "adaptive_eval", *EXTRAS[extra])
    assert told.returncode == ExitCode.CONFIGURATION, told.stdout + told.stderr
    module = extra.removesuffix(".py").replace("/", ".")
    assert f"adaptive_eval.{module}" in told.stderr and "Traceback" not in told.stderr


FEW = (
    "(pool or judge or gate or imported or reports or goes_on and killed)"
    " and not (judge_ or of_one or as_it_was and killed)"
)
"""Runs that meet every place where an extra is asked for, and the stored ones that are reported."""
WITHOUT = [
    pytest.param(tuple(EXTRAS), FEW, id="all, few runs", marks=pytest.mark.slow),
    pytest.param(tuple(EXTRAS), "", id="all", marks=pytest.mark.release),
    *(pytest.param((extra,), "", id=extra, marks=pytest.mark.release) for extra in EXTRAS),
]


@pytest.mark.parametrize(("extras", "runs"), WITHOUT)
def test_without_extras_runs_are_as_they_were(tmp_path: Path, extras: tuple[str, ...], runs: str) -> None:
    chosen = " and ".join(filter(None, [runs, *(f"not {NEEDED_BY[extra]}" for extra in extras if extra in NEEDED_BY)]))
    words = ["-m", "pytest", "-q", "-n0", "-m", "not release", "-k", chosen, "tests/golden"]
    told = python(copy_without(tmp_path / "tree", *extras), *words)
    assert told.returncode == 0 and " passed" in told.stdout, told.stdout
