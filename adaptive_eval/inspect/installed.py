"""Tasks of Inspect in installed packages and in the user's files, read from their sources without running code.

A package declares by the entry point `inspect_ai` that it has tasks. They are its functions with the decorator `task`.
If it has files `eval.yaml`, as inspect_evals does, these add facts, and only the tasks that they name are listed.
"""

import ast
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from adaptive_eval.questions.benchmark import NamedBenchmark, read_licence

ENTRY_POINT = "inspect_ai"
HUB_WORDS = (b"hf_dataset", b"load_dataset")
"""Words in files that load data from the Hugging Face hub."""


def installed_tasks(package: str | None = None) -> Iterator[NamedBenchmark]:
    """Tasks of all installed packages, or of one, as `package/task`."""
    for entry in entry_points(group=ENTRY_POINT):
        if package not in (None, entry.name):
            continue
        try:
            spec = find_spec(entry.value.partition(":")[0].partition(".")[0])
        except (ImportError, ValueError):
            continue
        roots = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
        source = entry.name if entry.dist is None else f"{entry.name} {entry.dist.version}"
        for root in roots:
            yield from _tasks_of_package(root, f"{entry.name}/", source, read_licence(entry.dist))


def tasks_in(folder: Path) -> Iterator[NamedBenchmark]:
    """Tasks in the files of a folder, as `file.py@task`."""
    for file in sorted(folder.glob("*.py")):
        for task in _find_functions([file]).values():
            yield _describe(task, f"{file.name}@{task.name}", source="this folder")


def _tasks_of_package(root: Path, prefix: str, source: str, licence: str | None) -> Iterator[NamedBenchmark]:
    functions = _find_functions(sorted(root.rglob("*.py")))
    described = _read_descriptions(root)
    for name in sorted(described or functions):
        task, told = functions.get(name), described.get(name, {})
        yield _describe(task, prefix + name, source=source, licence=licence, **told)


# -- facts in eval.yaml ----------------------------------------------------------------------------------------------


def _read_descriptions(root: Path) -> dict[str, dict[str, Any]]:
    """Facts about each task in the package's files `eval.yaml`."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(root.rglob("eval.yaml")):
        try:
            told = yaml.load(file.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (OSError, yaml.YAMLError):
            continue
        for task in _mappings(told, "tasks"):
            if isinstance(name := task.get("name"), str):
                found[name] = _description_facts(told, task)
    return found


def _description_facts(told: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    samples, metadata = task.get("dataset_samples"), told.get("metadata")
    sandbox = metadata.get("sandbox") if isinstance(metadata, dict) else None
    return {
        "about": str(told.get("title") or task["name"]),
        "description": " ".join(str(told.get("description") or "").split()),
        "questions": samples if isinstance(samples, int) else None,
        "sandbox": " and ".join(map(str, sandbox)) if isinstance(sandbox, list) and sandbox else "no",
        "needs_hub": any(asset.get("type") == "huggingface" for asset in _mappings(told, "external_assets")),
    }


def _mappings(told: object, key: str) -> list[dict[str, Any]]:
    values = told.get(key) if isinstance(told, dict) else None
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


# -- facts in the source ---------------------------------------------------------------------------------------------


class _TaskFunction:
    """The function of a task, and other functions of its file that it calls."""

    def __init__(self, name: str, node: ast.FunctionDef, beside: Mapping[str, ast.FunctionDef], hub: bool) -> None:
        self.name, self.node, self.needs_hub = name, node, hub
        called = {_called_name(call) for call in ast.walk(node) if isinstance(call, ast.Call)}
        self._bodies = [node, *(other for name, other in beside.items() if name in called and other is not node)]

    def argument(self, key: str) -> ast.expr | None:
        """The value of a keyword argument of the function's first `Task(...)`."""
        for body in self._bodies:
            for call in ast.walk(body):
                if isinstance(call, ast.Call) and _called_name(call) == "Task":
                    return next((one.value for one in call.keywords if one.arg == key), None)
        return None


def _find_functions(files: list[Path]) -> dict[str, _TaskFunction]:
    found = {}
    for file in files:
        try:
            body = file.read_bytes()
            nodes = list(ast.walk(ast.parse(body))) if b"@task" in body else []
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
        hub = any(word in body for word in HUB_WORDS)
        for node in functions.values():
            for decorator in node.decorator_list:
                if _called_name(decorator) == "task":
                    name = _decorator_name(decorator) or node.name
                    found[name] = _TaskFunction(name, node, functions, hub)
    return found


def _describe(
    task: _TaskFunction | None, name: str, source: str, licence: str | None = None, **told: Any
) -> NamedBenchmark:
    if task is None:
        return NamedBenchmark(name, source, licence=licence, **told)
    words = (ast.get_docstring(task.node) or "").strip()
    sandbox = task.argument("sandbox")
    facts: dict[str, Any] = {
        "about": words.partition("\n")[0] or task.name,
        "description": " ".join(words.partition("\n\n")[0].split()),
        "sandbox": None if sandbox is None or ast.unparse(sandbox) == "None" else "solver or scorer",
        "needs_hub": task.needs_hub,
    }
    given = task.node.args
    defaults = zip(given.args[::-1], given.defaults[::-1], strict=False)
    args = {one.arg: ast.unparse(value) for one, value in [*defaults][::-1]}
    args |= {
        one.arg: ast.unparse(value) for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value
    }
    return NamedBenchmark(
        name, source, licence=licence, scorers=_scorer_names(task.argument("scorer")), args=args, **(facts | told)
    )


def _scorer_names(value: ast.expr | None) -> tuple[str, ...]:
    """Names of the called scorers, as in `[f1(), exact()]` or `scorer or verify()`."""
    values = value.elts if isinstance(value, ast.List | ast.Tuple) else [] if value is None else [value]
    values = [one.values[-1] if isinstance(one, ast.BoolOp) else one for one in values]
    return tuple(_called_name(one) for one in values) if all(isinstance(one, ast.Call) for one in values) else ()


def _called_name(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _decorator_name(decorator: ast.expr) -> str | None:
    given = decorator.keywords if isinstance(decorator, ast.Call) else []
    values = [one.value for one in given if one.arg == "name"]
    return next((one.value for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str)), None)
