"""Tasks of lm-evaluation-harness that generate text, read from its files: to ask the harness takes ten seconds."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from adaptive_eval.questions.benchmark import NamedBenchmark, read_licence

GENERATES = "generate_until"
KEYS = "task|output_type|include|dataset_path|dataset_name|unsafe_code|metric_list"
_KEY = re.compile(rf"^({KEYS}):[ \t]*([^\n#]*)", re.MULTILINE)
_METRIC = re.compile(r"^[ \t]*(?:-[ \t]+)?metric:[ \t]*([^\s#]+)", re.MULTILINE)
_TITLE = re.compile(r"^#+[ \t]*(.+?)[ \t]*$", re.MULTILINE)
LOCAL = {"json", "csv", "parquet", "text"}
"""Kinds of files, where other tasks name a data set."""
NO_TITLE = "Task-name"
"""Of a README that nobody has filled in."""
DEEPEST = 10
"""Files that include each other."""


def installed_tasks() -> Iterator[NamedBenchmark]:
    """The tasks that can be asked, as `lm_eval/task`; none if the harness is not installed."""
    try:
        package, spec = distribution("lm_eval"), find_spec("lm_eval")
    except (PackageNotFoundError, ValueError):
        return
    source = f"lm_eval {package.version}"
    licence = read_licence(package)
    for place in [] if spec is None else spec.submodule_search_locations or ():
        root = Path(place) / "tasks"
        for file in sorted(root.rglob("*.yaml")):
            keys = _keys(file)
            name, kind = keys.get("task", ""), keys.get("output_type", GENERATES)
            if not name or name[0] in "[{" or kind != GENERATES or keys.get("unsafe_code", "").lower() == "true":
                continue
            data = " ".join(filter(None, (keys.get("dataset_path"), keys.get("dataset_name"))))
            yield NamedBenchmark(
                f"lm_eval/{name}",
                source,
                about=_title(file.parent, root) or name,
                description=f"Data: {data}." if data else "",
                licence=licence,
                scorers=tuple(filter(None, [keys.get("metric")])),
                sandbox="no",
                needs_hub=keys.get("dataset_path") not in LOCAL,
            )


@cache
def _keys(file: Path, depth: int = 0) -> Mapping[str, str]:
    """Settings on the first level of a file, and of those that it includes."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    found = {key: value.strip().strip("\"'") for key, value in _KEY.findall(text)}
    if metric := _METRIC.search(text):
        found["metric"] = metric[1]
    if depth < DEEPEST and (more := found.get("include")):
        return {**_keys(file.parent / more, depth + 1), **found}
    return found


@cache
def _title(folder: Path, root: Path) -> str | None:
    """The title of the README of a task's folder."""
    try:
        title = _TITLE.search((folder / "README.md").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        title = None
    if title is not None and title[1] != NO_TITLE:
        return title[1]
    return None if folder == root else _title(folder.parent, root)
