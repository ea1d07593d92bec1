"""Tasks of Inspect in installed packages and in the user's files, read from their sources without running code.

A package with tasks has the entry point `inspect_ai`; the tasks are its functions with the decorator `task`. If it has
files `eval.yaml`, as inspect_evals does, these add facts, and only the tasks that they name are listed.
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
        task, description = functions.get(name), described.get(name, {})
        yield _describe(task, prefix + name, source=source, licence=licence, **description)


# -- facts in eval.yaml ----------------------------------------------------------------------------------------------


def _read_descriptions(root: Path) -> dict[str, dict[str, Any]]:
    """Facts about each task in the package's files `eval.yaml`."""
    descriptions: dict[str, dict[str, Any]] = {}
    for file in sorted(root.rglob("eval.yaml")):
        try:
            document = yaml.load(file.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (OSError, yaml.YAMLError):
            continue
        for task in _mappings(document, "tasks"):
            if isinstance(name := task.get("name"), str):
                descriptions[name] = _description_facts(document, task)
    return descriptions


def _description_facts(document: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    samples, metadata = task.get("dataset_samples"), document.get("metadata")
    sandbox = metadata.get("sandbox") if isinstance(metadata, dict) else None
    return {
        "about": str(document.get("title") or task["name"]),
        "description": " ".join(str(document.get("description") or "").split()),
        "questions": samples if isinstance(samples, int) else None,
        "sandbox": " and ".join(map(str, sandbox)) if isinstance(sandbox, list) and sandbox else "no",
        "needs_hub": any(asset.get("type") == "huggingface" for asset in _mappings(document, "external_assets")),
    }


def _mappings(document: object, key: str) -> list[dict[str, Any]]:
    values = document.get(key) if isinstance(document, dict) else None
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


# -- facts in the source ---------------------------------------------------------------------------------------------


class _TaskFunction:
    """The function of a task, and the functions of its file that it calls."""

    def __init__(self, name: str, node: ast.FunctionDef, neighbours: Mapping[str, ast.FunctionDef], hub: bool) -> None:
        self.name, self.node, self.needs_hub = name, node, hub
        called = {_called_name(call) for call in ast.walk(node) if isinstance(call, ast.Call)}
        self._bodies = [node, *(other for name, other in neighbours.items() if name in called and other is not node)]

    def argument(self, key: str) -> ast.expr | None:
        """The value of a keyword argument of the function's first `Task(...)`."""
        for body in self._bodies:
            for call in ast.walk(body):
                if isinstance(call, ast.Call) and _called_name(call) == "Task":
                    return next((keyword.value for keyword in call.keywords if keyword.arg == key), None)
        return None


def _find_functions(files: list[Path]) -> dict[str, _TaskFunction]:
    tasks = {}
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
                    tasks[name] = _TaskFunction(name, node, functions, hub)
    return tasks


def _describe(
    task: _TaskFunction | None, name: str, source: str, licence: str | None = None, **description: Any
) -> NamedBenchmark:
    if task is None:
        return NamedBenchmark(name, source, licence=licence, **description)
    words = (ast.get_docstring(task.node) or "").strip()
    sandbox = task.argument("sandbox")
    facts: dict[str, Any] = {
        "about": words.partition("\n")[0] or task.name,
        "description": " ".join(words.partition("\n\n")[0].split()),
        "sandbox": None if sandbox is None or ast.unparse(sandbox) == "None" else "solver or scorer",
        "needs_hub": task.needs_hub,
    }
    arguments = task.node.args
    defaults = zip(arguments.args[::-1], arguments.defaults[::-1], strict=False)
    args = {argument.arg: ast.unparse(value) for argument, value in [*defaults][::-1]}
    keyword_only = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    args |= {argument.arg: ast.unparse(value) for argument, value in keyword_only if value}
    return NamedBenchmark(
        name,
        source,
        licence=licence,
        scorers=_scorer_names(task.argument("scorer")),
        args=args,
        **(facts | description),
    )


def _scorer_names(value: ast.expr | None) -> tuple[str, ...]:
    """Names of the called scorers, as in `[f1(), exact()]` or `scorer or verify()`."""
    nodes = value.elts if isinstance(value, ast.List | ast.Tuple) else [] if value is None else [value]
    nodes = [node.values[-1] if isinstance(node, ast.BoolOp) else node for node in nodes]
    return tuple(map(_called_name, nodes)) if all(isinstance(node, ast.Call) for node in nodes) else ()


def _called_name(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _decorator_name(decorator: ast.expr) -> str | None:
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    for keyword in keywords:
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str):
            return keyword.value.value
    return None
