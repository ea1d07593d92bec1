"""Benchmarks that can be run by name: tasks of installed packages and local files, and configurations."""

import re
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.questions.benchmark import NamedBenchmark, near_names

CONFIGURATIONS = (".", "configs")
_MODELS = re.compile(r"^models:", re.MULTILINE)
_GRADER = re.compile(r"^grader:\s*(?:\{?\s*kind:\s*)?(\w+)", re.MULTILINE)
PACKAGES = {
    "inspect_evals": "pip install 'adaptive-eval[inspect]' inspect_evals",
    "lm_eval": "pip install 'adaptive-eval[lm-eval]'",
}
"""How to install packages with benchmarks."""


def named_benchmarks(folder: Path) -> list[NamedBenchmark]:
    """All benchmarks that can be run by name from a folder."""
    # extras, imported only on demand
    from adaptive_eval.inspect.installed import installed_tasks, tasks_in
    from adaptive_eval.lm_eval.tasks import installed_tasks as tasks_of_lm_eval

    return [*_configurations(folder), *tasks_in(folder), *installed_tasks(), *tasks_of_lm_eval()]


def _configurations(folder: Path) -> Iterable[NamedBenchmark]:
    """Configuration files with models in a folder and its subfolder `configs`, described by their first comment."""
    for file in (file for subfolder in CONFIGURATIONS for file in sorted((folder / subfolder).glob("*.yaml"))):
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
        if _MODELS.search(text):
            name = file.relative_to(folder).as_posix()
            comment = " ".join(line.lstrip("# ") for line in takewhile(lambda line: line[:1] == "#", text.split("\n")))
            about = re.split(r"(?<=\.) ", comment)[0].rstrip(" :") or name
            scorers = tuple(_GRADER.findall(text)[:1])
            yield NamedBenchmark(name, "configurations here", about, scorers=scorers)


def find_benchmark(name: str, benchmarks: Iterable[NamedBenchmark]) -> NamedBenchmark:
    """The benchmark with this name; raises `ConfigError` with similar names."""
    by_name = {benchmark.name: benchmark for benchmark in benchmarks}
    if name in by_name:
        return by_name[name]
    package, _, task = name.partition("/")
    if task and not any(other.startswith(f"{package}/") for other in by_name):
        to_install = PACKAGES.get(package, f"pip install {package}")
        raise ConfigError(f"there is no benchmark {name!r}: no package {package} with tasks is installed; {to_install}")
    near = near_names(name, by_name)
    raise ConfigError(f"there is no benchmark {name!r} here{near or '.'} `adaptive-eval benchmarks` lists all")
